"""Exact variances of H-bar against H~ over every range of a binary tree, two thousand million of them in seconds.

In a complete binary tree with equal noise a range is one leaf, or has a lowest node that holds it, of height h (a leaf
has height 1), and takes the last i leaves of the left child and the first j of the right one. The variance of its
estimate depends on h, i and j alone. With V the variance of a child given what lies below it, T_h the posterior
variance of the node, a and b the shares i and j of a child's leaves, and own(i) the variance of i leaves at the edge of
a child given the child's value, it is

    own(i) + own(j) + V (a - b)^2 / 2 + T_h ((a + b) / 2)^2.

H~ takes as many nodes as i and j have ones among their binary digits, or the node itself if the range is all of it.

``theorem4`` shows without sampling H-bar's variance against H~'s for every range, and the query that gains most.

On the binary trees of the paper every single range is computed; other fan-outs and domains that are no power of it are
gone through by the tree's posterior variances, every range too, on smaller domains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.hay2010.strategies import Ranges, fit_variances, node_numbers
from coco_experiments.hay2010.theory import most_improved_factor
from coco_experiments.outcome import Record, Statement, Table
from coco_experiments.study import Report, Runs, Study
from coco_opt.kernels.compile import compiled
from coco_opt.ranges.domain import DomainTree

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Extremes:
    """The largest and least ratio of H-bar's to H~'s variance over ``ranges`` ranges."""

    largest: float
    least: float
    ranges: int


def subtree_variances(height: int) -> Floats:
    """Return V (height + 1,): a node's variance from its own subtree, by height; unit noise, entry 0 unused."""
    v = np.ones(height + 1)
    for h in range(2, height + 1):
        v[h] = 2.0 * v[h - 1] / (1.0 + 2.0 * v[h - 1])
    return v


def posterior_variances(height: int) -> Floats:
    """Return T (height + 1,): the variance of a node's estimate, by height; unit noise, entry 0 unused."""
    v = subtree_variances(height)
    t = v.copy()
    for h in range(height - 1, 0, -1):
        t[h] = v[h] / 2.0 + t[h + 1] / 4.0
    return t


def extremes(height: int) -> Extremes:
    """Return the extreme ratios over all n (n + 1) / 2 ranges of n = 2^(height - 1) leaves; O(n^2), no memory."""
    v, t = subtree_variances(height), posterior_variances(height)
    largest = least = float(t[1])
    ranges = 2 ** (height - 1)
    own, nodes = np.zeros(2), np.array([0.0, 1.0])
    for h in range(1, height):
        high, low = _extremes_at(own, nodes, v[h], t[h + 1])
        largest, least = max(largest, high), min(least, low)
        ranges += (own.size - 1) ** 2 * 2 ** (height - h - 1)
        own, nodes = _longer(own, nodes, v[h])
    return Extremes(largest, least, ranges)


def _longer(own: Floats, nodes: Floats, child: float) -> tuple[Floats, Floats]:
    """Return own variances and H~'s nodes for the prefixes of a parent (2 m + 1,) from those of a child (m + 1,)."""
    share = np.arange(own.size) / (own.size - 1)
    own = np.concatenate([own + child / 2.0 * share**2, own[1:] + child / 2.0 * (1.0 - share[1:]) ** 2])
    nodes = np.concatenate([nodes, nodes[1:] + 1.0])
    nodes[-1] = 1.0
    return own, nodes


@compiled
def _extremes_at(own: Floats, nodes: Floats, child: float, top: float) -> tuple[float, float]:
    """Return the extreme ratios over i and j, which may be swapped."""
    full = own.size - 1
    full_ratio = own[full] + own[full] + top
    largest = least = full_ratio
    for i in range(1, full + 1):
        a = i / full
        for j in range(i, full + 1):
            b = j / full
            smooth = own[i] + own[j] + child * (0.5 * (a - b) * (a - b)) + top * (0.25 * (a + b) * (a + b))
            ratio = smooth / (nodes[i] + nodes[j])
            if i < full:
                largest = max(largest, ratio)
                least = min(least, ratio)
    return largest, least


HEIGHTS, SMALL_HEIGHTS = (12, 16, 17), (5, 9)
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


def range_table(heights: tuple[int, ...], sizes: tuple[int, ...]) -> Table:
    """Return the extreme ratios: binary trees in full, then every fan-out on smaller domains."""
    entries = [(2, 2 ** (height - 1), height, extremes(height)) for height in heights]
    for cells in sizes:
        domains = [(fan_out, DomainTree(cells, fan_out)) for fan_out in FAN_OUTS]
        entries += [(fan_out, cells, domain.height, extremes_of(domain)) for fan_out, domain in domains]
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
    return range_table(*((SMALL_HEIGHTS, SMALL_CELLS) if small else (HEIGHTS, CELLS))), factor_table(trees)


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
