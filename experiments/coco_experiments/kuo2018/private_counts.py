"""What private numbers of groups cost beyond public ones (Kuo et al. 2018, footnote 4), on Taxi and Hawaii's blocks.

Total epsilon 1, split evenly over levels; a share of each level's budget asks for its numbers of groups. Errors count
entities to add or remove, so that an empty group too many costs nothing and a group of five five.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np

from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw, level_title
from coco_experiments.groups import BARS, SEEDED, Case, Levels, means_of
from coco_experiments.kuo2018.cases import TAXI_MAX_SIZE, hawaii_case, small_cases, taxi_case
from coco_experiments.outcome import Record, Statement, Table
from coco_experiments.statistics import Mean
from coco_experiments.study import Report, Runs, Study, seeded
from coco_opt.groups import GroupsMethod, estimate_groups

SEEDS = (2018, 2019, 2020, 2021, 2022)
SHARES = (None, Fraction(1, 20), Fraction(1, 10), Fraction(1, 5), Fraction(2, 5))
METHODS = (GroupsMethod(consistency="joint"), GroupsMethod(consistency="matching"))


@dataclass(frozen=True, eq=False, slots=True)
class Setting:
    """A case, a method, and the share that measures numbers of groups; None: they are public."""

    case: Case
    method: GroupsMethod
    share: Fraction | None

    @property
    def counts(self) -> str:
        """Return what the numbers of groups are."""
        return "public" if self.share is None else f"{self.share}"


def measure(setting: Setting, seed: int) -> tuple[Levels, Levels]:
    """Return the errors by level, in entities and of the number of groups."""
    case = setting.case
    estimates = estimate_groups(case.measured(seed, counts_share=setting.share), setting.method)
    off = np.abs(estimates.group_counts - case.counts.group_counts)
    return case.errors(estimates.histograms), case.by_level(off.astype(np.float64))


def plan(data: Path | None, small: bool) -> list[tuple[Setting, Sequence[int]]]:
    """Return all methods and shares on each case."""
    cases = [small_cases(150)[0]] if small else [taxi_case(data, TAXI_MAX_SIZE), hawaii_case(data)]
    return seeded((Setting(*setting) for setting in product(cases, METHODS, SHARES)), SEEDS[: 2 if small else None])


def report(results: Sequence[Runs[Setting, tuple[Levels, Levels]]], path: Path) -> Report:
    """Return one row a case, method, share and level, and its error as a multiple of that with public counts."""
    rows, public = list[Record](), tuple[Mean, ...]()
    for runs in results:
        setting, method = runs.case, str(runs.case.method.consistency)
        errors, groups = (means_of(levels) for levels in zip(*runs.found, strict=True))
        public = errors if setting.share is None else public
        for level, (error, off) in enumerate(zip(errors, groups, strict=True)):
            key: Record = {"data": setting.case.name, "method": method, "share for counts": setting.counts}
            times = {"times public": error.value / public[level].value, "groups off": off.value}
            rows.append({**key, "level": level, **error.cells("entities off"), "runs": error.runs, **times})
    notes = (SEEDED, BARS, f"Seeds {', '.join(map(str, SEEDS))}, fixed beforehand.")
    title = "Private numbers of groups: mean distance (entities) a region, total epsilon 1"
    worst = max(rows, key=lambda row: row["times public"])
    claim = Statement(
        "footnote 4",
        "where numbers of groups are not public, a part of the budget can estimate them",
        f"a share of it costs {min(row['times public'] for row in rows):.3g} to {worst['times public']:.3g} times the "
        f"error with public numbers (most: {worst['data']}, {worst['method']}, level {worst['level']})",
        None,
        "the paper states no error",
    )
    style = AxisStyle("share for counts", "error over that\nwith public counts", "linear", "linear", same_y=True)
    figures = draw(path, panels(rows), style)
    return Report({"": Table.of(title, rows, notes)}, figures, statements=[claim])


def panels(rows: Sequence[Record]) -> list[list[CurvePanel]]:
    """Return a row of panels a data set, one a level: error over that with public numbers by share."""
    by_data: dict[str, list[CurvePanel]] = {}
    for data, level in dict.fromkeys((row["data"], row["level"]) for row in rows):
        points: dict[str, list[Record]] = {}
        for row in rows:
            if (row["data"], row["level"]) == (data, level) and row["share for counts"] != "public":
                points.setdefault(row["method"], []).append(row)
        shares = [float(share) for share in SHARES if share is not None]
        curves = [Curve(name, shares, [row["times public"] for row in by_share]) for name, by_share in points.items()]
        curves.append(Curve("equal", shares, [1.0] * len(shares), theory=True))
        by_data.setdefault(data, []).append(CurvePanel(level_title(data, level), tuple(curves)))
    return list(by_data.values())


PRIVATE_COUNTS = Study("kuo2018/private_counts", plan, measure, report)
