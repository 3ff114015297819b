"""Theorem 4 without sampling: H-bar's variance against H~'s for every range, and the query that gains most.

On the binary trees of the paper every single range is computed; other fan-outs and domains that are no power of it are
gone through by the tree's posterior variances, every range too, on smaller domains.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np

from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.hay2010.all_ranges import Extremes, extremes
from coco_experiments.hay2010.strategies import Ranges, fit_variances, node_numbers
from coco_experiments.hay2010.theory import most_improved_factor
from coco_experiments.outcome import Outcome, Reporter, Statement, Table, publish
from coco_opt.ranges.domain import DomainTree

NAME = "hay2010/theorem4"
HEIGHTS, SMALL_HEIGHTS = (12, 16, 17), (5, 9)
CELLS, SMALL_CELLS = (256, 300, 1_000), (16, 37)
FAN_OUTS = (2, 3, 4, 8, 16)
IMPROVED = {2: (4, 8, 12, 16, 17), 4: (4, 6, 8), 16: (3, 4, 5)}
PUBLISHED = {(16, 2): 9.33}
NOISE = 1e-12  # rounding of floats

RANGE_COLUMNS = ("tree", "cells", "height", "ranges", "largest H-bar / H~", "least H-bar / H~", "never above")
FACTOR_COLUMNS = (
    "fan-out",
    "height",
    "Theorem 4 (iv)",
    "published",
    "H~ / H-bar, exact",
    "largest H-bar variance / (k height)",
    "Theorem 4 (iii) holds",
)


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
    rows = tuple(
        (f"{fan_out}-ary", cells, height, ratios.ranges, ratios.largest, ratios.least, ratios.largest <= 1.0 + NOISE)
        for fan_out, cells, height, ratios in entries
    )
    return Table(
        "Theorem 4 (ii): the exact variance of H-bar over that of H~, every range computed", RANGE_COLUMNS, rows
    )


def factor_table(trees: dict[int, tuple[int, ...]]) -> Table:
    """Return Theorem 4 (iv) and (iii) with exact values."""
    rows = tuple(_factor_row(fan_out, height) for fan_out, heights in trees.items() for height in heights)
    return Table(
        "Theorem 4 (iii) and (iv): all cells but the first and the last; the worst range looked at",
        FACTOR_COLUMNS,
        rows,
        (
            "(iv) is a lower bound on the factor; (iii) bounds a range's variance by k height nodes' variances.",
            "Ranges looked at for (iii): all sizes 2^i at all places, and all cells but the outermost.",
        ),
    )


def _factor_row(fan_out: int, height: int) -> tuple[int | float | bool | None, ...]:
    domain = DomainTree(fan_out ** (height - 1), fan_out)
    inner = Ranges(np.array([1]), np.array([domain.cells - 1]))
    variance = float(fit_variances(domain, inner)[0])
    sizes = 2 ** np.arange(domain.cells.bit_length())
    worst = max(float(fit_variances(domain, Ranges.everywhere(domain.cells, int(size))).max()) for size in sizes)
    share = max(worst, variance) / (fan_out * height)
    return (
        fan_out,
        height,
        most_improved_factor(height, fan_out),
        PUBLISHED.get((height, fan_out)),
        float(node_numbers(domain, inner)[0]) / variance,
        share,
        share <= 1.0,
    )


def failures_in(ranges: Table, factors: Table) -> tuple[str, ...]:
    """Return one line for every tree that contradicts the theorem."""
    lines = [
        f"{row['tree']}, {row['cells']} cells: a range has a larger variance in H-bar than in H~"
        for row in ranges.records()
        if not row["never above"]
    ]
    for row in factors.records():
        bound, exact = row["Theorem 4 (iv)"], row["H~ / H-bar, exact"]
        if not (isinstance(bound, float) and isinstance(exact, float) and exact >= bound):
            lines.append(f"fan-out {row['fan-out']}, height {row['height']}: the factor is below Theorem 4 (iv)")
        if not row["Theorem 4 (iii) holds"]:
            lines.append(f"fan-out {row['fan-out']}, height {row['height']}: a range exceeds Theorem 4 (iii)")
    return tuple(lines)


def _plot(out: Path, factors: Table) -> list[Path]:
    by_fan_out: dict[str, list[tuple[float, float, float]]] = {}
    for row in factors.rows:
        fan_out, height, bound, _, exact = (0.0 if cell is None else float(cell) for cell in row[:5])
        by_fan_out.setdefault(f"{fan_out:.0f} children a node", []).append((height, exact, bound))
    panels = []
    for title, points in by_fan_out.items():
        x = [height for height, _, _ in points]
        exact_curve = Curve("exact", x, [value for _, value, _ in points])
        panels.append(
            CurvePanel(title, (exact_curve, Curve("Theorem 4 (iv)", x, [b for *_, b in points], theory=True)))
        )
    style = AxisStyle("height of the tree", "error of H~ over that of H-bar", "linear", "linear")
    return draw(out / NAME, [panels], style)


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Compute Theorem 4's variances and write CSV, PNG and PDF; needs no data. Small: small trees."""
    trees = {fan_out: heights[:2] for fan_out, heights in IMPROVED.items()} if small else IMPROVED
    tables = {
        "": range_table(SMALL_HEIGHTS, SMALL_CELLS) if small else range_table(HEIGHTS, CELLS),
        "_factors": factor_table(trees),
    }
    ranges, factors = tables.values()
    failures, claims = failures_in(ranges, factors), statements(ranges, factors)
    return publish(NAME, tables, out, reporter, files=_plot(out, factors), failures=failures, statements=claims)


def statements(ranges: Table, factors: Table) -> tuple[Statement, ...]:
    """Return Theorem 4 with exact variances."""
    largest = max(float(cast("float", row[RANGE_COLUMNS[4]])) for row in ranges.records())
    claims = [
        Statement(
            "Theorem 4 (ii)",
            "no unbiased linear estimate of any range has a smaller variance than H-bar's",
            f"variance of H-bar over H~'s: at most {largest:.6f} in {len(ranges.rows)} trees, every range",
            all(bool(row["never above"]) for row in ranges.records()),
        )
    ]
    for row in factors.records():
        bound, exact = (cast("float", row[name]) for name in ("Theorem 4 (iv)", "H~ / H-bar, exact"))
        claims.append(
            Statement(
                f"Theorem 4 (iv), fan-out {row['fan-out']}, height {row['height']}",
                f"all cells but the outermost gain a factor of at least {bound:.4g}",
                f"{exact:.4g}",
                exact >= bound,
            )
        )
    return tuple(claims)
