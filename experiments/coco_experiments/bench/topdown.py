"""Tables from counts to integers: Hawaii's five levels, and how time grows with the number of blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coco_experiments.bench.apart import peak_megabytes
from coco_experiments.bench.rows import Bench, Benchmark, take_turns
from coco_experiments.data import find_data_file
from coco_experiments.topdown.data import Tables, generated_blocks, hawaii, large_tables, small_tables
from coco_experiments.topdown.hawaii import Setting
from coco_opt.topdown.estimating.estimate import TablesResult, estimate_tables

HAWAII = "census2010_blocks/hi_2010_block.csv.gz"
SETTING = Setting(("detail", "hispanic", "total"), ("1/2", "1/4", "1/4"))
LARGE_SETTING = Setting(
    ("detail", "hispanic * race", "voting_age", "residence", "total"), ("1/2", "1/8", "1/8", "1/8", "1/8")
)
SMALL_LIMIT, LARGE_LIMIT = 30.0, 600.0
WHOLE = "measure, fit, split and round"
THREADS = 2


COUNTIES, SMALL_COUNTIES = (5, 10, 20, 40), (1, 2)
"""Of the growing instances, each of 4 tracts, 2 block groups a tract and 28 blocks a group."""


def release_in_memory(tables: Tables, setting: Setting) -> Callable[[], TablesResult]:
    """Return a release in memory as a call: noise, the linear stage, splits and roundings of every region."""
    return lambda: estimate_tables(setting.measure(tables, seed=1), threads=THREADS)


def faults(name: str, tables: Tables, result: TablesResult) -> list[str]:
    """Return one line for each promise that a result breaks."""
    wrong = []
    for level in range(tables.hierarchy.levels - 1):
        regions, below = tables.hierarchy.level_range(level), result.tables[level + 1]
        starts = tables.hierarchy.first_child[regions.start : regions.stop] - regions.stop
        summed, own = below.summed(starts), result.tables[level]
        same = np.array_equal(summed.cells, own.cells) and np.array_equal(summed.counts, own.counts)
        if not same or (own.counts < 0).any() or (below.counts < 0).any():
            wrong.append(f"{name}: level {level} is not the sum of nonnegative parts")
    worst = max(row.relative_gap for row in result.certificates)
    return [*wrong, *([f"{name}: a relative gap is {worst:.2g}"] if worst > 1e-6 else [])]


def growth(bench: Bench, counties: tuple[int, ...]) -> None:
    """Time simulated blocks by their number."""
    by_name = {}
    for number in counties:
        tables = small_tables(generated_blocks(np.random.default_rng(3), number, 4, 2, 28))
        by_name[f"made, {len(tables.hierarchy.leaves):,} blocks"] = tables
    calls: dict[str, tuple[int, Callable[[], Any]]] = {
        name: (tables.hierarchy.regions, release_in_memory(tables, SETTING)) for name, tables in by_name.items()
    }
    timings = bench.doubling(WHOLE, calls, "blocks")
    for name, tables in by_name.items():
        bench.wrong += faults(name, tables, timings[name].value)


def real(bench: Bench, name: str, tables: Tables, setting: Setting, limit: float, repeats: int) -> None:
    """Time a real hierarchy."""
    timing = take_turns({name: release_in_memory(tables, setting)}, repeats)[name]
    bench.row(name, WHOLE, tables.hierarchy.regions, timing.median, limit=limit)
    bench.wrong += faults(name, tables, timing.value)


def measure(bench: Bench) -> str:
    """Time simulated blocks of growing number, and Hawaii with 7 and with 2,016 cells where its file is present."""
    growth(bench, SMALL_COUNTIES if bench.small else COUNTIES)
    if not bench.small and find_data_file(HAWAII, bench.data) is not None:
        blocks = hawaii(bench.data)
        real(bench, "Hawaii, 7 cells", small_tables(blocks), SETTING, SMALL_LIMIT, 3)
        real(bench, "Hawaii, 2,016 cells (made)", large_tables(blocks), LARGE_SETTING, LARGE_LIMIT, 1)
    elif not bench.small:
        bench.notes.append(f"{HAWAII} is not here: simulated blocks only.")
    bench.notes.append(f"largest memory of this process so far: {peak_megabytes():,.0f} MB")
    return f"Tables of five levels: median of {bench.repeats} runs after one that compiles"


TOPDOWN = Benchmark("bench/topdown", measure, ("one element is one region; two threads",), (3, 1))
