"""Joint estimation: equal to HiGHS and PIQP, certified by any prices, and the same for every number of threads."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from coco_solvers.generic.highs import HiGHS
from coco_solvers.generic.piqp import PIQP
from coco_solvers.structured.joint import AlternatingDirections
from hypothesis import given
from hypothesis import strategies as st

from coco_opt import IsotonicL1, IsotonicL2, TreeLeastSquares, solve
from coco_opt.errors import ProblemError, SolverError, UnknownSolverError
from coco_opt.kernels import joint_rounds
from coco_opt.problems.joint import JointFit, JointL1, JointL2
from coco_opt.problems.tree import Tree
from coco_opt.solution import Answer, Solution, Status
from coco_opt.solving import judge
from tests.joint.helpers import TREES, instance, noisy_tables

TIGHT = 1e-7


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("kind", [JointL1, JointL2])
def test_a_smaller_tolerance_is_kept(kind: type[JointFit], name: str) -> None:
    assert solve(instance(kind, name), AlternatingDirections(tolerance=TIGHT)).relative_gap <= TIGHT


def _unlike_levels(kind: type[JointFit], noisy: int, ratio: float) -> JointFit:
    """Return three levels of which one has many times the noise of the others."""
    rng, depth = np.random.default_rng(1), np.array([0, 1, 1, 2, 2, 2, 2, 2])
    tree = Tree([-1, 0, 0, 1, 1, 2, 2, 2])
    truth = np.zeros((8, 31), np.int64)
    for v in range(7, 0, -1):
        if v > 2:
            truth[v] = np.bincount(rng.geometric(0.1, size=300).clip(0, 30), minlength=31).cumsum()
        truth[tree.parent[v]] += truth[v]
    scale = np.where(depth == noisy, 10.0 * ratio, 10.0)
    table = np.rint(truth[:, :30] + rng.laplace(size=(8, 30)) * scale[:, None])
    return kind(tree, table, truth[:, 30], scale ** (-1.0 if kind is JointL1 else -2.0))


@pytest.mark.parametrize("noisy", [0, 1, 2])
@pytest.mark.parametrize("kind", [JointL1, JointL2])
def test_levels_of_unlike_noise_are_fitted(kind: type[JointFit], noisy: int) -> None:
    problem = _unlike_levels(kind, noisy, 100.0 if kind is JointL1 else 1e5)
    solution = solve(problem)
    exact = solve(problem, HiGHS() if kind is JointL1 else PIQP(), tolerance=1e-3, check=False)
    assert solution.objective <= exact.objective * (1 + 2e-3)


@given(st.integers(0, 10_000), st.sampled_from(sorted(TREES)), st.sampled_from([JointL1, JointL2]))
def test_the_default_gap_bounds_the_distance_to_the_optimum(seed: int, name: str, kind: type[JointFit]) -> None:
    problem = instance(kind, name, seed, cells=9)
    rough = solve(problem, AlternatingDirections())
    exact = solve(problem, HiGHS() if kind is JointL1 else PIQP(), tolerance=1e-5)
    assert rough.ok
    assert rough.violation <= 1e-9 * problem.scale
    assert rough.objective - exact.objective <= rough.gap + 1e-9
    assert rough.objective >= exact.objective - exact.gap - 1e-9


@pytest.mark.parametrize("kind", [JointL1, JointL2])
@pytest.mark.parametrize("step", [0.5, 3.0])
def test_a_corrupted_point_is_not_certified(kind: type[JointFit], step: float) -> None:
    problem = instance(kind, "three levels")
    solver = AlternatingDirections(tolerance=1e-6)
    answer = solver.solve(problem)
    assert answer.value is not None
    best = solve(problem, solver)
    worse = problem.repair(answer.value + step * np.sin(np.arange(problem.y.shape[1])))
    assert problem.objective(worse) > best.objective * (1 + 1e-3)
    verdict = judge(problem, Answer(worse, Status.OPTIMAL, answer.multipliers), "liar", 1e-6)
    assert verdict.status is Status.GAP_TOO_LARGE
    assert verdict.gap >= problem.objective(worse) - best.objective - 1e-9


@cache
def _solved(kind: type[JointFit]) -> tuple[JointFit, Solution[Any]]:
    problem = instance(kind, "three levels", cells=7)
    return problem, solve(problem, AlternatingDirections(tolerance=1e-6))


@given(st.integers(0, 10_000), st.sampled_from([JointL1, JointL2]), st.floats(0.01, 100.0))
def test_any_prices_give_a_bound(seed: int, kind: type[JointFit], spread: float) -> None:
    problem, best = _solved(kind)
    rng = np.random.default_rng(seed)
    prices = problem.admissible(rng.normal(0.0, spread, problem.y.shape))
    point = problem.repair(problem.y + rng.normal(0.0, 3.0, problem.y.shape))
    for x in (point, best.value):
        assert problem.gap(x, prices) >= problem.objective(x) - best.objective - 1e-9
        assert problem.gap(x, problem.multipliers(x)) >= problem.objective(x) - best.objective - 1e-9


@given(st.integers(0, 10_000), st.sampled_from([JointL1, JointL2]))
def test_the_best_completion_never_loosens_a_bound(seed: int, kind: type[JointFit]) -> None:
    problem = instance(kind, "uneven", cells=8)
    rng = np.random.default_rng(seed)
    raw = rng.uniform(-1.0, 1.0, problem.y.shape) * problem.weights[:, None]
    point = problem.repair(problem.y)
    assert problem.gap(point, problem.tightened(raw)) <= problem.gap(point, raw) + 1e-9


@pytest.mark.parametrize("wrong", [np.zeros(3), np.full((8, 24), np.nan), np.full((8, 24), np.inf)])
def test_wrong_multipliers_are_replaced(wrong: Any) -> None:
    problem = instance(JointL1, "three levels")
    point = problem.repair(problem.y)
    gap = problem.gap(point, problem.admissible(wrong))
    assert np.isfinite(gap)
    assert gap >= problem.objective(point) - solve(problem, AlternatingDirections()).objective - 1e-9


@pytest.mark.parametrize("kind", [JointL1, JointL2])
def test_threads_do_not_change_a_bit(kind: type[JointFit]) -> None:
    problem = instance(kind, "three levels", cells=301)
    first, again, three = (AlternatingDirections(threads=threads).solve(problem) for threads in (1, 1, 3))
    for second in (again, three):
        assert first.iterations == second.iterations
        np.testing.assert_array_equal(first.value, second.value)
        np.testing.assert_array_equal(first.multipliers, second.multipliers)


@pytest.mark.parametrize(("kind", "alone"), [(JointL1, IsotonicL1), (JointL2, IsotonicL2)])
def test_one_region_is_isotonic_regression(kind: type[JointFit], alone: Any) -> None:
    _, y, groups, _ = noisy_tables([-1], 60, 5)
    fitted = solve(kind([-1], y, groups), AlternatingDirections(tolerance=1e-7))
    assert fitted.objective == pytest.approx(solve(alone(y[0], lower=0, upper=int(groups[0]))).objective, rel=1e-6)


def test_without_binding_order_it_is_tree_least_squares() -> None:
    tree, _, groups, _ = noisy_tables(TREES["three levels"], 1, 3)
    groups = groups + 2_000 * tree.sums(np.where(tree.is_leaf, 1, 0))
    middle = groups / 2 + np.random.default_rng(3).normal(0.0, 5.0, tree.nodes)
    fitted = solve(JointL2(tree, middle[:, None], groups), AlternatingDirections(tolerance=1e-10))
    expected = solve(TreeLeastSquares(tree, middle)).value
    np.testing.assert_allclose(fitted.value[:, 0], expected, atol=1e-3)


@pytest.mark.parametrize("kind", [JointL1, JointL2])
def test_unmeasured_levels_have_no_say(kind: type[JointFit]) -> None:
    tree, y, groups, _ = noisy_tables(TREES["three levels"], 20, 7)
    weights = tree.is_leaf.astype(np.float64)
    first = solve(kind(tree, y, groups, weights), AlternatingDirections(tolerance=1e-7))
    changed = np.where(tree.is_leaf[:, None], y, 1e5)
    second = solve(kind(tree, changed, groups, weights), AlternatingDirections(tolerance=1e-7))
    assert first.objective == pytest.approx(second.objective, rel=1e-6)


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


def test_polishing_ends_although_no_gap_is_small_enough() -> None:
    problem = instance(JointL1, "three levels")
    rough = AlternatingDirections(tolerance=1e-2, level_tolerance=np.inf).solve(problem)
    polished = AlternatingDirections(tolerance=1e-2, level_tolerance=0.0).solve(problem)
    assert rough.iterations is not None
    assert polished.iterations is not None
    assert polished.status is Status.OPTIMAL
    assert polished.iterations <= 4 * max(rough.iterations, 10)


def test_displacement_is_the_distance_to_the_nearest_sums() -> None:
    tree, y, _, _ = noisy_tables(TREES["uneven"], 7, 3)
    own, share = joint_rounds.pass_weights(tree.first_child, np.ones(tree.nodes))
    far = joint_rounds.displacement(tree.first_child, tree.parent, own, share, y, 3)
    nearest = np.column_stack([solve(TreeLeastSquares(tree, column)).value for column in y.T])
    np.testing.assert_allclose(far, np.abs(nearest - y).mean(axis=1), atol=1e-9)
