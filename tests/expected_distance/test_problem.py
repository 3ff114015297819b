"""What the problem says of any point, and which data it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from coco_solvers.generic.highs import HiGHS
from coco_solvers.generic.piqp import PIQP

from coco_opt import solve
from coco_opt.errors import ProblemError, UnknownSolverError
from coco_opt.forms import QuadraticProgram
from coco_opt.problems import ExpectedDistance, Marginals
from coco_opt.solution import Answer, Status
from coco_opt.solving import judge
from tests.expected_distance.helpers import TREES, feasible, sampled, unrelated


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


def test_an_interior_point_answer_becomes_a_whole_table() -> None:
    problem = sampled(TREES["three levels"], 10, 6)
    solution = solve(problem, PIQP(), check=False)
    assert solution.violation == 0.0
    assert solution.objective - solution.gap <= solve(problem, HiGHS(form="milp"), check=False).objective + 1e-9


def test_a_worse_table_is_seen() -> None:
    problem = sampled(TREES["uneven"], 20, 8)
    best = solve(problem)
    worse = feasible(problem, 1)
    verdict = judge(problem, Answer(worse, Status.OPTIMAL), "liar", 1e-6)
    assert verdict.status is Status.GAP_TOO_LARGE
    assert verdict.gap >= verdict.objective - best.objective - 1e-12


@pytest.mark.parametrize("wrong", [np.zeros(3), np.full((5, 6), np.nan), np.full((5, 6), np.inf), np.ones((5, 6))])
def test_wrong_multipliers_are_replaced(wrong: Any) -> None:
    problem = unrelated(TREES["three levels"], 6, 4, most=5)
    table = feasible(problem, 3)
    prices = problem.admissible(wrong)
    assert (prices[problem.tree.is_leaf] == 0.0).all()
    assert problem.gap(table, prices) >= problem.objective(table) - solve(problem, check=False).objective - 1e-12


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
