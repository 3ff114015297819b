"""Problems on trees drawn at random, and slow exact answers that share nothing with the kernels."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
from numpy.typing import NDArray

from coco_opt import Tree, TreeLeastSquares
from coco_opt.array_types import Floats
from coco_opt.problems.integer_tree import IntegerTree


def random_tree(rng: np.random.Generator, nodes: int) -> Tree:
    """Return a ragged tree: a node's parent is any earlier node, in breadth-first order."""
    parents = np.sort([int(rng.integers(0, v)) for v in range(1, nodes)]).astype(np.int64)
    return Tree(np.concatenate([[-1], np.minimum(parents, np.arange(nodes - 1))]).astype(np.int64))


def leaf_matrix(tree: Tree) -> Floats:
    """Return S (nodes, leaves) with x = S theta for leaf values theta."""
    leaves = np.flatnonzero(tree.is_leaf)
    matrix = np.zeros((tree.nodes, leaves.size))
    matrix[leaves, np.arange(leaves.size)] = 1.0
    for v in range(tree.nodes - 1, 0, -1):
        matrix[tree.parent[v]] += matrix[v]
    return matrix


def null_space(rows: Floats) -> Floats:
    """Return an orthonormal basis of the vectors that all rows send to 0."""
    if rows.shape[0] == 0:
        return np.eye(rows.shape[1])
    _, values, basis = np.linalg.svd(rows)
    return basis[int((values > 1e-9).sum()) :].T


def dense(tree: Tree, y: Floats, variance: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return estimates, covariances (n, n) and which nodes the answers determine, by dense inverses."""
    S = leaf_matrix(tree)
    exact, measured = variance == 0, (variance > 0) & np.isfinite(variance)
    free = null_space(S[exact])
    start = np.linalg.pinv(S[exact]) @ y[exact] if exact.any() else np.zeros(S.shape[1])
    design = (S @ free)[measured] / np.sqrt(variance[measured])[:, None]
    information = design.T @ design
    inverse = np.linalg.pinv(information, rcond=1e-11)
    step = inverse @ design.T @ ((y - S @ start)[measured] / np.sqrt(variance[measured]))
    unknown = null_space(design) if design.shape[0] else np.eye(free.shape[1])
    determined = np.abs(S @ free @ unknown).max(axis=1, initial=0.0) < 1e-8
    return S @ (start + free @ step), S @ free @ inverse @ free.T @ S.T, determined


def best_active_set(problem: TreeLeastSquares) -> float:
    """Return the optimum of a tiny bounded problem: the best feasible point over all sets of bounds held."""
    S = leaf_matrix(problem.tree)
    root_weight = np.sqrt(problem.weights)
    choices = [
        [None, *{float(b) for b in (lo, hi) if np.isfinite(b)}]
        for lo, hi in zip(problem.lower, problem.upper, strict=True)
    ]
    best = np.inf
    for choice in product(*choices):
        fixed = [v for v, bound in enumerate(choice) if bound is not None]
        target = np.array([choice[v] for v in fixed], dtype=np.float64)
        start = np.linalg.pinv(S[fixed]) @ target if fixed else np.zeros(S.shape[1])
        free = null_space(S[fixed])
        rest = root_weight * (problem.y - S @ start)
        step = np.linalg.lstsq(root_weight[:, None] * (S @ free), rest, rcond=None)[0]
        x = S @ (start + free @ step)
        if (x >= problem.lower - 1e-9).all() and (x <= problem.upper + 1e-9).all():
            best = min(best, problem.objective(x))
    return best


def integer_tables(tree: Tree, low: int, high: int) -> NDArray[np.int64]:
    """Return the values of all nodes (n, combinations) for all whole leaf values in low..high."""
    S = leaf_matrix(tree).astype(np.int64)
    return np.asarray(S @ np.array(list(product(range(low, high + 1), repeat=S.shape[1]))).T)


def enumerated(problem: IntegerTree, reach: int) -> tuple[float, float]:
    """Return the optimum over all leaf values from -reach to reach, and the least second cost w^2 r^2 among optima."""
    tables = integer_tables(problem.tree, -reach, reach)
    first = second = 0.0
    for y in problem.y.T:
        fits = np.ones(tables.shape[1], dtype=np.bool_)
        if problem.groups is not None:
            fits &= (tables >= 0).all(axis=0) & (tables <= problem.groups[:, None]).all(axis=0)
        off = (tables - y[:, None])[:, fits].astype(np.float64)
        costs = problem.weights @ np.abs(off) ** problem.power
        optimal = costs <= costs.min() + 1e-9
        first += float(costs.min())
        second += float((problem.weights**2 @ off[:, optimal] ** 2).min())
    return first, second


def theorem_3(fan_out: int, height: int, noisy: list[Fraction]) -> list[Fraction]:
    """Return H-bar by the closed form of Hay et al. 2010, Theorem 3, in rational arithmetic."""
    k, nodes = fan_out, len(noisy)
    level = [0] * nodes
    for v in range(1, nodes):
        level[v] = level[(v - 1) // k] + 1
    z = list(noisy)
    for v in range(nodes - 1, -1, -1):
        h = height - level[v]
        if h > 1:
            below = sum(z[k * v + 1 : k * v + 1 + k], Fraction(0))
            total = Fraction(k**h - 1)
            z[v] = (k**h - k ** (h - 1)) / total * noisy[v] + (k ** (h - 1) - 1) / total * below
    x = list(z)
    for v in range(1, nodes):
        u = (v - 1) // k
        x[v] = z[v] + (x[u] - sum(z[k * u + 1 : k * u + 1 + k], Fraction(0))) / k
    return x


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
