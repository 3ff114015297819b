"""Exact variances of H-bar against H~ over every range of trees, and the range that gains most.

Nothing is sampled: a range's variance follows from the tree's posterior variances, and H~ adds up the fewest nodes that
make it. Every range of binary trees and of other fan-outs is computed, on domains that are a power of it or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.hay2010.strategies import Ranges, fit_variances, most_improved_factor, node_numbers
from coco_experiments.outcome import Record, Statement, Table
from coco_experiments.study import Report, Runs, Study
from coco_opt.ranges.domain import DomainTree


@dataclass(frozen=True, slots=True)
class Extremes:
    """The largest and least ratio of H-bar's to H~'s variance over ``ranges`` ranges."""

    largest: float
    least: float
    ranges: int


CELLS, SMALL_CELLS = (256, 300, 1_000), (16, 37)
FAN_OUTS = (2, 3, 4, 8, 16)
IMPROVED = {2: (4, 8, 12, 16, 17), 4: (4, 6, 8), 16: (3, 4, 5)}
PUBLISHED = {(16, 2): 9.33}
NOISE = 1e-12  # rounding of floats


def every_range(cells: int) -> Ranges:
    """Return all cells (cells + 1) / 2 ranges."""
    begin, end = np.triu_indices(cells + 1, 1)
    return Ranges(begin.astype(np.int64), end.astype(np.int64))


def extremes_of(domain: DomainTree) -> Extremes:
    """Return the extreme ratios over all ranges of any domain tree, from its posterior variances."""
    ranges = every_range(domain.cells)
    ratio = fit_variances(domain, ranges) / node_numbers(domain, ranges)
    return Extremes(float(ratio.max()), float(ratio.min()), ratio.size)


def range_table(sizes: Sequence[int]) -> Table:
    """Return the extreme ratios of every fan-out on domains of these sizes."""
    domains = [DomainTree(cells, fan_out) for cells in sizes for fan_out in FAN_OUTS]
    entries = ((domain.fan_out, domain.cells, domain.height, extremes_of(domain)) for domain in domains)
    rows = (
        {
            "tree": f"{fan_out}-ary",
            "cells": cells,
            "height": height,
            "ranges": ratios.ranges,
            "largest H-bar / H~": ratios.largest,
            "least H-bar / H~": ratios.least,
            "never above": ratios.largest <= 1.0 + NOISE,
        }
        for fan_out, cells, height, ratios in entries
    )
    return Table.of("Theorem 4 (ii): the exact variance of H-bar over that of H~, every range computed", rows)


def factor_table(trees: Mapping[int, Sequence[int]]) -> Table:
    """Return Theorem 4 (iv) and (iii) with exact values."""
    notes = (
        "(iv) is a lower bound on the factor; (iii) bounds a range's variance by k height nodes' variances.",
        "Ranges looked at for (iii): all sizes 2^i at all places, and all cells but the outermost.",
    )
    title = "Theorem 4 (iii) and (iv): all cells but the first and the last; the worst range looked at"
    rows = (_factor_row(fan_out, height) for fan_out, heights in trees.items() for height in heights)
    return Table.of(title, rows, notes)


def _factor_row(fan_out: int, height: int) -> Record:
    domain = DomainTree(fan_out ** (height - 1), fan_out)
    inner = Ranges(np.array([1]), np.array([domain.cells - 1]))
    variance = float(fit_variances(domain, inner)[0])
    sizes = 2 ** np.arange(domain.cells.bit_length())
    worst = max(float(fit_variances(domain, Ranges.everywhere(domain.cells, int(size))).max()) for size in sizes)
    share = max(worst, variance) / (fan_out * height)
    return {
        "fan-out": fan_out,
        "height": height,
        "Theorem 4 (iv)": most_improved_factor(height, fan_out),
        "published": PUBLISHED.get((height, fan_out)),
        "H~ / H-bar, exact": float(node_numbers(domain, inner)[0]) / variance,
        "largest H-bar variance / (k height)": share,
        "Theorem 4 (iii) holds": share <= 1.0,
    }


def failures_in(ranges: Table, factors: Table) -> tuple[str, ...]:
    """Return one line for every tree that contradicts the theorem."""
    lines = [
        f"{row['tree']}, {row['cells']} cells: a range has a larger variance in H-bar than in H~"
        for row in ranges.records()
        if not row["never above"]
    ]
    for row in factors.records():
        tree = f"fan-out {row['fan-out']}, height {row['height']}"
        if row["H~ / H-bar, exact"] < row["Theorem 4 (iv)"]:
            lines.append(f"{tree}: the factor is below Theorem 4 (iv)")
        if not row["Theorem 4 (iii) holds"]:
            lines.append(f"{tree}: a range exceeds Theorem 4 (iii)")
    return tuple(lines)


def _plot(path: Path, factors: Table) -> list[Path]:
    panels = []
    for fan_out in dict.fromkeys(row["fan-out"] for row in factors.records()):
        points = [row for row in factors.records() if row["fan-out"] == fan_out]
        x = [float(row["height"]) for row in points]
        exact = Curve("exact", x, [row["H~ / H-bar, exact"] for row in points])
        bound = Curve("Theorem 4 (iv)", x, [row["Theorem 4 (iv)"] for row in points], theory=True)
        panels.append(CurvePanel(f"{fan_out} children a node", (exact, bound)))
    style = AxisStyle("height of the tree", "error of H~ over that of H-bar", "linear", "linear")
    return draw(path, [panels], style)


def plan(data: Path | None, small: bool) -> list[tuple[bool, Sequence[int]]]:
    """Return whether trees are small; no data are needed and nothing is random."""
    return [(small, (0,))]


def measure(small: bool, seed: int) -> tuple[Table, Table]:
    """Return the extreme ratios, and the factors."""
    trees = {fan_out: heights[:2] for fan_out, heights in IMPROVED.items()} if small else IMPROVED
    return range_table(SMALL_CELLS if small else CELLS), factor_table(trees)


def report(results: Sequence[Runs[bool, tuple[Table, Table]]], path: Path) -> Report:
    """Return both tables, the figure and the statements."""
    ranges, factors = results[0].found[0]
    tables = {"": ranges, "_factors": factors}
    return Report(tables, _plot(path, factors), failures_in(ranges, factors), statements(ranges, factors))


def statements(ranges: Table, factors: Table) -> tuple[Statement, ...]:
    """Return Theorem 4 with exact variances."""
    largest = max(row["largest H-bar / H~"] for row in ranges.records())
    claims = [
        Statement(
            "Theorem 4 (ii)",
            "no unbiased linear estimate of any range has a smaller variance than H-bar's",
            f"variance of H-bar over H~'s: at most {largest:.6f} in {len(ranges.rows)} trees, every range",
            all(bool(row["never above"]) for row in ranges.records()),
        )
    ]
    for row in factors.records():
        bound, exact = row["Theorem 4 (iv)"], row["H~ / H-bar, exact"]
        claims.append(
            Statement(
                f"Theorem 4 (iv), fan-out {row['fan-out']}, height {row['height']}",
                f"all cells but the outermost gain a factor of at least {bound:.4g}",
                f"{exact:.4g}",
                exact >= bound,
            )
        )
    return tuple(claims)


THEOREM4 = Study("hay2010/theorem4", plan, measure, report)
