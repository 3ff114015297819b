"""Hawaii's blocks, five levels, seven cells: which estimation is best at equal budget, by level and query.

All methods but bottom-up see the same noise, epsilon 1 in all; bottom-up spends it on the blocks. Beside the errors:
what weights 1 / variance gain over all ones, the positive bias of small counts, which nonnegative tables have and
linear estimates have not, and how often the posterior's intervals hold.

``hawaii``: every method but the posterior, even over the levels. ``tables_posterior``: the posterior against ``full``
and bottom-up, even over the levels and with most at the blocks; a run that was stopped goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_experiments.outcome import Record, Table
from coco_experiments.statistics import Mean, inside_by_ranks
from coco_experiments.study import Report, Runs, Study, not_converged, seeded
from coco_experiments.topdown.data import Tables, generated_blocks, hawaii, small_tables
from coco_opt.array_types import Floats
from coco_opt.choices import SolverChoices
from coco_opt.operators import Operator
from coco_opt.privacy import Epsilon, Measurement, SeededNoise
from coco_opt.topdown.budget_plan import Strategy, TablePlan
from coco_opt.topdown.estimating.estimate import estimate_tables, linear_estimates
from coco_opt.topdown.estimating.method import TopdownMethod
from coco_opt.topdown.estimating.posterior.correction import central
from coco_opt.topdown.estimating.posterior.result import TablesPosterior
from coco_opt.topdown.measuring.measure import measure_tables
from coco_opt.topdown.queries import Query, parse_queries

Answers = Callable[[Operator, int], NDArray[np.float64] | NDArray[np.int64]]

EDGES = (0, 1, 3, 10, 30, 10**6)  # of classes of true sizes
FULL, CLASSIC, POSTERIOR = "full", "classic", "posterior"
BOTTOM_UP = "bottom-up, all budget on the leaves"
LINEAR, EQUAL = "linear (fractional, negative)", "classic, all weights 1"
VARIANTS: dict[str, TopdownMethod] = {
    FULL: TopdownMethod("full"),
    CLASSIC: TopdownMethod("classic"),
    EQUAL: TopdownMethod("classic", weighting="equal"),
    BOTTOM_UP: TopdownMethod("bottom_up"),
    POSTERIOR: TopdownMethod("posterior"),
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


METHODS, POSTERIOR_METHODS = (FULL, CLASSIC, EQUAL, BOTTOM_UP, LINEAR), (FULL, POSTERIOR, BOTTOM_UP)
SETTING = Setting(("detail", "hispanic", "total"), ("3/5", "1/5", "1/5"))
LEAVES = Setting(SETTING.queries, SETTING.shares, level_shares=("1/20", "1/20", "1/10", "1/5", "3/5"))
EVEN, HEAVY = "even", ".05, .05, .1, .2, .6"
SPLITS = {EVEN: SETTING, HEAVY: LEAVES}
SEEDS, POSTERIOR_SEEDS = (1, 2, 3), (2032, 2033, 2034, 2035, 2036)
COVERAGE = 0.9
SECONDS = 30.0  # what one run of the default method may take
NOTE = "Noise is seeded: NOT PRIVATE. All methods but bottom-up share each seed's noise."
Found = dict[str, Any]
"""What one method made of one seed: errors [levels][queries], bias by size, seconds, and coverage of intervals.

``inside`` and ``width`` [levels][queries] are those of the intervals wider than one number, ties split; none for
methods without any.
"""


@dataclass(frozen=True, eq=False, slots=True)
class Trial:
    """Tables by the name of the data, how the budget is split over the levels, and the method that estimates them."""

    name: str
    tables: Tables
    split: str
    method: str


def plan(data: Path | None, small: bool) -> list[tuple[Trial, Sequence[int]]]:
    """Return every method on Hawaii's blocks, or on simulated ones."""
    tables = small_tables(generated_blocks(np.random.default_rng(7)) if small else hawaii(data))
    trials = (Trial("made" if small else "Hawaii", tables, EVEN, method) for method in METHODS)
    return seeded(trials, SEEDS[: 2 if small else None])


def plan_posterior(data: Path | None, small: bool) -> list[tuple[Trial, Sequence[int]]]:
    """Return the posterior and what it is compared with by both splits, on Hawaii's or on simulated blocks."""
    tables = small_tables(generated_blocks(np.random.default_rng(7), 2, 2, 2, 4) if small else hawaii(data))
    crossed = product(SPLITS, POSTERIOR_METHODS)
    trials = (Trial("made" if small else "Hawaii", tables, split, method) for split, method in crossed)
    return seeded(trials, POSTERIOR_SEEDS[: 1 if small else None])


def measure(trial: Trial, seed: int) -> Found:
    """Return what a method makes of one seed's noise."""
    tables, queries = trial.tables, parse_queries(SETTING.queries, trial.tables.schema)
    measurement = SPLITS[trial.split].measure(tables, seed, leaves_only=trial.method == BOTTOM_UP)
    start = process_time()
    if trial.method == LINEAR:
        answers: Answers = linear_estimates(measurement).answers
        found: Found = {"seconds": process_time() - start, "converged": True}
    else:
        result = estimate_tables(measurement, VARIANTS[trial.method], SolverChoices())
        answers, found = result.answers, {"seconds": process_time() - start, "converged": True}
        if (posterior := result.posterior) is not None:
            assert posterior.sampled is not None
            levels = range(tables.hierarchy.levels)
            every = np.array([[covered(tables, posterior, query, level) for query in queries] for level in levels])
            found |= {"inside": every[:, :, 0].tolist(), "width": every[:, :, 1].tolist()}
            found["converged"] = posterior.sampled.converged
    bias = bias_by_size(tables, answers, queries[0])
    return {**found, "errors": mean_absolute(tables, answers, queries).tolist(), "bias": bias}


def covered(tables: Tables, posterior: TablesPosterior, query: Query, level: int) -> tuple[float, float]:
    """Return the share of a level's intervals that hold the true answer, and their mean width.

    Intervals of one number alone are left out.
    """
    regions = tables.hierarchy.level_range(level)
    values = posterior.sorted_answers(query, level, regions)
    lower, upper = central(values, COVERAGE)
    true = tables.counts.answers_to(query.operator, regions).reshape(-1, 1)
    wide = lower < upper
    if not wide.any():
        return float("nan"), 0.0
    inside = inside_by_ranks(values, true, COVERAGE)
    return float(inside[wide].mean()), float((upper - lower)[wide].mean())


Results = Sequence[Runs[Trial, Found]]


def of(results: Results, split: str, method: str, what: str) -> Floats:
    """Return what was found by a method under a split, the seeds first."""
    (runs,) = (runs for runs in results if (runs.case.split, runs.case.method) == (split, method))
    return np.array([found[what] for found in runs.found])


def tables_of(results: Results) -> dict[str, Table]:
    """Return errors by split, level and query, paired with those of ``full``, bias by size, and seconds."""
    methods = tuple(dict.fromkeys(runs.case.method for runs in results))
    rows, bias, seconds = list[Record](), list[Record](), list[Record]()
    for split in dict.fromkeys(runs.case.split for runs in results):
        errors = {method: of(results, split, method, "errors") for method in methods}
        for level, place in np.ndindex(errors[FULL].shape[1:]):
            row: Record = {"split": split, "level": level, "query": SETTING.queries[place]}
            for method, values in errors.items():
                mean = Mean.of(values[:, level, place].tolist())
                row |= {method: mean.value, f"{method}, standard error": mean.standard_error}
                if method in (CLASSIC, POSTERIOR):
                    less = Mean.of((values - errors[FULL])[:, level, place].tolist())
                    row[f"{method} against full, paired"] = less.signed
            if EQUAL in errors:
                row["gain of 1/variance"] = row[EQUAL] / row[CLASSIC]
            rows.append({**row, "runs": len(errors[FULL])})
        means = {method: of(results, split, method, "bias").mean(axis=0) for method in methods}
        for place, size in enumerate(sizes_of(EDGES)):
            by_method = {method: float(values[place, 1]) for method, values in means.items()}
            bias.append({"split": split, "true size": size, "cells": int(means[FULL][place, 0]), **by_method})
        for method in methods:
            spent = of(results, split, method, "seconds")
            seconds.append({"split": split, "method": method, "median": float(np.median(spent)), "least": spent.min()})
    gain = "The gain is the error with all weights 1 over that with 1 / variance, both classic."
    rise = "Nonnegative tables push small counts up and, their sums being right, large ones down."
    return {
        "_errors": Table.of("mean absolute error of an answer (people)", rows, (NOTE, gain)),
        "_bias": Table.of("mean error of the blocks' cells by true size (people)", bias, (NOTE, rise)),
        "_seconds": Table.of("processor seconds of an estimation", seconds),
    }


def report(results: Results, path: Path) -> Report:
    """Return errors, bias and seconds; it fails where the default is slow, or worse than classic or all-ones weights.

    Worse is meant in the geometric mean over levels and queries.
    """
    mean = {method: float(np.log(of(results, EVEN, method, "errors").mean(axis=0)).mean()) for method in METHODS}
    failures = [
        f"{FULL} is worse than {rival} in the geometric mean over levels and queries"
        for rival in (CLASSIC, EQUAL)
        if mean[FULL] > mean[rival]
    ]
    slow = float(np.median(of(results, EVEN, FULL, "seconds")))
    failures += [] if slow <= SECONDS else [f"{FULL} takes {slow:.0f} s, more than {SECONDS:.0f}"]
    return Report(tables_of(results), failures=failures)


def coverage_table(results: Results) -> Table:
    """Return how often intervals hold the true answers, and their widths."""
    rows: list[Record] = []
    for split in SPLITS:
        inside, width = (of(results, split, POSTERIOR, what) for what in ("inside", "width"))
        for level, place in np.ndindex(inside.shape[1:]):
            share = Mean.of((100.0 * inside[:, level, place]).tolist())
            key = {"split": split, "level": level, "query": SETTING.queries[place]}
            mean_width = {"mean width": float(width[:, level, place].mean()), "runs": share.runs}
            rows.append({**key, **share.cells("% inside, ties split"), **mean_width})
    return Table.of(f"intervals of {100 * COVERAGE:g} %, of more than one number", rows)


def report_posterior(results: Results, path: Path) -> Report:
    """Return errors, bias and coverage; it fails where the posterior errs more at the blocks than ``full``.

    Where most is spent on the blocks it is to err less than both rivals at the three lowest levels.
    """
    mean = {
        (split, method): of(results, split, method, "errors").mean(axis=0)[:, 0]
        for split, method in product(SPLITS, POSTERIOR_METHODS)
    }
    failures = [
        f"split {split}: the posterior errs more than {rival} at level {level}"
        for split, rival, levels in ((EVEN, FULL, (4,)), (HEAVY, FULL, (2, 3, 4)), (HEAVY, BOTTOM_UP, (2, 3, 4)))
        for level in levels
        if mean[split, POSTERIOR][level] >= mean[split, rival][level]
    ]
    tables = {**tables_of(results), "_coverage": coverage_table(results)}
    slow = not_converged(results, lambda trial: f"split {trial.split}")
    return Report(tables, failures=failures, notes=slow)


def key(trial: Trial, seed: int) -> str:
    """Return what a finding is stored by."""
    return f"{trial.name}, {trial.split}, {trial.method}, {seed}"


HAWAII = Study("topdown/hawaii", plan, measure, report)
TABLES_POSTERIOR = Study(
    "beyond/tables_posterior", plan_posterior, measure, report_posterior, fails_small=False, key=key
)
