"""Joint estimation against the paper's algorithm on Taxi and the blocks of Hawaii, before and after rounding.

Total epsilon 1, split evenly but for bottom-up; independent noise; five seeds fixed beforehand. The references are
figures of a prototype (one to five other seeds), the aims what the project set itself for the mean after rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from coco_experiments.kuo2018.cases import MAX_SIZE, Case, hawaii_case, small_cases, taxi_case
from coco_experiments.kuo2018.draws import Draws, Levels, errors_by_level, mean_by_level, split_evenly
from coco_experiments.kuo2018.methods import Method, alone, leaves_only, matched
from coco_experiments.kuo2018.sweep import BARS, SEEDED, level_figure, means_of
from coco_experiments.outcome import Cell, Outcome, Reporter, Table, publish
from coco_experiments.statistics import Mean
from coco_opt.groups.estimating.joint import JointEstimate, joint
from coco_opt.groups.noisy_measurements import Loss

NAME = "kuo2018/joint"
EPSILON = Fraction(1)
SEEDS = (2018, 2019, 2020, 2021, 2022)
SMALL_SEEDS = SEEDS[:1]
TAXI_MAX_SIZE = 5_000
AIMS: dict[str, Levels] = {"Taxi": (6_900.0, 4_300.0, 2_400.0), "Hawaii": (620.0, 290.0, 63.0, 44.0)}
REFERENCES: dict[str, dict[str, Levels]] = {
    "Taxi": {
        "no consistency": (9_030.0, 5_469.0, 2_437.0),
        "matching": (10_105.0, 6_018.0, 2_381.0),
        "joint p = 2, before rounding": (6_615.0, 4_130.0, 2_407.0),
        "joint p = 1, before rounding": (6_514.0, 4_052.0, 2_273.0),
        "joint p = 1, rounded": (6_606.0, 4_106.0, 2_267.0),
        "bottom-up": (8_013.0, 4_447.0, 768.0),
    },
    "Hawaii": {
        "no consistency": (1_067.0, 379.0, 82.1, 65.2),
        "matching": (1_284.0, 402.0, 76.9, 49.8),
        "joint p = 2, before rounding": (956.0, 400.0, 91.7, 59.9),
        "joint p = 1, before rounding": (541.0, 257.0, 59.2, 41.2),
        "joint p = 1, rounded": (577.0, 280.5, 70.5, 47.5),
        "bottom-up": (2_211.0, 493.0, 21.5, 10.4),
    },
}
COLUMNS = (
    "data",
    "K",
    "method",
    "level",
    "measured",
    "standard error",
    "runs",
    "prototype",
    "aim",
    "reached",
    "% integer before rounding",
)
ROUNDED = "joint p = 1, rounded"


@dataclass(frozen=True, slots=True)
class Result:
    """A method's mean errors by level on one case, and the share of fitted cells that were integers (joint only)."""

    case: str
    max_size: int
    method: str
    means: tuple[Mean, ...]
    integer_share: float | None = None

    def levels_of(self, values: dict[str, dict[str, Levels]]) -> Levels | None:
        """Return what the prototype gave for this method, at the K it was given for."""
        of_case = values.get(self.case.split(" ")[0], {}) if self.max_size < MAX_SIZE else {}
        return next((levels for name, levels in of_case.items() if self.method.startswith(name)), None)


def before_rounding(case: Case, estimate: JointEstimate) -> Levels:
    """Return sum_i |Hc[i] - fitted[i]| (entities) a region, by level."""
    errors = [
        float(np.abs(row - truth.cumulative(case.max_size)[:-1]).sum())
        for row, truth in zip(estimate.fitted, case.truth, strict=True)
    ]
    return mean_by_level(case, np.array(errors))


def integer_share(estimate: JointEstimate) -> float:
    """Return the percentage of fitted cells that lie within 1e-6 groups of an integer."""
    return float(100 * np.mean(np.abs(estimate.fitted - np.rint(estimate.fitted)) < 1e-6))


def paper_methods(levels: int) -> list[Method]:
    """Return the methods joint estimation is compared with."""
    return [alone(("Hc",) * levels), matched(("Hc",) * levels), leaves_only("Hc")]


def results_of(case: Case, losses: Sequence[Loss], seeds: Sequence[int], reporter: Reporter) -> list[Result]:
    """Return the results on one case; all methods read the same noise, seed by seed, but bottom-up."""
    errors: dict[str, list[Levels]] = {}
    integer_shares: dict[str, list[float]] = {}
    for done, seed in enumerate(seeds, 1):
        draws = Draws(case, seed)
        for method in paper_methods(case.levels):
            errors.setdefault(method.name, []).append(errors_by_level(case, method.run(draws, EPSILON)))
        noisy = draws.measurement("cumulative", split_evenly(EPSILON, case.levels))
        for loss in losses:
            estimate = joint(noisy, draws.solvers, loss=loss)
            name = f"joint p = {loss[1]}"
            errors.setdefault(f"{name}, before rounding", []).append(before_rounding(case, estimate))
            errors.setdefault(f"{name}, rounded", []).append(errors_by_level(case, estimate.histograms))
            integer_shares.setdefault(f"{name}, before rounding", []).append(integer_share(estimate))
        reporter.progress(f"{NAME} {case.name}", done, len(seeds))
    return [
        Result(
            case.name,
            case.max_size,
            name,
            means_of(runs),
            float(np.mean(integer_shares[name])) if name in integer_shares else None,
        )
        for name, runs in errors.items()
    ]


def table_of(results: Sequence[Result]) -> Table:
    """Return one row a case, method and level, with the prototype's figure and the aim."""
    rows: list[tuple[Cell, ...]] = []
    for result in results:
        reference = result.levels_of(REFERENCES)
        aim = result.levels_of({case: {ROUNDED: levels} for case, levels in AIMS.items()})
        for level, mean in enumerate(result.means):
            rows.append(
                (
                    result.case,
                    result.max_size,
                    result.method,
                    level,
                    mean.value,
                    mean.standard_error,
                    mean.runs,
                    None if reference is None else reference[level],
                    None if aim is None else aim[level],
                    None if aim is None else mean.value <= aim[level],
                    result.integer_share,
                )
            )
    notes = (
        SEEDED,
        BARS,
        f"Seeds {', '.join(map(str, SEEDS))}, fixed beforehand. Bottom-up spends all on the leaves.",
        f"K = {MAX_SIZE:,} is run once: 3.1 million cells.",
        "Prototype: one to five other seeds; its rounding was earliest deadline first, not the nearest in L1 as here.",
    )
    return Table("Joint estimation: mean distance (entities) a region, total epsilon 1", COLUMNS, tuple(rows), notes)


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``kuo2018/joint`` as CSV, PNG and PDF; small: one seed on simulated data."""
    both: tuple[Loss, ...] = ("l1", "l2")
    if small:
        results = results_of(small_cases(150)[0], both, SMALL_SEEDS, reporter)
    else:
        results = results_of(taxi_case(data, TAXI_MAX_SIZE), both, SEEDS, reporter)
        results += results_of(hawaii_case(data), both, SEEDS, reporter)
        results += results_of(taxi_case(data), both, SEEDS[:1], reporter)
    means: dict[str, dict[str, tuple[Mean, ...]]] = {}
    for result in results:
        means.setdefault(f"{result.case}, K = {result.max_size:,}", {})[result.method] = result.means
    return publish(NAME, {"": table_of(results)}, out, reporter, files=level_figure(out / NAME, means))
