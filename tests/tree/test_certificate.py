"""Certificates of the tree problems: nothing a solver returns can make a wrong point optimal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from coco_solvers.structured.tree import TreePasses
from numpy.typing import NDArray

from coco_opt import solve
from coco_opt.errors import ProblemError
from coco_opt.problems.tree import Tree, TreeLeastSquares
from coco_opt.solution import Answer, Status
from coco_opt.solving import judge
from tests.tree.oracles import random_tree

TREE = Tree([-1, 0, 0, 0, 1, 1, 3, 3])
ANSWERS = np.array([9, 1, 2, 3, 1, 2, 3, 4])
HALF_MEASURED = [1, np.inf, 1, np.inf, np.inf, np.inf, 1, 1]
PROBLEMS: dict[str, TreeLeastSquares] = {
    "squares": TreeLeastSquares(TREE, ANSWERS),
    "squares, half measured": TreeLeastSquares(TREE, ANSWERS, HALF_MEASURED),
}
MULTIPLIERS = {
    "not a number": np.full(8, np.nan),
    "infinite": np.full(8, np.inf),
    "partly not a number": np.where(np.arange(8) == 1, np.nan, 0.0),
    "too few": np.zeros(2),
    "too many": np.zeros(100),
    "two dimensions": np.zeros((8, 2)),
    "integers": np.zeros(8, np.int32),
    "complex": np.zeros(8, complex),
    "objects": np.zeros(8, object),
    "text": "none",
    "a list": [0.0] * 8,
    "every other one": np.zeros(16)[::2],
    "at leaves too": np.arange(8.0),
    "huge": np.full(8, 1e308) * (-1.0) ** np.arange(8),
}


def verdict(problem: TreeLeastSquares, value: NDArray[Any], multipliers: Any = None) -> Any:
    return judge(problem, Answer(value, Status.OPTIMAL, multipliers), "liar", 1e-9)


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("name", MULTIPLIERS)
def test_no_multipliers_of_any_type_certify_a_wrong_point(kind: str, name: str) -> None:
    problem = PROBLEMS[kind]
    best = solve(problem)
    wrong = best.value.copy()
    wrong[4] += 5
    wrong = TREE.sums(wrong)
    solution = verdict(problem, wrong, MULTIPLIERS[name])
    assert solution.status is Status.GAP_TOO_LARGE
    assert solution.gap >= (problem.objective(wrong) - best.objective) * (1 - 1e-9)
    assert verdict(problem, best.value, MULTIPLIERS[name]).status is Status.OPTIMAL


@pytest.mark.parametrize("extreme", [2**63 - 1, -(2**63), 2**62])
def test_whole_answers_whose_differences_overflow_are_not_certified(extreme: int) -> None:
    solution = verdict(TreeLeastSquares([-1, 0], [-1, -1]), np.array([extreme, extreme], dtype=np.int64))
    assert solution.status is Status.GAP_TOO_LARGE
    assert solution.objective > 1e18


@pytest.mark.parametrize("block", range(4))
def test_far_apart_variances_are_certified(block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        rng = np.random.default_rng(seed)
        tree = random_tree(rng, 40)
        variance = rng.choice([1e-9, 1e-4, 1.0, 1e4, 1e9, np.inf], 40)
        spread = np.sqrt(np.where(np.isinf(variance), 0.0, variance))
        truth = tree.sums(np.where(tree.is_leaf, rng.integers(0, 100, 40), 0))
        solution = solve(TreeLeastSquares(tree, truth + rng.normal(0, 1, 40) * spread, variance), TreePasses())
        assert solution.relative_gap <= 1e-9


def test_a_corrupted_point_with_far_apart_variances_is_not_certified() -> None:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        tree = random_tree(rng, 15)
        variance = rng.choice([1e-6, 1.0, 1e6], 15)
        problem = TreeLeastSquares(tree, rng.normal(5, 3, 15), variance, lower=0.0)
        best = solve(problem, TreePasses())
        leaf = int(rng.choice(np.flatnonzero(tree.is_leaf)))
        moved = np.where(tree.is_leaf, best.value, 0.0)
        moved[leaf] += 10.0 ** rng.integers(-2, 3)
        wrong = tree.sums(moved)
        worse = problem.objective(wrong) - best.objective
        assert verdict(problem, wrong).gap >= worse - 1e-6 * max(1.0, best.objective)


def test_rounding_of_large_counts_is_not_held_against_the_answer() -> None:
    tree = Tree.complete(4, 5)
    rng = np.random.default_rng(5)
    counts = tree.sums(np.where(tree.is_leaf, rng.integers(0, 10**13, tree.nodes), 0))
    problem = TreeLeastSquares(tree, counts + rng.integers(-9, 10, tree.nodes), lower=0.0)
    assert solve(problem, TreePasses()).ok
    assert problem.resolution == pytest.approx(float((np.finfo(float).eps ** 2 * problem.y**2).sum()))
    moved = np.where(tree.is_leaf, counts, 0)
    moved[-1] += 100
    assert verdict(problem, tree.sums(moved)).status is Status.GAP_TOO_LARGE


def test_sums_refuse_what_is_not_one_number_a_node() -> None:
    tree = Tree([-1, 0, 0])
    assert tree.sums(np.array([0, 100, 100], np.int8)).tolist() == [200, 100, 100]
    for values in ([1, 2], [[1, 2, 3]], ["a", "b", "c"]):
        with pytest.raises(ProblemError, match="each of the 3 nodes"):
            tree.sums(values)


def test_unsigned_numbers_do_not_wrap_around() -> None:
    with pytest.raises(ProblemError, match="below the number of nodes"):
        Tree(np.array([2**64 - 1, 0], dtype=np.uint64))
