"""Draws follow the declared law, and the same chi-square rejects samplers that are slightly wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from coco_opt.array_types import Floats, Ints
from coco_opt.privacy import RunKey, SecureNoise
from coco_opt.privacy.gaussian_sampler import gaussian_sampler
from coco_opt.privacy.keyed_stream import KeyedBits
from coco_opt.privacy.table_sampler import laplace_sampler
from tests.privacy.test_referees import DISTRIBUTIONS, Exactly, Name

SCALES = [Fraction(1, 7), Fraction(1), Fraction(10), Fraction(100), Fraction(1000), Fraction(10**6)]
PART = 5_000_000


class Bins:
    """Bins [e_i, e_(i+1)) with the probabilities of the law; each has 50 or more of n draws expected."""

    def __init__(self, distribution: Name, scale: float, n: int) -> None:
        width = max(1, int(scale) // 300)
        edges = np.arange(1, int(40 * scale) + 40, width, dtype=np.int64)
        upper = Exactly(distribution, scale).tail(edges)
        enough = upper[:-1] - upper[1:] > 50 / n
        edges, upper = edges[: int(enough.sum()) + 1], upper[: int(enough.sum()) + 1]
        self.edges = np.concatenate([1 - edges[::-1], edges])
        inner = upper[:-1] - upper[1:]
        self.probabilities = np.concatenate([upper[-1:], inner[::-1], [1 - 2 * upper[0]], inner, upper[-1:]])
        self.seen = np.zeros(len(self.probabilities))
        self.low_bits = np.zeros(256)

    def take(self, noise: Ints) -> None:
        places = np.searchsorted(self.edges, noise, side="right")
        self.seen += np.bincount(places, minlength=len(self.seen))
        self.low_bits += np.bincount(noise & 255, minlength=256)

    @property
    def p_value(self) -> float:
        return p_value(self.seen, self.probabilities)


def p_value(seen: Floats, probabilities: Floats) -> float:
    expected = seen.sum() * probabilities
    return float(chi2.sf(((seen - expected) ** 2 / expected).sum(), len(seen) - 1))


def binned(distribution: Name, scale: Fraction, n: int, draw: Callable[[int, int], Ints]) -> Bins:
    bins = Bins(distribution, float(scale), n)
    for start in range(0, n, PART):
        bins.take(draw(start, min(PART, n - start)))
    return bins


def secure_draws(distribution: Name, scale: Fraction) -> Callable[[int, int], Ints]:
    source = SecureNoise(RunKey(bytes(range(32))))
    labels = {"measurement": "test", "region": "us"}
    stream = source.stream(scale, **labels) if distribution == "laplace" else source.gaussian_stream(scale**2, **labels)
    return lambda start, n: stream.draw(n, start)


@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_draws_follow_the_law(distribution: Name, scale: Fraction) -> None:
    bins = binned(distribution, scale, 500_000, secure_draws(distribution, scale))
    assert bins.seen.sum() == 500_000
    assert bins.p_value > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_hundred_million_draws_follow_the_law(distribution: Name, scale: Fraction) -> None:
    bins = binned(distribution, scale, 100_000_000, secure_draws(distribution, scale))
    assert bins.p_value > 1e-3
    if scale >= 1000:  # the digits below the bins
        assert p_value(bins.low_bits, low_bits(distribution, float(scale))) > 1e-3


def low_bits(distribution: Name, scale: float) -> Floats:
    """Return P(X = r mod 256); the Gaussian's differ by exp(-2 pi^2 scale^2 / 256^2) from even ones."""
    if distribution == "gaussian":
        return np.full(256, 1 / 256)
    r = np.arange(256)
    probabilities = np.exp(-r / scale) + np.exp((r - 256) / scale)
    return probabilities / probabilities.sum()


def faulty_division(x: Fraction, k: int) -> Fraction:
    """Divide as the rational numbers under OpenDP 0.14.1 did: the denominator, not k, loses the common factor."""
    common = math.gcd(x.numerator, k)
    return Fraction(x.numerator // common, (x.denominator // common) * k)


def coin_of_exp(x: Fraction, divide: Callable[[Fraction, int], Fraction]) -> float:
    """Return the chance of CKS 2020, algorithm 1, to accept: flip coins x / k until one fails, k odd accepts."""
    probability, reached = 0.0, 1.0
    for k in range(1, 60):
        if not reached:
            break
        success = min(float(divide(x, k)), 1.0)
        probability += reached * (1 - success) * (k % 2)
        reached *= success
    return probability


def laplace_by_coins(scale: int, divide: Callable[[Fraction, int], Fraction], reach: int) -> Floats:
    """Return the law of CKS 2020, algorithm 2, on -reach..reach when its coins are made with ``divide``."""
    remainder = np.array([coin_of_exp(Fraction(u, scale), divide) for u in range(scale)])
    remainder /= remainder.sum()
    blocks = (1 - math.exp(-1)) * np.exp(-np.arange(-(-reach // scale) + 1))
    size = np.outer(blocks, remainder).ravel()[: reach + 1]
    masses = np.concatenate([size[:0:-1], size])
    return masses / masses.sum()


def table_p_value(masses: Floats, n: int, scale: int) -> float:
    reach = len(masses) // 2
    rng = np.random.default_rng(7)
    noise = rng.choice(np.arange(-reach, reach + 1), size=n, p=masses)
    return binned("laplace", Fraction(scale), n, lambda start, part: noise[start : start + part]).p_value


def test_the_chi_square_rejects_the_bias_of_opendp_0_14_1() -> None:
    # Reports: cmpute/dashu issues 55 and 57, opendp issue 2638 (rational division under the exponential coins).
    assert faulty_division(Fraction(2, 3), 4) == Fraction(1, 4)  # the reported -2/3 / 4, which is 1/6
    right = laplace_by_coins(10, lambda x, k: x / k, 300)
    wrong = laplace_by_coins(10, faulty_division, 300)
    a = math.exp(-0.1)
    np.testing.assert_allclose(right, (1 - a) / (1 + a) * a ** np.abs(np.arange(-300, 301)), rtol=1e-9)
    assert np.abs(wrong / right - 1).max() > 0.005
    assert table_p_value(right, 400_000, 10) > 1e-3
    assert table_p_value(wrong, 400_000, 10) < 1e-9


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_chi_square_rejects_a_scale_that_is_one_per_cent_small(distribution: Name) -> None:
    draw = secure_draws(distribution, Fraction(99, 10))
    assert binned(distribution, Fraction(10), 4_000_000, draw).p_value < 1e-9


class ShortBits(KeyedBits):
    """Sixteen bits a symbol and no more: what a sampler does that takes the table's word in undecided cells."""

    def more(self, cells: Ints, attempt: int, symbols: range, part: int = 0) -> NDArray[np.uint64]:
        return np.full((len(cells), len(symbols), 2), 2**63 + part, dtype=np.uint64)


@pytest.mark.slow
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_chi_square_rejects_a_sampler_of_sixteen_bits(distribution: Name) -> None:
    sampler = laplace_sampler(Fraction(10)) if distribution == "laplace" else gaussian_sampler(Fraction(100))

    def draw(start: int, n: int) -> Ints:
        noise = np.zeros(n, dtype=np.int64)
        sampler.add(noise, start, ShortBits(RunKey(bytes(range(32))), "short"))
        return noise

    assert binned(distribution, Fraction(10), 100_000_000, draw).p_value < 1e-9
