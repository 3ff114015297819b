"""Rounding of cumulative tables: what holds for every input, against exhaustive search and HiGHS."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from coco_solvers.generic.highs import HiGHS
from coco_solvers.structured.joint import UnitSchedules
from hypothesis import given
from hypothesis import strategies as st

from coco_opt import solve
from coco_opt.errors import ProblemError, UnknownSolverError
from coco_opt.kernels import joint_leaves, joint_rounding
from coco_opt.problems.cumulative_rounding import CumulativeRounding
from coco_opt.problems.isotonic import IsotonicL2
from tests.joint.helpers import fractional_family
from tests.solvers.oracles import best_schedule

families = st.tuples(st.integers(0, 100_000), st.integers(1, 5), st.integers(1, 12))


def problem_of(family: tuple[int, int, int]) -> CumulativeRounding:
    return CumulativeRounding(*fractional_family(*family))


@given(families, st.sampled_from([0.5, 1.0]), st.booleans(), st.integers(0, 20))
def test_every_schedule_is_whole_in_order_and_additive(
    family: tuple[int, int, int], part: float, wait: bool, sweeps: int
) -> None:
    problem = problem_of(family)
    rows = joint_rounding.schedule(problem.x, problem.parent, problem.groups, part, wait)
    assert problem.violation(rows) == 0.0
    before = problem.objective(rows)
    joint_rounding.improve(problem.x, problem.groups, rows, sweeps)
    assert problem.violation(rows) == 0.0
    assert problem.objective(rows) <= before


@given(families)
def test_earliest_deadlines_stay_within_one_of_a_half_up_parent(family: tuple[int, int, int]) -> None:
    problem = problem_of(family)
    rows = joint_rounding.schedule(problem.x, problem.parent, problem.groups, 1.0, wait=True)
    assert np.abs(rows - problem.x).max() < 1.0


@given(families, st.integers(0, 100))
def test_any_parent_is_met(family: tuple[int, int, int], seed: int) -> None:
    rows, _, groups = fractional_family(*family)
    rng = np.random.default_rng(seed)
    parent = np.sort(rng.integers(0, groups.sum() + 1, rows.shape[1]))
    solution = solve(CumulativeRounding(rows, parent, groups), UnitSchedules(exact_cells=0), check=False)
    assert solution.violation == 0.0
    assert solution.value.dtype == np.int64


@given(st.tuples(st.integers(0, 100_000), st.integers(1, 3), st.integers(1, 5)))
def test_distance_and_bound_enclose_the_optimum(family: tuple[int, int, int]) -> None:
    problem = problem_of(family)
    best = best_schedule(problem)
    fast = solve(problem, UnitSchedules(exact_cells=0), check=False)
    assert fast.objective >= best - 1e-9
    assert fast.objective - fast.gap <= best + 1e-9
    exact = solve(problem, HiGHS(), tolerance=1e-6)
    assert exact.objective == pytest.approx(best, abs=1e-6)


def test_the_fast_path_is_near_the_exact_one() -> None:
    fast, exact = 0.0, 0.0
    for seed in range(12):
        problem = problem_of((seed, 4, 30))
        fast += solve(problem, UnitSchedules(exact_cells=0), check=False).objective
        exact += solve(problem, HiGHS(), tolerance=1e-6).objective
    assert exact - 1e-6 <= fast <= 1.02 * exact


@pytest.mark.parametrize("seed", range(4))
def test_the_exact_path_takes_over_where_prices_prove_too_little(seed: int) -> None:
    problem = problem_of((seed, 4, 30))
    solution = solve(problem, UnitSchedules(tolerance=1e-6, max_iter=1))
    assert solution.ok
    assert solution.objective == pytest.approx(solve(problem, HiGHS(), tolerance=1e-6).objective, abs=1e-6)


@given(families, st.integers(0, 1000))
def test_price_steps_only_raise_the_bound(family: tuple[int, int, int], seed: int) -> None:
    problem = problem_of(family)
    top = problem.groups.astype(np.float64)
    integers = joint_rounding.schedule(problem.x, problem.parent, problem.groups, 0.5, wait=False)
    cost = problem.objective(integers)
    start = np.random.default_rng(seed).uniform(-1.0, 1.0, problem.parent.size)
    prices = start.copy()
    joint_leaves.raise_prices(problem.x, problem.parent, top, cost, cost, 40, prices)
    assert problem.gap(integers, prices) <= problem.gap(integers, start) + 1e-9
    assert problem.gap(integers, prices) >= -1e-9


def test_half_even_parents_can_have_no_schedule_within_one() -> None:
    rows = np.array([[0.5, 0.5, 1.0], [1.0, 2.0, 2.0]])
    half_up = joint_rounding.schedule(rows, np.array([2, 3, 3]), np.array([1, 2]), 1.0, wait=True)
    assert np.abs(half_up - rows).max() < 1.0
    half_even = solve(CumulativeRounding(rows, [2, 2, 3], [1, 2]), UnitSchedules(), check=False)
    assert np.abs(half_even.value - rows).max() >= 1.0


@pytest.mark.parametrize("short", [0, 1, 3])
@pytest.mark.parametrize(("part", "wait"), [(1.0, True), (0.5, False)])
def test_large_counts_stay_together_where_the_parent_is_a_little_short(short: int, part: float, wait: bool) -> None:
    rows = np.array([[2e12 + 0.5, 4e12], [1e12 + 0.25, 3e12]])
    parent = np.array([3 * 10**12 + 1 - short, 7 * 10**12 - short])
    integers = joint_rounding.schedule(rows, parent, np.array([4 * 10**12, 3 * 10**12]), part, wait)
    np.testing.assert_array_equal(integers.sum(axis=0), parent)
    assert np.abs(integers - rows).max() <= 1 + short


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[2.0, 1.0]], [1, 1], [3]), "nondecreasing"),
        (([[1.0, 4.0]], [1, 4], [3]), "between 0"),
        (([[1.0, 2.0]], [2, 1], [3]), "parent must be nondecreasing"),
        (([[1.0, 2.0]], [1, 4], [3]), "parent must be nondecreasing"),
        (([[1.0, 2.0]], [1.0, 2.0], [3]), "integers"),
        (([[1.0, np.inf]], [1, 2], [3]), "finite"),
        (([[1.0, 2.0]], [1], [3]), "one entry a cell"),
    ],
)
def test_wrong_data_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        CumulativeRounding(*arguments)


def test_another_problem_is_refused() -> None:
    with pytest.raises(UnknownSolverError, match="cumulative_rounding"):
        UnitSchedules().solve(IsotonicL2([1, 2]))
