"""A nation released from its files: 3,109 counties, three levels, K = 100,000, private, in a process of its own.

Cumulative counts in both losses, fitted, matched, certified and written with every file and page.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from coco_experiments.bench.apart import apart
from coco_experiments.bench.release import write_sizes
from coco_experiments.bench.rows import Bench, Benchmark
from coco_experiments.data import find_data_file
from coco_experiments.groups import Case
from coco_experiments.kuo2018.housing import COUNTIES, census_households, generated_households, housing
from coco_opt.choices import SolverChoices
from coco_opt.config import parse_config
from coco_opt.groups.estimating.estimate import estimate_groups
from coco_opt.groups.estimating.method import GroupsMethod
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
