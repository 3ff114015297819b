"""Instances of every problem: small ones for the oracle, larger ones for the packages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coco_opt.operators import Grouping, stack, total
from coco_opt.problem import Problem
from coco_opt.problems import (
    ControlledRounding,
    GroupMatching,
    IsotonicL1,
    IsotonicL2,
    SimplexProjection,
    TableRounding,
)
from coco_opt.problems.table_rounding import IntegerRows

Instances = dict[str, Problem[Any, Any]]


def tiny() -> Instances:
    """Return instances small enough to exhaust."""
    return {f"{name}-tiny": problem for name, problem in _tiny()}


def _tiny() -> Iterator[tuple[str, Problem[Any, Any]]]:
    for ties in ("upper", "lower", "midpoint"):
        yield f"l1-{ties}-paper", IsotonicL1([14, 9, 10, 15], ties=ties)
        yield f"l1-{ties}-bounds", IsotonicL1([5, -3, 8, 2, 2, 9], lower=0, upper=6, ties=ties)
        yield f"l1-{ties}-weights", IsotonicL1([3, 1, 2, 5, 4], [1.0, 2.5, 0.5, 1.0, 3.0], ties=ties)
    yield "l1-real", IsotonicL1([0.5, -1.25, 2.0, 1.75, 1.75, 0.0])
    yield "l1-one", IsotonicL1([7], lower=0, upper=3)
    yield "l2-sorted", IsotonicL2([9, 10, 14])
    yield "l2-pair", IsotonicL2([9, 14, 10])
    yield "l2-paper", IsotonicL2([14, 9, 10, 15])
    yield "l2-bounds", IsotonicL2([5, -3, 8, 2, 2, 9], lower=0, upper=6)
    yield "l2-weights", IsotonicL2([3.0, 1.0, 2.0, 5.0, 4.0], [1.0, 2.5, 0.5, 1.0, 3.0], lower=1.5)
    yield "l2-falling", IsotonicL2([6, 5, 4, 3, 2, 1])
    yield "l2-one", IsotonicL2([7], lower=0, upper=3)
    yield "simplex-inside", SimplexProjection([1.0, 2.0, 3.0], 6)
    yield "simplex-zeros", SimplexProjection([5.0, -1.0, 0.25, 4.0, -3.0], 6)
    yield "simplex-ties", SimplexProjection([1.0, 1.0, 1.0, 1.0], 2)
    yield "simplex-nothing", SimplexProjection([1.0, -2.0, 3.0], 0)
    yield "simplex-one", SimplexProjection([-4.0], 3)
    yield "rounding", ControlledRounding([0.5, 1.25, 2.75, 0.5, 3.0], 8)
    yield "rounding-up", ControlledRounding([0.1, 0.2, 0.3], 3)
    yield "rounding-down", ControlledRounding([0.9, 1.8, 2.7], 3)
    yield "rounding-whole", ControlledRounding([1.0, 2.0], 3)
    yield "matching", GroupMatching([1, 2, 4], [2, 1, 2], [1, 3, 2, 5], [1, 1, 2, 1], [0, 2, 4])
    yield "matching-shift", GroupMatching([1], [4], [2, 3], [2, 2], [0, 1, 2])
    yield "matching-empty-child", GroupMatching([0, 7], [2, 2], [1, 6], [3, 1], [0, 0, 2])


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
        "matching": _matching(rng, parent=12, children=(7, 5, 9)),
        "matching-wide": _matching(rng, parent=30, children=(20, 25, 15)),
        "matching-many-optima": _matching(np.random.default_rng(1), parent=30, children=(20, 25, 15)),
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
    whole = rng.poisson(2.0, (5, 24))
    order = np.argsort(rng.random((5, 24)), axis=0)
    mixed = 0.6 * whole + 0.25 * np.take_along_axis(whole, order, axis=0) + 0.15 * np.roll(whole, 1, axis=0)
    rows = [total(24), Grouping(np.arange(24) // 6, 4)][:levels]
    if not rows:
        return TableRounding(mixed, whole.sum(axis=0))
    operator = stack(rows)
    lower, upper = np.floor(operator.apply(mixed)), np.ceil(operator.apply(mixed))
    short = whole.sum() - lower[:, 0].sum()
    lower[:, 0] += np.arange(5) < short
    upper[:, 0] = lower[:, 0]
    return TableRounding(mixed, whole.sum(axis=0), IntegerRows(operator, lower.astype(int), upper.astype(int)), 2)
