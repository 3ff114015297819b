"""Figure 1: where in the sizes the error of one region's estimate lies, rank (Hg) against cumulative (Hc).

The paper draws one estimate without numbers and says: Hg's errors are concentrated around small sizes, Hc's are more
dense throughout the rest. Here the signed error Hc'[i] - Hc[i] is drawn for one seed, and a table says over ten runs
how large |Hc'[i] - Hc[i]| is at small and at larger sizes, and how many sizes are in error. epsilon = 1, one region.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.kuo2018.cases import Case, housing_case, small_cases, taxi_case, top, white_case
from coco_experiments.kuo2018.draws import Draws
from coco_experiments.kuo2018.methods import queries_of
from coco_experiments.kuo2018.sweep import BARS, SEEDED, SEEDS, SMALL_SEEDS
from coco_experiments.outcome import Cell, Outcome, Reporter, Statement, Table, publish
from coco_experiments.statistics import Mean

NAME = "kuo2018/figure1"
EPSILON = Fraction(1)
ESTIMATORS = ("Hg", "Hc")
SMALL_SHARE = 0.9  # sizes up to this quantile of the groups count as small
COLUMNS = (
    "data",
    "estimator",
    "measured",
    "standard error",
    "groups misplaced a small size",
    "groups misplaced a larger size",
    "% of sizes in error",
    "small up to",
)

Gaps = NDArray[np.int64]


def gaps(draws: Draws, estimator: str) -> Gaps:
    """Return Hc'[i] - Hc[i] (groups) at sizes i = 0..K for the root."""
    case = draws.case
    (estimate,) = draws.level(0, queries_of((estimator,))[0], EPSILON)
    return estimate.histogram.cumulative(case.max_size) - case.truth[0].cumulative(case.max_size)


def small_up_to(case: Case) -> int:
    """Return the size that nine groups in ten do not exceed."""
    truth = case.truth[0]
    return int(truth.sizes[np.searchsorted(np.cumsum(truth.counts), SMALL_SHARE * truth.groups)])


def rows_of(case: Case, seeds: tuple[int, ...]) -> list[tuple[Cell, ...]]:
    """Return one row an estimator: its distance, and where it lies; errors are means of |Hc' - Hc| over sizes."""
    bound, largest = small_up_to(case), case.truth[0].max_size
    rows: list[tuple[Cell, ...]] = []
    for estimator in ESTIMATORS:
        runs = [np.abs(gaps(Draws(case, seed), estimator)) for seed in seeds]
        distance = Mean.of([float(run.sum()) for run in runs])
        near, far = (float(np.mean([run[part].mean() for run in runs])) for part in _parts(bound, largest))
        dense = float(np.mean([np.mean(run[: largest + 1] > 0) for run in runs]))
        rows.append((case.name, estimator, distance.value, distance.standard_error, near, far, 100 * dense, bound))
    return rows


def _parts(bound: int, largest: int) -> tuple[slice, slice]:
    """Return the small sizes, and those from there to the largest; a single size serves as both."""
    return slice(0, bound + 1), slice(min(bound + 1, largest), largest + 1)


def panels(case: Case, seed: int) -> list[CurvePanel]:
    """Return one panel an estimator, the signed error of one seed at every size up to the largest."""
    curve_panels = []
    for estimator in ESTIMATORS:
        error = gaps(Draws(case, seed), estimator)[: case.truth[0].max_size + 1]
        # Only where the error changes: the line is a step function of ten thousands of equal cells.
        changes = np.flatnonzero(np.diff(error, prepend=error[0] - 1, append=error[-1] - 1)[:-1])
        x, y = np.repeat(changes, 2)[1:], np.repeat(error[changes], 2)[:-1]
        step = Curve("Hc' - Hc", tuple(x.tolist()), tuple(float(value) for value in y))
        curve_panels.append(CurvePanel(f"{case.name}, estimated by {estimator}", (step,)))
    return curve_panels


def claims(table: Table) -> list[Statement]:
    """Return what the caption of Figure 1 says, next to the table."""
    hg, hc = ([row for row in table.records() if row["estimator"] == name] for name in ESTIMATORS)
    near, far = ([float(str(row[f"groups misplaced a {which} size"])) for row in hg] for which in ("small", "larger"))
    dense = [[float(str(row["% of sizes in error"])) for row in rows] for rows in (hg, hc)]
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
            all(a < b for a, b in zip(*dense, strict=True)),
        ),
    ]


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``kuo2018/figure1`` as CSV, PNG and PDF; small: two seeds on simulated data."""
    wide = small_cases()[:2] if small else [housing_case(data), white_case(data), taxi_case(data)]
    cases = [top(case, 1) for case in wide]
    seeds = SMALL_SEEDS if small else SEEDS
    rows = []
    for done, case in enumerate(cases, 1):
        rows += rows_of(case, seeds)
        reporter.progress(NAME, done, len(cases))
    notes = (
        SEEDED,
        BARS,
        "Small sizes: those that nine true groups in ten do not exceed. The paper states no numbers.",
    )
    table = Table(
        f"Figure 1: where the error lies, one region, epsilon 1, {len(seeds)} runs", COLUMNS, tuple(rows), notes
    )
    drawn = [panels(case, seeds[0]) for case in cases]
    style = AxisStyle(
        "size (entities)", "estimated minus true number\nof groups up to a size", "symlog", "symlog", marks=False
    )
    files = draw(out / NAME, drawn, style)
    return publish(NAME, {"": table}, out, reporter, files=files, statements=claims(table))
