"""Tree least squares: estimates, variances and covariances against closed forms and dense inverses.

With bounds: exact zeros, active sets, interior points, and certificates that nothing gets past.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from coco_solvers.structured.tree import TreePasses
from numpy.typing import NDArray

from coco_opt import make_solver, solve
from coco_opt.errors import ProblemError
from coco_opt.problems.tree import Tree, TreeLeastSquares, TreePosterior
from coco_opt.solution import Answer, Status
from coco_opt.solving import judge
from tests.tree.oracles import (
    best_active_set,
    dense,
    leaf_matrix,
    random_squares,
    random_tree,
    sparse_histogram,
    theorem_3,
)

HALF = Fraction(1, 2)


@pytest.mark.parametrize(
    ("height", "noisy", "expected"),
    [
        (3, [13, 3, 11, 4, 1, 12, 1], [14, 3, 11, 3, 0, 11, 0]),
        (2, [0, HALF, HALF], [Fraction(1, 3), Fraction(1, 6), Fraction(1, 6)]),
        (2, [0, 1, 0], [Fraction(1, 3), Fraction(2, 3), -Fraction(1, 3)]),
    ],
)
def test_worked_examples_of_the_paper(height: int, noisy: list[Fraction], expected: list[Fraction]) -> None:
    assert theorem_3(2, height, [Fraction(value) for value in noisy]) == expected
    tree = Tree.complete(2, height)
    fast = solve(TreeLeastSquares(tree, [float(value) for value in noisy]), TreePasses())
    np.testing.assert_allclose(fast.value, [float(value) for value in expected], rtol=0, atol=1e-14)


@pytest.mark.parametrize(("fan_out", "height"), [(2, 6), (3, 4), (5, 3), (16, 2)])
def test_equals_theorem_3_on_complete_trees(fan_out: int, height: int) -> None:
    tree = Tree.complete(fan_out, height)
    noisy = np.random.default_rng(fan_out).integers(-50, 100, tree.nodes)
    closed = theorem_3(fan_out, height, [Fraction(int(value)) for value in noisy])
    fast = solve(TreeLeastSquares(tree, noisy), TreePasses()).value
    np.testing.assert_allclose(fast, [float(value) for value in closed], rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(60))
def test_estimates_and_variances_of_all_sums_equal_the_dense_inverse(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(1, 26))
    tree = random_tree(rng, nodes)
    variance = rng.choice([0.0, np.inf, 0.3, 1.0, 7.0], nodes, p=[0.1, 0.2, 0.3, 0.2, 0.2])
    truth = leaf_matrix(tree) @ rng.integers(-5, 9, int(tree.is_leaf.sum()))
    y = np.where(variance == 0, truth, truth + rng.normal(0, 3, nodes))
    problem = TreeLeastSquares(tree, y, variance)
    posterior = TreePosterior.of(problem)
    x, covariance, determined = dense(tree, y, variance)
    np.testing.assert_allclose(posterior.estimate[determined], x[determined], rtol=1e-9, atol=1e-9)
    assert np.array_equal(np.isfinite(posterior.variance), determined)
    for u, v in combinations(np.flatnonzero(determined), 2):
        pair = np.bincount([u, v], minlength=nodes)
        together = covariance[u, u] + 2.0 * covariance[u, v] + covariance[v, v]
        assert posterior.combination(pair)[1] == pytest.approx(together, rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(posterior.variance[determined], np.diag(covariance)[determined], rtol=1e-9, atol=1e-9)
    coefficients = np.where(determined, rng.normal(0, 1, nodes), 0.0)
    value, spread = posterior.combination(coefficients)
    assert value == pytest.approx(float(coefficients @ x), rel=1e-9, abs=1e-9)
    assert spread == pytest.approx(float(coefficients @ covariance @ coefficients), rel=1e-9, abs=1e-9)
    solution = solve(problem, TreePasses())
    assert solution.gap <= 1e-12 * max(1.0, solution.objective)


def test_a_combination_of_undetermined_nodes_can_be_determined() -> None:
    tree = Tree([-1, 0, 0, 0])
    posterior = TreePosterior.from_variances(tree, [1.0, np.inf, np.inf, 4.0])
    assert np.isinf(posterior.variance[1:3]).all()
    assert np.isinf(posterior.combination([0.0, 1.0, 0.0, 0.0])[1])
    assert posterior.combination([0.0, 1.0, 1.0, 0.0])[1] == pytest.approx(5.0)


def test_undetermined_siblings_take_equal_parts() -> None:
    fit = solve(TreeLeastSquares([-1, 0, 0, 0], [9.0, 0, 0, 3.0], [1.0, np.inf, np.inf, 1.0]), TreePasses())
    np.testing.assert_allclose(fit.value, [9.0, 3.0, 3.0, 3.0])
    assert fit.gap == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_range_variances_in_ragged_trees_equal_those_of_the_combination(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, 30)
    posterior = TreePosterior.of(TreeLeastSquares(tree, rng.normal(5, 3, 30), rng.uniform(0.5, 3.0, 30)))
    depth = np.zeros(30, dtype=np.int64)
    for v in range(1, 30):
        depth[v] = depth[tree.parent[v]] + 1
    pairs = [(u, v + 1) for u in range(30) for v in range(u, 30) if depth[u] == depth[v]]
    _, variances = posterior.ranges([u for u, _ in pairs], [v for _, v in pairs])
    for (begin, end), variance in zip(pairs, variances, strict=True):
        coefficients = ((np.arange(30) >= begin) & (np.arange(30) < end)).astype(float)
        assert variance == pytest.approx(posterior.combination(coefficients)[1], rel=1e-9)


def test_least_squares_is_never_worse_than_summing_noisy_nodes() -> None:
    """Theorem 4 (ii) and (iv) of Hay et al. 2010, computed, not sampled."""
    height = 8
    tree = Tree.complete(2, height)
    posterior = TreePosterior.from_variances(tree, 1.0)
    first = tree.nodes // 2
    _, variances = posterior.ranges([first + 1], [tree.nodes - 1])
    nodes_summed = 2 * (height - 1) - 2
    assert variances[0] <= 3.0
    assert nodes_summed / variances[0] >= (2 * (height - 1) - 2) / 3
    assert (posterior.variance <= 1.0).all()


def test_far_apart_variances_keep_their_digits() -> None:
    tree = Tree([-1, 0, 0, 1, 1])
    variance = np.array([1e-8, np.inf, 1e8, 1.0, 1e8])
    posterior = TreePosterior.of(TreeLeastSquares(tree, [10.0, 0.0, 3.0, 4.0, 5.0], variance))
    pair = 1e8 * 1e8 / 2e8
    assert posterior.variance[2] == pytest.approx(pair, rel=1e-7)
    assert posterior.variance[0] == pytest.approx(1e-8, rel=1e-12)
    assert posterior.variance[3] == pytest.approx(1.0, rel=1e-7)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([-1, 0, 2], [1.0, 2.0, 3.0]), "breadth first"),
        (([-1, 1], [1.0, 2.0]), "breadth first"),
        (([], []), "at least one node"),
        (([-1, 0], [1.0]), "one answer for each"),
        (([-1, 0], [1.0, np.nan]), "finite"),
        (([-1, 0], [1e200, 1.0]), "y must not exceed"),
        (([-1, 0], [1.0, 2.0], [1.0, -1.0]), "negative"),
        (([-1, 0], [1.0, 2.0], [1.0, 1e-320]), "too small"),
        (([-1, 0, 0], [1.0, 2.0, 3.0], 0.0), "leave no value for node 0"),
    ],
)
def test_bad_data_are_refused(arguments: tuple[object, ...], words: str) -> None:
    with pytest.raises(ProblemError, match=words):
        TreeLeastSquares(*arguments)  # type: ignore[arg-type]


def test_posterior_refuses_bounds_and_wrong_ranges() -> None:
    tree = Tree.complete(2, 3)
    with pytest.raises(ProblemError, match="bounds"):
        TreePosterior.of(TreeLeastSquares(tree, np.ones(7), lower=0.0))
    posterior = TreePosterior.from_variances(tree, 1.0)
    with pytest.raises(ProblemError, match="one level"):
        posterior.ranges([2], [4])


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


def verdict(problem: TreeLeastSquares, value: NDArray[Any], multipliers: Any = None) -> Any:
    return judge(problem, Answer(value, Status.OPTIMAL, multipliers), "liar", 1e-9)


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
