"""Hawaii's blocks, five levels, seven cells: which estimation is best at equal budget, by level and query.

All methods but bottom-up see the same noise, epsilon 1 in all, even over the levels; bottom-up spends it on the
blocks. Beside the errors: what weights 1 / variance gain over all ones, and the positive bias of small counts, which
nonnegative tables have and linear estimates have not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from coco_experiments.outcome import Cell, Outcome, Reporter, Table, write_csv
from coco_experiments.topdown.data import Tables, generated_blocks, hawaii, small_tables
from coco_experiments.topdown.study import (
    BOTTOM_UP,
    CLASSIC,
    EQUAL,
    FULL,
    LINEAR,
    Estimates,
    Setting,
    bias_by_size,
    make,
    mean_absolute,
)
from coco_opt.array_types import Floats
from coco_opt.topdown.queries import Query, parse_queries

NAME = "topdown/hawaii"
METHODS = (FULL, CLASSIC, EQUAL, BOTTOM_UP, LINEAR)
SETTING = Setting(("detail", "hispanic", "total"), ("3/5", "1/5", "1/5"))
EDGES = (0, 1, 3, 10, 30, 10**6)
SEEDS, SMALL_SEEDS = (1, 2, 3), (1, 2)
SECONDS = 30.0  # what one run of the default method may take
NOTE = "Noise is seeded: NOT PRIVATE. All methods but bottom-up share each seed's noise."


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure errors, bias and seconds, and write them below ``out``; fails where classic beats the default."""
    tables = small_tables(generated_blocks(np.random.default_rng(7)) if small else hawaii(data))
    return study(NAME, tables, SETTING, SMALL_SEEDS if small else SEEDS, out, reporter)


def study(name: str, tables: Tables, setting: Setting, seeds: Sequence[int], out: Path, reporter: Reporter) -> Outcome:
    """Return the tables of errors, of bias and of seconds of all methods on one data set."""
    queries = parse_queries(setting.queries, tables.schema)
    errors, seconds = _zeros(len(seeds), tables, queries), np.zeros((len(METHODS), len(seeds)))
    bias: dict[str, list[tuple[int, float]]] = {}
    for i, seed in enumerate(seeds):
        for place, method in enumerate(METHODS):
            estimates = make(tables, setting, method, seed)
            errors[place, i] = mean_absolute(tables, estimates, queries)
            seconds[place, i] = estimates.seconds
            if i == 0:
                bias[method] = bias_by_size(tables, estimates, queries[0], EDGES)
                _note_certificates(reporter, method, estimates)
            reporter.progress(name, i * len(METHODS) + place + 1, len(seeds) * len(METHODS))
    generated_tables = (error_table(queries, errors), bias_table(bias), seconds_table(seconds))
    files = []
    for table, part in zip(generated_tables, ("errors", "bias", "seconds"), strict=True):
        reporter.table(table)
        files.append(write_csv(out / f"{name}_{part}.csv", table))
    slow = float(np.median(seconds[METHODS.index(FULL)]))
    late = () if slow <= SECONDS else (f"{FULL} takes {slow:.0f} s, more than {SECONDS:.0f}",)
    return Outcome(generated_tables, tuple(files), (*failures(errors), *late))


def failures(errors: Floats) -> tuple[str, ...]:
    """Return what did not hold: the default is to beat classic and all-ones weights on average over levels."""
    means = np.exp(np.log(errors.mean(axis=1)).mean(axis=(1, 2)))
    return tuple(
        f"{FULL} is worse than {rival} in the geometric mean over levels and queries"
        for rival in (CLASSIC, EQUAL)
        if means[METHODS.index(FULL)] > means[METHODS.index(rival)]
    )


def error_table(queries: Sequence[Query], errors: Floats) -> Table:
    """Return mean absolute errors [methods, seeds, levels, queries] as a table, one row a level and query."""
    runs = errors.shape[1]
    rows: list[tuple[Cell, ...]] = []
    for level in range(errors.shape[2]):
        for i, query in enumerate(queries):
            means = errors[:, :, level, i].mean(axis=1)
            gain = float(means[METHODS.index(EQUAL)] / means[METHODS.index(CLASSIC)])
            rows.append((level, query.name, *(float(mean) for mean in means), gain))
    columns = ("level", "query", *METHODS, "gain of 1/variance")
    notes = (NOTE, "The gain is the error with all weights 1 over that with 1 / variance, both classic.")
    return Table(f"mean absolute error of an answer (people), {runs} runs", columns, tuple(rows), notes)


def bias_table(bias: dict[str, list[tuple[int, float]]]) -> Table:
    """Return the mean error of the blocks' cells by their true size."""
    rows: list[tuple[Cell, ...]] = []
    for i, (low, high) in enumerate(pairwise(EDGES)):
        name = f"{low}" if high == low + 1 else f"{low} and more" if i == len(EDGES) - 2 else f"{low} to {high - 1}"
        count = next(iter(bias.values()))[i][0]
        rows.append((name, count, *(means[i][1] for means in bias.values())))
    notes = (NOTE, "Nonnegative tables push small counts up and, their sums being right, large ones down.")
    return Table(
        "bias of the blocks' cells by true size (people), one run", ("true size", "cells", *bias), tuple(rows), notes
    )


def seconds_table(seconds: Floats) -> Table:
    """Return the wall seconds of the estimation alone."""
    rows = tuple(
        (method, float(np.median(row)), float(row.min())) for method, row in zip(METHODS, seconds, strict=True)
    )
    return Table("seconds of post-processing, one thread", ("method", "median", "least"), rows)


def _zeros(runs: int, tables: Tables, queries: Sequence[Query]) -> Floats:
    return np.zeros((len(METHODS), runs, tables.hierarchy.levels, len(queries)))


def _note_certificates(reporter: Reporter, method: str, estimates: Estimates) -> None:
    if estimates.result is not None:
        for row in estimates.result.certificates:
            reporter.note(
                f"{method}: {row.solves:,} x {row.problem} by {row.solver}, worst relative gap {row.relative_gap:.2g}, "
                f"{row.seconds:.2f} s in the solver"
            )
