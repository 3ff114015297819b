"""Tree least squares with bounds: exact zeros, certificates, and comparison with interior points and active sets."""

from __future__ import annotations

import numpy as np
import pytest
from coco_solvers.structured.tree import TreePasses

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


def test_bounds_that_do_not_bind_change_nothing() -> None:
    rng = np.random.default_rng(8)
    tree = random_tree(rng, 200)
    y, variance = rng.normal(0, 5, 200), rng.uniform(0.2, 5, 200)
    free = solve(TreeLeastSquares(tree, y, variance), TreePasses()).value
    loose = TreeLeastSquares(tree, y, variance, lower=free - 1e3, upper=free + 1e3)
    np.testing.assert_allclose(solve(loose, TreePasses()).value, free, rtol=0, atol=1e-10)


def test_known_totals_and_known_zeros() -> None:
    tree = Tree.complete(3, 4)
    rng = np.random.default_rng(2)
    empty = tree.is_leaf & (rng.random(tree.nodes) < 0.5)
    upper = np.where(empty, 0.0, np.inf)
    variance = np.where(np.arange(tree.nodes) < 4, 0.0, 2.0)
    y = rng.normal(2, 6, tree.nodes)
    y[1:4], y[0] = [30.0, 0.0, 12.0], 42.0
    solution = solve(TreeLeastSquares(tree, y, variance, lower=0.0, upper=upper), TreePasses())
    assert solution.value[:4].tolist() == [42.0, 30.0, 0.0, 12.0]
    assert (solution.value[empty] == 0).all()
    assert (solution.value >= 0).all()


def test_a_corrupted_point_is_not_certified() -> None:
    problem = sparse_histogram(3, 4)
    good = solve(problem, TreePasses())
    moved = np.where(problem.tree.is_leaf, good.value, 0.0)
    moved[-1] += 1.0
    verdict = judge(problem, Answer(problem.tree.sums(moved), Status.OPTIMAL), "liar", 1e-6)
    assert verdict.status is Status.GAP_TOO_LARGE
    assert verdict.gap >= verdict.objective - good.objective
    broken = good.value.copy()
    broken[0] += 1.0
    assert problem.violation(broken) == pytest.approx(1.0)
    assert problem.violation(problem.repair(broken)) <= 1e-12 * problem.scale


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
