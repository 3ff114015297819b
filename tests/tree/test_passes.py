"""Tree least squares without bounds: estimates, variances and covariances against closed forms and dense inverses."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from coco_solvers.structured.tree import TreePasses

from coco_opt import solve
from coco_opt.errors import ProblemError
from coco_opt.problems.tree import Tree, TreeLeastSquares, TreePosterior
from tests.tree.oracles import dense, leaf_matrix, random_tree, theorem_3

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
