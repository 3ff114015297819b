"""The posterior of tables of persons: errors by level and query, bias of cells by size, and how often intervals hold.

Hawaii's blocks, seven cells, total epsilon 1, independent geometric noise, two splits: even over the levels, and most
at the blocks. All methods but bottom-up read the same noisy answers; bottom-up spends everything on the blocks. Seeds
were fixed beforehand, and a run that was stopped goes on where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from coco_experiments.outcome import Record, Table
from coco_experiments.statistics import Mean, inside_by_ranks
from coco_experiments.study import Report, Runs, Study, seeded
from coco_experiments.topdown.data import Tables, generated_blocks, hawaii, small_tables
from coco_experiments.topdown.hawaii import EDGES, Setting, bias_by_size, mean_absolute, sizes_of
from coco_opt.array_types import Floats
from coco_opt.choices import SolverChoices
from coco_opt.topdown.estimating.estimate import estimate_tables
from coco_opt.topdown.estimating.method import TopdownMethod
from coco_opt.topdown.estimating.posterior.drawn_tables import central
from coco_opt.topdown.estimating.posterior.result import TablesPosterior
from coco_opt.topdown.queries import Query, parse_queries

SEEDS, SMALL_SEEDS = (2032, 2033, 2034, 2035, 2036), (2032,)
EVEN = Setting(("detail", "hispanic", "total"), ("3/5", "1/5", "1/5"))
LEAVES = Setting(EVEN.queries, EVEN.shares, level_shares=("1/20", "1/20", "1/10", "1/5", "3/5"))
SETTINGS = {"even": EVEN, ".05, .05, .1, .2, .6": LEAVES}
FULL, POSTERIOR, BOTTOM_UP = "full", "posterior", "bottom-up"
METHODS = {
    FULL: TopdownMethod("full"),
    POSTERIOR: TopdownMethod("posterior"),
    BOTTOM_UP: TopdownMethod("bottom_up"),
}
COVERAGE = 0.9
NOTE = "Noise is seeded: NOT PRIVATE. Methods but bottom-up share each seed's noise."
Found = dict[str, Any]
"""What one method made of one seed: errors [levels][queries], bias by size, seconds, and coverage of intervals.

``inside`` and ``width`` [levels][queries] are those of the intervals wider than one number, ties split; none for
methods without any.
"""


@dataclass(frozen=True, eq=False, slots=True)
class Trial:
    """Tables, how they are measured, by the name of the split, and the method."""

    name: str
    tables: Tables
    split: str
    method: str

    @property
    def queries(self) -> tuple[Query, ...]:
        """Return the queries that are looked at."""
        return parse_queries(EVEN.queries, self.tables.schema)


def plan(data: Path | None, small: bool) -> list[tuple[Trial, Sequence[int]]]:
    """Return every method by both splits, on Hawaii's or on simulated blocks."""
    tables = small_tables(generated_blocks(np.random.default_rng(7), 2, 2, 2, 4) if small else hawaii(data))
    name = "made" if small else "Hawaii"
    trials = (Trial(name, tables, split, method) for split, method in product(SETTINGS, METHODS))
    return seeded(trials, SMALL_SEEDS if small else SEEDS)


def measure(trial: Trial, seed: int) -> Found:
    """Return what a method makes of one seed's noise."""
    tables, queries = trial.tables, trial.queries
    measurement = SETTINGS[trial.split].measure(tables, seed, leaves_only=trial.method == BOTTOM_UP)
    start = process_time()
    result = estimate_tables(measurement, METHODS[trial.method], SolverChoices())
    found: Found = {"seconds": process_time() - start, "converged": True}
    found["errors"] = mean_absolute(tables, result.answers, queries).tolist()
    found["bias"] = [mean for _, mean in bias_by_size(tables, result.answers, queries[0])]
    if (posterior := result.posterior) is not None:
        assert posterior.sampled is not None
        levels = range(tables.hierarchy.levels)
        every = np.array([[covered(tables, posterior, query, level) for query in queries] for level in levels])
        found |= {"inside": every[:, :, 0].tolist(), "width": every[:, :, 1].tolist()}
        found["converged"] = posterior.sampled.converged
    return found


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


def error_table(results: Sequence[Runs[Trial, Found]]) -> Table:
    """Return a row for each split, level and query: mean errors with standard errors, and paired differences."""
    rows: list[Record] = []
    queries = results[0].case.queries
    for split in SETTINGS:
        errors = {method: of(results, split, method, "errors") for method in METHODS}
        for level, place in np.ndindex(errors[FULL].shape[1:]):
            row: Record = {"split": split, "level": level, "query": queries[place].name}
            means = {method: Mean.of(values[:, level, place].tolist()) for method, values in errors.items()}
            for method, mean in means.items():
                row |= {method: mean.value, f"{method}, standard error": mean.standard_error}
            less = Mean.of((errors[POSTERIOR] - errors[FULL])[:, level, place].tolist())
            row["times full"] = means[POSTERIOR].value / means[FULL].value if means[FULL].value else None
            rows.append({**row, **less.cells("against full, paired"), "runs": less.runs})
    return Table.of("mean absolute error of an answer (people)", rows, (NOTE,))


def of(results: Sequence[Runs[Trial, Found]], split: str, method: str, what: str) -> Floats:
    """Return what was found by a method under a split, the seeds first."""
    (runs,) = (runs for runs in results if (runs.case.split, runs.case.method) == (split, method))
    return np.array([found[what] for found in runs.found])


def bias_table(results: Sequence[Runs[Trial, Found]]) -> Table:
    """Return the mean error of the blocks' cells by their true size."""
    rows: list[Record] = []
    for split in SETTINGS:
        means = {method: of(results, split, method, "bias").mean(axis=0).tolist() for method in METHODS}
        for place, size in enumerate(sizes_of(EDGES)):
            rows.append({"split": split, "true size": size, **{name: bias[place] for name, bias in means.items()}})
    return Table.of("mean error of the blocks' cells by true size (people)", rows)


def coverage_table(results: Sequence[Runs[Trial, Found]]) -> Table:
    """Return how often intervals hold the true answers, their widths, and seconds."""
    rows: list[Record] = []
    queries = results[0].case.queries
    for split in SETTINGS:
        inside, width = (of(results, split, POSTERIOR, what) for what in ("inside", "width"))
        for level, place in np.ndindex(inside.shape[1:]):
            share = Mean.of((100.0 * inside[:, level, place]).tolist())
            key = {"split": split, "level": level, "query": queries[place].name}
            mean_width = {"mean width": float(width[:, level, place].mean()), "runs": share.runs}
            rows.append({**key, **share.cells("% inside, ties split"), **mean_width})
    even = next(iter(SETTINGS))
    seconds = [f"{method} {of(results, even, method, 'seconds').mean():.3g}" for method in METHODS]
    notes = (f"Processor seconds of an estimation, even split: {', '.join(seconds)}.",)
    return Table.of(f"intervals of {100 * COVERAGE:g} %, of more than one number", rows, notes)


def failures(results: Sequence[Runs[Trial, Found]]) -> list[str]:
    """Return what did not hold: where most is spent on the blocks, the posterior errs least at the three lowest levels.

    At the blocks it errs less than ``full`` with either split.
    """
    mean = {(s, m): of(results, s, m, "errors").mean(axis=0)[:, 0] for s, m in product(SETTINGS, METHODS)}
    lines = [
        f"split {split}: the posterior's cells at the blocks err by {mean[split, POSTERIOR][-1]:.3g}, {FULL}'s by less"
        for split in SETTINGS
        if mean[split, POSTERIOR][-1] >= mean[split, FULL][-1]
    ]
    split = list(SETTINGS)[-1]
    for rival in (FULL, BOTTOM_UP):
        worse = np.flatnonzero(mean[split, POSTERIOR][-3:] >= mean[split, rival][-3:])
        lines += [
            f"split {split}: the posterior errs more than {rival} at level {level + 2}" for level in worse.tolist()
        ]
    return lines


def report(results: Sequence[Runs[Trial, Found]], path: Path) -> Report:
    """Return errors, bias and coverage."""
    tables = {
        "_errors": error_table(results),
        "_bias": bias_table(results),
        "_coverage": coverage_table(results),
    }
    slow = (
        f"split {runs.case.split}, seed {seed}: the chains did not converge"
        for runs in results
        for seed, found in zip(runs.seeds, runs.found, strict=False)
        if not found["converged"]
    )
    return Report(tables, failures=failures(results), notes=slow)


def key(trial: Trial, seed: int) -> str:
    """Return what a finding is stored by."""
    return f"{trial.name}, {trial.split}, {trial.method}, {seed}"


TABLES_POSTERIOR = Study("beyond/tables_posterior", plan, measure, report, fails_small=False, key=key)
