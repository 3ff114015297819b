"""Error at the root against error at the leaves, by the split of one budget: from most at the root to most below."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from coco_experiments.beyond.questions import Questions, leaves_alone
from coco_experiments.beyond.study import BOTTOM_UP, Result, Way, asked_cases, error_table, finish, kept_of, study
from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.experiment import Outcome, Reporter
from coco_experiments.kuo2018.cases import Case

NAME = "beyond/frontier"
SEEDS = (2018,)
# Of four levels, root first, in parts; of three levels the last three.
PARTS = ((6, 2, 1, 1), (1, 1, 1, 1), (1, 1, 2, 6), (1, 1, 2, 16))


def splits(levels: int) -> list[tuple[Fraction, ...]]:
    """Return the splits of so many levels, from most at the root to most at the leaves."""
    found = []
    for parts in PARTS:
        kept = parts[:levels] if parts[0] > parts[-1] else parts[-levels:]
        found.append(tuple(Fraction(part, sum(kept)) for part in kept))
    return found


def ways_of(case: Case, growth: tuple[float, ...]) -> list[Way]:
    """Return each method by every split, of buckets where they grow, and bottom-up."""
    found = [Way(BOTTOM_UP, "bottom_up", leaves_alone(case))]
    name = "buckets" if any(growth) else "cells"
    for split in splits(case.levels):
        setting = ", ".join(f"{float(share):.2g}" for share in split)
        asked = Questions(name, growth, split)
        found.append(Way(f"matching, {asked.name}", "matching", asked, setting=setting))
        found.append(Way(f"joint, {asked.name}", "joint", asked, setting=setting))
        found.append(Way(f"posterior, {asked.name}", "posterior", asked, setting=setting))
    return found


def panel(case: Case, results: Sequence[Result]) -> CurvePanel:
    """Return one case: each way's errors at the root by those at the leaves, a mark a split."""
    own = [one for one in results if one.case is case]
    lines = []
    for name in dict.fromkeys(one.way.name for one in own):
        means = [one.means for one in own if one.way.name == name]
        lines.append(Curve(name, [at[-1].value for at in means], [at[0].value for at in means]))
    return CurvePanel(case.name, tuple(lines))


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``beyond/frontier`` as CSV, PNG and PDF; small: one seed on made data."""
    asked = asked_cases(data, small=small)
    found: list[Result] = []
    kept = kept_of(out)
    for case, growth in asked:
        found += study(NAME, case, ways_of(case, growth), SEEDS[:1] if small else SEEDS, reporter, kept)
    notes = ("Splits root first; bottom-up spends all on the leaves.",)
    table = error_table("By split, total epsilon 1", found, BOTTOM_UP, "split", notes)
    style = AxisStyle("error at the leaves", "error at the root")
    figures = draw(out / NAME, [[panel(case, found) for case, _ in asked]], style)
    return finish(NAME, out, {"": table}, found, figures, reporter)
