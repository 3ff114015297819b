"""The p = 1 kernel against brute force and the heap, both tie rules, and its certificate."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest
from coco_experiments.bench.isotonic import heap_fit
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from coco_opt import IsotonicL1, solve
from coco_opt.errors import ProblemError
from coco_opt.kernels import isotonic_l1 as l1
from coco_opt.kernels import isotonic_l1_certificate as certificate
from coco_opt.solution import Answer, Status
from coco_opt.solving import judge
from tests.kernels.test_isotonic_l2 import INSTANCES, each_instance

Data = NDArray[Any]
both_ties = pytest.mark.parametrize("upper", [True, False])


def objective(x: Data, y: Data, w: Data | None = None) -> float:
    return float(np.sum((1.0 if w is None else w) * np.abs(x - y)))


def brute_force(y: Data, w: Data, lo: int, hi: int, upper: bool) -> list[int]:
    """Return the componentwise largest or smallest of all optimal monotone integer sequences in lo..hi."""
    feasible = np.array(list(combinations_with_replacement(range(lo, hi + 1), y.size)))
    costs = (w * np.abs(feasible - y)).sum(axis=1)
    optima = feasible[costs == costs.min()]
    return list(optima.max(axis=0) if upper else optima.min(axis=0))


pairs = st.lists(st.tuples(st.integers(-1, 5), st.integers(1, 3)), min_size=1, max_size=5)


@both_ties
@given(pairs)
def test_matches_brute_force(upper: bool, pairs: list[tuple[int, int]]) -> None:
    y, w = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])
    unit = np.ones_like(w)
    assert l1.fit(y, upper=upper).tolist() == brute_force(y, unit, -1, 5, upper)
    assert l1.fit(y, 1, 3, upper=upper).tolist() == brute_force(y, unit, 1, 3, upper)
    assert l1.fit_weighted(y, w, upper=upper).tolist() == brute_force(y, w, -1, 5, upper)
    assert l1.fit_weighted(y, w, 1, 3, upper=upper).tolist() == brute_force(y, w, 1, 3, upper)


@each_instance
def test_agrees_with_the_heap_on_both_ties(y: Data) -> None:
    lower, upper = heap_fit(y), -heap_fit(-y[::-1])[::-1]
    np.testing.assert_array_equal(l1.fit(y, upper=False), lower)
    np.testing.assert_array_equal(l1.fit(y, upper=True), upper)
    np.testing.assert_array_equal(l1.fit_weighted(y, np.ones(y.size), upper=False), lower)
    np.testing.assert_array_equal(l1.fit_weighted(y, np.full(y.size, 3.0), upper=True), upper)


@both_ties
@given(st.integers(0, 2**30), st.sampled_from([2, 6, 100, 10**6, 2**40]), st.integers(100, 700))
def test_random_segments_agree_with_the_heap(upper: bool, seed: int, span: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    y = rng.integers(-span, span + 1, n) + np.arange(n) * int(rng.integers(-1, 2)) * span // n
    peer = -heap_fit(-y[::-1])[::-1] if upper else heap_fit(y)
    np.testing.assert_array_equal(l1.fit(y, upper=upper), peer)
    lo, hi = np.sort(rng.integers(-span, span + 1, 2)).tolist()
    np.testing.assert_array_equal(l1.fit(y, lo, hi, upper=upper), np.clip(peer, lo, hi))


@both_ties
def test_real_values_are_fitted_by_rank(upper: bool) -> None:
    rng = np.random.default_rng(6)
    y = rng.integers(0, 40, 500) + np.arange(500) // 25
    w = rng.integers(1, 4, 500)
    shifted = y / 8 - 3.0
    np.testing.assert_array_equal(l1.fit_real(shifted, upper=upper), l1.fit(y, upper=upper) / 8 - 3.0)
    np.testing.assert_array_equal(
        l1.fit_real(shifted, w, -2.0, 0.0, upper=upper), l1.fit_weighted(y, w, 8, 24, upper=upper) / 8 - 3.0
    )


@each_instance
@both_ties
@pytest.mark.parametrize("bounds", [(None, None), (2, None), (None, 5), (3, 6), (4, 4)])
def test_certificate_closes_at_both_ends_of_the_optima(
    y: Data, upper: bool, bounds: tuple[int | None, int | None]
) -> None:
    lo, hi = bounds
    x = l1.fit(y, lo, hi, upper=upper)
    limits = -np.inf if lo is None else lo, np.inf if hi is None else hi
    lam = certificate.multipliers(x, y, None, *limits)
    assert (lam >= 0).all()
    assert (np.abs(np.diff(lam)) <= 1).all()
    assert certificate.gap(x, y, None, *limits) == 0.0
    assert certificate.gap((x + l1.fit(y, lo, hi, upper=False)) / 2, y, None, *limits) == 0.0


@given(pairs, st.integers(0, 2**30), st.booleans())
def test_gap_bounds_the_true_loss_of_any_feasible_point(pairs: list[tuple[int, int]], seed: int, bounded: bool) -> None:
    y, w = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs], float)
    lo, hi = (0, 3) if bounded else (-np.inf, np.inf)
    rng = np.random.default_rng(seed)
    best = np.clip(l1.fit_weighted(y, w), lo, hi)
    other = np.clip(np.maximum.accumulate(best + rng.integers(-1, 2, y.size)), lo, hi)
    lost = objective(other, y, w) - objective(best, y, w)
    rebuilt = certificate.multipliers(other, y, w, lo, hi)
    projected = certificate.project_multipliers(rng.normal(scale=5, size=y.size + 1), w, lo, hi)
    for lam in (rebuilt, projected):
        assert (lam >= 0).all()
        assert (np.abs(np.diff(lam)) <= w + 1e-12).all()
        assert bounded or (lam[0] == lam[-1] == 0)
        assert certificate.gap(other, y, w, lo, hi, lam) >= max(lost, 0.0) - 1e-9
    assert certificate.gap(best, y, w, lo, hi) == 0.0
    optimal_lam = certificate.multipliers(best, y, w, lo, hi)
    assert certificate.gap(other, y, w, lo, hi, optimal_lam) == pytest.approx(lost, abs=1e-9)


@both_ties
@pytest.mark.parametrize(("y", "w"), [([0, -2], [0.3, 0.1]), ([1, 1, 0, 1, -2, -1], [0.1, 0.2, 0.3, 0.1, 0.1, 0.2])])
def test_weights_that_round_are_proved_below_a_far_bound(y: list[int], w: list[float], upper: bool) -> None:
    lo, hi = 0.1, 2.0**53  # what 0.1 + 0.3 - 0.3 - 0.1 leaves, times so far a bound, would be a gap of a quarter
    data, weights = np.array(y), np.array(w)
    x = l1.fit_real(data, weights, lo, hi, upper=upper)
    lam = certificate.multipliers(x, data, weights, lo, hi)
    assert (np.abs(np.diff(lam)) <= weights + 1e-15).all()
    assert certificate.judge(x, data, weights, lo, hi)[2] <= 1e-15


def test_projection_keeps_valid_multipliers() -> None:
    y = INSTANCES["flat"]
    lam = certificate.multipliers(l1.fit(y), y)
    np.testing.assert_array_equal(certificate.project_multipliers(lam), lam)
    assert (certificate.project_multipliers(np.full(4, np.nan)) == 0).all()


@both_ties
def test_extreme_input(upper: bool) -> None:
    assert l1.fit(np.zeros(0, np.int64), upper=upper).size == 0
    assert certificate.gap(np.zeros(0), np.zeros(0)) == 0.0
    assert l1.fit(np.array([5]), upper=upper).tolist() == [5]
    assert l1.fit(np.array([5]), 0, 3, upper=upper).tolist() == [3]
    assert l1.fit(np.array([5, 4]), 7, 9, upper=upper).tolist() == [7, 7]
    assert l1.fit(np.array([5, 4]), None, 2, upper=upper).tolist() == [2, 2]
    big = np.array([10**13, 3 * 10**13, 2 * 10**13])
    assert l1.fit(big, upper=upper).tolist() == [10**13] + 2 * [(3 if upper else 2) * 10**13]
    exponents = np.tile(2 ** np.arange(61), 20)
    assert certificate.gap(l1.fit(exponents, upper=upper), exponents) == 0.0


def test_bad_input_is_refused() -> None:
    with pytest.raises(ProblemError, match="feasible"):
        l1.fit(np.arange(3), 5, 2)
    with pytest.raises(ProblemError, match="feasible"):
        l1.fit_real(np.ones(3), lo=5, hi=2)
    with pytest.raises(ProblemError, match="positive weight"):
        l1.fit_weighted(np.arange(3), np.array([1, 0, 1]))
    with pytest.raises(ProblemError, match="span"):
        l1.fit(np.array([-(2**62), 2**62]))


@pytest.mark.parametrize("dtype", [np.float64, np.uint64])
def test_values_that_are_no_int64_are_refused(dtype: type[Any]) -> None:
    y = np.array([2, 1], dtype)
    with pytest.raises(ProblemError, match="fit in int64"):
        l1.fit(y)
    with pytest.raises(ProblemError, match="fit in int64"):
        l1.fit_weighted(y, np.ones(2))


@given(pairs, st.integers(0, 2**30), st.booleans(), st.booleans())
def test_one_pass_judges_any_point_as_the_passes_one_by_one(
    pairs: list[tuple[int, int]], seed: int, bounded: bool, weighted: bool
) -> None:
    y, given_weights = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs], float)
    w, (lo, hi) = given_weights if weighted else None, (0, 3) if bounded else (-np.inf, np.inf)
    rng = np.random.default_rng(seed)
    best = np.clip(l1.fit(y) if w is None else l1.fit_weighted(y, w), lo, hi)
    moved = np.maximum.accumulate(best + rng.integers(-1, 2, y.size))
    for x in (best, np.clip(moved, lo, hi), np.clip(moved - 0.5, lo, hi)):
        violation, lost, gap = certificate.judge(x, y, w, lo, hi)
        assert (violation, lost) == (0.0, objective(x, y, w))
        assert gap == certificate.gap(x, y, w, lo, hi)
    # Corrupted answers: an optimum moved without a reason has a gap, one out of order or bounds a violation.
    assert certificate.judge(moved, y, w, lo, hi)[0] == max(0.0, lo - moved[0], moved[-1] - hi)
    fallen = best.astype(float)
    fallen[-1] -= 2.0
    least = max(0.0, lo - fallen[0], fallen[-1] - hi, -np.diff(fallen).min(initial=0.0))
    assert certificate.judge(fallen, y, w, lo, hi)[0] == least
    fallen[rng.integers(y.size)] = np.nan
    assert certificate.judge(fallen, y, w, lo, hi)[0] == np.inf


def test_a_point_a_few_digits_off_an_optimum_is_proved_and_a_worse_one_is_not() -> None:
    rng = np.random.default_rng(20)
    for case in range(60):
        n, scale = int(rng.integers(1, 40)), 10.0 ** rng.integers(-2, 7)
        y = scale * rng.normal(size=n) + rng.choice([0.0, 1e3])
        w = rng.gamma(1.0, size=n) + 1e-3 if case % 2 else None
        lo, hi = np.quantile(y, [0.2, 0.8]) if case % 3 else (-np.inf, np.inf)
        problem = IsotonicL1(y, w, lower=lo, upper=hi)
        best = solve(problem)
        digits = rng.integers(-3, 4, n) * np.spacing(np.abs(y).max())
        near = np.maximum.accumulate(best.value + digits).clip(lo, hi)
        verdict = judge(problem, Answer(near, Status.OPTIMAL), "near", 1e-9)
        assert verdict.ok
        assert (verdict.value == near).all()  # the point itself was judged, and none in its place
        far = np.append(best.value[:-1], best.value[-1] + 1e-3 * problem.scale).clip(lo, hi)
        verdict = judge(problem, Answer(far, Status.OPTIMAL), "far", 1e-9)
        excess = verdict.objective - best.objective
        assert verdict.gap >= excess * (1 - 1e-9)
        assert verdict.ok == (excess <= 1e-9 * max(1.0, best.objective))


@pytest.mark.parametrize("seed", range(60))
def test_an_optimum_without_multipliers_is_proved(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = 10.0 ** rng.integers(-1, 3) * rng.normal(size=int(rng.integers(2, 12)))
    bounds = {"lower": 0.0, "upper": float(np.abs(y).max() / 2)} if seed % 2 else {}
    assert solve(IsotonicL1(y, **bounds), "scipy-milp").ok
