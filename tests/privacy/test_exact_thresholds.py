"""Certified thresholds equal an independent computation, and the tables say only what the thresholds say."""

from __future__ import annotations

import decimal
from bisect import bisect_left
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_opt.errors import ProblemError
from coco_opt.kernels.noise_tables import UNDECIDED
from coco_opt.privacy.gaussian_sampler import BlockGaussianSampler
from coco_opt.privacy.intervals import (
    UncertainFloorError,
    _series,
    certified,
    complement,
    divide,
    exp_neg,
    floor_bits,
    multiply,
)
from coco_opt.privacy.table_sampler import SymbolTables, laplace_sampler
from coco_opt.privacy.thresholds import (
    Gaussian,
    GeometricDigit,
    HalfGaussian,
    LaplaceBlocks,
    NoiseDistribution,
    _gaussian_tail,
)
from tests.privacy.exact_reference import CONTEXT, Decimal, exp, floor_of, gaussian_tails, laplace_tails

SCALES = [
    Fraction(text)
    for text in [
        "1/7",
        "1/3",
        "1/2",
        "2/3",
        "1",
        "3/2",
        "2",
        "7/2",
        "5",
        "7",
        "10",
        "41/3",
        "20",
        "50",
        "83",
        "100",
        "137",
        "200",
        "300",
        "500",
    ]
]
LARGE = [Fraction(1025), Fraction(10**4), Fraction(10**6, 7), Fraction(10**6), Fraction(2**40)]


@pytest.fixture(autouse=True)
def one_hundred_digits() -> Iterator[None]:
    with decimal.localcontext(CONTEXT):
        yield


def distributions(scale: Fraction) -> list[NoiseDistribution]:
    return [LaplaceBlocks(scale), Gaussian(scale**2)]


def all_distributions() -> list[NoiseDistribution]:
    large: list[NoiseDistribution] = []
    for scale in LARGE:
        large += laplace_sampler(scale).tables.distributions
        large += BlockGaussianSampler(scale**2).tables.distributions
    return [distribution for scale in SCALES for distribution in distributions(scale)] + large


def test_one_hundred_thousand_thresholds_equal_decimal_arithmetic() -> None:
    checked = 0
    for scale in SCALES:
        below, above = laplace_tails(scale)
        exact = LaplaceBlocks(scale).thresholds(64)
        for place, value in enumerate(exact.values):
            x = exact.first + place
            assert value == floor_of(below[-x - 1] if x < 0 else 1 - above[x], 64), (scale, x)
        checked += len(exact.values)
        gaussian = Gaussian(scale**2).thresholds(64)
        tails = gaussian_tails(scale**2)
        reach = -gaussian.first
        assert list(gaussian.values[:reach]) == [floor_of(tails[m - 1], 64) for m in range(reach, 0, -1)]
        assert list(gaussian.values[reach:]) == [floor_of(1 - tails[m - 1], 64) for m in range(1, reach + 1)]
        checked += len(gaussian.values)
    assert checked > 100_000


@pytest.mark.parametrize("scale", LARGE, ids=str)
def test_blocks_and_digits_of_large_scales_equal_decimal_arithmetic(scale: Fraction) -> None:
    blocks, *digits = laplace_sampler(scale).tables.distributions
    assert isinstance(blocks, LaplaceBlocks)
    below, above = laplace_tails(scale, blocks.block_bits)
    exact = blocks.thresholds(64)
    for place, value in enumerate(exact.values):
        x = exact.first + place
        assert value == floor_of(below[-x - 1] if x < 0 else 1 - above[x], 64)
    for digit in digits:
        assert isinstance(digit, GeometricDigit)
        step = Fraction(1 << digit.shift) / scale
        whole = 1 - exp(-step * (1 << digit.width))
        for d, value in enumerate(digit.thresholds(64).values):
            assert value == floor_of((1 - exp(-step * (d + 1))) / whole, 64)
    half = BlockGaussianSampler(scale**2).tables.distributions[0]
    assert isinstance(half, HalfGaussian)
    values = half.thresholds(64).values
    tails = gaussian_tails(half.variance, sides=1)
    assert list(values) == [floor_of(1 - tails[m], 64) for m in range(len(values))]


@pytest.mark.parametrize("bits", [1, 16, 128, 192])
@pytest.mark.parametrize("scale", [Fraction(1, 7), Fraction(10, 3), Fraction(10)], ids=str)
def test_thresholds_of_any_length_begin_alike_and_end_the_support(scale: Fraction, bits: int) -> None:
    for distribution in distributions(scale):
        exact = distribution.thresholds(bits)
        assert (exact.values[0], exact.values[-1]) == (0, 2**bits - 1)
        assert list(exact.values) == sorted(exact.values)
        longer = distribution.thresholds(bits + 64)
        for place, value in enumerate(exact.values):
            assert longer.values[exact.first + place - longer.first] >> 64 == value


def test_every_root_cell_says_what_all_its_numbers_decide() -> None:
    for distribution in all_distributions():
        exact = distribution.thresholds(64)
        tables = SymbolTables.of(distribution)
        places = [bisect_left(exact.values, cell << 48) for cell in range(2**16 + 1)]
        assert tables.cells[0].tolist() == places
        for cell, symbol in enumerate(tables.roots[0].tolist()):
            outcome = exact.first + places[cell]
            decided = places[cell] == places[cell + 1] and abs(outcome) < -UNDECIDED
            assert symbol == (outcome if decided else UNDECIDED)


def test_tables_of_several_laws_keep_apart() -> None:
    several = laplace_sampler(Fraction(10**6)).tables
    for number, distribution in enumerate(several.distributions):
        alone = SymbolTables.of(distribution)
        np.testing.assert_array_equal(several.roots[number], alone.roots[0])
        part = several.values[several.cells[number, 0] : several.cells[number, -1]]
        np.testing.assert_array_equal(part, alone.values)


def test_symbols_of_a_large_scale_multiply_to_the_law() -> None:
    # Exponents are compared as fractions: P(q) P(place | q) must be proportional to exp(-|x| / s).
    sampler = laplace_sampler(Fraction(5000))
    blocks, *digits = sampler.tables.distributions
    for x in [*range(-700, 700, 23), 12_345, -54_321]:
        q, place = x >> sampler.block_bits, x % (1 << sampler.block_bits)
        if q < 0:
            place = (1 << sampler.block_bits) - 1 - place
        mass = probability(blocks, q)
        for digit in digits:
            assert isinstance(digit, GeometricDigit)
            mass *= probability(digit, place >> digit.shift & ((1 << digit.width) - 1))
        a = exp(Fraction(-1, 5000))
        expected = (1 - a) / (1 + a) * exp(-Fraction(abs(x), 5000))
        assert abs(float(mass) / float(expected) - 1) < 1e-9


def probability(distribution: NoiseDistribution, x: int) -> Fraction:
    exact = distribution.thresholds(128)
    padded = (0, *exact.values, 2**128)
    return Fraction(padded[x - exact.first + 1] - padded[x - exact.first], 2**128)


@given(st.fractions(min_value=0, max_value=200), st.integers(20, 200))
def test_the_interval_of_exp_holds_it_and_is_narrow(x: Fraction, precision: int) -> None:
    low, high = exp_neg(x, precision)
    value = exp(-x) * (1 << precision)
    slack = value.scaleb(-90)  # of the reference
    assert low - slack <= value <= high + slack
    assert high - low <= 4


def attempt(distribution: NoiseDistribution, bits: int, precision: int) -> tuple[int, ...]:
    """Return what one computation at this precision certifies; raise UncertainFloorError where it cannot."""
    if isinstance(distribution, HalfGaussian | Gaussian):
        return tuple(
            _gaussian_tail(distribution.variance, 1 if isinstance(distribution, HalfGaussian) else 2, bits, precision)
        )
    assert isinstance(distribution, LaplaceBlocks | GeometricDigit)
    return distribution._thresholds(bits, precision).values


def test_too_little_precision_is_noticed_and_never_gives_a_wrong_floor() -> None:
    # So few bits to spare that an end rounded the wrong way, or a forgotten remainder, moves a floor.
    certain = uncertain = 0
    for third in range(1, 40):
        scale = Fraction(third, 3)
        for distribution in (
            LaplaceBlocks(scale),
            LaplaceBlocks(128 * scale, 5),
            GeometricDigit(128 * scale, 3, 4),
            Gaussian(scale),
            HalfGaussian(scale),
        ):
            for bits in (3, 7, 12):
                right = attempt(distribution, bits, bits + 64)
                for guard in range(1, 12):
                    try:
                        assert attempt(distribution, bits, bits + guard) == right, (distribution, bits, guard)
                        certain += 1
                    except UncertainFloorError:
                        uncertain += 1
    assert certain > 500
    assert uncertain > 500


@given(st.lists(st.integers(0, 40), min_size=4, max_size=4), st.integers(0, 6))
def test_ends_are_rounded_outwards(ends: list[int], precision: int) -> None:
    left, right = (min(ends[:2]), max(ends[:2])), (min(ends[2:]), max(ends[2:]))
    one = 1 << precision
    low, high = multiply(left, right, precision)
    assert low <= Fraction(left[0] * right[0], one)
    assert Fraction(left[1] * right[1], one) <= high
    if left[0] <= one:  # a probability
        assert complement(left, precision) == (max(one - left[1], 0), one - left[0])
    if right[0]:
        low, high = divide(left, right, precision)
        assert low <= Fraction(left[0] * one, right[1])
        assert Fraction(left[1] * one, right[0]) <= high


@given(st.fractions(min_value=0, max_value=Fraction(1, 2)), st.integers(1, 12))
def test_the_series_of_exp_holds_it_at_any_precision(y: Fraction, work: int) -> None:
    low, high = _series(y.numerator, y.denominator, work)
    value = exp(-y) * (1 << work)
    assert low - Decimal(10) ** -80 <= value <= high + Decimal(10) ** -80


def test_floors_are_given_only_where_they_are_certain() -> None:
    assert floor_bits((5 << 4 | 1, 5 << 4 | 15), 8, 4) == 5
    assert floor_bits((0, 15), 8, 4) == 0
    for interval in [(5 << 4, 5 << 4 | 1), (5 << 4 | 1, 6 << 4), (95, 97)]:
        with pytest.raises(UncertainFloorError):
            floor_bits(interval, 8, 4)
    with pytest.raises(UncertainFloorError):
        divide((1, 2), (0, 5), 8)


def test_precision_grows_until_the_floor_is_certain() -> None:
    tried: list[int] = []
    near = Fraction(7, 16) + Fraction(1, 2**70)  # 4 bits of it need more than 70

    def compute(precision: int) -> int:
        tried.append(precision)
        scaled = near * 2**precision
        return floor_bits((int(scaled) - 1, int(scaled) + 1), precision, 4)

    assert certified(compute, 4, guard=4) == 7
    assert tried == [8, 12, 20, 36, 68, 132]


def test_a_number_that_is_never_certain_is_refused() -> None:
    def half(precision: int) -> int:
        return floor_bits((1 << (precision - 1), (1 << (precision - 1)) + 1), precision, 4)

    with pytest.raises(ProblemError, match="certified"):
        certified(half, 4)
