"""Buckets of the lower levels chosen by the root's noisy answer, against buckets by growth that were fixed beforehand.

NOT A RELEASE: the root is asked first, and what the others are asked depends on its answer. Adaptive composition adds
the same epsilons up, but there are two measurements where a release has one, sealed before anything is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coco_experiments.beyond.queries import BUCKETS, EPSILON, GROWTH, NEIGHBOURS, grown, planned
from coco_experiments.beyond.study import (
    Finding,
    Result,
    Way,
    error_table,
    estimated,
    finish,
    measured_cases,
    panels,
    stored_results_of,
    study,
)
from coco_experiments.kuo2018.cases import Case
from coco_experiments.kuo2018.noisy_answers import split_evenly
from coco_experiments.outcome import Outcome, Reporter
from coco_experiments.plots import comparison
from coco_opt.choices import SolverChoices
from coco_opt.groups import measure_hierarchy
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimating.estimators import FitOptions, estimate
from coco_opt.groups.estimating.posterior.prior import reaching, smoothed
from coco_opt.groups.noisy_measurements import GroupsMeasurements
from coco_opt.privacy import Epsilon, Measurement, SeededNoise

NAME = "beyond/adaptive"
ADAPTIVE = "posterior, buckets by the root's answer (two seals)"
SEEDS = (2018,)
REACH = 0.15  # sizes k +- 0.15 k over which the root's estimate is smoothed before it is read as a density


def balanced(density: NDArray[np.float64], scale: float) -> Buckets:
    """Return buckets of sizes 0 .. K - 1 in each of which a region expects about ``scale`` groups, or a single size.

    ``density`` float64[K + 1] are the groups of each size that a region of the level expects, and ``scale`` is that of
    the level's noise: what is lost inside such a bucket is about what noise hides of it. A bucket is at most as wide as
    its first size.
    """
    edges = [0]
    while edges[-1] < density.size - 1:
        begin, end, expected = edges[-1], edges[-1] + 1, density[edges[-1]]
        while end < min(density.size - 1, 2 * begin) and expected + density[end] <= scale:
            expected += density[end]
            end += 1
        edges.append(end)
    return Buckets.from_edges(edges)


def measured_twice(case: Case, growth: float, seed: int) -> tuple[Measurement, Measurement]:
    """Return the root's answers by buckets of a growth, and those of the other levels, asked by it; NOT PRIVATE."""
    split = split_evenly(EPSILON, case.levels)
    nothing = Fraction(0)
    at_root = [Buckets.by_growth(case.max_size, growth) if growth else None] + [None] * (case.levels - 1)
    first = _measured(case, (split[0], *[nothing] * (case.levels - 1)), at_root, seed)
    root = estimate(GroupsMeasurements(first)[0], FitOptions("l1"), SolverChoices())
    shape = smoothed(root.histogram.to_dense(case.max_size).astype(np.float64), reaching(case.max_size + 1, REACH))
    below = [
        balanced(shape / len(case.hierarchy.level_range(level)), float(1 / split[level]))
        for level in range(1, case.levels)
    ]
    return first, _measured(case, (nothing, *split[1:]), [None, *below], seed)


def _measured(case: Case, epsilons: Sequence[Fraction], buckets: Sequence[Buckets | None], seed: int) -> Measurement:
    return measure_hierarchy(
        case.truth,
        case.hierarchy,
        case.counts.group_counts,
        queries=["cumulative"] * case.levels,
        costs=[Epsilon(epsilon) for epsilon in epsilons],
        max_size=case.max_size,
        neighbours=NEIGHBOURS,
        source=SeededNoise(seed),
        buckets=buckets,
    )


def adaptively(case: Case, way: Way, seeds: Sequence[int], reporter: Reporter) -> Result:
    """Return what the posterior of both measurements makes of a case; the root is asked by the way's growth."""
    result = Result(case, way)
    for done, seed in enumerate(seeds, 1):
        first, second = measured_twice(case, way.queries.growth[0], seed)
        estimates, seconds = estimated(second, "posterior", [first])
        result.findings.append(Finding.of(case, estimates.histograms, seconds))
        reporter.progress(f"{NAME} {case.name}, adaptive", done, len(seeds))
    return result


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``beyond/adaptive`` as CSV, PNG and PDF; small: one seed on simulated data."""
    seeds = SEEDS[:1] if small else SEEDS
    settings = measured_cases(data, small=small)
    results: list[Result] = []
    stored = stored_results_of(out)
    for case, growth in settings:
        fixed, _ = grown(case, growth)
        ways = [Way(BUCKETS, "posterior", fixed), Way("posterior, planner's queries", "posterior", planned(case))]
        results += study(NAME, case, ways if any(growth) else ways[1:], seeds, reporter, stored)
        results.append(adaptively(case, Way(ADAPTIVE, "posterior", fixed), seeds, reporter))
    notes = (
        "NOT A RELEASE: the lower levels' queries depend on the root's answer. Even split, total epsilon 1.",
        f"Fixed buckets grow by {GROWTH[:3]} on Hawaii, root first; Taxi's fixed queries are the planner's cells.",
    )
    table = error_table("Adaptive queries", results, "posterior, planner's queries", notes=notes)
    figure = comparison(out / NAME, panels(results), "mean distance (entities) a region", log=True)
    return finish(NAME, out, {"": table}, results, figure, reporter)
