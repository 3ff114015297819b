"""Problems on trees drawn at random: every kind of node, bounds that bind, sparse counts."""

from __future__ import annotations

import numpy as np

from coco_opt import Tree, TreeLeastSquares
from coco_opt.problems.integer_tree import IntegerTree
from tests.tree.oracles import leaf_matrix, random_tree


def random_squares(seed: int, most: int) -> TreeLeastSquares:
    """Return a problem with every kind of node: exact, unmeasured, bounded below, above, on both sides or not."""
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(1, most))
    tree = random_tree(rng, nodes)
    truth = leaf_matrix(tree) @ np.where(rng.random(int(tree.is_leaf.sum())) < 0.5, 0, rng.integers(-3, 8))
    variance = rng.choice([0.0, 0.25, 1.0, 100.0, np.inf], nodes, p=[0.1, 0.3, 0.2, 0.1, 0.3])
    y = np.where(variance == 0, truth, np.round(truth + rng.normal(0, 3, nodes), int(rng.integers(0, 3))))
    lower = np.where(rng.random(nodes) < 0.6, truth - rng.choice([0, 1, 2], nodes), -np.inf)
    upper = np.where(rng.random(nodes) < 0.4, truth + rng.choice([0, 1, 3], nodes), np.inf)
    return TreeLeastSquares(tree, y, variance, lower=lower, upper=upper)


def sparse_histogram(fan_out: int, height: int, seed: int = 3) -> TreeLeastSquares:
    """Return noisy counts of a histogram that is mostly empty, bounded below by 0."""
    rng = np.random.default_rng(seed)
    tree = Tree.complete(fan_out, height)
    counts = np.where(tree.is_leaf & (rng.random(tree.nodes) < 0.1), rng.geometric(0.02, tree.nodes), 0)
    return TreeLeastSquares(tree, tree.sums(counts) + rng.laplace(0, height, tree.nodes), lower=0.0)


def random_integers(
    kind: type[IntegerTree], seed: int, *, nodes: int, cells: int, spread: int, noise: int
) -> IntegerTree:
    """Return a problem on a ragged tree; some have bounds, tight ones above leaves too."""
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, nodes)
    truth = tree.sums(np.where(tree.is_leaf, rng.integers(0, spread, nodes), 0))
    y = truth[:, None] + rng.integers(-noise, noise + 1, (nodes, cells))
    weights = rng.choice([0.0, 0.25, 1 / 3, 1.0, 3.0], nodes)
    top = truth + rng.integers(-2, 3, nodes) if rng.random() < 0.5 else None
    groups = None if top is None else np.maximum(top, 0)
    return kind(tree, y, weights, groups=groups)
