"""Error at the root against error at the leaves, by the split of one budget: from most at the root to most below."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from coco_experiments.beyond.queries import QueryPlan, leaves_only
from coco_experiments.beyond.study import (
    BOTTOM_UP,
    Result,
    Way,
    error_table,
    finish,
    measured_cases,
    studied,
)
from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.kuo2018.cases import Case
from coco_experiments.outcome import Outcome, Reporter

NAME = "beyond/frontier"
SEEDS = (2018,)
# Of four levels, root first, in parts; of three levels the last three.
PARTS = ((6, 2, 1, 1), (1, 1, 1, 1), (1, 1, 2, 6), (1, 1, 2, 16))


def splits(levels: int) -> list[tuple[Fraction, ...]]:
    """Return the splits of so many levels, from most at the root to most at the leaves."""
    result = []
    for parts in PARTS:
        shares = parts[:levels] if parts[0] > parts[-1] else parts[-levels:]
        result.append(tuple(Fraction(part, sum(shares)) for part in shares))
    return result


def ways_of(case: Case, growth: tuple[float, ...]) -> list[Way]:
    """Return each method by every split, of buckets where they grow, and bottom-up."""
    ways = [Way(BOTTOM_UP, "bottom_up", leaves_only(case))]
    name = "buckets" if any(growth) else "cells"
    for split in splits(case.levels):
        setting = ", ".join(f"{float(share):.2g}" for share in split)
        queries = QueryPlan(name, growth, split)
        ways.append(Way(f"matching, {queries.name}", "matching", queries, setting=setting))
        if not any(growth):  # joint estimation reads the same buckets on every level
            ways.append(Way(f"joint, {queries.name}", "joint", queries, setting=setting))
        ways.append(Way(f"posterior, {queries.name}", "posterior", queries, setting=setting))
    return ways


def panel(case: Case, results: Sequence[Result]) -> CurvePanel:
    """Return one case: each way's errors at the root by those at the leaves, a mark a split."""
    own = [result for result in results if result.case is case]
    lines = []
    for name in dict.fromkeys(result.way.name for result in own):
        means = [result.means for result in own if result.way.name == name]
        lines.append(Curve(name, [errors[-1].value for errors in means], [errors[0].value for errors in means]))
    return CurvePanel(case.name, tuple(lines))


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``beyond/frontier`` as CSV, PNG and PDF; small: one seed on simulated data."""
    settings = measured_cases(data, small=small)
    ways = ((case, ways_of(case, growth)) for case, growth in settings)
    results = studied(NAME, ways, SEEDS, out, reporter, small=small)
    notes = ("Splits root first; bottom-up spends all on the leaves.",)
    table = error_table("By split, total epsilon 1", results, BOTTOM_UP, "split", notes)
    style = AxisStyle("error at the leaves", "error at the root")
    figures = draw(out / NAME, [[panel(case, results) for case, _ in settings]], style)
    return finish(NAME, out, {"": table}, results, figures, reporter)
