"""The optimum of a tiny problem of almost any kind by trying everything, None where there is too much to try."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from coco_solvers.oracles.brute_force import BruteForce

from coco_opt import Problem, TableRounding, TreeLeastSquares, solve
from coco_opt.problems.integer_tree import IntegerTree
from coco_opt.registry import backend
from tests.tree.oracles import best_active_set, enumerated

MOST = 5_000  # points to try one by one
LEAVES, REACH = 3, 18  # of a tree whose whole values are tried all at once


def optimum(problem: Problem[Any, Any]) -> float | None:
    """Return the least objective; None for a kind without an oracle, or a problem too large for it."""
    brute_force = backend("brute-force")
    if problem.kind in brute_force.kinds:
        return (
            solve(problem, BruteForce(), check=False).objective
            if problem.variables <= brute_force.limit(problem.kind)
            else None
        )
    if isinstance(problem, TreeLeastSquares):
        bounds = np.isfinite(problem.lower) * 1.0 + (np.isfinite(problem.upper) & (problem.lower < problem.upper))
        return best_active_set(problem) if np.prod(1.0 + bounds) <= MOST else None
    if isinstance(problem, IntegerTree):
        few = int(problem.tree.is_leaf.sum()) <= LEAVES and problem.scale <= REACH
        return enumerated(problem, REACH)[0] if few else None
    if isinstance(problem, TableRounding):
        return best_tables(problem) if np.prod(1.0 + problem.high - problem.low) <= MOST else None
    return None


def best_tables(problem: TableRounding) -> float:
    """Return the least objective over all whole tables within the slack, infinity without any."""
    best = np.inf
    ranges = [range(a, b + 1) for a, b in zip(problem.low.ravel(), problem.high.ravel(), strict=True)]
    for point in product(*ranges):
        table = np.array(point, np.int64).reshape(problem.x.shape)
        if problem.violation(table) == 0:
            best = min(best, problem.objective(table))
    return best
