"""Appendix E: the largest error over all ranges at once against the usefulness bound, by size of the domain.

The paper bounds |error of H~| for every range with probability 1 - delta; divided by the number of records N it says
which N makes the tree useful. Measured here: the largest error over every range of H~, of H-bar and of L~, unrounded.
Errors do not depend on the counts, so zeros are measured, and scale with 1 / epsilon, so epsilon is 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.hay2010.strategies import RAW_FIT, RAW_NODES, RAW_UNIT, useful_error
from coco_experiments.outcome import Record, Statement, Table
from coco_experiments.study import Report, Runs, Study
from coco_opt.array_types import Floats
from coco_opt.kernels import tree_passes
from coco_opt.ranges.domain import DomainTree

HEIGHTS, SMALL_HEIGHTS = tuple(range(5, 18)), (5, 7)
SAMPLES, SMALL_SAMPLES = 200, 20
DELTA = 0.05
RELATIVE = 0.05  # the share of all records that a range may err by
SEED = 44

MEASURED = (RAW_NODES, RAW_FIT, RAW_UNIT)


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


def largest_errors(height: int, seed: int) -> dict[str, float]:
    """Return the largest absolute error over all ranges of each strategy in one draw at epsilon 1."""
    domain, rng = DomainTree(2 ** (height - 1)), np.random.default_rng([SEED, height, seed])
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


def plan(data: Path | None, small: bool) -> list[tuple[int, Sequence[int]]]:
    """Return the heights of trees, with their samples; no data are needed."""
    heights, samples = (SMALL_HEIGHTS, SMALL_SAMPLES) if small else (HEIGHTS, SAMPLES)
    return [(height, range(samples)) for height in heights]


def report(results: Sequence[Runs[int, dict[str, float]]], path: Path) -> Report:
    """Return one row a domain size; it fails where H~ kept the bound less often than the bound promises."""
    rows: list[Record] = []
    failures, quantiles, bounds = [], {name: list[float]() for name in MEASURED}, []
    for runs in results:
        bound, cells = useful_error(runs.case, 1.0, DELTA), 2 ** (runs.case - 1)
        for name, values in quantiles.items():
            values.append(float(np.quantile([draw[name] for draw in runs.found], 1 - DELTA)))
        within = float(np.mean([draw[RAW_NODES] <= bound for draw in runs.found]))
        if within < 1 - DELTA:
            failures.append(f"{cells} cells: the bound holds in a share of {within} only")
        bounds.append(bound)
        rows.append(
            {
                "cells": cells,
                "bound": bound,
                **{f"{name}, 95 % quantile": values[-1] for name, values in quantiles.items()},
                "H~ within bound": within,
                f"records for {RELATIVE:.0%}, bound": bound / RELATIVE,
                f"records for {RELATIVE:.0%}, H-bar measured": quantiles[RAW_FIT][-1] / RELATIVE,
            }
        )
    samples = len(results[0].seeds)
    notes = (
        "Noise is seeded: NOT PRIVATE. Bound: Chan, Shi and Song's constants for sums of Laplace noises, and a",
        "union over all ranges; records: the N at which a range errs by at most that share of N (scales with",
        "1 / epsilon).",
    )
    title = f"Appendix E: largest absolute error over every range, epsilon 1, delta {DELTA:g}, {samples} samples"
    x = [2.0 ** (runs.case - 1) for runs in results]
    measured = [Curve(name, x, values) for name, values in quantiles.items()]
    bound_curve = Curve("bound of Appendix E", x, bounds, theory=True)
    panel = CurvePanel("95 % quantile of the largest error over all ranges", (*measured, bound_curve))
    figures = draw(path, [[panel]], AxisStyle("cells", "largest error (entities)"))
    within = min(float(row["H~ within bound"]) for row in rows)
    claim = Statement(
        "Appendix E",
        f"with probability {1 - DELTA:g} no range of H~ errs by more than the bound",
        f"every range was within it in {within:.3g} of the samples at least; the 95 % quantile is "
        f"{max(q / b for q, b in zip(quantiles[RAW_NODES], bounds, strict=True)):.2g} times the bound at most",
        within >= 1 - DELTA,
    )
    return Report({"": Table.of(title, rows, notes)}, figures, failures, [claim])


USEFULNESS = Study("hay2010/usefulness", plan, largest_errors, report)
