"""Who runs the work: one thread, two threads, two processes, two Dask workers, on a nation and on Hawaii's tables.

Every candidate estimates the same sealed measurement, read from its file, by workers that are started and warm; what
starting them takes has rows of its own. All answers must be the same, to the bit.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

from coco_experiments.bench.rows import Bench, Benchmark, take_turns
from coco_experiments.bench.topdown import HAWAII, LARGE_SETTING, SETTING
from coco_experiments.data import find_data_file, generated_counts
from coco_experiments.topdown.data import generated_blocks, hawaii, large_tables, small_tables
from coco_opt.execution import Executor, Threads, executor_row, open_executor
from coco_opt.files.measurement import read_measurement, write_measurement
from coco_opt.groups.estimating.estimate import estimate_groups
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.measuring.measure import exact_parts, measurement_plan_of
from coco_opt.privacy import Epsilon, Measurement, SeededNoise
from coco_opt.privacy.measurement import Drawing
from coco_opt.privacy.queries import noisy_parts
from coco_opt.topdown.estimating.estimate import estimate_tables

WORKERS = 2
TARGETS: Mapping[str, float | None] = {"threads": None, "processes": 1.6, "dask": 1.4}
SERIAL = "one thread"


@dataclass(frozen=True, slots=True)
class Case:
    """A sealed measurement to estimate, and how: returns the arrays of the answer."""

    name: str
    measurement: Measurement
    estimate: Callable[[Measurement, Executor], list[np.ndarray[Any, Any]]]


def nation(folder: Path, *, small: bool) -> Measurement:
    """Seal cumulative counts of a simulated nation, 3,111 counties in 51 states, sizes to 100,000; return it read."""
    states, counties, groups, most = (4, 5, 50, 200) if small else (51, 61, 1_000, 100_000)
    counts = generated_counts(states, counties, groups, most, np.random.default_rng(1))
    truth = counts.histograms()
    measurement_plan = measurement_plan_of(
        counts.hierarchy,
        np.array([histogram.groups for histogram in truth]),
        queries=["cumulative"] * 3,
        costs=[Epsilon(Fraction(1, 3))] * 3,
        max_size=most,
        neighbours="add_remove",
    )
    source = SeededNoise(1)
    drawn = noisy_parts(
        measurement_plan.queries,
        exact_parts(measurement_plan, truth),
        measurement_plan.hierarchy,
        measurement_plan.per_region,
        source,
    )
    write_measurement(folder, Drawing(measurement_plan, drawn, source.name, source.private), private=True)
    return read_measurement(folder)[0]


def of_groups(measurement: Measurement, executor: Executor) -> list[np.ndarray[Any, Any]]:
    """Estimate groups by matching, and return all histograms."""
    result = estimate_groups(measurement, GroupsMethod(consistency="matching"), executor=executor)
    return [array for histogram in result.histograms for array in (histogram.sizes, histogram.counts)]


def of_tables(measurement: Measurement, executor: Executor) -> list[np.ndarray[Any, Any]]:
    """Estimate tables, and return those of all levels."""
    result = estimate_tables(measurement, executor=executor)
    return [array for table in result.tables for array in (table.offsets, table.cells, table.counts)]


def cases(bench: Bench, folder: Path) -> list[Case]:
    """Return the measurements, sealed below a folder; what was made is noted."""
    small, data = bench.small, bench.data
    if small or find_data_file(HAWAII, data) is None:
        size = (2, 2, 2, 5) if small else (5, 70, 3, 24)
        blocks, name = generated_blocks(np.random.default_rng(3), *size), "simulated blocks"
        if not small:
            bench.notes.append(f"{HAWAII} is not here: simulated blocks of its number instead.")
    else:
        blocks, name = hawaii(data), "Hawaii"
    listed = [
        Case(
            f"simulated nation{'' if small else ', 3,111 counties'}", nation(folder / "nation", small=small), of_groups
        )
    ]
    for cells, make, setting in ((7, small_tables, SETTING), (2_016, large_tables, LARGE_SETTING)):
        write_measurement(folder / f"tables-{cells}", setting.measure(make(blocks), 1), private=True)
        listed.append(Case(f"{name}, {cells:,} cells", read_measurement(folder / f"tables-{cells}")[0], of_tables))
    return listed


def digest(arrays: Iterable[np.ndarray[Any, Any]]) -> str:
    """Return a digest of arrays, bit for bit."""
    code = hashlib.sha256()
    for array in arrays:
        code.update(np.ascontiguousarray(array).data)
    return code.hexdigest()


def compare(bench: Bench, case: Case, executors: Mapping[str, Executor]) -> None:
    """Add one row an executor, next to one thread, and what is wrong: an answer that is another."""
    calls = {name: partial(case.estimate, case.measurement, executor) for name, executor in executors.items()}
    timings = take_turns(calls, bench.repeats)
    serial, regions = timings[SERIAL], case.measurement.hierarchy.regions
    bench.row(case.name, SERIAL, regions, serial.median)
    for name, target in TARGETS.items():
        if name in timings:
            timing, compared = timings[name], {"peer": SERIAL, "target": target}
            bench.row(case.name, f"{name}, {WORKERS}", regions, timing.median, ratio=timing.ratio(serial), **compared)
    expected = digest(serial.value)
    others = (name for name, timing in timings.items() if digest(timing.value) != expected)
    bench.wrong += [f"{case.name}: {name} gives another answer" for name in others]


def started(name: str) -> float:
    """Return the seconds until a new executor has done its first tasks."""
    begun = perf_counter()
    with open_executor(name, WORKERS) as executor:
        executor.map(abs, range(WORKERS * 2))
        return perf_counter() - begun


def measure(bench: Bench) -> str:
    """Time every installed executor on made counties and on Hawaii's tables, or on tiny ones."""
    names = [name for name in TARGETS if executor_row(name).installed]
    with TemporaryDirectory() as temporary, ExitStack() as stack:
        executors: dict[str, Executor] = {SERIAL: Threads(1)}
        for name in names:
            executors[name] = stack.enter_context(open_executor(name, WORKERS))
        for case in bench.over(cases(bench, Path(temporary))):
            compare(bench, case, executors)
    if not bench.small:
        for name in names:
            bench.row("start", f"{name}, {WORKERS}", 0, started(name))
    load = os.getloadavg()[0]
    busy = ": THE MACHINE IS BUSY, the ratios say little" if load > WORKERS + 1 else ""
    bench.notes.append(f"{os.cpu_count()} cores; load of the last minute {load:.1f}{busy}")
    return "Estimation by executor: median of the runs"


NOTES = ("Workers are warm; noise is seeded: NOT PRIVATE. One element is one region.",)
EXECUTORS = Benchmark("bench/executors", measure, NOTES, (3, 1))
