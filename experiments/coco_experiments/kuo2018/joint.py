"""Joint estimation against the paper's algorithm on Taxi and the blocks of Hawaii, before and after rounding.

Total epsilon 1, split evenly but for bottom-up; independent noise; five seeds fixed beforehand. The references are
figures of a prototype (one to five other seeds), the aims what the project set itself for the mean after rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from coco_experiments.groups import BARS, SEEDED, Case, Levels, level_figure, means_of
from coco_experiments.kuo2018.cases import MAX_SIZE, TAXI_MAX_SIZE, hawaii_case, small_cases, taxi_case
from coco_experiments.kuo2018.draws import Draws
from coco_experiments.kuo2018.methods import alone, leaves_only, matched
from coco_experiments.outcome import Record, Table
from coco_experiments.study import Report, Runs, Study
from coco_opt.groups.estimating.joint import JointEstimate, joint
from coco_opt.groups.noisy_measurements import Loss

SEEDS = (2018, 2019, 2020, 2021, 2022)
SMALL_SEEDS = SEEDS[:1]
LOSSES: tuple[Loss, ...] = ("l1", "l2")
ROUNDED = "joint p = 1, rounded"
AIMS: dict[str, dict[str, Levels]] = {
    "Taxi": {ROUNDED: (6_900.0, 4_300.0, 2_400.0)},
    "Hawaii": {ROUNDED: (620.0, 290.0, 63.0, 44.0)},
}
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


def levels_of(values: dict[str, dict[str, Levels]], case: Case, method: str) -> Levels | tuple[None, ...]:
    """Return what is stated of a method on a case, at the K it is stated for, None a level where nothing is."""
    of_case = values.get(case.name.split(" ")[0], {}) if case.max_size < MAX_SIZE else {}
    return next((levels for name, levels in of_case.items() if method.startswith(name)), (None,) * case.levels)


def before_rounding(case: Case, estimate: JointEstimate) -> Levels:
    """Return sum_i |Hc[i] - fitted[i]| (entities) a region, by level."""
    errors = [
        float(np.abs(row - truth.cumulative(case.max_size)[:-1]).sum())
        for row, truth in zip(estimate.fitted, case.truth, strict=True)
    ]
    return case.by_level(np.array(errors))


def integer_share(estimate: JointEstimate) -> float:
    """Return the percentage of fitted cells that lie within 1e-6 groups of an integer."""
    return float(100 * np.mean(np.abs(estimate.fitted - np.rint(estimate.fitted)) < 1e-6))


def measure(case: Case, seed: int) -> dict[str, dict[str, Any]]:
    """Return every method's errors by level; all read the same noise but bottom-up. Of fits also their integers."""
    draws, epsilon = Draws(case, seed), Fraction(1)
    found: dict[str, dict[str, Any]] = {
        method.name: {"errors": case.errors(method.run(draws, epsilon))}
        for method in (alone(("Hc",) * case.levels), matched(("Hc",) * case.levels), leaves_only("Hc"))
    }
    noisy = case.measured(seed)
    for loss in LOSSES:
        estimate, name = joint(noisy, draws.solvers, loss=loss), f"joint p = {loss[1]}"
        before = {"errors": before_rounding(case, estimate), "integers": integer_share(estimate)}
        found |= {f"{name}, before rounding": before, f"{name}, rounded": {"errors": case.errors(estimate.histograms)}}
    return found


def plan(data: Path | None, small: bool) -> list[tuple[Case, Sequence[int]]]:
    """Return Taxi, at the paper's K once, and Hawaii's blocks."""
    if small:
        return [(small_cases(150)[0], SMALL_SEEDS)]
    return [(taxi_case(data, TAXI_MAX_SIZE), SEEDS), (hawaii_case(data), SEEDS), (taxi_case(data), SEEDS[:1])]


def report(results: Sequence[Runs[Case, dict[str, dict[str, Any]]]], path: Path) -> Report:
    """Return one row a case, method and level, with the prototype's figure and the aim."""
    rows, drawn = list[Record](), {}
    for runs in results:
        case = runs.case
        means = {name: means_of(found[name]["errors"] for found in runs.found) for name in runs.found[0]}
        drawn[f"{case.name}, K = {case.max_size:,}"] = means
        for name, levels in means.items():
            integers = [found[name]["integers"] for found in runs.found if "integers" in found[name]]
            stated = (levels_of(values, case, name) for values in (REFERENCES, AIMS))
            for level, (mean, reference, aim) in enumerate(zip(levels, *stated, strict=True)):
                rows.append(
                    {
                        "data": case.name,
                        "K": case.max_size,
                        "method": name,
                        "level": level,
                        **mean.cells(),
                        "runs": mean.runs,
                        "prototype": reference,
                        "aim": aim,
                        "reached": None if aim is None else mean.value <= aim,
                        "% integer before rounding": float(np.mean(integers)) if integers else None,
                    }
                )
    notes = (
        SEEDED,
        BARS,
        f"Seeds {', '.join(map(str, SEEDS))}, fixed beforehand. Bottom-up spends all on the leaves.",
        f"K = {MAX_SIZE:,} is run once: 3.1 million cells.",
        "Prototype: one to five other seeds; its rounding was earliest deadline first, not the nearest in L1 as here.",
    )
    title = "Joint estimation: mean distance (entities) a region, total epsilon 1"
    return Report({"": Table.of(title, rows, notes)}, level_figure(path, drawn))


JOINT = Study("kuo2018/joint", plan, measure, report)
