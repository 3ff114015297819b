"""The posterior of a nation from a measurement, tables and intervals: 3,161 regions, K = 10,000, in buckets.

Households of table H13 with the tail of Kuo et al., in a process of its own; and matching of the same answers. It
takes many minutes, so by its own name only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coco_experiments.bench.apart import apart
from coco_experiments.bench.nation import counts_of, measured
from coco_experiments.bench.rows import Row, clocked, finish
from coco_experiments.outcome import Outcome, Reporter
from coco_opt.choices import SolverChoices
from coco_opt.groups.estimating.estimate import estimate_groups
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.estimating.posterior.consistent import integer_estimate
from coco_opt.groups.estimating.posterior.sparse import MANY_CELLS
from coco_opt.histograms import errors_by_level

NAME = "bench/nation_posterior"
MAX_SIZE, SMALL_MAX_SIZE = 10_000, 60
GROWTH = (0.05, 0.1, 0.3)
SECONDS_LIMIT, MEMORY_LIMIT = 600.0, 4000.0  # MB
WHAT = "posterior, tables and intervals, buckets"


def estimated(data: str | None, max_size: int) -> dict[str, Any]:
    """Measure and estimate (K = 60: a small simulated nation); return seconds, convergence and errors by level."""
    small = max_size == SMALL_MAX_SIZE
    _, counts = counts_of(small=small, data=None if data is None else Path(data))
    tree, truth = counts.hierarchy, [histogram.clamp(max_size) for histogram in counts.histograms()]
    measurement = measured(counts, max_size, GROWTH)
    matching = estimate_groups(measurement, GroupsMethod("l1", consistency="matching"), SolverChoices())
    many = 0 if small else MANY_CELLS
    seconds, used, estimate = clocked(
        lambda: integer_estimate(measurement, SolverChoices(), coverage=0.9, threads=2, many=many)
    )
    state = estimate.convergence
    return {
        "seconds": seconds,
        "used": used,
        "errors": errors_by_level(tree, estimate.histograms, truth).tolist(),
        "matching": errors_by_level(tree, matching.histograms, truth).tolist(),
        "told": f"{state.draws} draws of {state.sweeps} sweeps, converged: {state.converged}, worst R-hat "
        f"{state.r_hat:.2f}, {len(state.not_converged)} regions not; relative gap {estimate.uncertified_gap:.1g}",
        "whole": [histogram.groups for histogram in estimate.histograms] == counts.group_counts.tolist(),
    }


def _words(errors: Sequence[float]) -> str:
    return " / ".join(f"{error:,.1f}" for error in errors)


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Time the posterior of a nation (small: 12 made counties, K = 60); a region with other groups is wrong."""
    name, counts = counts_of(small=small, data=data)
    max_size, target = (SMALL_MAX_SIZE if small else MAX_SIZE), f"{__name__}:estimated"
    place = None if data is None else str(data)
    apart(target, place, SMALL_MAX_SIZE)  # compiles
    reporter.progress(NAME, 1, 2)
    result = apart(target, place, max_size)
    reporter.progress(NAME, 2, 2)
    value = result.value
    row = Row(
        name,
        WHAT,
        counts.hierarchy.regions * max_size,
        value["seconds"],
        limit=None if small else SECONDS_LIMIT,
        cpu=value["used"],
        peak=result.peak,
        peak_limit=None if small else MEMORY_LIMIT,
    )
    notes = [
        value["told"],
        f"mean distance of a region by level: {_words(value['errors'])}; matching {_words(value['matching'])}",
        "n: cells of all regions; one run, compiled beforehand, two threads; noise is not in the time",
    ]
    wrong = [] if value["whole"] else ["a region has not its number of groups"]
    title = f"The posterior of {counts.hierarchy.regions:,} regions, K = {max_size:,}"
    return finish(NAME, title, [row], notes, wrong, out, reporter)
