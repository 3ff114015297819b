"""The fast solver against exhaustive search and HiGHS: never below the optimum, never a bound above it."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from coco_solvers.generic.highs import HiGHS
from coco_solvers.oracles.brute_force import BruteForce
from coco_solvers.structured.expected_distance import PriceAscent

from coco_opt import IsotonicL1, solve
from coco_opt.errors import UnknownSolverError
from coco_opt.problems import ExpectedDistance, Marginals
from coco_opt.solution import Status
from tests.expected_distance.helpers import TREES, feasible, sampled, unrelated, with_a_gap

FAST = PriceAscent(exact_cells=0, aim=0.0, max_iter=60, threads=1)


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
    assert proven >= 1950


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
        assert solve(problem, PriceAscent()).objective == pytest.approx(exact.objective, abs=1e-9)
        fast = solve(problem, FAST, check=False)
        assert exact.objective - 1e-9 <= fast.objective <= exact.objective + fast.gap + 1e-9


def test_two_levels_are_proven_by_the_relaxation() -> None:
    for seed in range(20):
        problem = unrelated(TREES["two levels"], 5, seed, most=6)
        assert solve(problem, HiGHS()).gap == 0.0
        assert solve(problem, PriceAscent(tolerance=0.0)).gap == 0.0


def test_three_levels_can_have_a_gap() -> None:
    problem = with_a_gap()
    for solver in (PriceAscent(), FAST, HiGHS(form="milp"), BruteForce()):
        solution = solve(problem, solver, check=False)
        assert solution.objective == 4.0
        assert solution.gap >= 1.0
        searched = isinstance(solver, HiGHS)
        assert solution.status is (Status.OPTIMAL_BY_SEARCH if searched else Status.GAP_TOO_LARGE)
    relaxed = solve(problem, HiGHS(), check=False)
    assert relaxed.objective - relaxed.gap == 3.0


@pytest.mark.parametrize("name", ExpectedDistance.examples())
def test_examples_are_solved_and_proven(name: str) -> None:
    problem = ExpectedDistance.examples()[name]
    solution = solve(problem)
    assert solution.solver == "price-ascent"
    assert solution.gap == 0.0
    assert solution.objective == pytest.approx(solve(problem, HiGHS(form="milp"), check=False).objective, abs=1e-6)


def test_counts_of_a_thousand_million_are_exact() -> None:
    rng = np.random.default_rng(3)
    leaves = np.sort(rng.integers(0, 10**9, (4, 6, 5)), axis=1)
    points = np.concatenate([leaves.sum(axis=0, keepdims=True) + rng.integers(-9, 9, (1, 6, 5)), leaves])
    problem = ExpectedDistance([-1, 0, 0, 0, 0], [4 * 10**9, *[10**9] * 4], Marginals.from_points(points))
    solution = solve(problem, FAST)
    assert solution.objective - solution.gap <= solve(problem, HiGHS(), check=False).objective + 1e-3
    assert solution.relative_gap <= 1e-3


def test_one_region_is_isotonic_regression() -> None:
    y = np.random.default_rng(5).integers(0, 50, 40)
    problem = ExpectedDistance([-1], [45], Marginals.from_points(y[None, :, None]))
    assert solve(problem, FAST).objective == solve(IsotonicL1(y, lower=0, upper=45)).objective


def test_the_median_of_every_count_is_taken_where_nothing_binds() -> None:
    points = np.array([[[1, 2, 9], [4, 5, 6]], [[0, 1, 1], [2, 2, 3]], [[1, 1, 2], [3, 3, 9]]])
    solution = solve(ExpectedDistance([-1, 0, 0], [20, 10, 10], Marginals.from_points(points)), FAST)
    np.testing.assert_array_equal(solution.value, np.median(points, axis=2))


def test_a_long_chain_and_a_broad_star() -> None:
    for parent in ([-1, *range(30)], [-1, *[0] * 60]):
        problem = sampled(parent, 8, 1, draws=5, most=6)
        solution = solve(problem, PriceAscent())
        assert solution.gap <= 1e-3 * max(1.0, solution.objective)


def test_threads_change_nothing() -> None:
    problem = sampled(TREES["uneven"], 60, 2, most=40)
    first, again, three = (PriceAscent(threads=n, exact_cells=0, aim=0.0).solve(problem) for n in (1, 1, 3))
    for second in (again, three):
        np.testing.assert_array_equal(first.value, second.value)
        np.testing.assert_array_equal(first.multipliers, second.multipliers)


def test_posterior_like_marginals_are_solved_to_a_thousandth() -> None:
    tree = [-1, 0, 0, *[1] * 6, *[2] * 6, *np.repeat(np.arange(3, 15), 3).tolist()]
    problem = sampled(tree, 120, 7, draws=21, most=60)
    solution = solve(problem, PriceAscent(exact_cells=0))
    assert solution.ok
    assert solution.relative_gap <= 1e-3


def test_more_rounds_only_tighten() -> None:
    problem = sampled([-1, 0, 0, 1, 1, 1, 2, 2], 80, 3, most=60)
    gaps = [solve(problem, PriceAscent(max_iter=n, exact_cells=0, aim=0.0), check=False).gap for n in (0, 30, 120)]
    assert gaps == sorted(gaps, reverse=True)


def test_another_problem_is_refused() -> None:
    with pytest.raises(UnknownSolverError, match="expected_distance"):
        PriceAscent().solve(IsotonicL1([1, 2]))
