"""Pooling against the min-max formula and SciPy, whole and streamed, and its certificate."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from coco_opt.errors import ProblemError
from coco_opt.kernels import isotonic_l2 as l2
from coco_opt.kernels import isotonic_l2_certificate as certificate

Data = NDArray[Any]


def min_max(y: list[int], w: list[int]) -> list[Fraction]:
    """Return x_k = min over j >= k of max over i <= j of mean(y[i..j]), exactly (Hay et al. 2010, theorem 1)."""
    n, lengths = len(y), [0, *accumulate(w)]
    sums = [0, *accumulate(a * b for a, b in zip(y, w, strict=True))]

    def mean(i: int, j: int) -> Fraction:
        return Fraction(sums[j + 1] - sums[i], lengths[j + 1] - lengths[i])

    return [min(max(mean(i, j) for i in range(j + 1)) for j in range(k, n)) for k in range(n)]


def maximal_starts(x: list[Fraction]) -> list[int]:
    return [0, *(i for i in range(1, len(x)) if x[i] != x[i - 1]), len(x)]


def objective(x: Data, y: Data, w: Data | None = None) -> float:
    return float(np.sum((1.0 if w is None else w) * (x - y) ** 2))


def instances() -> dict[str, Data]:
    rng = np.random.default_rng(7)
    n = 20_000

    def noise(scale: float = 1.0) -> Data:
        p = 1 - np.exp(-1 / scale)
        return rng.geometric(p, n) - rng.geometric(p, n)

    return {
        "sizes": np.sort(rng.geometric(0.4, n)) + noise(),
        "counts": np.cumsum(rng.poisson(20 * np.exp(-np.arange(n) / 800))) + noise(),
        "slope": np.arange(n) + noise(2.0),
        "flat": 7 + noise(),
        "ties": np.sort(rng.integers(0, 3, n)) + rng.integers(-1, 2, n),
        "sorted": np.arange(n),
        "descending": np.arange(n)[::-1].copy(),
        "zigzag": np.arange(n) ^ 1,
        "huge": np.sort(rng.integers(0, 10**13, n)) + 10**9 * noise(),
        "equal": np.full(n, 3),
    }


INSTANCES = instances()
each_instance = pytest.mark.parametrize("y", INSTANCES.values(), ids=INSTANCES.keys())
small = st.lists(st.integers(-6, 6), min_size=1, max_size=24)


@pytest.mark.parametrize(
    ("y", "x"),
    [([9, 10, 14], [9, 10, 14]), ([9, 14, 10], [9, 12, 12]), ([14, 9, 10, 15], [11, 11, 11, 15])],
)
def test_examples_of_hay_et_al(y: list[int], x: list[int]) -> None:
    assert l2.fit(np.array(y)).tolist() == x
    assert l2.fit(np.array(y, float)).tolist() == x


def blocks(y: Data) -> tuple[Data, Data]:
    """Return where a stream's blocks begin, and their means."""
    stream = l2.BlockStream()
    stream.push(y)
    sums, lengths = stream.blocks()
    return np.append(0, np.cumsum(lengths)), sums / lengths


@given(small)
def test_blocks_are_the_min_max_solution_and_maximal(y: list[int]) -> None:
    exact = min_max(y, [1] * len(y))
    starts, means = blocks(np.array(y))
    assert starts.tolist() == maximal_starts(exact)
    assert means.tolist() == [float(exact[i]) for i in starts[:-1]]


@given(st.lists(st.integers(10**17, 10**17 + 9), min_size=9, max_size=40))
def test_integers_beyond_double_precision_are_pooled_exactly(y: list[int]) -> None:
    rounded = [float(v) for v in min_max(y, [1] * len(y))]
    assert l2.fit(np.array(y)).tolist() == pytest.approx(rounded, rel=1e-15)


@pytest.mark.parametrize("span", [2**41, 2**55])
@given(st.data())
def test_wide_integers_are_pooled_exactly(span: int, data: st.DataObject) -> None:
    y = data.draw(st.lists(st.integers(-span, span), min_size=9, max_size=30))
    exact = min_max(y, [1] * len(y))
    assert blocks(np.array(y))[0].tolist() == maximal_starts(exact)


def test_long_blocks_of_huge_integers_do_not_overflow() -> None:
    y = INSTANCES["flat"][:2048]
    starts, means = blocks(y)
    huge_starts, huge_means = blocks(y * 2**49)
    np.testing.assert_array_equal(huge_starts, starts)
    np.testing.assert_array_equal(huge_means, means * 2.0**49)


@given(st.lists(st.tuples(st.integers(-6, 6), st.integers(1, 5)), min_size=1, max_size=20))
def test_weighted_blocks_are_the_min_max_solution(pairs: list[tuple[int, int]]) -> None:
    y, w = [p[0] for p in pairs], [p[1] for p in pairs]
    exact = min_max(y, w)
    assert l2.fit(np.array(y), np.array(w)).tolist() == [float(value) for value in exact]


@each_instance
def test_agrees_with_scipy(y: Data) -> None:
    peer = isotonic_regression(y.astype(float)).x
    np.testing.assert_allclose(l2.fit(y), peer, rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(l2.fit(y), l2.fit(y.astype(float)))


@each_instance
def test_weighted_agrees_with_scipy_and_with_repetition(y: Data) -> None:
    w = np.random.default_rng(1).integers(1, 4, y.size)
    np.testing.assert_allclose(l2.fit(y, w), isotonic_regression(y.astype(float), weights=w).x, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(np.repeat(l2.fit(y, w), w), l2.fit(np.repeat(y, w)), rtol=1e-13, atol=1e-13)


@each_instance
@pytest.mark.parametrize("piece", [1, 1000, 2049])
def test_streaming_gives_what_pooling_at_once_gives(y: Data, piece: int) -> None:
    y = y[: 3000 if piece == 1 else None]
    stream = l2.BlockStream(capacity=4)
    for begin in range(0, y.size, piece):
        stream.push(y[begin : begin + piece])
    sums, lengths = stream.blocks()
    np.testing.assert_array_equal(np.repeat(sums / lengths, lengths), l2.fit(y))


@given(st.lists(st.integers(-(2**59), 2**59), min_size=2, max_size=12) | small.filter(lambda y: len(y) > 1))
def test_halves_are_pooled_to_the_same_blocks(y: list[int]) -> None:
    data = np.array(y)
    expected = l2.fit(data), l2.fit(data, lo=-4.0, hi=5.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(l2, "_MANY", 2)
        halves = l2.fit(data), l2.fit(data, lo=-4.0, hi=5.0)
    np.testing.assert_array_equal(expected, halves)


def test_a_stream_holds_memory_for_blocks_not_for_values() -> None:
    rng = np.random.default_rng(0)
    stream = l2.BlockStream()
    for _ in range(50):
        stream.push(rng.integers(0, 9, 4000))
    assert stream._sums.size < 20_000
    assert stream.blocks()[1].sum() == 200_000


@each_instance
@pytest.mark.parametrize("bounds", [(-np.inf, np.inf), (2.0, np.inf), (-np.inf, 5.0), (2.5, 6.5), (4.0, 4.0)])
def test_certificate_closes_at_the_optimum(y: Data, bounds: tuple[float, float]) -> None:
    x = l2.fit(y, None, *bounds)
    lam = certificate.multipliers(x, y, None, *bounds)
    assert lam.shape == (y.size + 1,)
    assert (lam >= 0).all()
    # At 1e13 the rounding of x itself costs about (1e-3)^2 an entry.
    floor = y.size * float(np.spacing(np.abs(y).max() + 1.0)) ** 2
    assert 0.0 <= certificate.gap(x, y, None, *bounds) <= 1e-12 * objective(x, y) + floor


@given(
    st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 5)), min_size=1, max_size=14),
    st.integers(-5, 5),
    st.integers(0, 6),
    st.integers(0, 2**30),
)
def test_gap_bounds_the_true_loss_of_any_feasible_point(
    pairs: list[tuple[int, int]], lo: int, width: int, seed: int
) -> None:
    y, w = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs], float)
    hi, rng = lo + width, np.random.default_rng(seed)
    best = l2.fit(y, w, lo, hi)
    assert 0.0 <= certificate.gap(best, y, w, lo, hi) <= 1e-12 * (1 + objective(best, y, w))
    other = np.clip(np.maximum.accumulate(best + rng.integers(-1, 2, y.size)), lo, hi)
    lost = objective(other, y, w) - objective(best, y, w)
    for lam in (
        certificate.multipliers(other, y, w, lo, hi),
        certificate.multipliers(best, y, w, lo, hi),
        rng.random(y.size + 1),
    ):
        assert certificate.gap(other, y, w, lo, hi, lam) >= lost - 1e-9
    optimal_lam = certificate.multipliers(best, y, w, lo, hi)
    assert certificate.gap(other, y, w, lo, hi, optimal_lam) == pytest.approx(lost, abs=1e-9)


def test_multipliers_at_an_infinite_bound_certify_nothing() -> None:
    assert certificate.gap(np.zeros(2), np.zeros(2), lam=np.array([1.0, 1.0, 1.0])) == np.inf


def test_empty_and_single() -> None:
    assert l2.fit(np.zeros(0)).size == 0
    assert certificate.gap(np.zeros(0), np.zeros(0)) == 0.0
    assert certificate.multipliers(np.zeros(0), np.zeros(0)).tolist() == [0.0]
    assert l2.fit(np.array([5]), None, 0, 3).tolist() == [3]


def test_input_is_not_written() -> None:
    y = np.array([3.0, 1.0, 2.0])
    l2.fit(y)
    l2.fit(y, np.ones(3))
    assert y.tolist() == [3, 1, 2]


@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan])
def test_weights_must_be_positive(weight: float) -> None:
    with pytest.raises(ProblemError, match="positive weights"):
        l2.fit(np.arange(3), np.array([1.0, weight, 1.0]))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ProblemError, match="integers"):
        l2.BlockStream().push(np.ones(3))
    with pytest.raises(ProblemError, match="one weight"):
        l2.fit(np.ones(3), np.ones(2))


pairs = st.lists(st.tuples(st.integers(-1, 5), st.integers(1, 3)), min_size=1, max_size=6)


@given(pairs, st.integers(0, 2**30), st.booleans(), st.booleans())
def test_one_pass_judges_any_point_as_the_passes_one_by_one(
    pairs: list[tuple[int, int]], seed: int, bounded: bool, weighted: bool
) -> None:
    y, w = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs], float) if weighted else None
    lo, hi = (0.5, 3.0) if bounded else (-np.inf, np.inf)
    rng = np.random.default_rng(seed)
    best = l2.fit(y, w, lo, hi)
    for step in (0.0, 1e-13, 1e-3, 1.0):
        moved = np.maximum.accumulate(best + step * rng.integers(-1, 2, y.size))
        x = np.clip(moved, lo, hi)
        violation, lost, gap = certificate.judge(x, y, w, lo, hi)
        assert violation == 0.0
        assert lost == pytest.approx(objective(x, y, w), abs=1e-12)
        assert gap == pytest.approx(certificate.gap(x, y, w, lo, hi), rel=1e-9, abs=1e-24)
        assert certificate.judge(moved, y, w, lo, hi)[0] == max(0.0, lo - moved[0], moved[-1] - hi)
    best[-1] -= 5.0
    falls = -float(np.diff(best).min(initial=0.0))
    assert certificate.judge(best, y, w, lo, hi)[0] == max(0.0, falls, lo - best[0], best[-1] - hi)
    best[rng.integers(y.size)] = np.nan
    assert certificate.judge(best, y, w, lo, hi)[0] == np.inf


def test_one_pass_certifies_long_blocks() -> None:
    for name in ("sizes", "slope", "flat", "ties", "descending"):
        y = INSTANCES[name]
        x = l2.fit(y)
        _, lost, gap = certificate.judge(x, y)
        assert gap <= 1e-12 * lost + 1e-9
        x[y.size // 3 :] += 0.01
        assert certificate.judge(x, y)[2] >= objective(x, y) - lost - 1e-9 > 0.0
