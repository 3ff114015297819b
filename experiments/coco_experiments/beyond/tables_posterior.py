"""The posterior of tables of persons: errors by level and query, bias of cells by size, and how often intervals hold.

Hawaii's blocks, seven cells, total epsilon 1, independent geometric noise, two splits: even over the levels, and most
at the blocks. All methods but bottom-up read the same noisy answers; bottom-up spends everything on the blocks. Seeds
were fixed beforehand, and a run that was stopped goes on where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from time import process_time

import numpy as np

from coco_experiments.beyond.stored_results import StoredResults
from coco_experiments.outcome import Cell, Outcome, Reporter, Table, write_csv
from coco_experiments.statistics import Mean, inside_by_ranks
from coco_experiments.topdown.data import Tables, generated_blocks, hawaii, small_tables
from coco_experiments.topdown.study import Estimates, Setting, bias_by_size, mean_absolute
from coco_opt.choices import SolverChoices
from coco_opt.topdown.estimating.estimate import estimate_tables
from coco_opt.topdown.estimating.method import TopdownMethod
from coco_opt.topdown.estimating.posterior.drawn_tables import central
from coco_opt.topdown.estimating.posterior.result import TablesPosterior
from coco_opt.topdown.queries import Query, parse_queries

NAME = "beyond/tables_posterior"
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
EDGES = (0, 1, 3, 10, 30, 10**6)
COVERAGE = 0.9
Findings = dict[tuple[str, str], list["Finding"]]

NOTE = "Noise is seeded: NOT PRIVATE. Methods but bottom-up share each seed's noise."


@dataclass(frozen=True, slots=True)
class Finding:
    """What one method made of one seed: errors [levels][queries], bias by size, seconds, and coverage of intervals.

    ``inside`` and ``width`` [levels][queries] are those of the intervals wider than one number, ties split; none for
    methods without any.
    """

    errors: list[list[float]]
    bias: list[float]
    seconds: float
    converged: bool
    inside: list[list[float]]
    width: list[list[float]]


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure errors, bias, coverage and seconds, and write them below ``out`` anew after every seed."""
    blocks = generated_blocks(np.random.default_rng(7), 2, 2, 2, 4) if small else hawaii(data)
    tables = small_tables(blocks)
    seeds, stored = SMALL_SEEDS if small else SEEDS, StoredResults(out / f"{NAME}_seeds.json")
    queries = parse_queries(EVEN.queries, tables.schema)
    findings: Findings = {}
    for done, seed in enumerate(seeds, 1):
        for split, method in ((split, method) for split in SETTINGS for method in METHODS):
            key = f"{'made' if small else 'Hawaii'}, {split}, {method}, {seed}"
            if key not in stored:
                stored[key] = asdict(found(tables, SETTINGS[split], method, queries, seed))
            finding = Finding(**stored[key])
            if not finding.converged:
                reporter.note(f"split {split}, seed {seed}: the chains did not converge")
            findings.setdefault((split, method), []).append(finding)
        shown = (error_table(queries, findings), bias_table(findings), coverage_table(queries, findings))
        names = ("errors", "bias", "coverage")
        files = [write_csv(out / f"{NAME}_{name}.csv", table) for name, table in zip(names, shown, strict=True)]
        reporter.progress(NAME, done, len(seeds))
    for table in shown:
        reporter.table(table)
    return Outcome(shown, tuple(files), () if small else failures(findings))


def found(tables: Tables, setting: Setting, method: str, queries: Sequence[Query], seed: int) -> Finding:
    """Return what a method makes of one seed's noise."""
    measurement = setting.measure(tables, seed, leaves_only=method == BOTTOM_UP)
    start = process_time()
    result = estimate_tables(measurement, METHODS[method], SolverChoices())
    seconds = process_time() - start
    estimates = Estimates(result.answers, seconds, result)
    errors = mean_absolute(tables, estimates, queries).tolist()
    bias = [mean for _, mean in bias_by_size(tables, estimates, queries[0], EDGES)]
    posterior = result.posterior
    if posterior is None:
        return Finding(errors, bias, seconds, converged=True, inside=[], width=[])
    assert posterior.sampled is not None
    each = [[covered(tables, posterior, query, level) for query in queries] for level in range(tables.hierarchy.levels)]
    inside, width = ([[pair[part] for pair in row] for row in each] for part in (0, 1))
    return Finding(errors, bias, seconds, posterior.sampled.converged, inside, width)


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


def error_table(queries: Sequence[Query], findings: Findings) -> Table:
    """Return a row for each split, level and query: mean errors with standard errors, and paired differences."""
    rows: list[tuple[Cell, ...]] = []
    for split in SETTINGS:
        errors = {method: np.array([finding.errors for finding in findings[split, method]]) for method in METHODS}
        for level, place in np.ndindex(errors[FULL].shape[1:]):
            means = {method: Mean.of(values[:, level, place].tolist()) for method, values in errors.items()}
            less = Mean.of((errors[POSTERIOR] - errors[FULL])[:, level, place].tolist())
            measured = (part for mean in means.values() for part in (mean.value, mean.standard_error))
            ratio = means[POSTERIOR].value / means[FULL].value if means[FULL].value else None
            difference = (less.value, less.standard_error, less.runs)
            rows.append((split, level, queries[place].name, *measured, ratio, *difference))
    methods = (part for method in METHODS for part in (method, f"{method}, standard error"))
    columns = ("split", "level", "query", *methods, "times full", "against full, paired", "standard error", "runs")
    return Table("mean absolute error of an answer (people)", columns, tuple(rows), (NOTE,))


def bias_table(findings: Findings) -> Table:
    """Return the mean error of the blocks' cells by their true size."""
    rows: list[tuple[Cell, ...]] = []
    for split in SETTINGS:
        for place, (low, high) in enumerate(pairwise(EDGES)):
            size = f"{low}" if high == low + 1 else f"{low} and more" if high == EDGES[-1] else f"{low} to {high - 1}"
            means = (float(np.mean([finding.bias[place] for finding in findings[split, method]])) for method in METHODS)
            rows.append((split, size, *means))
    return Table("mean error of the blocks' cells by true size (people)", ("split", "true size", *METHODS), tuple(rows))


def coverage_table(queries: Sequence[Query], findings: Findings) -> Table:
    """Return how often intervals hold the true answers, their widths, and seconds."""
    rows: list[tuple[Cell, ...]] = []
    for split in SETTINGS:
        each = findings[split, POSTERIOR]
        inside, width = np.array([finding.inside for finding in each]), np.array([finding.width for finding in each])
        for level, place in np.ndindex(inside.shape[1:]):
            share = Mean.of((100.0 * inside[:, level, place]).tolist())
            mean_width = float(width[:, level, place].mean())
            rows.append((split, level, queries[place].name, share.value, share.standard_error, mean_width, share.runs))
    columns = ("split", "level", "query", "% inside, ties split", "standard error", "mean width", "runs")
    seconds = [
        f"{method} {np.mean([f.seconds for f in findings[next(iter(SETTINGS)), method]]):.3g}" for method in METHODS
    ]
    notes = (f"Processor seconds of an estimation, even split: {', '.join(seconds)}.",)
    return Table(f"intervals of {100 * COVERAGE:g} %, of more than one number", columns, tuple(rows), notes)


def failures(findings: Findings) -> tuple[str, ...]:
    """Return what did not hold: where most is spent on the blocks, the posterior errs least at the three lowest levels.

    At the blocks it errs less than ``full`` with either split.
    """
    mean = {key: np.mean([finding.errors for finding in each], axis=0)[:, 0] for key, each in findings.items()}
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
    return tuple(lines)
