"""Figure 1: where in the sizes the error of one region's estimate lies, rank (Hg) against cumulative (Hc).

The paper draws one estimate without numbers and says: Hg's errors are concentrated around small sizes, Hc's are more
dense throughout the rest. Here the signed error Hc'[i] - Hc[i] is drawn for one seed, and a table says over ten runs
how large |Hc'[i] - Hc[i]| is at small and at larger sizes, and how many sizes are in error. epsilon = 1, one region.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.groups import BARS, SEEDED, Case
from coco_experiments.kuo2018.cases import housing_case, small_cases, taxi_case, top, white_case
from coco_experiments.kuo2018.methods import Draws, queries_of
from coco_experiments.kuo2018.sweep import SEEDS, SMALL_SEEDS
from coco_experiments.outcome import Record, Statement, Table
from coco_experiments.statistics import Mean
from coco_experiments.study import Report, Runs, Study, seeded

EPSILON = Fraction(1)
ESTIMATORS = ("Hg", "Hc")
SMALL_SHARE = 0.9  # sizes up to this quantile of the groups count as small

Gaps = NDArray[np.int64]


def gaps(case: Case, seed: int) -> dict[str, Gaps]:
    """Return Hc'[i] - Hc[i] (groups) at sizes i = 0..K for the root, by estimator."""
    true, found = case.truth[0].cumulative(case.max_size), {}
    for estimator in ESTIMATORS:
        (estimate,) = Draws(case, seed).level(0, queries_of((estimator,))[0], EPSILON)
        found[estimator] = estimate.histogram.cumulative(case.max_size) - true
    return found


def small_up_to(case: Case) -> int:
    """Return the size that nine groups in ten do not exceed."""
    truth = case.truth[0]
    return int(truth.sizes[np.searchsorted(np.cumsum(truth.counts), SMALL_SHARE * truth.groups)])


def rows_of(runs: Runs[Case, dict[str, Gaps]]) -> list[Record]:
    """Return one row an estimator: its distance, and where it lies; errors are means of |Hc' - Hc| over sizes."""
    case, rows = runs.case, list[Record]()
    bound, largest = small_up_to(case), case.truth[0].max_size
    for estimator in ESTIMATORS:
        away = [np.abs(found[estimator]) for found in runs.found]
        near, far = (float(np.mean([run[part].mean() for run in away])) for part in _parts(bound, largest))
        rows.append(
            {
                "data": case.name,
                "estimator": estimator,
                **Mean.of([float(run.sum()) for run in away]).cells(),
                "groups misplaced a small size": near,
                "groups misplaced a larger size": far,
                "% of sizes in error": 100 * float(np.mean([np.mean(run[: largest + 1] > 0) for run in away])),
                "small up to": bound,
            }
        )
    return rows


def _parts(bound: int, largest: int) -> tuple[slice, slice]:
    """Return the small sizes, and those from there to the largest; a single size serves as both."""
    return slice(0, bound + 1), slice(min(bound + 1, largest), largest + 1)


def panels(runs: Runs[Case, dict[str, Gaps]]) -> list[CurvePanel]:
    """Return one panel an estimator, the signed error of the first seed at every size up to the largest."""
    curve_panels = []
    for estimator, found in runs.found[0].items():
        error = found[: runs.case.truth[0].max_size + 1]
        # Only where the error changes: the line is a step function of ten thousands of equal cells.
        changes = np.flatnonzero(np.diff(error, prepend=error[0] - 1, append=error[-1] - 1)[:-1])
        x, y = np.repeat(changes, 2)[1:], np.repeat(error[changes], 2)[:-1]
        step = Curve("Hc' - Hc", tuple(x.tolist()), tuple(float(value) for value in y))
        curve_panels.append(CurvePanel(f"{runs.case.name}, estimated by {estimator}", (step,)))
    return curve_panels


def claims(table: Table) -> list[Statement]:
    """Return what the caption of Figure 1 says, next to the table."""
    hg, hc = ([row for row in table.records() if row["estimator"] == name] for name in ESTIMATORS)
    near, far = ([row[f"groups misplaced a {which} size"] for row in hg] for which in ("small", "larger"))
    dense = [[row["% of sizes in error"] for row in rows] for rows in (hg, hc)]
    others = [row["data"] for row, a, b in zip(hg, *dense, strict=True) if a >= b]
    ratios = [a / b if b else float("inf") for a, b in zip(near, far, strict=True)]
    shares = "; ".join(f"{row['data']}: {a:.3g} and {b:.3g} %" for row, a, b in zip(hg, *dense, strict=True))
    return [
        Statement(
            "Figure 1",
            "errors of Hg are concentrated around small sizes",
            f"groups misplaced a small size over those a larger one: {', '.join(f'{ratio:.3g}' for ratio in ratios)}",
            min(ratios) > 1,
        ),
        Statement(
            "Figure 1",
            "errors of Hc are more dense throughout the rest of the sizes",
            f"sizes in error, Hg and Hc: {shares}",
            not others,
            f"Hg errs at more sizes on {', '.join(others)}" if others else "",
        ),
    ]


def plan(data: Path | None, small: bool) -> list[tuple[Case, Sequence[int]]]:
    """Return the roots of housing, White and Taxi, or of simulated data."""
    wide = small_cases()[:2] if small else [housing_case(data), white_case(data), taxi_case(data)]
    return seeded((top(case, 1) for case in wide), SMALL_SEEDS if small else SEEDS)


def report(results: Sequence[Runs[Case, dict[str, Gaps]]], path: Path) -> Report:
    """Return the table, the figure, and what the caption says."""
    notes = (
        SEEDED,
        BARS,
        "Small sizes: those that nine true groups in ten do not exceed. The paper states no numbers.",
    )
    title = f"Figure 1: where the error lies, one region, epsilon 1, {len(results[0].seeds)} runs"
    table = Table.of(title, (row for runs in results for row in rows_of(runs)), notes)
    style = AxisStyle(
        "size (entities)",
        "estimated minus true number\nof groups up to a size",
        "symlog",
        "symlog",
        marks=False,
        same_y=True,
    )
    figures = draw(path, [panels(runs) for runs in results], style)
    return Report({"": table}, figures, statements=claims(table))


FIGURE1 = Study("kuo2018/figure1", plan, gaps, report)
