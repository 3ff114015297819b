"""Mean-consistency (Hay et al. 2010) on every H[j], shown failing: negative and fractional groups, wrong totals.

Two inputs. The noisy H itself, and what the paper's footnote 5 warns of: every region's own estimate, which is whole,
nonnegative and has the right number of groups, and still comes out with negative cells, because a constant is taken
from each child for the sums to agree. Beside it Algorithm 1 at the same total epsilon, split evenly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from coco_experiments.groups import BARS, SEEDED, Case, Levels, level_figure, means_of, split_evenly
from coco_experiments.kuo2018.cases import TAXI_MAX_SIZE, hawaii_case, small_cases, taxi_case
from coco_experiments.kuo2018.methods import Draws, matched
from coco_experiments.kuo2018.sweep import SEEDS, SMALL_SEEDS
from coco_experiments.outcome import Record, Statement, Table
from coco_experiments.plots import without_repeats
from coco_experiments.study import Report, Runs, Study, seeded
from coco_opt.array_types import Floats
from coco_opt.errors import ProblemError
from coco_opt.groups.noisy_measurements import GroupsMeasurements
from coco_opt.histograms import Hierarchy
from coco_opt.kernels import tree_passes
from coco_opt.privacy import Measurement

EPSILON = Fraction(1)
NOISY, ESTIMATED = "mean-consistency of noisy H", "mean-consistency of integer, nonnegative estimates"
FAULTS = ("% negative cells", "% fractional cells", "least cell (groups)", "regions without their number of groups")
Found = dict[str, tuple[Levels, tuple[float, ...]]]
"""One seed's distances by level and faults, by method."""


INTEGER_TOLERANCE = 1e-9  # cells nearer to an integer, relative to the largest cell, count as integers


@dataclass(frozen=True, eq=False, slots=True)
class MeanConsistency:
    """Consistent tables of H[0..K], float64[regions, K + 1] in groups, that are not histograms."""

    hierarchy: Hierarchy
    table: Floats

    @property
    def negative(self) -> float:
        """Return the share of cells below zero."""
        return float(np.mean(self.table < 0))

    @property
    def fractional(self) -> float:
        """Return the share of cells that are not integers."""
        largest = max(1.0, float(np.abs(self.table).max()))
        return float(np.mean(np.abs(self.table - np.rint(self.table)) > INTEGER_TOLERANCE * largest))


def mean_consistency(measurement: Measurement) -> MeanConsistency:
    """Return the least squares tables in which every cell of a parent is the sum of its children's.

    Hay et al. 2010, section 4, on the noisy H[j] of each size j, weighted by 1 / variance. Kuo et al. 2018, section 5,
    says why it fails: H[j] becomes negative and fractional, and misses the public number of groups. Raises ProblemError
    where the leaves were not measured. O(regions x K) time and memory.
    """
    answers, tree = GroupsMeasurements(measurement), measurement.hierarchy
    if tree.levels - 1 not in answers.measured_levels:
        raise ProblemError("mean-consistency needs the leaves' counts: give their level a share of the budget")
    # Zeros of infinite variance where nothing was measured.
    table, variance = np.zeros((answers.max_size + 1, tree.regions)), np.full(tree.regions, np.inf)
    for region, answer in enumerate(answers):
        if answer is not None:
            table[:, region], variance[region] = answer.values, answer.distribution.variance
    fitted = [tree_passes.fit(tree.first_child, cells, variance) for cells in table]
    return MeanConsistency(tree, np.stack(fitted, axis=1))


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
    return case.by_level(np.array(errors))


def wrong_totals(case: Case, consistent: MeanConsistency) -> int:
    """Return how many regions have another number of groups than the public one, beyond rounding errors."""
    groups = case.counts.group_counts
    return int(np.count_nonzero(np.abs(consistent.table.sum(axis=1) - groups) > 1e-6 * np.maximum(groups, 1)))


def measure(case: Case, seed: int) -> Found:
    """Return the distances of both inputs' tables and of Algorithm 1, and what is wrong with the tables."""
    draws, algorithm, found = Draws(case, seed), matched(("Hc",) * case.levels), Found()
    for name, consistent in tables_of(draws).items():
        shares = 100 * consistent.negative, 100 * consistent.fractional
        faults = (*shares, float(consistent.table.min()), wrong_totals(case, consistent))
        found[name] = distances(case, consistent), faults
    found[without_repeats(algorithm.name)] = case.errors(algorithm.run(draws, EPSILON)), (0.0,) * len(FAULTS)
    return found


def plan(data: Path | None, small: bool) -> list[tuple[Case, Sequence[int]]]:
    """Return Taxi and Hawaii's blocks, or simulated data."""
    if small:
        return seeded(small_cases(200)[:2], SMALL_SEEDS)
    return seeded([taxi_case(data, TAXI_MAX_SIZE), hawaii_case(data)], SEEDS)


def report(results: Sequence[Runs[Case, Found]], path: Path) -> Report:
    """Return one row a case, method and level; it fails where mean-consistency did not fail as the paper says."""
    rows: list[Record] = []
    drawn = {
        runs.case.name: {name: means_of(found[name][0] for found in runs.found) for name in runs.found[0]}
        for runs in results
    }
    for runs in results:
        for name, means in drawn[runs.case.name].items():
            faults = np.mean([found[name][1] for found in runs.found], axis=0).tolist()
            shown = dict(zip(FAULTS, faults, strict=True))
            key = {"data": runs.case.name, "method": name}
            rows += [{**key, "level": level, **mean.cells("distance"), **shown} for level, mean in enumerate(means)]
    notes = (
        SEEDED,
        BARS,
        "Total epsilon 1, split evenly. Algorithm 1's cells are nonnegative integers by construction.",
    )
    failures = (
        f"{row['data']}: {row['method']} has no negative or no fractional cell"
        for row in rows
        if row["method"] in (NOISY, ESTIMATED) and not (row[FAULTS[0]] and row[FAULTS[1]])
    )
    table = Table.of(f"Mean-consistency, {len(results[0].seeds)} runs", rows, notes)
    return Report({"": table}, level_figure(path, drawn), failures, claims(rows))


def claims(rows: Sequence[Record]) -> list[Statement]:
    """Return what sections 1 and 5 and footnote 5 say of mean-consistency."""
    says = {
        NOISY: "mean-consistency gives negative and fractional counts and misses the public numbers of groups",
        ESTIMATED: "it gives negative counts even if all counts that it reads are nonnegative",
    }
    claims = []
    for method, words in says.items():
        own = [row for row in rows if row["method"] == method and row["level"] == 0]
        wanted = FAULTS[:2] + FAULTS[3:] if method == NOISY else FAULTS[:1]
        each = (f"{row['data']} {' / '.join(f'{row[fault]:.3g}' for fault in wanted)}" for row in own)
        holds = all(row[fault] > 0 for row in own for fault in wanted)
        claims.append(Statement("section 5", words, f"{', '.join(wanted)}: {'; '.join(each)}", holds))
    return claims


MEAN_CONSISTENCY = Study("kuo2018/mean_consistency", plan, measure, report)
