"""What the problem says of any point; its fast solver against exhaustive search and HiGHS, never below the optimum."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from coco_solvers.generic.highs import HiGHS
from coco_solvers.oracles.brute_force import BruteForce
from coco_solvers.structured.expected_distance import CellByCell
from numpy.typing import NDArray

from coco_opt import ExpectedDistance, IsotonicL1, Marginals, Status, Tree, solve
from coco_opt.errors import ProblemError, UnknownSolverError
from coco_opt.forms import QuadraticProgram

TREES = {
    "one region": [-1],
    "a chain": [-1, 0, 1],
    "two levels": [-1, 0, 0, 0],
    "three levels": [-1, 0, 0, 1, 1],
    "uneven": [-1, 0, 0, 1, 1, 3, 3],
}


def groups_of(tree: Tree, leaves: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return every region's groups, given its leaves'."""
    groups = np.zeros(tree.nodes, np.int64)
    groups[tree.is_leaf] = leaves
    return np.asarray(tree.sums(groups))


def unrelated(parent: list[int], cells: int, seed: int, most: int = 2, points: int = 3) -> ExpectedDistance:
    """Return marginals that have nothing to do with each other: the order and the sums bind everywhere."""
    rng, tree = np.random.default_rng(seed), Tree(parent)
    groups = groups_of(tree, rng.integers(0, most + 1, int(tree.is_leaf.sum())))
    places = rng.integers(-1, groups[:, None, None] + 2, (tree.nodes, cells, points))
    return ExpectedDistance(tree, groups, Marginals.from_points(places, rng.integers(0, 4, places.shape)))


def sampled(parent: list[int], cells: int, seed: int, draws: int = 9, most: int = 12) -> ExpectedDistance:
    """Return the marginals of consistent tables, as a posterior's draws are: around one table, each a little off."""
    rng, tree = np.random.default_rng(seed), Tree(parent)
    leaves, size = np.flatnonzero(tree.is_leaf), rng.integers(0, most + 1, int(tree.is_leaf.sum()))
    samples = np.zeros((draws, tree.nodes, cells), np.int64)
    for leaf, count in zip(leaves, size, strict=True):
        sizes = rng.integers(0, cells + 1, count)
        for sample in samples:
            near = np.clip(sizes + rng.integers(-2, 3, count), 0, cells)
            sample[leaf] = np.bincount(near, minlength=cells + 1)[:cells].cumsum()
    for v in range(tree.nodes - 1, 0, -1):
        samples[:, tree.parent[v]] += samples[:, v]
    return ExpectedDistance(tree, groups_of(tree, size), Marginals.from_samples(samples))


def with_a_gap() -> ExpectedDistance:
    """Return R = {M, c}, M = {a, b}, three cells: 3 by half groups, 4 by whole ones; -1 stands for no cost."""
    count = np.array([[1, -1, 2], [-1, 1, -1], [1, -1, 0], [0, 1, 0], [1, 0, 1]])
    marginals = Marginals.from_points(np.maximum(count, 0)[..., None], (count >= 0).astype(np.int64)[..., None])
    return ExpectedDistance([-1, 0, 0, 1, 1], [3, 2, 1, 1, 1], marginals)


def feasible(problem: ExpectedDistance, seed: int) -> NDArray[np.int64]:
    """Return any whole consistent table."""
    rng, table = np.random.default_rng(seed), np.zeros(problem.marginals.shape, np.int64)
    for v in np.flatnonzero(problem.tree.is_leaf):
        table[v] = np.sort(rng.integers(0, problem.groups[v] + 1, table.shape[1]))
    return np.asarray(problem.tree.sums(table))


def test_the_objective_is_the_expected_distance() -> None:
    rng = np.random.default_rng(1)
    samples = rng.integers(0, 9, (7, 3, 4))
    problem = ExpectedDistance([-1, 0, 0], [16, 8, 8], Marginals.from_samples(samples))
    table = feasible(problem, 2)
    assert problem.objective(table) == pytest.approx(np.abs(samples - table).sum(axis=(1, 2)).mean())
    assert problem.objective(table + 0.25) == pytest.approx(np.abs(samples - table - 0.25).sum(axis=(1, 2)).mean())
    assert problem.objective(table - 30) == pytest.approx(np.abs(samples - table + 30).sum(axis=(1, 2)).mean())


def test_weights_are_probabilities_of_the_heaviest_cell_or_of_total() -> None:
    points, weights = [[[0, 4], [2, 2]]], [[[3, 1], [2, 0]]]
    marginals = Marginals.from_points(points, weights)
    np.testing.assert_array_equal(marginals.totals, [4, 2])
    table = np.array([[1, 2]])
    assert ExpectedDistance([-1], [5], marginals).objective(table) == (3 * 1 + 1 * 3) / 4
    assert ExpectedDistance([-1], [5], marginals, total=12).objective(table) == (3 * 1 + 1 * 3) / 12


def test_points_are_sorted_and_equal_ones_joined() -> None:
    marginals = Marginals.from_points([[[5, 1, 5, 2]], [[3, 3, 3, 3]]], [1, 1, 2, 0])
    np.testing.assert_array_equal(marginals.offsets, [0, 2, 3])
    np.testing.assert_array_equal(marginals.atoms, [1, 5, 3])
    np.testing.assert_array_equal(marginals.weights, [1, 3, 4])
    samples = np.random.default_rng(3).integers(0, 5, (6, 2, 3))
    moved = Marginals.from_points(np.moveaxis(samples, 0, 2))
    np.testing.assert_array_equal(Marginals.from_samples(samples).atoms, moved.atoms)


def test_violation_names_every_constraint() -> None:
    problem = sampled(TREES["three levels"], 5, 3)
    table = feasible(problem, 1)
    assert problem.violation(table) == 0.0
    for change, size in (((0, 0, 1), 1.0), ((3, 4, 500), 300.0), ((3, 0, -500), 300.0), ((4, 2, 0.5), 0.5)):
        v, i, by = change
        moved = table.astype(np.float64)
        moved[v, i] += by
        assert problem.violation(moved) >= size
    assert problem.violation(table[:, :-1]) == np.inf
    assert problem.violation(np.full(table.shape, np.nan)) == np.inf


@pytest.mark.parametrize("name", TREES)
def test_repair_makes_any_point_whole_and_consistent(name: str) -> None:
    problem = sampled(TREES[name], 9, 4)
    repaired = feasible(problem, 5)
    assert problem.repair(repaired) is repaired
    for seed in range(20):
        rng = np.random.default_rng(seed)
        near = problem.repair(repaired + rng.normal(0.0, 2.0, repaired.shape))
        assert problem.violation(near) == 0.0
        np.testing.assert_array_equal(problem.repair(repaired + rng.uniform(-1e-8, 1e-8, repaired.shape)), repaired)
    wrong = np.zeros((1, 1))
    assert problem.repair(wrong) is wrong


def test_rebuilt_prices_prove_an_optimum() -> None:
    problem = sampled(TREES["uneven"], 30, 9, most=30)
    best = solve(problem).value
    assert problem.gap(best, problem.multipliers(best)) <= 1e-3 * problem.objective(best)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": [3, 1, 1]}, "sum of its children"),
        ({"groups": [2.0, 1.0, 1.0]}, "nonnegative integer"),
        ({"groups": [2**53, 2**52, 2**52], "weights": 2**30}, "pass 2\\^61"),
        ({"total": 0}, "total"),
        ({"tree": [-1, 0], "groups": [2, 2]}, "one row for each"),
        ({"weights": -1}, "negative"),
        ({"weights": 0.5}, "one integer"),
        ({"weights": [1, 2]}, "one a point"),
        ({"weights": 2**53}, "at most 2\\^53"),
        ({"points": np.zeros((3, 2))}, "regions x cells x points"),
        ({"points": np.zeros((3, 2, 0), int)}, "regions x cells x points"),
        ({"points": np.full((3, 2, 1), 2**60)}, "2\\^53"),
    ],
)
def test_wrong_data_are_refused(change: dict[str, Any], message: str) -> None:
    given = {"tree": [-1, 0, 0], "groups": [2, 1, 1], "points": np.zeros((3, 2, 1), int), "weights": 1, "total": None}
    given |= change
    with pytest.raises(ProblemError, match=message):
        ExpectedDistance(
            given["tree"],
            given["groups"],
            Marginals.from_points(given["points"], given["weights"]),
            total=given["total"],
        )


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (([0, 1], [1], [1]), "one entry more"),
        (([0, 2, 1], [1, 2], [1, 1]), "offsets must rise"),
        (([0, 1, 2], [1, 2], [1]), "every atom"),
        (([0, 1, 2], [1, 2], [1, 0]), "positive"),
        (([0, 2, 2], [2, 2], [1, 1]), "atoms must rise"),
        (([0, 1, 2], [1.0, 2.0], [1, 1]), "vector of integers"),
    ],
)
def test_wrong_marginals_are_refused(arrays: tuple[Any, Any, Any], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        Marginals((1, 2), *arrays)


def test_atoms_may_fall_from_cell_to_cell() -> None:
    marginals = Marginals((1, 4), [0, 1, 1, 2, 3], [7, 2, 1], [1, 1, 1])
    assert ExpectedDistance([-1], [9], marginals).objective(np.array([[7, 7, 7, 7]])) == 11.0


def test_quadratic_forms_are_refused() -> None:
    with pytest.raises(UnknownSolverError, match="expected_distance"):
        sampled([-1], 3, 1).formulate(QuadraticProgram)


FAST = CellByCell(exact_cells=0)


@cache
def tiny() -> list[tuple[ExpectedDistance, float]]:
    """Return random instances with their optima."""
    optima = []
    for name, parent in TREES.items():
        cells, most = (3, 2) if len(parent) < 7 else (2, 2)
        for seed in range(400):
            problem = unrelated(parent, cells, seed, most) if seed % 2 else sampled(parent, cells, seed, 4, most)
            optima.append((problem, solve(problem, BruteForce(), check=False).objective))
        assert optima[-1][0].tree.nodes == len(TREES[name])
    return optima


def test_on_2000_tiny_instances_value_and_bound_enclose_the_optimum() -> None:
    proven = 0
    for problem, best in tiny():
        solution = solve(problem, FAST, check=False)
        assert solution.violation == 0.0
        assert solution.value.dtype == np.int64
        assert best - 1e-12 <= solution.objective <= best + solution.gap + 1e-12
        proven += solution.gap == 0.0
    assert proven >= 1700


def test_a_corrupted_table_is_never_certified() -> None:
    for seed, (problem, best) in enumerate(tiny()[::5]):
        rng = np.random.default_rng(seed)
        table = feasible(problem, seed)
        distance = problem.objective(table) - best
        assert problem.gap(table, problem.multipliers(table)) >= distance - 1e-12
        for spread in (0.1, 1.0, 1e9):
            prices = problem.admissible(rng.normal(0.0, spread, table.shape))
            assert problem.gap(table, prices) >= distance - 1e-12


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("seed", range(3))
def test_equals_highs(name: str, seed: int) -> None:
    for problem in (sampled(TREES[name], 12, seed), unrelated(TREES[name], 6, seed, most=9)):
        exact = solve(problem, HiGHS(form="milp"), check=False)
        relaxed = solve(problem, HiGHS(), check=False)
        assert relaxed.objective - relaxed.gap <= exact.objective + 1e-9
        assert solve(problem, CellByCell()).objective == pytest.approx(exact.objective, abs=1e-9)
        fast = solve(problem, FAST, check=False)
        assert exact.objective - 1e-9 <= fast.objective <= exact.objective + fast.gap + 1e-9


def test_two_levels_are_proven_by_the_relaxation() -> None:
    for seed in range(20):
        problem = unrelated(TREES["two levels"], 5, seed, most=6)
        assert solve(problem, HiGHS()).gap == 0.0
        assert solve(problem).gap == 0.0


def test_three_levels_can_have_a_gap() -> None:
    problem = with_a_gap()
    for solver in (CellByCell(), FAST, HiGHS(form="milp"), BruteForce()):
        solution = solve(problem, solver, check=False)
        assert solution.objective == 4.0
        assert solution.gap >= 1.0
        searched = isinstance(solver, HiGHS)
        assert solution.status is (Status.OPTIMAL_BY_SEARCH if searched else Status.GAP_TOO_LARGE)
    relaxed = solve(problem, HiGHS(), check=False)
    assert relaxed.objective - relaxed.gap == 3.0


def test_counts_of_a_thousand_million_are_exact() -> None:
    rng = np.random.default_rng(3)
    leaves = np.sort(rng.integers(0, 10**9, (4, 6, 5)), axis=1)
    points = np.concatenate([leaves.sum(axis=0, keepdims=True) + rng.integers(-9, 9, (1, 6, 5)), leaves])
    problem = ExpectedDistance([-1, 0, 0, 0, 0], [4 * 10**9, *[10**9] * 4], Marginals.from_points(points))
    solution = solve(problem, FAST)
    assert solution.objective - solution.gap <= solve(problem, HiGHS(), check=False).objective + 1e-3
    assert solution.relative_gap <= 1e-3


def test_a_long_chain_and_a_broad_star() -> None:
    for parent in ([-1, *range(30)], [-1, *[0] * 60]):
        problem = sampled(parent, 8, 1, draws=5, most=6)
        solution = solve(problem, CellByCell())
        assert solution.gap <= 1e-3 * max(1.0, solution.objective)


def test_posterior_like_marginals_are_solved_to_a_thousandth() -> None:
    tree = [-1, 0, 0, *[1] * 6, *[2] * 6, *np.repeat(np.arange(3, 15), 3).tolist()]
    problem = sampled(tree, 120, 7, draws=21, most=60)
    solution = solve(problem, CellByCell(exact_cells=0))
    assert solution.ok
    assert solution.relative_gap <= 1e-3


def test_a_gap_above_the_tolerance_is_closed_by_highs_on_larger_problems_too() -> None:
    problem = unrelated([-1, 0, 0, 1, 1, 2, 2], 20, seed=1)
    half = problem.variables // 2
    assert solve(problem, FAST, check=False).gap > 0.0
    assert solve(problem, CellByCell(tolerance=1e-6, exact_cells=half)).gap == 0.0
    assert solve(problem, CellByCell(tolerance=1.0, exact_cells=half)).gap > 0.0


def test_another_problem_is_refused() -> None:
    with pytest.raises(UnknownSolverError, match="expected_distance"):
        CellByCell().solve(IsotonicL1([1, 2]))
