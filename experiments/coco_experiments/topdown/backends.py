"""Every backend on the same splits, taken from a release: objective, certified gap, seconds.

One split a level of the small and of the large tables, that of the region with most people. A backend is left out
where its row of the solver table says that the split is too large for it, and that is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from coco_experiments.outcome import Record, Table
from coco_experiments.study import Report, Runs, Study, seeded
from coco_experiments.topdown.data import Tables, generated_blocks, hawaii, large_tables, small_tables
from coco_experiments.topdown.hawaii import SETTING, Setting
from coco_opt.choices import SolverChoices
from coco_opt.errors import SolverError
from coco_opt.problems.topdown_split import TopdownSplit
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
AGREE = 1e-5  # relative difference of objectives of backends that reached their tolerance
GENERIC_LIMIT = 20_000  # unknowns beyond which only structured backends are tried


@dataclass(frozen=True, eq=False, slots=True)
class Split:
    """The split of a level's most populous region."""

    cells: int
    level: int
    problem: TopdownSplit


def plan(data: Path | None, small: bool) -> list[tuple[Split, Sequence[int]]]:
    """Return the splits of Hawaii's or of simulated blocks, after a tiny one of all backends, which compiles."""
    blocks = generated_blocks(np.random.default_rng(7), 2, 2, 2, 4) if small else hawaii(data)
    for split in splits(small_tables(generated_blocks(np.random.default_rng(1), 1, 1, 1, 2)), SETTING):
        measure(split, SEED)
    return seeded([*splits(small_tables(blocks), SETTING), *splits(large_tables(blocks), LARGE)])


def splits(tables: Tables, setting: Setting) -> Iterator[Split]:
    """Yield, for each level that has children, the split of its most populous region; the true tables are parents."""
    hierarchy = tables.hierarchy
    step = split_step(TableMeasurements.of(setting.measure(tables, SEED)), TopdownMethod(), SolverChoices())
    everything = range(len(setting.queries))
    for level in range(hierarchy.levels - 1):
        truth = tables.counts.level_tables(level)
        largest = int(truth.sum(axis=1).argmax())
        children = hierarchy.children(hierarchy.level_range(level)[largest])
        problem = TopdownSplit(step.terms(children, everything), truth[largest].astype(np.float64))
        yield Split(tables.schema.size, level, problem)


def measure(split: Split, seed: int) -> list[Record]:
    """Return a row for every installed backend."""
    used = [backend for backend in backends() if backend.claims(TopdownSplit) and backend.installed]
    return [_solved(split, backend) for backend in used]


def _solved(split: Split, backend: Backend) -> Record:
    """Return status, objective, relative gap, seconds and share of model building."""
    problem = split.problem
    row: Record = {"cells": split.cells, "level": split.level, "children": problem.shape[0]}
    row |= {"unknowns": problem.variables, "backend": backend.name}
    limit = min(backend.limit(problem.kind), 10**9 if problem.kind in backend.kinds else GENERIC_LIMIT)
    if problem.variables > limit:
        return {**row, "status": f"left out: more than {limit:,} unknowns"}
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


def report(results: Sequence[Runs[Split, list[Record]]], path: Path) -> Report:
    """Return all rows; it fails where no backend solves a split, or two that claim success disagree."""
    failures = []
    for runs in results:
        reached = [row["objective"] for row in runs.found[0] if row["status"] == "OPTIMAL"]
        objectives = [objective for objective in reached if isinstance(objective, float)]
        where = f"level {runs.case.level} with {runs.case.cells} cells"
        if not objectives:
            failures.append(f"no backend solves the split of {where}")
        elif max(objectives) - min(objectives) > AGREE * max(1.0, min(objectives)):
            failures.append(f"backends disagree on {where}")
    rows = (row for runs in results for row in runs.found[0])
    return Report(
        {"": Table.of("all backends on the same splits", rows, ("Noise is seeded: NOT PRIVATE.",))}, failures=failures
    )


BACKENDS = Study("topdown/backends", plan, measure, report)
