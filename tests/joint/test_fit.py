"""Joint estimation: equal to HiGHS and PIQP, certified by any prices, and the same for every number of threads.

Rows made monotone from an earlier round's runs, and rounds that no cut of the work changes.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from coco_solvers.generic.highs import HiGHS
from coco_solvers.generic.piqp import PIQP
from coco_solvers.structured.joint import AlternatingDirections
from hypothesis import given
from hypothesis import strategies as st

from coco_opt import IsotonicL2, solve
from coco_opt.array_types import Floats
from coco_opt.errors import ProblemError, SolverError, UnknownSolverError
from coco_opt.kernels import joint_rounds, joint_rows
from coco_opt.problems.joint import JointFit, JointL1, JointL2
from tests.joint.helpers import TREES, instance, noisy_tables

TIGHT = 1e-7


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("kind", [JointL1, JointL2])
def test_a_smaller_tolerance_is_kept(kind: type[JointFit], name: str) -> None:
    assert solve(instance(kind, name), AlternatingDirections(tolerance=TIGHT)).relative_gap <= TIGHT


@given(st.integers(0, 10_000), st.sampled_from(sorted(TREES)), st.sampled_from([JointL1, JointL2]))
def test_the_default_gap_bounds_the_distance_to_the_optimum(seed: int, name: str, kind: type[JointFit]) -> None:
    problem = instance(kind, name, seed, cells=9)
    rough = solve(problem, AlternatingDirections())
    exact = solve(problem, HiGHS() if kind is JointL1 else PIQP(), tolerance=1e-5)
    assert rough.ok
    assert rough.violation <= 1e-9 * problem.scale
    assert rough.objective - exact.objective <= rough.gap + 1e-9
    assert rough.objective >= exact.objective - exact.gap - 1e-9


@given(st.integers(0, 10_000), st.sampled_from([JointL1, JointL2]))
def test_the_best_completion_never_loosens_a_bound(seed: int, kind: type[JointFit]) -> None:
    problem = instance(kind, "uneven", cells=8)
    rng = np.random.default_rng(seed)
    raw = rng.uniform(-1.0, 1.0, problem.y.shape) * problem.weights[:, None]
    point = problem.repair(problem.y)
    assert problem.gap(point, problem.tightened(raw)) <= problem.gap(point, raw) + 1e-9


@pytest.mark.parametrize("kind", [JointL1, JointL2])
def test_threads_do_not_change_a_bit(kind: type[JointFit]) -> None:
    problem = instance(kind, "three levels", cells=301)
    first, again, three = (AlternatingDirections(threads=threads).solve(problem) for threads in (1, 1, 3))
    for second in (again, three):
        assert first.iterations == second.iterations
        np.testing.assert_array_equal(first.value, second.value)
        np.testing.assert_array_equal(first.multipliers, second.multipliers)


@pytest.mark.parametrize("kind", [JointL1, JointL2])
def test_exact_data_come_back(kind: type[JointFit]) -> None:
    tree, _, groups, true = noisy_tables(TREES["uneven"], 30, 2)
    solution = solve(kind(tree, true, groups), AlternatingDirections())
    np.testing.assert_allclose(solution.value, true, atol=1e-6)


def test_too_few_rounds_are_reported() -> None:
    problem = instance(JointL1, "three levels")
    with pytest.raises(SolverError, match="ITERATION_LIMIT"):
        solve(problem, AlternatingDirections(tolerance=1e-12, max_iter=3))
    with pytest.raises(UnknownSolverError, match="joint_l1"):
        AlternatingDirections().solve(IsotonicL2([1, 2]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([-1, 0], [[1.0], [2.0], [3.0]], [1, 1]), "one row for each"),
        (([-1, 0], [[1.0], [np.nan]], [1, 1]), "finite"),
        (([-1, 0, 0], np.zeros((3, 2)), [3, 1, 1]), "sum of its children"),
        (([-1, 0], np.zeros((2, 2)), [1.0, 1.0]), "nonnegative integer"),
        (([-1, 0], np.zeros((2, 2)), [1, 1], [1.0, -1.0]), "nonnegative"),
        (([-1, 0], np.zeros((2, 2)), [1, 1], 0.0), "not all zero"),
        (([-1, 0], np.zeros((2, 2)), [1, 1], [1.0, 1e-310]), "rescale"),
    ],
)
def test_wrong_data_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        JointL1(*arguments)


DEGENERATE: dict[str, tuple[list[int], int, int, list[float] | float]] = {
    "one region and one cell": ([-1], 1, 1, 1.0),
    "one cell": (TREES["three levels"], 1, 1, 1.0),
    "no groups": (TREES["three levels"], 12, 0, 1.0),
    "counts of 10^11": (TREES["three levels"], 12, 10**11, 1.0),
    "weights of 10^12": (TREES["three levels"], 12, 1, 1e12),
    "levels 10^4 apart": (TREES["three levels"], 12, 1, [1e4, 1.0, 1.0, *[1e-4] * 5]),
    "only the root": (TREES["three levels"], 12, 1, [1.0, *[0.0] * 7]),
    "only one region inside": (TREES["three levels"], 12, 1, [0.0, 2.0, *[0.0] * 6]),
    "only one leaf": (TREES["three levels"], 12, 1, [*[0.0] * 7, 2.0]),
    "a long chain": ([-1, *range(40)], 12, 1, 1.0),
    "a broad star": ([-1, *[0] * 60], 4, 1, 1.0),
}


@pytest.mark.parametrize("name", DEGENERATE)
@pytest.mark.parametrize("kind", [JointL1, JointL2])
def test_degenerate_problems_are_solved_and_certified(kind: type[JointFit], name: str) -> None:
    parent, cells, factor, weights = DEGENERATE[name]
    tree, y, groups, _ = noisy_tables(parent, cells, 4)
    problem = kind(tree, y * max(factor, 1), groups * factor, weights)
    fast = solve(problem, AlternatingDirections())
    exact = solve(problem, HiGHS() if kind is JointL1 else PIQP(), check=False)
    assert fast.violation <= 1e-9 * problem.scale
    assert fast.objective <= exact.objective + fast.gap + 1e-9 * abs(exact.objective)
    assert fast.objective >= exact.objective - exact.gap - 1e-9 * abs(exact.objective)


@pytest.mark.parametrize("kind", [JointL1, JointL2])
def test_upper_levels_are_not_left_loose(kind: type[JointFit]) -> None:
    tree, y, groups, _ = noisy_tables([-1, *[0] * 120], 30, 6)
    problem = kind(tree, y, groups)
    loose = solve(problem, AlternatingDirections(tolerance=1e-2, level_tolerance=np.inf))
    tight = solve(problem, AlternatingDirections(tolerance=1e-2, level_tolerance=1e-2))
    assert tight.gap <= 1e-2 / 121 * tight.objective
    assert tight.gap <= (0.5 if kind is JointL1 else 1.0) * loose.gap
    assert problem.losses(tight.value).sum() == pytest.approx(tight.objective)


def pooled(c: Floats, top: float) -> Floats:
    """Return the nearest nondecreasing row within [0, top], cell by cell from scratch."""
    near = np.empty((1, c.size))
    joint_rounds.monotone(c[None], c[None], np.zeros(1), np.ones(c.size), np.array([top]), 0, 1, near)
    return near[0]


def pooled_again(c: Floats, m: Floats, top: float) -> Floats:
    """Return the same from the runs of another row."""
    near = m.copy()
    scratch = np.empty(c.size), np.empty(c.size, np.int64), np.empty(c.size + 1), np.empty(c.size, np.int64)
    joint_rows.monotone_again(c, near, top, *scratch)
    return near


@given(st.integers(0, 10_000), st.integers(1, 200), st.integers(0, 12), st.floats(0.0, 30.0), st.floats(0.0, 3.0))
def test_any_earlier_row_leads_to_the_nearest_one(seed: int, cells: int, runs: int, rise: float, noise: float) -> None:
    rng, top = np.random.default_rng(seed), 10.0
    c = np.linspace(-2.0, -2.0 + rise, cells) + rng.normal(0.0, noise, cells)
    earlier = np.clip(np.sort(rng.normal(5.0, 6.0, runs + 1))[np.sort(rng.integers(0, runs + 1, cells))], 0.0, top)
    np.testing.assert_allclose(pooled_again(c, earlier, top), pooled(c, top), atol=1e-9)


@pytest.mark.parametrize("top", [0.0, 3.0, 100.0])
def test_a_run_that_bends_everywhere_is_cut_to_single_cells(top: float) -> None:
    steep = np.exp(np.linspace(0.0, 20.0, 500)) * 1e-6  # each cut leaves all but a few cells on one side
    for c in (steep, -steep[::-1], np.arange(500.0), -np.arange(500.0)):
        np.testing.assert_allclose(pooled_again(c, np.full(500, min(2.0, top)), top), pooled(c, top), atol=1e-9)
        np.testing.assert_allclose(pooled_again(c, np.full(500, top), top), pooled(c, top), atol=1e-9)


def test_small_steps_on_large_counts_are_not_lost() -> None:
    c = 1e9 + np.random.default_rng(1).normal(0.0, 1.0, 5_000)
    np.testing.assert_allclose(pooled_again(c, np.full(5_000, 1e9 - 7.0), 2e9), pooled(c, 2e9), atol=1e-5)


@pytest.mark.parametrize("kind", [JointL1, JointL2])
def test_many_siblings_are_cut_into_runs_of_the_same_sums(kind: type[JointFit]) -> None:
    tree, y, groups, _ = noisy_tables([-1, 0, 0, *[1] * 70, *[2] * 40], 30, 3)
    problem = kind(tree, y, groups)
    one, four = (AlternatingDirections(threads=threads).solve(problem) for threads in (1, 4))
    np.testing.assert_array_equal(one.value, four.value)
    assert solve(problem, AlternatingDirections(tolerance=1e-6)).relative_gap <= 1e-6


@pytest.mark.parametrize("kind", [JointL1, JointL2])
@pytest.mark.parametrize("name", ["one region", "uneven", "three levels"])
def test_tightening_in_place_is_tightening_and_its_gap(kind: type[JointFit], name: str) -> None:
    problem = instance(kind, name)
    raw = np.random.default_rng(2).normal(0.0, 1.0, problem.y.shape)
    point = problem.repair(problem.y)
    with ThreadPoolExecutor(2) as pool:
        prices = raw.copy()
        gap = problem.tighten(prices, point, pool)
        np.testing.assert_array_equal(prices, problem.tightened(raw))
        assert gap == pytest.approx(problem.gap(point, prices), rel=1e-12)
        assert gap > 0.0
