"""Instances of some hundred unknowns of every problem, and the optimum of tiny ones by trying everything."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from coco_solvers.oracles.brute_force import BruteForce

from coco_opt import LinearRows, Problem, TableRounding, TreeLeastSquares, solve
from coco_opt.operators import Grouping, stack, total
from coco_opt.problems import (
    ControlledRounding,
    GroupMatching,
    IntegerTreeL1,
    IntegerTreeL2,
    IsotonicL1,
    IsotonicL2,
    JointL1,
    JointL2,
    SimplexProjection,
)
from coco_opt.problems.integer_tree import IntegerTree
from coco_opt.registry import backend
from tests.joint.helpers import TREES, instance, rounding
from tests.topdown.splits import CASES
from tests.tree.oracles import best_active_set, enumerated, random_integers, random_squares, sparse_histogram

Instances = dict[str, Problem[Any, Any]]


def moderate(seed: int = 11) -> Instances:
    """Return instances of some hundred unknowns with ties, zeros, runs and large counts."""
    rng = np.random.default_rng(seed)
    noise = rng.geometric(0.4, 300) - rng.geometric(0.4, 300)
    cumulative = np.cumsum(rng.poisson(2.0, 300)) + noise
    sizes = np.repeat([1, 2, 3, 5, 9], 60) + noise
    halves = rng.integers(0, 9, 200) / 2
    return {
        "l1-cumulative": IsotonicL1(cumulative, lower=0, upper=int(cumulative.max())),
        "l1-sizes": IsotonicL1(sizes, lower=0, upper=12),
        "l2-cumulative": IsotonicL2(cumulative, lower=0, upper=int(cumulative.max())),
        "l2-sizes": IsotonicL2(sizes, lower=0, upper=12),
        "l2-weighted": IsotonicL2(cumulative, rng.uniform(0.5, 4.0, 300)),
        "l2-large-counts": IsotonicL2(cumulative * 1_000_000),
        "simplex": SimplexProjection(np.where(rng.random(300) < 0.1, 50, 0) + noise, 1_000),
        "rounding": ControlledRounding(halves, int(np.floor(halves).sum()) + 40),
        "rounding-thirds": ControlledRounding(rng.integers(0, 30, 150) / 3, 760),
        "rounding-tables": _tables(np.random.default_rng(2), 0),
        "rounding-tables-totals": _tables(np.random.default_rng(3), 1),
        "rounding-tables-nested": _tables(np.random.default_rng(4), 2),
        **{f"rounding-rows-{seed}": rounding((seed, 4, 30)) for seed in range(4)},
        "matching": _matching(rng, parent=12, children=(7, 5, 9)),
        "matching-wide": _matching(rng, parent=30, children=(20, 25, 15)),
        "matching-many-optima": _matching(np.random.default_rng(1), parent=30, children=(20, 25, 15)),
        "squares-sparse": sparse_histogram(3, 4),
        **{f"squares-{seed}": random_squares(seed, 25) for seed in range(6)},
        **{
            f"{kind.kind}-{seed}": random_integers(kind, seed, nodes=12, cells=15, spread=30, noise=9)
            for kind in (IntegerTreeL1, IntegerTreeL2)
            for seed in range(4)
        },
        **{
            f"{kind.kind}-{name.replace(' ', '-')}-noisy": instance(kind, name)
            for kind in (JointL1, JointL2)
            for name in TREES
        },
        **{
            f"{kind.kind}-{name.replace(' ', '-')}-unlike-cells": instance(kind, name, seed=2, cells=12, unlike=True)
            for kind in (JointL1, JointL2)
            for name in TREES
        },
        **{f"split-{name}": problem for name, problem in CASES.items()},
    }


def _matching(rng: np.random.Generator, parent: int, children: tuple[int, ...]) -> GroupMatching:
    sizes = [np.sort(rng.choice(40, runs, replace=False)) for runs in children]
    counts = [rng.integers(1, 60, runs) for runs in children]
    total = int(sum(count.sum() for count in counts))
    cuts = np.sort(rng.choice(np.arange(1, total), parent - 1, replace=False))
    return GroupMatching(
        np.sort(rng.choice(40, parent, replace=False)),
        np.diff(np.concatenate([[0], cuts, [total]])),
        np.concatenate(sizes),
        np.concatenate(counts),
        np.cumsum([0, *children]),
    )


def _tables(rng: np.random.Generator, levels: int) -> TableRounding:
    """Return fractional tables of 5 children, 24 cells, with exact totals and bounds on groups of cells around them."""
    integers = rng.poisson(2.0, (5, 24))
    order = np.argsort(rng.random((5, 24)), axis=0)
    mixed = 0.6 * integers + 0.25 * np.take_along_axis(integers, order, axis=0) + 0.15 * np.roll(integers, 1, axis=0)
    rows = [total(24), Grouping(np.arange(24) // 6, 4)][:levels]
    if not rows:
        return TableRounding(mixed, integers.sum(axis=0))
    operator = stack(rows)
    lower, upper = np.floor(operator.apply(mixed)), np.ceil(operator.apply(mixed))
    short = integers.sum() - lower[:, 0].sum()
    lower[:, 0] += np.arange(5) < short
    upper[:, 0] = lower[:, 0]
    return TableRounding(mixed, integers.sum(axis=0), LinearRows(operator, lower.astype(int), upper.astype(int)), 2)


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
