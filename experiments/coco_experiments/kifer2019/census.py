"""48 census-like configurations of exact nested constraints: every one is released, the failsafe hardly ever needed.

Simulated blocks below tracts, counties and a state: 7 to 28 types by 100 to 1,000 blocks, two constraints (which types
a block has, besides its exact total; how many people of every type), types divided by age or not, two seeds. A method
that binds parents by single answers only needs the failsafe at many of them; the minimal schema and cuts need none.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

from coco_experiments.kifer2019.facilities import blocks
from coco_experiments.outcome import Cell, Outcome, Reporter, Table, publish
from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError, SolverError
from coco_opt.topdown import TopdownMethod, estimate_tables
from coco_opt.topdown.noisy_measurements import TableMeasurements

NAME = "kifer2019/census"
TYPES, BLOCKS, AGES, EXACT, SEEDS = (7, 14, 28), (100, 1_000), (1, 3), (False, True), (1, 2)
SECOND_SIZES = {100: 300}  # the second seed tries a size between
SMALL = ((7, 100, 1, False, 1), (7, 100, 3, True, 1))
METHODS = ("auto", "cuts")
COLUMNS = (
    "method",
    "types",
    "blocks",
    "constraints",
    "releases",
    "released",
    "parents",
    "failsafes",
    "cuts",
    "uncertified",
    "seconds",
    "CPU seconds",
)
MOST_FAILSAFES = 0.01

Config = tuple[int, int, int, bool, int]


def configs() -> list[Config]:
    """Return all 48: types, blocks, ages, whether constraints are exact, seed."""
    every = product(TYPES, BLOCKS, AGES, EXACT, SEEDS)
    return [(k, n if seed == 1 else SECOND_SIZES.get(n, n), ages, exact, seed) for k, n, ages, exact, seed in every]


def released(config: Config, method: str) -> tuple[dict[str, int], str]:
    """Return what one release took, and what is wrong with it, "" for nothing."""
    types, count, ages, exact, seed = config
    measurement, _ = blocks(types, count, seed, ages=ages, exact=exact)
    tree = measurement.hierarchy
    counts = {"parents": tree.regions - len(tree.leaves), "released": 0, "failsafes": 0, "cuts": 0, "uncertified": 0}
    try:
        result = estimate_tables(
            measurement,
            TopdownMethod(implied=method),  # type: ignore[arg-type]
            SolverChoices(fallback=True),
            threads=2,
        )
    except (ProblemError, SolverError) as error:
        return counts, f"not released: {error}"
    counts["failsafes"], counts["cuts"] = len(result.relaxed), result.implied.cuts
    counts["uncertified"] = result.uncertified_gap.steps
    constraints, above = TableMeasurements.of(measurement), result.level(0)
    for level in range(tree.levels):
        regions, tables = tree.level_range(level), result.level(level)
        bound = constraints.constraints_of(regions)
        if (tables < 0).any() or (bound is not None and bound.broken_by(tables).any()):
            return counts, f"a table of level {level} breaks a constraint"
        if level:
            starts = tree.first_child[tree.level_range(level - 1).start : regions.start] - regions.start
            if not np.array_equal(np.add.reduceat(tables, starts), above):
                return counts, f"tables of level {level} do not add up"
        above = tables
    counts["released"] = 1
    return counts, ""


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Release every configuration by each method; fails where one is not, or the failsafe serves 1 % of parents."""
    listed = list(SMALL) if small else configs()
    released(SMALL[0], "auto")  # compiles
    sums: dict[tuple[str, int, int, bool], dict[str, float]] = {}
    failures = []
    for done, (method, config) in enumerate(product(METHODS, listed), 1):
        types, count, ages, exact, seed = config
        start, used = perf_counter(), process_time()
        counts, wrong = released(config, method)
        row = sums.setdefault((method, types, count, exact), dict.fromkeys(COLUMNS[4:], 0.0))
        took = {"releases": 1, "seconds": perf_counter() - start, "CPU seconds": process_time() - used}
        for name, value in {**counts, **took}.items():
            row[name] += value
        if wrong:
            kind = "exact" if exact else "none or some"
            failures.append(f"{method}, {types} types x {ages}, {count} blocks, {kind}, seed {seed}: {wrong}")
        reporter.progress(NAME, done, len(METHODS) * len(listed))
    rows: list[tuple[Cell, ...]] = []
    for (method, types, count, exact), row in sums.items():
        counted = [int(row[name]) for name in COLUMNS[4:-2]]
        kind = "people by type" if exact else "none or some by type"
        rows.append((method, types, count, kind, *counted, row["seconds"], row["CPU seconds"]))
    notes = []
    for method in METHODS:
        own = [row for (name, *_), row in sums.items() if name == method]
        totals = {name: int(sum(row[name] for row in own)) for name in ("releases", "released", "parents", "failsafes")}
        share = totals["failsafes"] / totals["parents"]
        notes.append(
            f"{method}: {totals['released']} of {totals['releases']} released, "
            f"the failsafe at {totals['failsafes']} of {totals['parents']:,} parents ({share:.2%})."
        )
        if share > MOST_FAILSAFES:
            failures.append(f"{method}: the failsafe at {share:.1%} of parents")
    table = Table("census-like constraints by type and block", COLUMNS, tuple(rows), tuple(notes))
    return publish(NAME, {"": table}, out, reporter, failures=failures)
