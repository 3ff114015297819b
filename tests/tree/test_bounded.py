"""Tree least squares with bounds: exact zeros, active sets, interior points, and certificates nothing gets past."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from coco_solvers.structured.tree import TreePasses
from numpy.typing import NDArray

from coco_opt import make_solver, solve
from coco_opt.errors import ProblemError
from coco_opt.problems.tree import Tree, TreeLeastSquares
from coco_opt.solution import Answer, Status
from coco_opt.solving import judge
from tests.tree.instances import random_squares, sparse_histogram
from tests.tree.oracles import best_active_set, random_tree


@pytest.mark.parametrize("block", range(10))
def test_every_kind_of_node_is_solved_to_a_certificate(block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        problem = random_squares(seed, 30)
        solution = solve(problem, TreePasses())
        assert solution.gap <= 1e-10 * max(1.0, solution.objective)
        assert solution.raw_violation <= 1e-11 * problem.scale


@pytest.mark.parametrize("seed", range(40))
def test_equals_the_best_active_set(seed: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    nodes = int(rng.integers(2, 7))
    tree = random_tree(rng, nodes)
    lower = np.where(rng.random(nodes) < 0.7, 0.0, -np.inf)
    upper = np.where(rng.random(nodes) < 0.4, 6.0, np.inf)
    problem = TreeLeastSquares(tree, rng.normal(1, 4, nodes), rng.uniform(0.3, 3, nodes), lower=lower, upper=upper)
    assert solve(problem, TreePasses()).objective == pytest.approx(best_active_set(problem), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("fan_out", "height"), [(2, 9), (4, 5), (16, 3)])
def test_zeros_are_exact_and_equal_clarabels(fan_out: int, height: int) -> None:
    problem = sparse_histogram(fan_out, height)
    exact = solve(problem, TreePasses())
    interior = solve(problem, make_solver("clarabel"), tolerance=1e-6)
    # Strong convexity: sum (x - x*)^2 is at most the gap of x.
    assert np.square(exact.value - interior.value).sum() <= interior.gap + 1e-9
    assert exact.relative_gap <= 1e-9
    assert (exact.value >= 0).all()
    small = exact.value < 1e-9
    assert (exact.value[small] == 0).all()
    assert 0.2 < small.mean() < 0.95


def test_no_multipliers_certify_a_wrong_point() -> None:
    rng = np.random.default_rng(4)
    for seed in range(40):
        problem = random_squares(seed, 12)
        best = solve(problem, TreePasses())
        for _ in range(5):
            x = problem.repair(best.value + rng.normal(0, 2, problem.variables))
            if problem.violation(x) > 1e-9:
                continue
            gap = problem.gap(x, rng.normal(0, 5, problem.variables))
            assert gap >= problem.objective(x) - best.objective - 1e-7 * max(1.0, best.objective)


def test_large_counts_keep_their_certificate() -> None:
    problem = sparse_histogram(4, 5)
    large = TreeLeastSquares(problem.tree, problem.y * 1e9, 1e4, lower=0.0)
    solution = solve(large, TreePasses())
    assert solution.relative_gap <= 1e-9
    np.testing.assert_allclose(solution.value, solve(problem, TreePasses()).value * 1e9, rtol=1e-9, atol=1e-3)


@pytest.mark.parametrize("inner_variance", [0.1, 1.0, 1e6, np.inf])
@pytest.mark.parametrize("inner", [150, 2_000])
def test_paths_with_a_leaf_at_every_node(inner: int, inner_variance: float) -> None:
    tree = Tree(np.concatenate([[-1], np.repeat(2 * np.arange(inner), 2)]))
    rng = np.random.default_rng(1)
    variance = np.where(tree.is_leaf, 1.0, inner_variance)
    lower = np.where(tree.is_leaf, 0.0, np.where(rng.random(tree.nodes) < 0.2, 0.5, -np.inf))
    solution = solve(TreeLeastSquares(tree, rng.normal(0.2, 2, tree.nodes), variance, lower=lower), TreePasses())
    assert solution.relative_gap <= 1e-9
    assert (solution.value >= lower).all()


def test_impossible_bounds_are_refused() -> None:
    with pytest.raises(ProblemError, match="leave no value for node 0"):
        TreeLeastSquares([-1, 0, 0], [1.0, 1.0, 1.0], lower=[0.0, 2.0, 2.0], upper=[3.0, np.inf, np.inf])
    with pytest.raises(ProblemError, match="outside its bounds"):
        TreeLeastSquares([-1, 0], [1.0, -1.0], [1.0, 0.0], lower=0.0)
    with pytest.raises(ProblemError, match="below"):
        TreeLeastSquares([-1, 0], [1.0, 1.0], lower=np.inf)


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
