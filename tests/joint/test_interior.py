"""Joint estimation from sums by an interior point: where buckets differ by level, and counts and budgets by far."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from coco_solvers.generic.highs import HiGHS
from coco_solvers.generic.piqp import PIQP
from coco_solvers.structured.joint_covariances import TreeSystem
from coco_solvers.structured.joint_interior import TreeInteriorPoint
from coco_solvers.structured.joint_sums import AlternatingSums

from coco_opt import IsotonicL2, solve
from coco_opt.errors import SolverError, UnknownSolverError
from coco_opt.problems.joint_sums import JointSums, JointSumsL1, JointSumsL2
from coco_opt.solution import Status
from tests.joint.helpers import TREES, grown_instance, sums_instance

KINDS = [JointSumsL1, JointSumsL2]

HARD: dict[str, dict[str, Any]] = {
    "two levels": {"fans": (4,), "growths": (0.1, 0.5)},
    "four levels": {"fans": (2, 2, 2), "growths": (0.05, 0.1, 0.3, 0.5)},
    "five levels": {"fans": (2, 1, 2, 2), "growths": (0.05, 0.05, 0.1, 0.3, 0.5)},
    "single sizes above": {"fans": (2, 3), "growths": (0.0, 0.2, 0.5)},
    "single sizes below": {"fans": (2, 3), "growths": (0.5, 0.2, 0.0)},
    "buckets that cross": {"fans": (3, 2), "growths": (0.35, 0.2, 0.5)},
    "few groups": {"fans": (3, 3), "growths": (0.05, 0.2, 0.5), "groups": 20},
    "a million groups": {"fans": (2, 2, 2), "growths": (0.05, 0.1, 0.3, 0.5), "groups": 10**6},
    "little budget": {"fans": (2, 3), "growths": (0.05, 0.2, 0.5), "epsilon": 0.1},
    "much budget": {"fans": (2, 3), "growths": (0.05, 0.2, 0.5), "epsilon": 10.0},
    "most for the leaves": {"fans": (2, 3), "growths": (0.05, 0.2, 0.5), "shares": (1.0, 1.0, 18.0)},
    "most for the root": {"fans": (2, 3), "growths": (0.05, 0.2, 0.5), "shares": (18.0, 1.0, 1.0)},
    "root not asked": {"fans": (2, 3), "growths": (0.05, 0.2, 0.5), "shares": (0.0, 1.0, 1.0)},
    "leaves not asked": {"fans": (2, 3), "growths": (0.05, 0.2, 0.5), "shares": (1.0, 1.0, 0.0)},
    "empty regions": {"fans": (3, 3), "growths": (0.05, 0.2, 0.5), "empty": 0.6},
    "all sizes alike": {"fans": (2, 2, 2), "growths": (0.05, 0.1, 0.3, 0.5), "spread": 0.0},
    "one size": {"fans": (2, 2, 2), "growths": (0.05, 0.1, 0.3, 0.5), "spread": 40.0},
}


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("kind", KINDS)
def test_hard_families_are_certified(kind: type[JointSums], name: str) -> None:
    problem = grown_instance(kind, **HARD[name])
    solution = solve(problem, TreeInteriorPoint(tolerance=1e-4))
    assert solution.violation <= 1e-9 * problem.scale
    exact = solve(problem, HiGHS() if kind is JointSumsL1 else PIQP(), check=False)
    assert solution.objective >= exact.objective - exact.gap - 1e-6 * max(1.0, exact.objective)
    assert solution.objective <= exact.objective + solution.gap + 1e-6 * max(1.0, exact.objective)


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_smaller_tolerance_is_kept(kind: type[JointSums], name: str) -> None:
    problem = sums_instance(kind, name)
    fine = solve(problem, TreeInteriorPoint(tolerance=1e-7))
    exact = solve(problem, HiGHS() if kind is JointSumsL1 else PIQP())
    assert fine.relative_gap <= 1e-7
    assert exact.objective - exact.gap - 1e-9 <= fine.objective <= exact.objective + fine.gap + 1e-9


@pytest.mark.parametrize("case", [*TREES, "no groups in some", "not all measured"])
def test_elimination_along_the_tree_solves_the_dense_system(case: str) -> None:
    rng = np.random.default_rng(5)
    problem = sums_instance(JointSumsL1, case if case in TREES else "uneven", 3, 9)
    if case == "no groups in some":
        problem = grown_instance(JointSumsL1, (2, 3), (0.1, 0.3, 1.0), max_size=12, empty=0.5, seed=2)
    if case == "not all measured":
        problem = grown_instance(JointSumsL1, (2, 3), (0.1, 0.3, 1.0), max_size=12, shares=(0.0, 1.0, 2.0))
    leaves = np.flatnonzero(problem.tree.is_leaf & (problem.groups > 0))
    spread = 10.0 ** rng.uniform(-3.0, 3.0, (leaves.size, problem.widths.size + 1))
    theta = 10.0 ** rng.uniform(-2.0, 2.0, problem.starts.size)
    counts = problem.begins.sum(axis=1)
    live = np.repeat((problem.weights > 0.0) & (problem.groups > 0), counts)
    dense = np.diag(theta)
    for leaf, own in zip(leaves, spread, strict=True):
        # The covariance of partial sums of independent increments, given their total.
        covariance = np.diag(own) - np.outer(own, own) / own.sum()
        rows = np.tril(np.ones((own.size, own.size)))[:-1]
        queries = np.zeros((problem.starts.size, problem.widths.size))
        path = {int(leaf)}
        while min(path) > 0:
            path.add(int(problem.tree.parent[min(path)]))
        lengths = np.diff(problem.starts, append=problem.y.size)
        region, cell = np.divmod(np.arange(problem.y.size), problem.widths.size)
        answer = np.repeat(np.arange(problem.starts.size), lengths)
        on = np.isin(region, list(path))
        queries[answer[on], cell[on]] = problem.widths[cell[on]]
        dense += queries @ rows @ covariance @ rows.T @ queries.T
    right = rng.normal(size=theta.size)
    expected = np.zeros(theta.size)
    expected[live] = np.linalg.solve(dense[np.ix_(live, live)], right[live])
    system = TreeSystem(problem, leaves)
    system.factor(spread, theta)
    np.testing.assert_allclose(np.where(live, system.solve(np.where(live, right, 0.0)), 0.0), expected, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_what_takes_too_much_is_left_to_the_splitting(kind: type[JointSums]) -> None:
    problem = sums_instance(kind, "three levels")
    split = AlternatingSums().solve(problem)
    for solver in (TreeInteriorPoint(work=0.0), TreeInteriorPoint(numbers=0.0)):
        answer = solver.solve(problem)
        assert answer.iterations == split.iterations
        np.testing.assert_array_equal(answer.value, split.value)


@pytest.mark.parametrize("kind", KINDS)
def test_each_is_asked_where_the_other_misses(kind: type[JointSums]) -> None:
    problem = sums_instance(kind, "three levels")
    for light in (0.0, np.inf):
        assert solve(problem, TreeInteriorPoint(light=light, max_iter=2)).ok
        assert solve(problem, TreeInteriorPoint(light=light, rounds=20)).ok
    least = solve(problem, AlternatingSums(1e-9, max_iter=20), check=False)
    both = solve(problem, TreeInteriorPoint(1e-9, max_iter=2, rounds=20), check=False)
    assert both.status is Status.ITERATION_LIMIT
    assert 0.0 < both.gap <= least.gap


def test_too_few_iterations_are_reported() -> None:
    with pytest.raises(SolverError, match="ITERATION_LIMIT"):
        solve(sums_instance(JointSumsL1, "three levels"), TreeInteriorPoint(tolerance=1e-9, max_iter=2, rounds=20))
    with pytest.raises(UnknownSolverError, match="answers joint estimation"):
        TreeInteriorPoint().solve(IsotonicL2([1, 2]))


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_problem_has_the_same_bits(kind: type[JointSums]) -> None:
    problem = grown_instance(kind, (2, 2), (0.1, 0.2, 0.5))
    first, second = (TreeInteriorPoint().solve(problem) for _ in range(2))
    np.testing.assert_array_equal(first.value, second.value)
    np.testing.assert_array_equal(first.multipliers, second.multipliers)
