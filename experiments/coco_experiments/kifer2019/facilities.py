"""Facilities by type and block, of known block totals: how bounds, cuts and the minimal schema scale.

Simulated blocks, in census-like numbers: few types each, at least as many people as facilities. Bounds on single types,
closed under sums, are not what 2^types combinations imply; cuts and the minimal schema keep them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from time import perf_counter

import numpy as np

from coco_experiments.outcome import Record, Table
from coco_experiments.study import Report, Runs, Study, seeded
from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError, SolverError
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import Epsilon, Measurement, SeededNoise
from coco_opt.topdown import (
    UNBOUNDED,
    Invariant,
    RegionBounds,
    Schema,
    Strategy,
    TableCounts,
    TablePlan,
    TopdownMethod,
    estimate_tables,
    measure_tables,
    parse_query,
)

SIZES = ((3, 10), (7, 100), (14, 100), (14, 300), (28, 300), (28, 1000))
METHODS = ("bounds", "cuts", "minimal_schema")
MOST_BLOCKS = {"bounds": 300, "cuts": 300, "minimal_schema": 10**9}
FAN_OUT = 10


def blocks(types: int, count: int, seed: int, *, ages: int = 1, exact: bool = False) -> tuple[Measurement, np.ndarray]:
    """Return a seeded measurement of simulated blocks, epsilon 1 over four levels, and the true table.

    ``ages`` divide every type into cells that no constraint distinguishes. With ``exact`` the constraints are the
    people of every type in every block, else which types are there (at least one person for each facility, nobody
    without any).
    """
    rng = np.random.default_rng([seed, types, count])
    tree = Hierarchy.from_paths(
        [("state", f"county {b // FAN_OUT**2}", f"tract {b // FAN_OUT}", f"block {b}") for b in range(count)]
    )
    attributes = {"type": [f"type {k}" for k in range(types)]}
    schema = Schema(attributes if ages == 1 else {**attributes, "age": [f"age {k}" for k in range(ages)]})
    share = np.minimum(0.9, 3.0 * rng.dirichlet(np.full(types, 0.7)))
    facilities = (rng.random((count, types)) < share) * rng.integers(1, 4, (count, types))
    facilities[~facilities.any(axis=1), 0] = 1
    people = facilities * (1 + rng.poisson(rng.gamma(0.7, 12.0, (count, types))))
    kinds = parse_query("type", schema)
    constraints = RegionBounds(kinds, tree.levels - 1, facilities, np.where(facilities > 0, UNBOUNDED, 0))
    if exact:
        constraints = RegionBounds(kinds, tree.levels - 1, people, people)
    if ages > 1:
        people = rng.multinomial(people, rng.dirichlet(np.full(ages, 2.0), types)).reshape(count, -1)
    plan = TablePlan.product(
        Strategy.uniform([parse_query("total", schema), parse_query("detail", schema)]),
        Epsilon(Fraction(1)),
        tree.levels,
        neighbours="replace",
    )
    counts = TableCounts.from_counts(tree, schema, people.astype(np.int64))
    total = [Invariant(parse_query("total", schema), tree.levels - 1)]
    measurement = measure_tables(counts, plan, source=SeededNoise(seed), invariants=total, bounds=[constraints])
    return measurement, tree.aggregate(people.astype(np.int64))


def measure(case: tuple[int, int, str], seed: int) -> tuple[Record, str]:
    """Return the row of one size and method, and what went wrong, "" for nothing."""
    types, count, method = case
    measurement, truth = blocks(types, count, seed)
    tree, start = measurement.hierarchy, perf_counter()
    parents = tree.regions - len(tree.leaves)
    row: Record = {"types": types, "blocks": count, "method": method, "parents": parents}
    try:
        result = estimate_tables(
            measurement,
            TopdownMethod(implied=method),  # type: ignore[arg-type]
            SolverChoices(fallback=True),
        )
    except (ProblemError, SolverError) as error:
        return {**row, "seconds": perf_counter() - start}, f"{types} types, {count} blocks, {method}: {error}"
    seconds = perf_counter() - start
    off = [
        np.abs(result.level(level) - truth[tree.level_range(level).start : tree.level_range(level).stop]).mean()
        for level in range(tree.levels)
    ]
    wrong = "" if method == "bounds" or len(result.relaxed) <= 0.01 * parents else f"{types} types: failsafes"
    row |= {"failsafes": len(result.relaxed), "persons moved": sum(change.moved for change in result.relaxed)}
    return {**row, "cuts": result.implied.cuts, "error by type": float(np.mean(off)), "seconds": seconds}, wrong


def plan(data: Path | None, small: bool) -> list[tuple[tuple[int, int, str], Sequence[int]]]:
    """Return every size by each method that can be afforded."""
    measure((*SIZES[0], "minimal_schema"), 1)  # compiles
    sizes = SIZES[:1] if small else SIZES
    return seeded(((*size, method) for size in sizes for method in METHODS if size[1] <= MOST_BLOCKS[method]), (1,))


def report(results: Sequence[Runs[tuple[int, int, str], tuple[Record, str]]], path: Path) -> Report:
    """Return all rows; it fails where cuts or the minimal schema relax over 1 % of parents."""
    notes = ("error by type: mean absolute error of a region's type, in persons, mean over the four levels.",)
    found = [runs.found[0] for runs in results]
    table = Table.of("facilities by type and block", (row for row, _ in found), notes)
    return Report({"": table}, failures=[wrong for _, wrong in found if wrong])


FACILITIES = Study("kifer2019/facilities", plan, measure, report)
