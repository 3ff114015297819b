"""Small trees and slow exact answers that share nothing with the kernels."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats
from coco_opt.problems.integer_tree import IntegerTree
from coco_opt.problems.tree import Tree, TreeLeastSquares


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
