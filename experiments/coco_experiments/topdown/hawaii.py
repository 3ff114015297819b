"""Hawaii's blocks, five levels, seven cells: which estimation is best at equal budget, by level and query.

Other experiments take from here what measures once a seed, makes tables in several ways and finds errors by query. All
methods but bottom-up see the same noise, epsilon 1 in all, even over the levels; bottom-up spends it on the
blocks. Beside the errors: what weights 1 / variance gain over all ones, and the positive bias of small counts, which
nonnegative tables have and linear estimates have not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_experiments.outcome import Record, Table
from coco_experiments.study import Report, Runs, Study, seeded
from coco_experiments.topdown.data import Tables, generated_blocks, hawaii, small_tables
from coco_opt.array_types import Floats
from coco_opt.choices import SolverChoices
from coco_opt.operators import Operator
from coco_opt.privacy import Epsilon, Measurement, SeededNoise
from coco_opt.topdown.budget_plan import Strategy, TablePlan
from coco_opt.topdown.estimating.estimate import estimate_tables, linear_estimates
from coco_opt.topdown.estimating.method import TopdownMethod
from coco_opt.topdown.measuring.measure import measure_tables
from coco_opt.topdown.queries import Query, parse_queries

Answers = Callable[[Operator, int], NDArray[np.float64] | NDArray[np.int64]]

EDGES = (0, 1, 3, 10, 30, 10**6)  # of classes of true sizes
FULL, CLASSIC, BOTTOM_UP = "full", "classic", "bottom-up, all budget on the leaves"
LINEAR, EQUAL = "linear (fractional, negative)", "classic, all weights 1"
VARIANTS: dict[str, TopdownMethod] = {
    FULL: TopdownMethod("full"),
    CLASSIC: TopdownMethod("classic"),
    EQUAL: TopdownMethod("classic", weighting="equal"),
    BOTTOM_UP: TopdownMethod("bottom_up"),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """What is measured: query texts with their shares of a level's budget, epsilon in all, and its shares by level."""

    queries: tuple[str, ...]
    shares: tuple[str, ...]
    epsilon: Fraction = Fraction(1)
    level_shares: tuple[str, ...] = ()

    def plan(self, tables: Tables, leaves_only: bool = False) -> TablePlan:
        """Return the plan: as the levels' shares say, even over the levels without any, or all on the leaves."""
        levels = tables.hierarchy.levels
        strategy = Strategy(parse_queries(self.queries, tables.schema), tuple(map(Fraction, self.shares)))
        shares = [*map(Fraction, self.level_shares)] or None
        if leaves_only:
            shares = [*[Fraction(0)] * (levels - 1), Fraction(1)]
        return TablePlan.product(strategy, Epsilon(self.epsilon), levels, level_shares=shares)

    def measure(self, tables: Tables, seed: int, leaves_only: bool = False) -> Measurement:
        """Return a seeded measurement (NOT PRIVATE)."""
        return measure_tables(tables.counts, self.plan(tables, leaves_only), source=SeededNoise(seed))


def make(tables: Tables, setting: Setting, name: str, seed: int, threads: int = 1) -> tuple[Answers, float, list[str]]:
    """Run one method by name on one seed; all but bottom-up share the seed's noise.

    Return its answers to any query at any level, the seconds, and a line for each kind of certificate.
    """
    measurement = setting.measure(tables, seed, leaves_only=name == BOTTOM_UP)
    start = perf_counter()
    if name == LINEAR:
        return linear_estimates(measurement).answers, perf_counter() - start, []
    result = estimate_tables(measurement, VARIANTS[name], SolverChoices(), threads=threads)
    seconds = perf_counter() - start
    lines = [
        f"{name}: {row.solves:,} x {row.problem} by {row.solver}, worst relative gap {row.relative_gap:.2g}, "
        f"{row.seconds:.2f} s in the solver"
        for row in result.certificates
    ]
    return result.answers, seconds, lines


def errors_of(tables: Tables, answers: Answers, query: Query, level: int) -> Floats:
    """Return estimate minus truth float64[regions of level, answers], in people."""
    exact = tables.counts.answers_to(query.operator, tables.hierarchy.level_range(level))
    return np.asarray(answers(query.operator, level) - exact, dtype=np.float64)


def mean_absolute(tables: Tables, answers: Answers, queries: Sequence[Query]) -> Floats:
    """Return the mean absolute error of an answer, float64[levels, queries]."""
    levels = range(tables.hierarchy.levels)
    return np.array(
        [[np.abs(errors_of(tables, answers, query, level)).mean() for query in queries] for level in levels]
    )


def sizes_of(edges: Sequence[int]) -> list[str]:
    """Return classes of sizes edges[k] .. edges[k + 1] - 1 in words; the last has no upper end."""
    names = [f"{low}" if high == low + 1 else f"{low} to {high - 1}" for low, high in pairwise(edges)]
    return [*names[:-1], f"{edges[-2]} and more"]


def bias_by_size(
    tables: Tables, answers: Answers, query: Query, edges: Sequence[int] = EDGES
) -> list[tuple[int, float]]:
    """Return for leaf answers of true size edges[k] .. edges[k + 1] - 1 their number and mean error."""
    level = tables.hierarchy.levels - 1
    exact = tables.counts.answers_to(query.operator, tables.hierarchy.level_range(level))
    error = errors_of(tables, answers, query, level)
    rows = []
    for low, high in pairwise(edges):
        inside = (exact >= low) & (exact < high)
        rows.append((int(inside.sum()), float(error[inside].mean()) if inside.any() else float("nan")))
    return rows


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
    rows: list[Record] = []
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
    rows: list[Record] = []
    for level, place in np.ndindex(errors[FULL].shape):
        means = {method: float(values[level, place]) for method, values in errors.items()}
        key = {"level": level, "query": SETTING.queries[place]}
        rows.append({**key, **means, "gain of 1/variance": means[EQUAL] / means[CLASSIC]})
    notes = (NOTE, "The gain is the error with all weights 1 over that with 1 / variance, both classic.")
    return Table.of(f"mean absolute error of an answer (people), {runs} runs", rows, notes)


def bias_table(bias: Mapping[str, Sequence[tuple[int, float]]]) -> Table:
    """Return the mean error of the blocks' cells by their true size."""
    rows: list[Record] = []
    for place, size in enumerate(sizes_of(EDGES)):
        cells = bias[FULL][place][0]
        rows.append({"true size": size, "cells": cells, **{name: means[place][1] for name, means in bias.items()}})
    notes = (NOTE, "Nonnegative tables push small counts up and, their sums being right, large ones down.")
    return Table.of("bias of the blocks' cells by true size (people), one run", rows, notes)


HAWAII = Study("topdown/hawaii", plan, measure, report)
