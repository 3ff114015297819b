"""``coco-opt plan`` next to the release that it predicts: seconds of the cores (user and system) and memory, by case.

Each verb runs in a process of its own. By the clock a loaded machine shows anything; the cores' seconds stay.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

from coco_experiments.bench.ingestion import write_tables
from coco_experiments.bench.release import write_sizes
from coco_experiments.data import HAWAII_MAX_SIZE, hawaii_blocks
from coco_experiments.outcome import Cell, Outcome, Reporter, Table, write_csv, write_json
from coco_experiments.simulated import generated_counts
from coco_experiments.topdown.data import Blocks, generated_blocks, hawaii, small_tables
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.histograms import CountOfCounts, Hierarchy

NAME = "bench/plan"
PLAN_LIMIT = 10.0  # seconds
FACTOR, JOINT_FACTOR = 1.5, 3.0  # of a prediction, either way
COLUMNS = (
    "case",
    "plan, clock s",
    "plan, cores' s",
    "predicted s",
    "release, cores' s",
    "release, clock s",
    "predicted / release",
    "predicted MB",
    "release MB",
    "predicted / release memory",
    "within",
    "met",
)
_USED = "used.txt"
# What the system reports of a child counts its parent's memory too, until it runs another program: it reports itself.
_MAIN = f"""
import sys
from pathlib import Path
from coco_opt.cli import main
status = main(sys.argv[1:])
(line,) = [one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM")]
Path({_USED!r}).write_text(line.split()[1])
sys.exit(status)
"""


@dataclass(frozen=True, slots=True)
class Case:
    """What to release: ``write`` fills a folder and returns the configuration's sections; ``rows`` are declared."""

    name: str
    write: Callable[[Path], Mapping[str, Mapping[str, Any]]]
    rows: int | None = None
    factor: float = FACTOR


@dataclass(frozen=True, slots=True)
class Run:
    """One process: seconds by the clock and of the cores, its largest memory in bytes, and what it printed."""

    clock: float
    cores: float
    memory: int
    printed: str


def run_verb(folder: Path, *arguments: str) -> Run:
    """Run ``coco-opt`` with arguments in a folder; raises CalledProcessError where it fails."""
    start = perf_counter()
    # Its output goes to a file: a pipe would have to be read while it is waited for.
    with (folder / "out.txt").open("w+b") as out:
        process = subprocess.Popen([sys.executable, "-c", _MAIN, *arguments], cwd=folder, stdout=out)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    printed = (folder / "out.txt").read_text(encoding="utf-8")
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, arguments, printed)
    memory = 1024 * int((folder / _USED).read_text(encoding="utf-8"))
    return Run(perf_counter() - start, used.ru_utime + used.ru_stime, memory, printed)


def measured(case: Case, folder: Path) -> tuple[Cell, ...]:
    """Return the row of a case: planned and released once, after a first time that compiles what is missing."""
    sections = {"privacy": {"epsilon": "1", "noise": "seeded", "seed": 1}, **case.write(folder)}
    (folder / "case.toml").write_text(_toml(sections), encoding="utf-8")
    declared = () if case.rows is None else ("--rows", str(case.rows))
    for verb in ("plan", "release"):
        run_verb(folder, verb, "case.toml", "--json")
    plan = run_verb(folder, "plan", "case.toml", "--json", *declared)
    release = run_verb(folder, "release", "case.toml", "--json")
    predicted = json.loads(plan.printed)
    seconds, memory = float(predicted["seconds"]), float(predicted["memory_bytes"])
    ratios = seconds / release.cores, memory / release.memory
    met = plan.cores <= PLAN_LIMIT and all(1 / case.factor <= ratio <= case.factor for ratio in ratios)
    times = (plan.clock, plan.cores, seconds, release.cores, release.clock, ratios[0])
    return (case.name, *times, memory / 1e6, release.memory / 1e6, ratios[1], case.factor, met)


def _toml(sections: Mapping[str, Mapping[str, Any]]) -> str:
    """Return sections as TOML; a table within a section is inline."""

    def value(setting: Any) -> str:
        if isinstance(setting, Mapping):
            return "{" + ", ".join(f"{key} = {value(entry)}" for key, entry in setting.items()) + "}"
        return json.dumps(setting)

    lines = []
    for name, keys in sections.items():
        lines += [f"[{name}]", *(f"{key} = {value(setting)}" for key, setting in keys.items())]
    return "\n".join([*lines, ""])


def _sizes(counts: Callable[[], PrivateCounts], max_size: int, consistency: str) -> Callable[[Path], Any]:
    def write(folder: Path) -> Any:
        write_sizes(folder / "sizes.csv", counts())
        return {"data": {"sizes": "sizes.csv"}, "groups": {"max_size": max_size, "consistency": consistency}}

    return write


def _tables(entities: int, leaves: int) -> Callable[[Path], Any]:
    def write(folder: Path) -> Any:
        paths = write_tables(folder, entities, leaves, np.random.default_rng(15))
        names = dict(zip(("entities", "groups", "hierarchy"), (path.name for path in paths), strict=True))
        return {"data": names, "groups": {"max_size": 200, "consistency": "matching"}}

    return write


def _persons(blocks: Callable[[], Blocks]) -> Callable[[Path], Any]:
    def write(folder: Path) -> Any:
        import pandas as pd

        data = blocks()
        tables = small_tables(data)
        tree, schema = tables.hierarchy, tables.schema
        leaves = [tree.paths[leaf].split("/") for leaf in tree.leaves]
        levels = [f"level{level}" for level in range(tree.levels)]
        hierarchy = pd.DataFrame(leaves, columns=levels)
        hierarchy.insert(0, "region_id", hierarchy[levels[-1]])
        hierarchy.to_csv(folder / "hierarchy.csv", index=False)
        cells = [("no", race) for race in schema.attributes["race"][:-1]] + [("yes", "any")]
        rows = [
            (leaf[-1], *cell, int(count))
            for leaf, counts in zip(leaves, data.people, strict=True)
            for cell, count in zip(cells, counts, strict=True)
            if count
        ]
        records = pd.DataFrame(rows, columns=["region_id", "hispanic", "race", "count"])
        records.to_parquet(folder / "records.parquet", index=False)
        return {
            "data": {"records": "records.parquet", "hierarchy": "hierarchy.csv"},
            "topdown": {
                "attributes": {name: list(values) for name, values in schema.attributes.items()},
                "structural_zeros": list(schema.structural_zeros),
                "workload": ["total", "hispanic * race"],
            },
        }

    return write


def one_region(rng: np.random.Generator) -> PrivateCounts:
    """Return a hierarchy of one region with groups of many sizes."""
    sizes, counts = np.unique(rng.geometric(1 / 20_000, 50_000), return_counts=True)
    return PrivateCounts.of_leaves(Hierarchy.from_paths([("all",)]), [CountOfCounts(sizes, counts)])


def cases(*, small: bool, data: Path | None) -> list[Case]:
    """Return the cases, tiny ones where ``small``."""
    rng = np.random.default_rng(41)
    if small:
        return [
            Case("12 leaves, sizes up to 30", _sizes(lambda: generated_counts(3, 4, 40, 20, rng), 30, "matching")),
            Case("2,000 entities", _tables(2_000, 30), 2_000),
            Case("144 blocks by race", _persons(lambda: generated_blocks(np.random.default_rng(7)))),
        ]
    nation = generated_counts(62, 50, 400, 900, rng)
    region = one_region(rng)

    def blocks() -> PrivateCounts:
        return hawaii_blocks("nhpi", data)

    return [
        Case("3,100 leaves, sizes up to 1,000", _sizes(lambda: nation, 1_000, "matching")),
        Case("one region, sizes up to 1,000,000", _sizes(lambda: region, 10**6, "none")),
        Case("20 million entities, integer ids", _tables(20_000_000, 3_100), 20_000_000),
        Case("Hawaii's blocks, joint", _sizes(blocks, HAWAII_MAX_SIZE, "joint"), None, JOINT_FACTOR),
        Case("25,016 blocks by race", _persons(lambda: hawaii(data))),
        Case("3,100 leaves, sizes up to 100,000", _sizes(lambda: nation, 100_000, "matching")),
    ]


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Plan and release every case in processes of their own; only a verb that fails fails, never a missed time."""
    rows = []
    listed = cases(small=small, data=data)
    for done, case in enumerate(listed, 1):
        with TemporaryDirectory() as folder:
            rows.append(measured(case, Path(folder)))
        reporter.progress(NAME, done, len(listed))
    notes = (
        f"A plan is to take {PLAN_LIMIT:g} s of the cores at most; 'within' is the factor that predictions may be off.",
        "Seconds of the cores are user and system time of the whole process. Noise is seeded: NOT PRIVATE.",
    )
    table = Table("Plans and their releases", COLUMNS, tuple(rows), notes)
    reporter.table(table)
    return Outcome((table,), (write_csv(out / f"{NAME}.csv", table), write_json(out / f"{NAME}.json", [table])))
