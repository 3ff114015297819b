"""How often the posterior's intervals hold the true counts, over twenty seeds, by level and class of sizes.

Total epsilon 1, independent noise, even split, growth of buckets fixed beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_experiments.beyond.study import GROWTH, QueryPlan, cells, grown
from coco_experiments.groups import SEEDED, Case
from coco_experiments.kuo2018.cases import TAXI_MAX_SIZE, hawaii_case, small_cases, taxi_case
from coco_experiments.outcome import Record, Table
from coco_experiments.statistics import Mean
from coco_experiments.study import Report, Runs, Study, not_converged, seeded
from coco_opt.array_types import Floats, Ints
from coco_opt.choices import SolverChoices
from coco_opt.groups.estimating.intervals import Intervals
from coco_opt.groups.estimating.posterior.consistent import convergence_of, dense_estimate, seed_of
from coco_opt.groups.estimating.posterior.observations import survey_of
from coco_opt.groups.estimating.posterior.sampler import Posterior, SamplerOptions, sample_posterior
from coco_opt.groups.noisy_measurements import GroupsMeasurements

SEEDS = tuple(range(2018, 2038))
SHARE = 0.9
CLASSES = ((0, 10), (10, 100), (100, None))  # of sizes, by which coverage is told apart
Found = dict[str, Any]
"""By kind of counts, a list of levels of classes of what ``_coverage`` returns; and whether the chains converged."""


@dataclass(frozen=True, eq=False, slots=True)
class Setting:
    """A case and what is measured of it."""

    case: Case
    queries: QueryPlan


def coverage_of(case: Case, drawn: Posterior, intervals: Intervals) -> dict[str, list[list[list[float]]]]:
    """Return the coverage of both kinds of counts, by level and class of sizes, over the intervals of any width."""
    assert drawn.sizes is not None
    sizes = np.array([histogram.to_dense(case.max_size) for histogram in case.truth])
    running, middle = np.cumsum(sizes, axis=1)[:, :-1], Fraction(str(SHARE))  # the last cell of Hc is public
    at_most = intervals.at_most_lower[:, :-1], intervals.at_most_upper[:, :-1]
    kinds: dict[str, tuple[Any, ...]] = {
        "of at most a size": (running, *at_most, drawn.cumulative.inside(running, middle)),
        "of a size": (sizes, intervals.groups_lower, intervals.groups_upper, drawn.sizes.inside(sizes, middle)),
    }
    levels = [case.hierarchy.level == level for level in range(case.levels)]
    return {
        name: [[_coverage(*(part[regions, low:end] for part in parts)) for low, end in CLASSES] for regions in levels]
        for name, parts in kinds.items()
    }


def _coverage(true: Ints, low: Ints, high: Ints, split: Floats) -> list[float]:
    """Return the share uncertain, of those inside, inside where ties are split (mid-p), and the mean width."""
    wide = low < high
    if not wide.any():
        return [0.0, float("nan"), float("nan"), 0.0]
    inside: NDArray[np.bool_] = (low <= true) & (true <= high)
    shares = wide, inside[wide], split[wide], (high - low)[wide]
    return [float(share.mean()) for share in shares]


def measure(setting: Setting, seed: int) -> Found:
    """Return the coverage under one seed."""
    measurement, options = setting.queries.measured(setting.case, seed), SamplerOptions()
    survey = survey_of(GroupsMeasurements(measurement))
    drawn = sample_posterior(survey, seed_of(measurement), options=options, sizes=True)
    _, intervals, _ = dense_estimate(survey, drawn, SolverChoices(), SHARE)
    assert intervals is not None
    converged = convergence_of(survey, drawn, options).converged
    return {**coverage_of(setting.case, drawn, intervals), "converged": converged}


def rows_of(runs: Runs[Setting, Found], counts: str) -> list[Record]:
    """Return one row a level and class of sizes, of those with an uncertain count."""
    rows: list[Record] = []
    for level, (number, (low, end)) in product(range(runs.case.case.levels), enumerate(CLASSES)):
        every = np.array([found[counts][level][number] for found in runs.found])
        every = every[every[:, 0] > 0.0]
        if not every.size:
            continue
        inside, split = (Mean.of((100 * every[:, column]).tolist()) for column in (1, 2))
        rows.append(
            {
                "data": runs.case.case.name,
                "method": runs.case.queries.name,
                "level": level,
                "sizes": f"{low}-{end - 1}" if end else f"{low}-",
                "counts": counts,
                "% uncertain": 100 * float(every[:, 0].mean()),
                **inside.cells("% inside"),
                "% inside, ties split": split.value,
                "its standard error": split.standard_error,
                "mean width": float(every[:, 3].mean()),
                "runs": inside.runs,
            }
        )
    return rows


def plan(data: Path | None, small: bool) -> list[tuple[Setting, Sequence[int]]]:
    """Return Taxi by cells and Hawaii's blocks by buckets; small: one seed on simulated data."""
    if small:
        dense, _, blocks = small_cases(60)
        settings = [(dense, cells(dense)), (blocks, grown(blocks, GROWTH[-3:])[0])]
    else:
        taxi, hawaii = taxi_case(data, TAXI_MAX_SIZE), hawaii_case(data)
        settings = [(taxi, cells(taxi)), (hawaii, grown(hawaii, GROWTH)[0])]
    return seeded((Setting(*setting) for setting in settings), SEEDS[: 1 if small else None])


def report(results: Sequence[Runs[Setting, Found]], path: Path) -> Report:
    """Return one row a case, kind of counts, level and class of sizes."""
    rows = [row for runs in results for kind in ("of at most a size", "of a size") for row in rows_of(runs, kind)]
    notes = (
        SEEDED,
        f"Seeds from {SEEDS[0]} on, fixed beforehand; even split, total epsilon 1.",
        "Over the intervals that are wider than one number (% uncertain of all); both ends included.",
        "Counts are integers and intervals hold at least their share, so narrow ones hold more: with ties split, a",
        "count at an interval's end is inside in part (mid-p), and 90 % is what a right posterior gives.",
    )
    slow = not_converged(results, lambda setting: f"{setting.case.name}, {setting.queries.name}")
    title = f"Intervals of {100 * SHARE:g} %: how often they hold the true count"
    return Report({"": Table.of(title, rows, notes)}, notes=slow)


def key(setting: Setting, seed: int) -> str:
    """Return what a finding is stored by."""
    return f"{setting.case.name}, {setting.queries.name}, {seed}"


COVERAGE = Study("beyond/coverage", plan, measure, report, key=key)
