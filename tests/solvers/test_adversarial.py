"""Hostile answers and extreme data: what a careless or lying backend could get past the certificates."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import numpy as np
import pytest
from coco_solvers.oracles import brute_force

from coco_opt import (
    ControlledRounding,
    GroupMatching,
    IsotonicL1,
    IsotonicL2,
    Problem,
    SimplexProjection,
    Solution,
    plugins,
    registry,
    solve,
)
from coco_opt.errors import ProblemError
from coco_opt.problems import Flow
from coco_opt.solution import Answer, Status
from coco_opt.solving import judge

ISOTONIC = (IsotonicL1, IsotonicL2)


def verdict(problem: Problem[Any, Any], value: Any, multipliers: Any = None) -> Solution[Any]:
    return judge(problem, Answer(value, Status.OPTIMAL, multipliers), "liar", 1e-9)


@pytest.mark.parametrize("kind", ISOTONIC)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, np.int8, np.float32])
def test_a_decrease_is_seen_in_any_number_type(kind: type[Any], dtype: type[Any]) -> None:
    solution = verdict(kind([100, 1, 2]), np.array([100, 1, 2], dtype=dtype))
    assert solution.status is Status.INFEASIBLE_POINT
    assert solution.violation == 99


def test_a_wrapping_short_integer_hides_no_decrease() -> None:
    assert verdict(IsotonicL1([100, -100]), np.array([100, -100], np.int8)).violation == 200


@pytest.mark.parametrize("kind", ISOTONIC)
@pytest.mark.parametrize("value", [[2**63 - 1, -(2**63)], [-(2**63), 2**63 - 1], [-(2**63), 0]])
def test_integers_whose_differences_wrap_around_prove_nothing(kind: type[Any], value: list[int]) -> None:
    for y in ([0, 0], [-1, 5], [0.5, 1.0]):
        solution = verdict(kind(y), np.array(value))
        assert not solution.ok
        assert solution.gap > 0
        assert (solution.violation > 0) == (value[0] > value[1])


@pytest.mark.parametrize("kind", ISOTONIC)
def test_an_infinite_gap_proves_nothing(kind: type[Any]) -> None:
    assert not verdict(kind([9, 10, 14]), np.array([-1e308, 10.0, 1e308])).ok


@pytest.mark.parametrize("kind", ISOTONIC)
@pytest.mark.parametrize("value", [np.array([True, False]), np.array([0, 0], object), np.array([1j, 2j])])
def test_what_is_no_vector_of_numbers_is_infeasible(kind: type[Any], value: Any) -> None:
    assert verdict(kind([1, 0]), value).status is Status.INFEASIBLE_POINT


@pytest.mark.parametrize("kind", ISOTONIC)
def test_integers_that_doubles_cannot_tell_apart_are_refused(kind: type[Any]) -> None:
    for y in ([2**53 + 1, 0], np.array([2**64 - 1, 1], np.uint64), [-(2**63), 0]):
        with pytest.raises(ProblemError, match=r"2\^53"):
            kind(y)
    for bounds in ({"lower": 1e300}, {"upper": -(2**60)}):
        with pytest.raises(ProblemError, match=r"2\^53"):
            kind([1, 2], **bounds)


@pytest.mark.parametrize("kind", ISOTONIC)
def test_numbers_whose_squares_leave_the_range_of_doubles_are_refused(kind: type[Any]) -> None:
    with pytest.raises(ProblemError, match="y must not exceed 1e\\+100 in magnitude"):
        kind([1e200, -3.0])
    for weights in ([1e200, 1.0], [1e-200, 1.0]):
        with pytest.raises(ProblemError, match="weights must lie between 1e-100 and 1e\\+100"):
            kind([2.0, 1.0], weights)
    assert solve(kind([1e100, -1e100], [1e100, 1e100])).gap <= 1e300


def test_block_sums_beyond_64_bits_are_fitted_right() -> None:
    y = np.repeat([10**13 + 2, 10**13], 500_000)
    solution = solve(IsotonicL2(y))
    assert (solution.value == 10**13 + 1).all()
    assert solution.objective == y.size


@pytest.mark.parametrize("size", [10**8, 10**11, 10**13])
def test_rounding_to_doubles_alone_fails_no_exact_fit(size: int) -> None:
    noise = np.random.default_rng(2).integers(-3, 4, 2_000)
    assert solve(IsotonicL2(size + np.arange(2_000) // 40 + noise)).ok


def test_a_mean_that_rounds_to_a_bound_keeps_its_certificate() -> None:
    for sign, bound in ((1, {"lower": 10**13}), (-1, {"upper": 10**13})):
        y, w = [10**13, 10**13], [1e6, 1e6]
        off = 0 if sign > 0 else 1
        y[off], w[off] = y[off] + sign, 0.5
        solution = solve(IsotonicL2(y, w, **bound), check=False)
        assert (solution.value == 10**13).all()
        assert 0 < solution.gap <= 1e-6


def test_a_problem_does_not_change_under_its_owner() -> None:
    y = np.array([2.0, 1.0])
    problem = IsotonicL2(y)
    y[0] = np.nan
    assert problem.y.tolist() == [2.0, 1.0]
    fixed = IsotonicL1([2, 1], ties="lower")
    with pytest.raises(dataclasses.FrozenInstanceError):
        fixed.ties = "upper"  # type: ignore[misc]
    assert dataclasses.replace(fixed, lower=0).ties == "lower"


def test_whole_answers_become_integers() -> None:
    rounded = verdict(ControlledRounding([0.25, 0.75], 1), np.array([0.0, 1.0]))
    assert rounded.ok
    assert rounded.value.dtype == np.int64
    flow = Flow(np.array([0, 1]), np.array([0, 1]), np.array([2.0, 2.0]))
    matched = verdict(MATCHING, flow)
    assert matched.ok
    assert matched.value.count.dtype == np.int64


MATCHING = GroupMatching([1, 5], [2, 2], [1, 5], [2, 2], [0, 2])


@pytest.mark.parametrize(
    ("parent", "child", "count"),
    [([0, 7], [1, 0], [2, 2]), ([0, -1], [0, 1], [2, 2]), ([0, 1], [0, 1], [np.nan, 2.0]), ([0, 1], [0, 1], [4])],
)
def test_a_malformed_flow_is_infeasible(parent: list[int], child: list[int], count: list[float]) -> None:
    flow = Flow(np.array(parent), np.array(child), np.array(count))
    solution = verdict(MATCHING, flow)
    assert solution.status is Status.INFEASIBLE_POINT
    assert solution.violation == np.inf


def test_a_flow_whose_sums_wrap_around_is_infeasible() -> None:
    runs, counts = np.array([0] * 5 + [1]), np.array([2**62] * 4 + [2, 2])
    solution = verdict(GroupMatching([1, 5], [2, 2], [1, 5], [2, 2], [0, 2]), Flow(runs, runs, counts))
    assert solution.violation >= 2.0**62


def test_a_matching_whose_cost_overflows_is_refused() -> None:
    with pytest.raises(ProblemError, match=r"2\^61"):
        GroupMatching([0], [3 * 10**9], [4 * 10**9], [3 * 10**9], [0, 1])
    with pytest.raises(ProblemError, match=r"2\^53"):
        GroupMatching([1], [2**62], [1], [2**62], [0, 1])


def test_rounding_to_doubles_alone_fails_no_exact_projection() -> None:
    y = [1228683719203421.0, 339620008248642.6, 423771352853347.25, 371227417736258.8]
    problem = SimplexProjection(y, 2363302498041669.5)
    assert solve(problem).gap <= problem.resolution
    assert not verdict(problem, problem.y[::-1].copy()).ok


@pytest.mark.parametrize("power", [1, 2])
def test_the_gap_bounds_the_exact_suboptimality(power: int) -> None:
    rng = np.random.default_rng(17 + power)
    for _ in range(150):
        problem = _random_isotonic(rng, ISOTONIC[power - 1])
        best = _exact(problem, getattr(brute_force, problem.kind)(problem), power)
        fitted = np.asarray(solve(problem, check=False).value, dtype=np.float64)
        shaken = np.sort(fitted + rng.normal(0, 1, fitted.size) * rng.choice([1e-6, 1.0, 10.0]))
        for x in (fitted, np.clip(shaken, problem.lower, problem.upper)):
            lam = rng.exponential(10.0 ** rng.uniform(-3, 9), x.size + 1)
            solution = verdict(problem, x, lam)
            exact = _exact(problem, solution.value, power)
            assert float(exact - best) <= solution.gap * (1 + 1e-9) + 1e-13 * float(exact)


def test_a_table_that_cannot_be_loaded_stops_no_other_solver(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = EntryPoint("other", "no_such_package.table:BACKENDS", registry.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [*entry_points(group=group), broken])
    assert registry.backends.__wrapped__() == registry.backends()
    assert "no_such_package" in caplog.text


def _random_isotonic(rng: np.random.Generator, kind: type[Any]) -> Any:
    n = int(rng.integers(1, 7))
    y = np.round(10.0 ** rng.integers(0, 14) + rng.normal(0, 3, n))
    weights = [None, rng.integers(1, 9, n), 10.0 ** rng.integers(-9, 17, n)][int(rng.integers(3))]
    lower = float(rng.choice([-np.inf, np.median(y) - 1]))
    upper = float(rng.choice([np.inf, lower if np.isfinite(lower) else y[0], y.max() + 1]))
    integral = bool(rng.integers(2))
    return kind(y.astype(np.int64) if integral else y, weights, lower=lower, upper=max(lower, upper))


def _exact(problem: Any, x: Any, power: int) -> Fraction:
    columns = (problem.dense_weights.tolist(), x.tolist(), problem.y.tolist())
    terms = (Fraction(w) * abs(Fraction(a) - Fraction(b)) ** power for w, a, b in zip(*columns, strict=True))
    return sum(terms, Fraction(0))
