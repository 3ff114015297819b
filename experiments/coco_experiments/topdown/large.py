"""Hawaii's blocks with 2,016 MADE cells each: one release's post-processing, timed level by level, with its memory.

The cells are drawn at random within the blocks' real counts (see ``data``), so errors here say how the method scales,
nothing about Hawaii.
"""

from __future__ import annotations

import resource
import sys
from fractions import Fraction
from pathlib import Path
from time import perf_counter

import numpy as np

from coco_experiments.outcome import Cell, Outcome, Reporter, Table, publish
from coco_experiments.topdown.data import Tables, generated_blocks, hawaii, large_tables
from coco_experiments.topdown.study import Estimates, Setting, mean_absolute
from coco_opt.choices import SolverChoices
from coco_opt.topdown.estimating.estimate import TablesResult, estimate_tables
from coco_opt.topdown.estimating.method import TopdownMethod
from coco_opt.topdown.estimating.recursion import Checkpoint
from coco_opt.topdown.queries import parse_queries

NAME = "topdown/large"
SETTING = Setting(
    ("detail", "hispanic * race", "race * voting_age", "residence", "total"),
    ("2/5", "1/5", "1/5", "1/10", "1/10"),
    Fraction(4),
)
SEED, THREADS = 1, 2
SECONDS = 600.0
GIBIBYTE = 2**30


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Estimate once and write errors and seconds by level below ``out``; fails beyond ten minutes."""
    blocks = generated_blocks(np.random.default_rng(7), 2, 2, 1, 3) if small else hawaii(data)
    tables = large_tables(blocks)
    measurement = SETTING.measure(tables, SEED)
    marks, start = [0.0], perf_counter()

    def after_level(_: Checkpoint) -> None:
        marks.append(perf_counter() - start)

    def progress(done: int, total: int) -> None:
        reporter.progress(NAME, done, total)

    solvers = SolverChoices()
    result = estimate_tables(
        measurement, TopdownMethod(), solvers, threads=THREADS, progress=progress, after_level=after_level
    )
    table = level_table(tables, result, marks)
    for row in solvers.certificates:
        reporter.note(f"{row.solves:,} x {row.problem} by {row.solver}: worst relative gap {row.relative_gap:.2g}")
    slow = () if marks[-1] <= SECONDS else (f"{marks[-1]:.0f} s are more than {SECONDS:.0f}",)
    return publish(NAME, {"": table}, out, reporter, failures=slow)


def level_table(tables: Tables, result: TablesResult, marks: list[float]) -> Table:
    """Return regions, seconds, nonzero cells and mean absolute errors by level."""
    queries = parse_queries(SETTING.queries, tables.schema)
    errors = mean_absolute(tables, Estimates(result.answers, marks[-1], result), queries)
    rows: list[tuple[Cell, ...]] = []
    for level, runs in enumerate(result.tables):
        seconds = marks[level + 1] - marks[level]
        rows.append((level, runs.regions, seconds, int(runs.cells.size), *(float(error) for error in errors[level])))
    notes = (
        "Cells are made, noise is seeded: NOT PRIVATE.",
        f"{marks[-1]:.1f} s of post-processing on {THREADS} threads; the process took at most "
        f"{_peak() / GIBIBYTE:.2f} GiB.",
    )
    columns = ("level", "regions", "seconds", "nonzero cells", *(f"error of {query.name}" for query in queries))
    return Table(
        "2,016 cells: seconds and mean absolute error of an answer (people) by level", columns, tuple(rows), notes
    )


def _peak() -> int:
    """Return the largest memory of this process so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
