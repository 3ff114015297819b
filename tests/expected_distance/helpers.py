"""Small hierarchies with random marginals, and the instance whose relaxation lies below every whole table."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.problems import ExpectedDistance, Marginals, Tree

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
