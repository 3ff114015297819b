"""``coco-opt plan`` next to the release that it predicts: seconds of the cores (user and system) and memory, by case.

Each verb runs in a process of its own. By the clock a loaded machine shows anything; the cores' seconds stay.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from coco_experiments.bench.ingestion import write_tables
from coco_experiments.bench.release import write_sizes
from coco_experiments.bench.stages import toml, watched
from coco_experiments.data import HAWAII_MAX_SIZE, generated_counts, hawaii_blocks
from coco_experiments.outcome import Record, Table
from coco_experiments.study import Report, Runs, Study, seeded
from coco_experiments.topdown.data import Blocks, frames, generated_blocks, hawaii, small_tables
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.histograms import CountOfCounts, Hierarchy

PLAN_LIMIT = 10.0  # seconds
FACTOR, JOINT_FACTOR = 1.5, 3.0  # of a prediction, either way


@dataclass(frozen=True, slots=True)
class Case:
    """What to release: ``write`` fills a folder and returns the configuration's sections; ``rows`` are declared."""

    name: str
    write: Callable[[Path], Mapping[str, Mapping[str, Any]]]
    rows: int | None = None
    factor: float = FACTOR


def measure(case: Case, seed: int) -> Record:
    """Return the row of a case: planned and released once, after a first time that compiles what is missing."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sections = {"privacy": {"epsilon": "1", "noise": "seeded", "seed": seed}, **case.write(folder)}
        (folder / "case.toml").write_text(toml(sections), encoding="utf-8")
        declared = () if case.rows is None else ("--rows", str(case.rows))
        for verb in ("plan", "release"):
            watched((verb, "case.toml", "--json"), folder)
        plan = watched(("plan", "case.toml", "--json", *declared), folder)
        release = watched(("release", "case.toml", "--json"), folder)
    predicted = json.loads(plan.output)
    seconds, memory = float(predicted["seconds"]), float(predicted["memory_bytes"]) / 1e6
    ratios = seconds / release.cpu, memory / release.peak
    return {
        "case": case.name,
        "plan, clock s": plan.seconds,
        "plan, cores' s": plan.cpu,
        "predicted s": seconds,
        "release, cores' s": release.cpu,
        "release, clock s": release.seconds,
        "predicted / release": ratios[0],
        "predicted MB": memory,
        "release MB": release.peak,
        "predicted / release memory": ratios[1],
        "within": case.factor,
        "met": plan.cpu <= PLAN_LIMIT and all(1 / case.factor <= ratio <= case.factor for ratio in ratios),
    }


def _sizes(counts: Callable[[], PrivateCounts], max_size: int, consistency: str, folder: Path) -> Any:
    write_sizes(folder / "sizes.csv", counts())
    return {"data": {"sizes": "sizes.csv"}, "groups": {"max_size": max_size, "consistency": consistency}}


def _tables(entities: int, leaves: int, folder: Path) -> Any:
    paths = write_tables(folder, entities, leaves, np.random.default_rng(15))
    names = dict(zip(("entities", "groups", "hierarchy"), (path.name for path in paths), strict=True))
    return {"data": names, "groups": {"max_size": 200, "consistency": "matching"}}


def _persons(blocks: Callable[[], Blocks], folder: Path) -> Any:
    import pyarrow.parquet as pq

    tables = small_tables(blocks())
    data = frames(tables.counts, [f"level{level}" for level in range(tables.hierarchy.levels)])
    for name, rows in data.items():
        pq.write_table(rows, folder / f"{name}.parquet")
    return {
        "data": {name: f"{name}.parquet" for name in data},
        "topdown": {
            "attributes": {name: list(values) for name, values in tables.schema.attributes.items()},
            "structural_zeros": list(tables.schema.structural_zeros),
            "workload": ["total", "hispanic * race"],
        },
    }


def one_region(rng: np.random.Generator) -> PrivateCounts:
    """Return a hierarchy of one region with groups of many sizes."""
    sizes, counts = np.unique(rng.geometric(1 / 20_000, 50_000), return_counts=True)
    return PrivateCounts.of_leaves(Hierarchy.from_paths([("all",)]), [CountOfCounts(sizes, counts)])


def cases(data: Path | None, small: bool) -> list[Case]:
    """Return the cases, tiny ones where ``small``."""
    rng = np.random.default_rng(41)
    if small:
        return [
            Case(
                "12 leaves, sizes up to 30",
                partial(_sizes, lambda: generated_counts(3, 4, 40, 20, rng), 30, "matching"),
            ),
            Case("2,000 entities", partial(_tables, 2_000, 30), 2_000),
            Case("144 blocks by race", partial(_persons, lambda: generated_blocks(np.random.default_rng(7)))),
        ]
    nation, region = generated_counts(62, 50, 400, 900, rng), one_region(rng)
    blocks = partial(hawaii_blocks, "nhpi", data)
    return [
        Case("3,100 leaves, sizes up to 1,000", partial(_sizes, lambda: nation, 1_000, "matching")),
        Case("one region, sizes up to 1,000,000", partial(_sizes, lambda: region, 10**6, "none")),
        Case("20 million entities, integer ids", partial(_tables, 20_000_000, 3_100), 20_000_000),
        Case("Hawaii's blocks, joint", partial(_sizes, blocks, HAWAII_MAX_SIZE, "joint"), None, JOINT_FACTOR),
        Case("25,016 blocks by race", partial(_persons, partial(hawaii, data))),
        Case("3,100 leaves, sizes up to 100,000", partial(_sizes, lambda: nation, 100_000, "matching")),
    ]


def report(results: Sequence[Runs[Case, Record]], path: Path) -> Report:
    """Return one row a case; only a verb that fails fails, never a missed time."""
    notes = (
        f"A plan is to take {PLAN_LIMIT:g} s of the cores at most; 'within' is the factor that predictions may be off.",
        "Seconds of the cores are user and system time of the whole process. Noise is seeded: NOT PRIVATE.",
    )
    return Report({"": Table.of("Plans and their releases", (runs.found[0] for runs in results), notes)})


PLAN = Study("bench/plan", lambda data, small: seeded(cases(data, small), (1,)), measure, report)
