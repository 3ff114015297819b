"""Rounding of a region's split: our solver, certificate included, against HiGHS; thousands of tiny tables."""

from __future__ import annotations

from functools import partial

import numpy as np
from coco_solvers.generic.highs import HiGHS
from coco_solvers.structured.table_rounding import ShortestPaths

from coco_experiments.bench.rows import PAIRED, Bench, Benchmark
from coco_experiments.bench.solved import NOTE, SOLVE, compare, many
from coco_opt.operators import Grouping, stack, total
from coco_opt.problems.linear_rows import LinearRows
from coco_opt.problems.table_rounding import TableRounding

SEED = 2020
TOLERANCE = 1e-9

TARGET, TINY_LIMIT = 10.0, 0.001
GROUPS = 8
FULL, SMALL = (20, 781), (4, 30)  # children and cells, against HiGHS
ALONE, SMALL_ALONE = ((20, 1_873), (300, 7), (300, 400)), ((6, 50),)  # too large to wait for it


def drawn(seed: int, children: int, cells: int, *, nested: bool = False) -> TableRounding:
    """Return tables that are fractional nearly everywhere, with exact totals and, nested, bounds on groups of cells.

    They are a mean of tables that spread the same skewed parent differently; totals are the nearest integers.
    """
    rng = np.random.default_rng([SEED, seed, children, cells])
    parent = rng.geometric(0.02, cells)
    shares = (rng.dirichlet(np.full(children, 0.7), cells) for _ in range(3))
    x = np.asarray(sum(parent * share.T for share in shares)) / 3.0
    values = x.sum(axis=1)
    totals = np.floor(values + TOLERANCE).astype(np.int64)
    ups = np.argsort(totals - values, kind="stable")[: int(parent.sum() - totals.sum())]
    totals[ups] += 1
    operator, lower, upper = total(cells), totals[:, None], totals[:, None]
    if not nested:
        return TableRounding(x, parent, LinearRows(operator, lower, upper))
    groups = Grouping(np.arange(cells) * GROUPS // cells, GROUPS)
    within = groups.apply(x)
    lower = np.hstack([lower, np.floor(within).astype(np.int64)])
    upper = np.hstack([upper, np.ceil(within).astype(np.int64)])
    return TableRounding(x, parent, LinearRows(stack([operator, groups]), lower, upper))


def measure(bench: Bench) -> str:
    """Time tables of 20 children x 781 cells against HiGHS, larger ones and a thousand tiny ones (small: tiny)."""
    count, (children, cells), alone = (20, SMALL, SMALL_ALONE) if bench.small else (1_000, FULL, ALONE)
    many(bench, "28 x 7, totals", lambda seed: drawn(1 + seed, 28, 7), count, ShortestPaths(), TINY_LIMIT)
    for size in alone:
        compare(bench, f"{size[0]} x {size[1]:,}, totals", partial(drawn, 0, *size), ShortestPaths(), {})
    peers = {"HiGHS LP": HiGHS(form="lp"), "HiGHS MILP": HiGHS(form="milp")}
    for nested in bench.over((False, True)):
        name = f"{children} x {cells:,}, {f'totals and {GROUPS} groups' if nested else 'totals'}"
        compare(bench, name, partial(drawn, 0, children, cells, nested=nested), ShortestPaths(), peers, TARGET)
    bench.notes += bench.worst(SOLVE)
    return f"Rounding of tables: median of {bench.repeats} runs"


TABLE_ROUNDING = Benchmark("bench/table_rounding", measure, (NOTE, PAIRED), (3, 1))
