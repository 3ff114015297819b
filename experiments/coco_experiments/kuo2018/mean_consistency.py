"""Mean-consistency (Hay et al. 2010) on every H[j], shown failing: negative and fractional groups, wrong totals.

Two inputs. The noisy H itself, and what the paper's footnote 5 warns of: every region's own estimate, which is whole,
nonnegative and has the right number of groups, and still comes out with negative cells, because a constant is taken
from each child for the sums to agree. Beside it Algorithm 1 at the same total epsilon, split evenly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from coco_experiments.kuo2018.baselines import MeanConsistency, mean_consistency
from coco_experiments.kuo2018.cases import Case, hawaii_case, small_cases, taxi_case
from coco_experiments.kuo2018.draws import Draws, Levels, errors_by_level, mean_by_level, split_evenly
from coco_experiments.kuo2018.methods import matched
from coco_experiments.kuo2018.sweep import BARS, SEEDED, SEEDS, SMALL_SEEDS, level_figure, means_of
from coco_experiments.outcome import Cell, Outcome, Reporter, Table, publish
from coco_experiments.statistics import Mean

NAME = "kuo2018/mean_consistency"
EPSILON = Fraction(1)
NOISY, ESTIMATED = "mean-consistency of noisy H", "mean-consistency of integer, nonnegative estimates"
COLUMNS = (
    "data",
    "method",
    "level",
    "distance",
    "standard error",
    "% negative cells",
    "% fractional cells",
    "least cell (groups)",
    "regions without their number of groups",
)


def tables_of(draws: Draws) -> dict[str, MeanConsistency]:
    """Return the consistent tables from the noisy H and from the regions' own cumulative estimates."""
    levels = draws.case.levels
    split = split_evenly(EPSILON, levels)
    noisy = draws.measurement("sizes", split)
    own = draws.estimates(["cumulative"] * levels, split)
    tables = [estimate.histogram.to_dense(draws.case.max_size) for estimate in own]
    answers = tuple(
        replace(part, stored=np.concatenate([tables[region] for region in noisy.hierarchy.level_range(level)]))
        for level, part in enumerate(noisy.answers)
    )
    estimated = replace(noisy, answers=answers)
    return {NOISY: mean_consistency(noisy), ESTIMATED: mean_consistency(estimated)}


def distances(case: Case, consistent: MeanConsistency) -> Levels:
    """Return sum_i |Hc[i] - Hc'[i]| (entities) a region, by level; Hc' need not be integers, nor end at G."""
    errors = [
        float(np.abs(np.cumsum(row) - truth.cumulative(case.max_size)).sum())
        for row, truth in zip(consistent.table, case.truth, strict=True)
    ]
    return mean_by_level(case, np.array(errors))


def wrong_totals(case: Case, consistent: MeanConsistency) -> int:
    """Return how many regions have another number of groups than the public one, beyond rounding errors."""
    groups = case.counts.group_counts
    return int(np.count_nonzero(np.abs(consistent.table.sum(axis=1) - groups) > 1e-6 * np.maximum(groups, 1)))


def rows_of(case: Case, seeds: Sequence[int]) -> tuple[list[tuple[Cell, ...]], dict[str, tuple[Mean, ...]]]:
    """Return one row a method and level, and the mean errors; shares, the least cell and totals are of the table."""
    algorithm = matched(("Hc",) * case.levels)
    errors: dict[str, list[Levels]] = {NOISY: [], ESTIMATED: [], algorithm.name: []}
    faults: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in errors}
    for seed in seeds:
        draws = Draws(case, seed)
        for name, consistent in tables_of(draws).items():
            errors[name].append(distances(case, consistent))
            least = float(consistent.table.min())
            faults[name].append(
                (100 * consistent.negative, 100 * consistent.fractional, least, wrong_totals(case, consistent))
            )
        errors[algorithm.name].append(errors_by_level(case, algorithm.run(draws, EPSILON)))
        faults[algorithm.name].append((0.0, 0.0, 0.0, 0.0))
    means = {name: means_of(runs) for name, runs in errors.items()}
    rows: list[tuple[Cell, ...]] = [
        (case.name, name, level, mean.value, mean.standard_error, *np.mean(faults[name], axis=0).tolist())
        for name, levels in means.items()
        for level, mean in enumerate(levels)
    ]
    return rows, means


def failures_in(table: Table) -> tuple[str, ...]:
    """Return one line for every case where mean-consistency did not fail as the paper says."""
    return tuple(
        f"{row['data']}: {row['method']} has no negative or no fractional cell"
        for row in table.records()
        if row["method"] in (NOISY, ESTIMATED) and not (row[COLUMNS[5]] and row[COLUMNS[6]])
    )


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``kuo2018/mean_consistency`` as CSV, PNG and PDF; small: two seeds on simulated data."""
    cases = small_cases(200)[:2] if small else [taxi_case(data, 5_000), hawaii_case(data)]
    seeds = SMALL_SEEDS if small else SEEDS
    rows: list[tuple[Cell, ...]] = []
    drawn = {}
    for done, case in enumerate(cases, 1):
        more, drawn[case.name] = rows_of(case, seeds)
        rows += more
        reporter.progress(NAME, done, len(cases))
    notes = (
        SEEDED,
        BARS,
        "Total epsilon 1, split evenly. Algorithm 1's cells are nonnegative integers by construction.",
    )
    table = Table(f"Mean-consistency, {len(seeds)} runs", COLUMNS, tuple(rows), notes)
    return publish(NAME, {"": table}, out, reporter, files=level_figure(out / NAME, drawn), failures=failures_in(table))
