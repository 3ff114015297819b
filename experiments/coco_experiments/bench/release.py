"""A whole release with its files: Taxi, three levels, K = 100,000, cumulative L1 and matching; and the import.

``first_call``: the first thing a newcomer runs, the demo with an empty cache of kernels, and the same once they are
there.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

from coco_experiments.bench.apart import apart
from coco_experiments.bench.rows import Bench, Benchmark
from coco_experiments.data import find_data_file, generated_counts
from coco_opt.config import parse_config
from coco_opt.groups.kind import GROUPS
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.releases import release as run_release
from coco_opt.releases import render_report, verify_release

MAX_SIZE, SMALL_MAX_SIZE = 100_000, 2_000
IMPORTS = 7
SECONDS_LIMIT, IMPORT_LIMIT = 1.5, 0.15
TAXI = "kuo2018/taxi_neighbourhoods.csv"
WHOLE, REPORT, IMPORT = "whole release", "HTML report", "import coco_opt after numpy"
HEAVY = ("numba", "scipy", "pandas", "duckdb", "pyarrow", "cvxpy", "pydantic", "typer", "rich", "matplotlib")

_IMPORT = f"""
import sys, time
import numpy
start = time.perf_counter()
import coco_opt
seconds = time.perf_counter() - start
print(seconds, *(name for name in {HEAVY!r} if name in sys.modules))
"""


@dataclass(frozen=True, slots=True)
class Release:
    """One run: wall seconds of each stage, of the whole and of the report, cells measured, checks that failed."""

    stages: dict[str, float]
    total: float
    report: float
    cells: int
    failed: tuple[str, ...]


def release(sizes: Path, max_size: int, seed: int, folder: Path) -> Release:
    """Read counts, release them with seeded noise below ``folder``, verify the release folder."""
    content = {
        "data": {"sizes": str(sizes.resolve())},
        "privacy": {"epsilon": "1", "noise": "seeded", "seed": seed},
        "groups": {"max_size": max_size, "query": "cumulative", "loss": "l1", "consistency": "matching"},
    }
    settings = parse_config(content, folder)
    start = perf_counter()
    outcome = run_release(settings, folder / f"release{seed}")
    total = perf_counter() - start
    start = perf_counter()
    assert outcome.estimate is not None
    assert outcome.record is not None
    render_report(GROUPS, outcome.estimate.shown)
    report = perf_counter() - start
    return Release(
        stages=json.loads(outcome.record.read_text(encoding="utf-8"))["seconds"],
        total=total,
        report=report,
        cells=outcome.estimate.result.hierarchy.regions * max_size,
        failed=tuple(f"{check.name}: {check.detail}" for check in verify_release(outcome.folder) if not check.passed),
    )


def write_sizes(path: Path, counts: PrivateCounts) -> Path:
    """Write simulated counts in the counted form that ``[data] sizes`` reads; return the path."""
    hierarchy = counts.hierarchy
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"level{level}" for level in range(hierarchy.levels)), "size", "groups"])
        for leaf, region in enumerate(hierarchy.leaves):
            names = hierarchy.paths[region].split("/")
            histogram = counts.leaf(leaf)
            writer.writerows(
                [*names, size, groups]
                for size, groups in zip(histogram.sizes.tolist(), histogram.counts.tolist(), strict=True)
            )
    return path


def release_rows(bench: Bench, sizes: Path, name: str, max_size: int) -> None:
    """Add the median seconds of every stage and of the whole after a first run that compiles, and failed checks."""
    with TemporaryDirectory() as temporary:
        runs = [release(sizes, max_size, seed, Path(temporary)) for seed in bench.over(range(bench.repeats + 1))]
    bench.wrong += [failure for run in runs for failure in run.failed]
    timed, cells = runs[1:], runs[0].cells
    for stage in timed[0].stages:
        bench.row(name, stage.replace("_", " "), cells, median(run.stages[stage] for run in timed))
    bench.row(name, WHOLE, cells, median(run.total for run in timed), limit=SECONDS_LIMIT)
    bench.row(name, REPORT, cells, median(run.report for run in timed))


def import_rows(bench: Bench, repeats: int) -> None:
    """Add what ``import coco_opt`` adds to numpy's import, in fresh interpreters, and what it wrongly loads."""
    seconds: list[float] = []
    loaded: set[str] = set()
    for _ in range(repeats):
        done = subprocess.run([sys.executable, "-c", _IMPORT], check=True, capture_output=True, text=True)
        first, *heavy = done.stdout.split()
        seconds.append(float(first))
        loaded.update(heavy)
    bench.row("import", IMPORT, 0, median(seconds), limit=IMPORT_LIMIT)
    bench.wrong += [f"import coco_opt loads {name}" for name in sorted(loaded)]


def measure(bench: Bench) -> str:
    """Time the release and the import; without Taxi's file, and when small, on simulated data of the same shape."""
    max_size = SMALL_MAX_SIZE if bench.small else MAX_SIZE
    path = None if bench.small else find_data_file(TAXI, bench.data)
    with TemporaryDirectory() as temporary:
        if path is None:
            groups, largest = (500, 400) if bench.small else (12_888, 5_000)
            counts = generated_counts(2, 14, groups, largest, np.random.default_rng(28))
            sizes, name = write_sizes(Path(temporary, "sizes.csv"), counts), "simulated data"
            if not bench.small:
                bench.notes.append(f"{TAXI} is not here: simulated data of its shape instead.")
        else:
            sizes, name = path, "Taxi"
        release_rows(bench, sizes, name, max_size)
    import_rows(bench, 2 if bench.small else IMPORTS)
    return f"Release of three levels, K = {max_size:,}, cumulative L1, matching: median of {bench.repeats} runs"


NOTES = ("Seconds after start-up and compilation; noise is seeded: NOT PRIVATE. One element is one noisy cell.",)
RELEASE = Benchmark("bench/release", measure, NOTES, (5, 2))


EMPTY, THERE = "demo, empty cache of kernels", "demo, kernels on disk"
LIMIT = 12.0


def demo(folder: str) -> int:
    """Run ``coco-opt demo`` into a new folder; return its exit code."""
    from coco_opt.cli import main

    return main(["demo", "--out", folder, "--json"])


def measure_first(bench: Bench) -> str:
    """Time the demo twice in processes of their own, with a cache folder that is empty at first (small: the same)."""
    with TemporaryDirectory() as temporary:
        cache = Path(temporary, "cache")
        for what, limit in bench.over({EMPTY: LIMIT, THERE: None}.items()):
            start = perf_counter()
            folder, environment = str(Path(temporary, what.replace(" ", "_"))), {"NUMBA_CACHE_DIR": str(cache)}
            call = apart("coco_experiments.bench.release:demo", folder, environment=environment)
            seconds = perf_counter() - start
            bench.row("the demo", what, 0, seconds, limit=limit, cpu=call.cpu, peak=call.peak)
            if call.value != 0:
                bench.wrong.append(f"{what}: exit code {call.value}")
        if not any(cache.rglob("*.nbc")):
            bench.wrong.append("no kernel was compiled into the cache folder")
    return "The first call: one run each"


FIRST_NOTES = (
    "Seconds from the start of Python to its end; the cores' seconds are those of the demo and its helpers.",
)
FIRST_CALL = Benchmark("bench/first_call", measure_first, FIRST_NOTES)
