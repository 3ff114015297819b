"""Appendix E: the largest error over all ranges at once against the usefulness bound, by size of the domain.

The paper bounds |error of H~| for every range with probability 1 - delta; divided by the number of records N it says
which N makes the tree useful. Measured here: the largest error over every range of H~, of H-bar and of L~, unrounded.
Errors do not depend on the counts, so zeros are measured, and scale with 1 / epsilon, so epsilon is 1.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.hay2010.strategies import RAW_FIT, RAW_NODES, RAW_UNIT
from coco_experiments.hay2010.theory import useful_error
from coco_experiments.outcome import Outcome, Reporter, Table, publish
from coco_opt.array_types import Floats
from coco_opt.kernels import tree_passes
from coco_opt.ranges.domain import DomainTree

NAME = "hay2010/usefulness"
HEIGHTS, SMALL_HEIGHTS = tuple(range(5, 18)), (5, 7)
SAMPLES, SMALL_SAMPLES = 200, 20
DELTA = 0.05
RELATIVE = 0.05  # the share of all records that a range may err by
SEED = 44

MEASURED = (RAW_NODES, RAW_FIT, RAW_UNIT)
COLUMNS = (
    "cells",
    "bound",
    *(f"{name}, 95 % quantile" for name in MEASURED),
    "H~ within bound",
    f"records for {RELATIVE:.0%}, bound",
    f"records for {RELATIVE:.0%}, H-bar measured",
)


def largest_sum(domain: DomainTree, error: Floats) -> float:
    """Return the largest sum of errors (nodes,) over the fewest nodes of any range, in a complete binary tree; O(n).

    Level by level: the best proper suffix and prefix of every node; a range is a suffix of a left child and a prefix
    of its sibling, or one node.
    """
    starts = domain.level_start
    nodes = error[starts[-2] :]
    best = float(nodes.max())
    suffix = prefix = np.full(nodes.size, -np.inf)
    for level in range(domain.height - 2, -1, -1):
        left, right = nodes[0::2], nodes[1::2]
        any_suffix, any_prefix = np.maximum(nodes, suffix), np.maximum(nodes, prefix)
        joined = np.maximum(suffix[0::2] + any_prefix[1::2], any_suffix[0::2] + prefix[1::2])
        above = error[starts[level] : starts[level + 1]]
        best = max(best, float(joined.max()), float(above.max()))
        suffix = np.maximum(any_suffix[1::2], right + suffix[0::2])
        prefix = np.maximum(any_prefix[0::2], left + prefix[1::2])
        nodes = above
    return best


def largest_errors(domain: DomainTree, rng: np.random.Generator) -> dict[str, float]:
    """Return the largest absolute error over all ranges of each strategy in one draw at epsilon 1."""
    noise = rng.laplace(0.0, domain.sensitivity().l1, domain.tree.nodes)
    smooth = tree_passes.fit(domain.tree.first_child, noise, np.ones(domain.tree.nodes))
    return {
        RAW_NODES: max(largest_sum(domain, noise), largest_sum(domain, -noise)),
        RAW_FIT: _span(smooth[domain.first_leaf :]),
        RAW_UNIT: _span(rng.laplace(0.0, 1.0, domain.cells)),
    }


def _span(cells: Floats) -> float:
    running = np.concatenate([[0.0], np.cumsum(cells)])
    return float(running.max() - running.min())


def table_of(heights: tuple[int, ...], samples: int, reporter: Reporter) -> Table:
    """Return one row a domain size: the bound, the measured quantiles, and the records they ask for."""
    rows = []
    for done, height in enumerate(heights, 1):
        domain = DomainTree(2 ** (height - 1))
        draws = [largest_errors(domain, np.random.default_rng([SEED, height, number])) for number in range(samples)]
        bound = useful_error(height, 1.0, DELTA)
        quantiles = [float(np.quantile([draw[name] for draw in draws], 1 - DELTA)) for name in MEASURED]
        within = float(np.mean([draw[RAW_NODES] <= bound for draw in draws]))
        records = (bound / RELATIVE, quantiles[1] / RELATIVE)
        rows.append((domain.cells, bound, *quantiles, within, *records))
        reporter.progress(NAME, done, len(heights))
    return Table(
        f"Appendix E: largest absolute error over every range, epsilon 1, delta {DELTA:g}, {samples} samples",
        COLUMNS,
        tuple(rows),
        (
            "Noise is seeded: NOT PRIVATE. Bound: Chan, Shi and Song's constants for sums of Laplace noises, and a",
            "union over all ranges; records: the N at which a range errs by at most that share of N (scales with",
            "1 / epsilon).",
        ),
    )


def failures_in(table: Table) -> tuple[str, ...]:
    """Return one line for every domain on which H~ kept the bound less often than the bound promises."""
    return tuple(
        f"{row['cells']} cells: the bound holds in a share of {row['H~ within bound']} only"
        for row in table.records()
        if isinstance(row["H~ within bound"], float) and row["H~ within bound"] < 1 - DELTA
    )


def _plot(out: Path, table: Table) -> list[Path]:
    columns = list(zip(*table.rows, strict=True))
    x = [float(value) for value in columns[0]]
    measured = [Curve(name, x, [float(v) for v in columns[2 + i]]) for i, name in enumerate(MEASURED)]
    bound = Curve("bound of Appendix E", x, [float(value) for value in columns[1]], theory=True)
    panel = CurvePanel("95 % quantile of the largest error over all ranges", (*measured, bound))
    return draw(out / NAME, [[panel]], AxisStyle("cells", "entities"))


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure the largest errors and write CSV, PNG and PDF; needs no data. Small: two small domains."""
    table = table_of(SMALL_HEIGHTS, SMALL_SAMPLES, reporter) if small else table_of(HEIGHTS, SAMPLES, reporter)
    return publish(NAME, {"": table}, out, reporter, files=_plot(out, table), failures=failures_in(table))
