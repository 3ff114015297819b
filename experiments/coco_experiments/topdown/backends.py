"""Every backend on the same splits, taken from a release: objective, certified gap, seconds.

One split a level of the small and of the large tables, that of the region with most people. A backend is left out
where its row of the solver table says that the split is too large for it, and that is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from coco_experiments.outcome import Cell, Outcome, Reporter, Table, publish
from coco_experiments.topdown import hawaii
from coco_experiments.topdown.data import Tables, generated_blocks, large_tables, small_tables
from coco_experiments.topdown.data import hawaii as read_hawaii
from coco_experiments.topdown.study import Setting
from coco_opt.choices import SolverChoices
from coco_opt.errors import SolverError
from coco_opt.problems.topdown_split import TopdownSplit
from coco_opt.registry import Backend, backends
from coco_opt.solving import solve
from coco_opt.topdown.estimating.method import TopdownMethod
from coco_opt.topdown.estimating.splitting.step import split_step
from coco_opt.topdown.noisy_measurements import TableMeasurements

NAME = "topdown/backends"
LARGE = Setting(
    ("detail", "hispanic * race", "race * voting_age", "residence", "total"),
    ("2/5", "1/5", "1/5", "1/10", "1/10"),
    Fraction(4),
)
SEED = 1
AGREE = 1e-5  # relative difference of objectives of backends that reached their tolerance
GENERIC_LIMIT = 20_000  # unknowns beyond which only structured backends are tried
COLUMNS = (
    "cells",
    "level",
    "children",
    "unknowns",
    "backend",
    "status",
    "objective",
    "relative gap",
    "seconds",
    "building %",
)


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Solve every split with every installed backend; fails where two that claim success disagree."""
    blocks = generated_blocks(np.random.default_rng(7), 2, 2, 2, 4) if small else read_hawaii(data)
    used = [backend for backend in backends() if backend.claims(TopdownSplit) and backend.installed]
    _warm(used)
    rows: list[tuple[Cell, ...]] = []
    failures: list[str] = []
    done = 0
    for setting, tables in ((hawaii.SETTING, small_tables(blocks)), (LARGE, large_tables(blocks))):
        for level, problem in splits(tables, setting):
            solved = [(solver, *_solved(problem, solver)) for solver in used]
            rows += [_row(tables, level, problem, *solver) for solver in solved]
            reached = [cells[1] for _, *cells in solved if cells[0] == "OPTIMAL" and isinstance(cells[1], float)]
            if not reached:
                failures.append(f"no backend solves the split of level {level} with {tables.schema.size} cells")
            elif max(reached) - min(reached) > AGREE * max(1.0, min(reached)):
                failures.append(f"backends disagree on level {level} with {tables.schema.size} cells")
            done += 1
            reporter.progress(NAME, done, 2 * (tables.hierarchy.levels - 1))
    table = Table("all backends on the same splits", COLUMNS, tuple(rows), ("Noise is seeded: NOT PRIVATE.",))
    return publish(NAME, {"": table}, out, reporter, failures=failures)


def _warm(used: Sequence[Backend]) -> None:
    """Solve a tiny split with every backend, so that imports and compilation lie outside the measured times."""
    tiny = small_tables(generated_blocks(np.random.default_rng(1), 1, 1, 1, 2))
    for _, problem in splits(tiny, hawaii.SETTING):
        for backend in used:
            _solved(problem, backend)


def splits(tables: Tables, setting: Setting) -> Iterator[tuple[int, TopdownSplit]]:
    """Yield, for each level that has children, the split of its most populous region; the true tables are parents."""
    hierarchy = tables.hierarchy
    step = split_step(TableMeasurements.of(setting.measure(tables, SEED)), TopdownMethod(), SolverChoices())
    everything = range(len(setting.queries))
    for level in range(hierarchy.levels - 1):
        truth = tables.counts.level_tables(level)
        largest = int(truth.sum(axis=1).argmax())
        children = hierarchy.children(hierarchy.level_range(level)[largest])
        yield level, TopdownSplit(step.terms(children, everything), truth[largest].astype(np.float64))


def _solved(problem: TopdownSplit, backend: Backend) -> tuple[Cell, Cell, Cell, Cell, Cell]:
    """Return status, objective, relative gap, seconds and share of model building."""
    limit = min(backend.limit(problem.kind), 10**9 if problem.kind in backend.kinds else GENERIC_LIMIT)
    if problem.variables > limit:
        return f"left out: more than {limit:,} unknowns", None, None, None, None
    try:
        solution = solve(problem, backend.name, check=False)
    except SolverError as error:
        return str(error)[:60], None, None, None, None
    seconds = solution.seconds + solution.build_seconds
    return (
        solution.status.name,
        solution.objective,
        solution.relative_gap,
        seconds,
        100.0 * solution.build_seconds / max(seconds, 1e-9),
    )


def _row(tables: Tables, level: int, problem: TopdownSplit, backend: Backend, *cells: Cell) -> tuple[Cell, ...]:
    return (tables.schema.size, level, problem.shape[0], problem.variables, backend.name, *cells)
