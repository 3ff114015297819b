"""Every step of the methods by every backend that claims it: certified gap and seconds, one table.

The steps are the projection of the naive method, isotonic regression under both losses and the linear program that
rounds (one region's sizes), then least squares on the tree of regions, top-down splits and their rounding (blocks by
race). Splits are those of a release, one a level of the small and of the large tables, of the region with most people.
A backend is left out where its row of the solver table says that a problem is too large for it, and that is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from coco_experiments.data import taxi
from coco_experiments.groups import Case
from coco_experiments.kuo2018.cases import small_cases
from coco_experiments.outcome import Record, Table
from coco_experiments.study import Report, Runs, Study, seeded
from coco_experiments.topdown.data import Tables, generated_blocks, hawaii, large_tables, small_tables
from coco_experiments.topdown.hawaii import SETTING, Setting
from coco_opt.choices import SolverChoices
from coco_opt.errors import SolverError
from coco_opt.groups import GroupsMeasurements, Query
from coco_opt.problem import Problem
from coco_opt.problems import (
    ControlledRounding,
    IsotonicL1,
    IsotonicL2,
    SimplexProjection,
    TableRounding,
    TopdownSplit,
    Tree,
    TreeLeastSquares,
)
from coco_opt.registry import Backend, backends
from coco_opt.solving import solve
from coco_opt.topdown.estimating.method import TopdownMethod
from coco_opt.topdown.estimating.splitting.step import split_step
from coco_opt.topdown.noisy_measurements import TableMeasurements

LARGE = Setting(
    ("detail", "hispanic * race", "race * voting_age", "residence", "total"),
    ("2/5", "1/5", "1/5", "1/10", "1/10"),
    Fraction(4),
)
SEED = 1
MAX_SIZE = 2_000  # of a group on the taxis
AGREE = 1e-5  # relative difference of objectives of backends that reached their tolerance
GENERIC_LIMIT = 20_000  # unknowns beyond which only structured backends are tried
LEFT_OUT = "left out"
NOTE = "Noise is seeded: NOT PRIVATE. Seconds of one solve, building included, after a tiny one that compiles."


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """A step of a method by name, and a problem of it by the name of its instance."""

    name: str
    instance: str
    problem: Problem[Any, Any]


def plan(data: Path | None, small: bool) -> list[tuple[Step, Sequence[int]]]:
    """Return the steps on Taxi and Hawaii's or on simulated data, after tiny ones of all backends, which compile."""
    tiny = small_tables(generated_blocks(np.random.default_rng(1), 1, 1, 1, 2))
    for step in (*of_groups(small_cases(20)[0]), *of_totals(tiny), *of_tables(tiny, SETTING)):
        measure(step, SEED)
    blocks = generated_blocks(np.random.default_rng(7), 2, 2, 2, 4) if small else hawaii(data)
    case = small_cases(100)[0] if small else Case.of("Taxi", taxi(data), MAX_SIZE)
    tables = [(small_tables(blocks), SETTING), (large_tables(blocks), LARGE)]
    splits = (step for table, setting in tables for step in of_tables(table, setting))
    return seeded([*of_groups(case), *of_totals(tables[0][0]), *splits])


def of_groups(case: Case) -> Iterator[Step]:
    """Yield the steps of one region, the root, with a third of total epsilon 1."""

    def noisy(query: Query) -> Any:
        return GroupsMeasurements(case.measured(SEED, query=query))[0].values

    groups, name = case.truth[0].groups, f"{case.name}, K = {case.max_size:,}"
    projection = SimplexProjection(noisy("sizes"), groups)
    cumulative = noisy("cumulative")
    yield Step("naive projection", name, projection)
    yield Step("isotonic, L1", name, IsotonicL1(cumulative, lower=0, upper=groups))
    yield Step("isotonic, L2", name, IsotonicL2(cumulative, lower=0, upper=groups))
    yield Step("rounding LP", name, ControlledRounding(solve(projection).value, total=groups))


def of_totals(tables: Tables) -> Iterator[Step]:
    """Yield the tree of all regions, and that of the regions above the leaves, which most backends can take."""
    hierarchy, rng = tables.hierarchy, np.random.default_rng(SEED)
    totals = np.concatenate([tables.counts.level_tables(level).sum(axis=1) for level in range(hierarchy.levels)])
    noisy = totals + np.rint(rng.laplace(0.0, 10.0, totals.size))
    for regions in (hierarchy.leaves.start, hierarchy.regions):
        tree = Tree(hierarchy.parent[:regions])
        yield Step("tree", f"{regions:,} regions", TreeLeastSquares(tree, noisy[:regions], lower=0.0))


def of_tables(tables: Tables, setting: Setting) -> Iterator[Step]:
    """Yield, for each level that has children, the split and the rounding of its largest region.

    The true tables are parents.
    """
    hierarchy = tables.hierarchy
    step = split_step(TableMeasurements.of(setting.measure(tables, SEED)), TopdownMethod(), SolverChoices())
    truth = [tables.counts.level_tables(level) for level in range(hierarchy.levels)]
    for level in range(hierarchy.levels - 1):
        largest = int(truth[level].sum(axis=1).argmax())
        children = hierarchy.children(hierarchy.level_range(level)[largest])
        parent = truth[level][largest]
        split = TopdownSplit(step.terms(children, range(len(setting.queries))), parent.astype(np.float64))
        name = f"level {level}, {len(children):,} x {tables.schema.size:,} cells"
        yield Step("top-down split", name, split)
        yield Step("rounding of a split", name, TableRounding(solve(split, check=False).value, parent))


def measure(step: Step, seed: int) -> list[Record]:
    """Return a row for every installed backend."""
    used = [backend for backend in backends() if backend.claims(type(step.problem)) and backend.installed]
    return [_solved(step, backend) for backend in used]


def _solved(step: Step, backend: Backend) -> Record:
    """Return status, objective, relative gap, seconds and share of model building."""
    problem = step.problem
    row: Record = {"step": step.name, "instance": step.instance, "unknowns": problem.variables}
    row["backend"] = backend.name
    limit = min(backend.limit(problem.kind), 10**9 if problem.kind in backend.kinds else GENERIC_LIMIT)
    if problem.variables > limit:
        return {**row, "status": f"{LEFT_OUT}: more than {limit:,} unknowns"}
    try:
        solution = solve(problem, backend.name, check=False)
    except SolverError as error:
        return {**row, "status": str(error)[:60]}
    seconds = solution.seconds + solution.build_seconds
    return {
        **row,
        "status": solution.status.name,
        "objective": solution.objective,
        "relative gap": solution.relative_gap,
        "seconds": seconds,
        "building %": 100.0 * solution.build_seconds / max(seconds, 1e-9),
    }


def crossed(rows: Sequence[Record]) -> Table:
    """Return steps by backends: the worst relative gap and the most seconds over the instances that it solves."""
    names = list(dict.fromkeys(row["step"] for row in rows))
    records: list[Record] = []
    for backend in dict.fromkeys(row["backend"] for row in rows):
        record: Record = {"backend": backend}
        for name in names:
            listed = [row for row in rows if (row["step"], row["backend"]) == (name, backend)]
            own = [row for row in listed if "seconds" in row]
            worst = max((row["relative gap"] for row in own), default=0.0)
            most = max((row["seconds"] for row in own), default=0.0)
            missed = sum(row["status"] != "OPTIMAL" for row in own)
            words = f"{worst:.0e}; {most:.2g} s" + (f"; {missed} of {len(own)} not certified" if missed else "")
            record[name] = words if own else "too large" if listed else None
        records.append(record)
    notes = (
        "Worst relative gap and most seconds over the step's instances; - where a backend does not claim it.",
        NOTE,
    )
    return Table.of("Steps by backends", records, notes)


def report(results: Sequence[Runs[Step, list[Record]]], path: Path) -> Report:
    """Return all rows and steps by backends; it fails where a backend does not certify a step, or two disagree."""
    failures = []
    for runs in results:
        reached = [row["objective"] for row in runs.found[0] if row["status"] == "OPTIMAL"]
        where = f"{runs.case.name}, {runs.case.instance}"
        if not reached:
            failures.append(f"no backend solves {where}")
        elif max(reached) - min(reached) > AGREE * max(1.0, min(reached)):
            failures.append(f"backends disagree on {where}")
    rows = [row for runs in results for row in runs.found[0]]
    failures += [
        f"{row['backend']} does not certify {row['step']}, {row['instance']}: {row['status']}"
        for row in rows
        if row["status"] != "OPTIMAL" and not row["status"].startswith(LEFT_OUT)
    ]
    tables = {"": crossed(rows), "_rows": Table.of("All backends on the same problems", rows, (NOTE,))}
    return Report(tables, failures=failures)


BACKENDS = Study("topdown/backends", plan, measure, report)
