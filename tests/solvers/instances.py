"""Instances of some hundred unknowns of every problem, beside the problems' own small examples."""

from __future__ import annotations

from typing import Any

import numpy as np

from coco_opt import LinearRows, Problem
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
    TableRounding,
)
from tests.joint.helpers import TREES, instance, rounding
from tests.topdown.splits import CASES
from tests.tree.oracles import random_integers, random_squares, sparse_histogram

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
