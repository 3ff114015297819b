"""A nation released from its files: 3,109 counties, three levels, K = 100,000, private, in a process of its own.

Cumulative counts in both losses, fitted, matched, certified and written with every file and page.

``nation_posterior``: the posterior from a measurement, tables and intervals: 3,161 regions, K = 10,000, in buckets.

Households of table H13 with the tail of Kuo et al., in a process of its own; and matching of the same answers. It
takes many minutes, so by its own name only.

``joint_nation``: joint estimation of 3,161 regions, single sizes up to K = 10,000, and buckets of them, apart.

Absolute losses, noise of total epsilon 1, the same part at each level; measuring lies outside the seconds. It takes
some minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from coco_experiments.bench.apart import Apart, apart, clocked
from coco_experiments.bench.release import write_sizes
from coco_experiments.bench.rows import Bench, Benchmark
from coco_experiments.data import find_data_file
from coco_experiments.groups import Case
from coco_experiments.kuo2018.housing import COUNTIES, census_households, generated_households, housing
from coco_opt.choices import SolverChoices
from coco_opt.config import parse_config
from coco_opt.errors import SolverError
from coco_opt.groups.estimating.estimate import estimate_groups
from coco_opt.groups.estimating.joint import joint
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.estimating.posterior.consistent import posterior_estimate
from coco_opt.groups.estimating.posterior.sparse import MANY_CELLS
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.groups.noisy_measurements import Loss
from coco_opt.privacy.queries import DENSE
from coco_opt.releases import release, render_report, verify_release

MAX_SIZE, SMALL_MAX_SIZE, COMPARED_SIZE = 100_000, 200, 2_000
SEED = 2018
LOSSES: tuple[Loss, ...] = ("l1", "l2")
SECONDS_LIMIT, MEMORY_LIMIT, SEALED_LIMIT = 12.0, 1000.0, 250.0  # MB
WHAT = "private release, all files, loss"


def counts_of(*, small: bool, data: Path | None) -> tuple[str, PrivateCounts]:
    """Return households by county with the tail of Kuo et al., and what they are called."""
    if not small and find_data_file(COUNTIES, data) is not None:
        return "housing, 3,109 counties", housing(census_households(data), SEED)
    states, counties = (3, 4) if small else (51, 61)
    households = generated_households(states, counties, 2_000, np.random.default_rng(SEED))
    return f"Simulated households, {states * counties:,} counties", housing(households, SEED)


def released(folder: str, loss: str, max_size: int) -> dict[str, float]:
    """Release the counts that lie in a folder into "release LOSS"; return megabytes of the seal and of the release."""
    place = Path(folder)
    content = {
        "data": {"sizes": "sizes.csv"},
        "privacy": {"epsilon": "1", "dataset": f"nation {loss}"},
        "groups": {"max_size": max_size, "query": "cumulative", "loss": loss, "consistency": "matching"},
        "output": {"private": f"private {loss}"},
    }
    outcome = release(parse_config(content, place), place / f"release {loss}", page=render_report)
    sealed = sum(path.stat().st_size for path in (place / f"private {loss}").glob("runs/*/measurement/*"))
    written = sum(path.stat().st_size for path in outcome.folder.iterdir())
    return {"sealed": sealed / 1e6, "written": written / 1e6}


def same_bits(counts: PrivateCounts, loss: Loss, max_size: int) -> bool:
    """Return whether packed answers and the same ones as arrays in memory are estimated alike, in every region."""
    packed = Case.of("nation", counts, max_size).measured(SEED)
    plain = replace(packed, answers=tuple(replace(part, stored=part.values.copy()) for part in packed.answers))
    method = GroupsMethod((loss,) * counts.hierarchy.levels, consistency="matching")
    left, right = (estimate_groups(measurement, method, SolverChoices()) for measurement in (packed, plain))
    return all(a.equals(b) for a, b in zip(left.histograms, right.histograms, strict=True))


def measure(bench: Bench) -> str:
    """Time private releases of both losses (small: 12 counties, K = 200); wrong is a failed check or another bit."""
    name, counts = counts_of(small=bench.small, data=bench.data)
    max_size, compared = (SMALL_MAX_SIZE, SMALL_MAX_SIZE) if bench.small else (MAX_SIZE, COMPARED_SIZE)
    regions, target = counts.hierarchy.regions, "coco_experiments.bench.nation:released"
    for loss in bench.over(LOSSES):
        with TemporaryDirectory() as tiny:  # compiles
            write_sizes(Path(tiny, "sizes.csv"), counts_of(small=True, data=None)[1])
            apart(target, tiny, loss, SMALL_MAX_SIZE)
        with TemporaryDirectory() as folder:
            write_sizes(Path(folder, "sizes.csv"), counts)
            result = apart(target, folder, loss, max_size)
            checks = verify_release(Path(folder, f"release {loss}"))
        bench.wrong += [f"loss {loss}: {check.name}: {check.detail}" for check in checks if not check.passed]
        limits = {"limit": SECONDS_LIMIT, "peak_limit": MEMORY_LIMIT}
        value = bench.apart(name, f"{WHAT} {loss}", regions * max_size, result, **limits)
        seal, within = value["sealed"], "yes" if value["sealed"] <= SEALED_LIMIT else "no"
        bench.notes.append(
            f"loss {loss}: the sealed answers take {seal:,.1f} MB (at most {SEALED_LIMIT:g}: {within}), the release "
            f"{value['written']:,.1f} MB"
        )
        if not same_bits(counts, loss, compared):
            bench.wrong.append(f"loss {loss}: packed answers are estimated otherwise than arrays")
    if regions * compared > DENSE:
        bench.notes.append(f"equal noise, K = {compared:,}: packed answers and arrays are estimated to the same bits")
    return f"A nation of {regions:,} regions, K = {max_size:,}: one run each"


NOTES = ("one element is one noisy cell; reading, paying, sealing and the page are in the times",)
NATION = Benchmark("bench/nation", measure, NOTES)


FITTED_SIZE, SMALL_FITTED_SIZE = 10_000, 60
GROWTH = (0.05, 0.1, 0.3)
FITTED_MEMORY_LIMIT = 4000.0  # MB
POSTERIOR = {"posterior, tables and intervals, buckets": ("posterior", GROWTH, 600.0)}
JOINT: dict[str, tuple[str, tuple[float, ...], float | None]] = {
    "single sizes": ("joint", (0.0,) * 3, 180.0),
    "buckets of growth .05": ("joint", (0.05,) * 3, None),
}
"""By name, the method, the growth of buckets at every level (0: single sizes), and the seconds that are allowed."""


def fitted(size: str, data: str | None, max_size: int, method: str, growth: Sequence[float]) -> dict[str, Any]:
    """Measure a nation with seeded noise and estimate it; return the call's seconds, what was certified, and errors.

    ``size`` is "whole", or "small" for 12 counties. ``failed`` says why there is no estimate.
    """
    small = size == "small"
    _, counts = counts_of(small=small, data=None if data is None else Path(data))
    case, solvers = Case.of("nation", counts, max_size), SolverChoices()
    noisy = case.measured(SEED, growth=growth)
    many = 0 if small else MANY_CELLS
    estimated: dict[str, Callable[[], Any]] = {
        "joint": partial(joint, noisy, solvers),
        "posterior": partial(posterior_estimate, noisy, solvers, coverage=0.9, threads=2, many=many),
    }
    try:
        seconds, cpu, estimate = clocked(estimated[method])
    except SolverError as error:
        return {"failed": str(error)}
    rows = ", ".join(f"{row.problem} by {row.solver}, gap {row.relative_gap:.1g}" for row in solvers.certificates)
    state = getattr(estimate, "convergence", None)
    chains = "" if state is None else f"; {state.draws} draws of {state.sweeps} sweeps, converged: {state.converged}"
    errors = " / ".join(f"{error:,.1f}" for error in case.errors(estimate.histograms))
    return {
        "seconds": seconds,
        "cpu": cpu,
        "words": f"mean distance of a region by level {errors}{chains}; {rows}",
        "whole": [histogram.groups for histogram in estimate.histograms] == counts.group_counts.tolist(),
    }


def measure_fits(bench: Bench, ways: Mapping[str, tuple[str, tuple[float, ...], float | None]]) -> str:
    """Time estimations of a nation (small: 12 made counties, K = 60); a region with other groups is wrong."""
    name, counts = counts_of(small=bench.small, data=bench.data)
    max_size, regions = SMALL_FITTED_SIZE if bench.small else FITTED_SIZE, counts.hierarchy.regions
    target, folder = f"{__name__}:fitted", bench.data and str(bench.data)
    for what, (method, growth, limit) in bench.over(ways.items()):
        apart(target, "small", None, SMALL_FITTED_SIZE, method, growth)  # compiles
        result = apart(target, "small" if bench.small else "whole", folder, max_size, method, growth)
        report = result.value
        if "failed" in report:
            bench.wrong.append(f"{what}: {report['failed']}")
            continue
        limits = {} if limit is None or bench.small else {"limit": limit, "peak_limit": FITTED_MEMORY_LIMIT}
        run = Apart(report["seconds"], report["cpu"], result.peak, report)
        bench.apart(name, what, regions * max_size, run, **limits)
        bench.notes.append(f"{what}: {report['words']}")
        bench.wrong += [] if report["whole"] else [f"{what}: a region has not its number of groups"]
    return f"A nation of {regions:,} regions, K = {max_size:,}: one run each"


FITTED_NOTES = ("n: cells of all regions; one run, compiled beforehand; noise is not in the time, certificates are",)
NATION_POSTERIOR = Benchmark("bench/nation_posterior", partial(measure_fits, ways=POSTERIOR), FITTED_NOTES)
JOINT_NATION = Benchmark("bench/joint_nation", partial(measure_fits, ways=JOINT), FITTED_NOTES)
