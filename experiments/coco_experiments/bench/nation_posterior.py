"""The posterior of a nation from a measurement, tables and intervals: 3,161 regions, K = 10,000, in buckets.

Households of table H13 with the tail of Kuo et al., in a process of its own; and matching of the same answers. It
takes many minutes, so by its own name only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coco_experiments.bench.apart import Apart, apart, clocked
from coco_experiments.bench.nation import SEED, counts_of
from coco_experiments.bench.rows import Bench, Benchmark
from coco_experiments.groups import Case
from coco_opt.choices import SolverChoices
from coco_opt.groups.estimating.estimate import estimate_groups
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.estimating.posterior.consistent import integer_estimate
from coco_opt.groups.estimating.posterior.sparse import MANY_CELLS

MAX_SIZE, SMALL_MAX_SIZE = 10_000, 60
GROWTH = (0.05, 0.1, 0.3)
SECONDS_LIMIT, MEMORY_LIMIT = 600.0, 4000.0  # MB
WHAT = "posterior, tables and intervals, buckets"


def estimated(data: str | None, max_size: int) -> dict[str, Any]:
    """Measure and estimate (K = 60: a small simulated nation); return seconds, convergence and errors by level."""
    small = max_size == SMALL_MAX_SIZE
    _, counts = counts_of(small=small, data=None if data is None else Path(data))
    case = Case.of("nation", counts, max_size)
    measurement = case.measured(SEED, growth=GROWTH)
    matching = estimate_groups(measurement, GroupsMethod("l1", consistency="matching"), SolverChoices())
    many = 0 if small else MANY_CELLS
    seconds, used, estimate = clocked(
        lambda: integer_estimate(measurement, SolverChoices(), coverage=0.9, threads=2, many=many)
    )
    state = estimate.convergence
    return {
        "seconds": seconds,
        "used": used,
        "errors": case.errors(estimate.histograms),
        "matching": case.errors(matching.histograms),
        "told": f"{state.draws} draws of {state.sweeps} sweeps, converged: {state.converged}, worst R-hat "
        f"{state.r_hat:.2f}, {len(state.not_converged)} regions not; relative gap {estimate.uncertified_gap:.1g}",
        "whole": [histogram.groups for histogram in estimate.histograms] == counts.group_counts.tolist(),
    }


def _words(errors: Sequence[float]) -> str:
    return " / ".join(f"{error:,.1f}" for error in errors)


def measure(bench: Bench) -> str:
    """Time the posterior of a nation (small: 12 made counties, K = 60); a region with other groups is wrong."""
    name, counts = counts_of(small=bench.small, data=bench.data)
    max_size, target = (SMALL_MAX_SIZE if bench.small else MAX_SIZE), f"{__name__}:estimated"
    runs = [apart(target, bench.data and str(bench.data), size) for size in bench.over((SMALL_MAX_SIZE, max_size))]
    value, limits = runs[-1].value, {"limit": SECONDS_LIMIT, "peak_limit": MEMORY_LIMIT}
    run = Apart(value["seconds"], value["used"], runs[-1].peak, value)  # the first run compiles
    bench.apart(name, WHAT, counts.hierarchy.regions * max_size, run, **({} if bench.small else limits))
    bench.notes.append(value["told"])
    errors = f"{_words(value['errors'])}; matching {_words(value['matching'])}"
    bench.notes.append(f"mean distance of a region by level: {errors}")
    bench.wrong += [] if value["whole"] else ["a region has not its number of groups"]
    return f"The posterior of {counts.hierarchy.regions:,} regions, K = {max_size:,}"


NOTES = ("n: cells of all regions; one run, compiled beforehand, two threads; noise is not in the time",)
NATION_POSTERIOR = Benchmark("bench/nation_posterior", measure, NOTES)
