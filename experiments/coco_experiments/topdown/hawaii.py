"""Hawaii's blocks, five levels, seven cells: which estimation is best at equal budget, by level and query.

All methods but bottom-up see the same noise, epsilon 1 in all, even over the levels; bottom-up spends it on the
blocks. Beside the errors: what weights 1 / variance gain over all ones, and the positive bias of small counts, which
nonnegative tables have and linear estimates have not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coco_experiments.outcome import Cell, Table
from coco_experiments.study import Report, Runs, Study, seeded
from coco_experiments.topdown.data import Tables, generated_blocks, hawaii, small_tables
from coco_experiments.topdown.study import (
    BOTTOM_UP,
    CLASSIC,
    EDGES,
    EQUAL,
    FULL,
    LINEAR,
    Setting,
    bias_by_size,
    make,
    mean_absolute,
    sizes_of,
)
from coco_opt.array_types import Floats
from coco_opt.topdown.queries import parse_queries

METHODS = (FULL, CLASSIC, EQUAL, BOTTOM_UP, LINEAR)
SETTING = Setting(("detail", "hispanic", "total"), ("3/5", "1/5", "1/5"))
SEEDS, SMALL_SEEDS = (1, 2, 3), (1, 2)
SECONDS = 30.0  # what one run of the default method may take
NOTE = "Noise is seeded: NOT PRIVATE. All methods but bottom-up share each seed's noise."


@dataclass(frozen=True, eq=False, slots=True)
class Trial:
    """Tables, and the method that estimates them."""

    tables: Tables
    method: str


def plan(data: Path | None, small: bool) -> list[tuple[Trial, Sequence[int]]]:
    """Return every method on Hawaii's blocks, or on simulated ones."""
    tables = small_tables(generated_blocks(np.random.default_rng(7)) if small else hawaii(data))
    return seeded((Trial(tables, method) for method in METHODS), SMALL_SEEDS if small else SEEDS)


def measure(trial: Trial, seed: int) -> dict[str, Any]:
    """Return a method's errors [levels, queries], bias by size, seconds and certificates under one seed."""
    tables, queries = trial.tables, parse_queries(SETTING.queries, trial.tables.schema)
    answers, seconds, lines = make(tables, SETTING, trial.method, seed)
    bias = bias_by_size(tables, answers, queries[0])
    return {"errors": mean_absolute(tables, answers, queries), "bias": bias, "seconds": seconds, "lines": lines}


def report(results: Sequence[Runs[Trial, dict[str, Any]]], path: Path) -> Report:
    """Return errors, bias and seconds; it fails where the default is slow, or worse than classic or all-ones weights.

    Worse is meant in the geometric mean over levels and queries.
    """
    found = {runs.case.method: runs.found for runs in results}
    errors = {method: np.mean([of_seed["errors"] for of_seed in runs], axis=0) for method, runs in found.items()}
    bias = {method: runs[0]["bias"] for method, runs in found.items()}
    rows: list[dict[str, Cell]] = []
    for method, runs in found.items():
        seconds = [of_seed["seconds"] for of_seed in runs]
        rows.append({"method": method, "median": float(np.median(seconds)), "least": min(seconds)})
    tables = {
        "_errors": error_table(errors, len(results[0].seeds)),
        "_bias": bias_table(bias),
        "_seconds": Table.of("seconds of post-processing, one thread", rows),
    }
    mean = {method: float(np.log(values).mean()) for method, values in errors.items()}
    failures = [
        f"{FULL} is worse than {rival} in the geometric mean over levels and queries"
        for rival in (CLASSIC, EQUAL)
        if mean[FULL] > mean[rival]
    ]
    slow = float(rows[0]["median"] or 0.0)
    failures += [] if slow <= SECONDS else [f"{FULL} takes {slow:.0f} s, more than {SECONDS:.0f}"]
    return Report(tables, failures=failures, notes=[line for runs in found.values() for line in runs[0]["lines"]])


def error_table(errors: Mapping[str, Floats], runs: int) -> Table:
    """Return mean absolute errors [levels, queries] by method as a table, one row a level and query."""
    rows: list[dict[str, Cell]] = []
    for level, place in np.ndindex(errors[FULL].shape):
        means = {method: float(values[level, place]) for method, values in errors.items()}
        key = {"level": level, "query": SETTING.queries[place]}
        rows.append({**key, **means, "gain of 1/variance": means[EQUAL] / means[CLASSIC]})
    notes = (NOTE, "The gain is the error with all weights 1 over that with 1 / variance, both classic.")
    return Table.of(f"mean absolute error of an answer (people), {runs} runs", rows, notes)


def bias_table(bias: Mapping[str, Sequence[tuple[int, float]]]) -> Table:
    """Return the mean error of the blocks' cells by their true size."""
    rows: list[dict[str, Cell]] = []
    for place, size in enumerate(sizes_of(EDGES)):
        cells = bias[FULL][place][0]
        rows.append({"true size": size, "cells": cells, **{name: means[place][1] for name, means in bias.items()}})
    notes = (NOTE, "Nonnegative tables push small counts up and, their sums being right, large ones down.")
    return Table.of("bias of the blocks' cells by true size (people), one run", rows, notes)


HAWAII = Study("topdown/hawaii", plan, measure, report)
