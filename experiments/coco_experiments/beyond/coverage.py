"""How often the posterior's intervals hold the true counts, over twenty seeds, by level and class of sizes.

Total epsilon 1, independent noise, even split, growth of buckets fixed beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coco_experiments.beyond.queries import GROWTH, QueryPlan, cells, grown
from coco_experiments.beyond.stored_results import StoredResults
from coco_experiments.kuo2018.cases import Case, hawaii_case, small_cases, taxi_case
from coco_experiments.kuo2018.joint import TAXI_MAX_SIZE
from coco_experiments.kuo2018.sweep import SEEDED
from coco_experiments.outcome import Cell, Outcome, Reporter, Table, write_csv
from coco_experiments.statistics import Mean
from coco_opt.choices import SolverChoices
from coco_opt.groups.estimating.posterior.consistent import PosteriorEstimate, posterior_estimate

NAME = "beyond/coverage"
SEEDS = tuple(range(2018, 2038))
COVERAGE = 0.9
CLASSES = ((0, 10), (10, 100), (100, None))  # of sizes, by which coverage is told apart
COLUMNS = (
    "data",
    "method",
    "level",
    "sizes",
    "counts",
    "% uncertain",
    "% inside",
    "standard error",
    "% inside, ties split",
    "its standard error",
    "mean width",
    "runs",
)

Levels = dict[str, list[list["Coverage"]]]  # by kind of counts, level and class


@dataclass(frozen=True, slots=True)
class Coverage:
    """Of one kind of counts, level, class of sizes and seed: the share uncertain, and of those inside.

    ``inside`` counts interval ends in whole, ``split`` in part (mid-p); ``width`` is the mean.
    """

    uncertain: float
    inside: float
    split: float
    width: float


def coverage_of(case: Case, estimate: PosteriorEstimate) -> dict[str, list[list[Coverage]]]:
    """Return the coverage of both kinds of counts, by level and class of sizes, over the intervals of any width."""
    drawn, intervals = estimate.posterior, estimate.intervals(COVERAGE)
    assert drawn.sizes is not None
    sizes = np.array([histogram.to_dense(case.max_size) for histogram in case.truth])
    running = np.cumsum(sizes, axis=1)
    middle = Fraction(str(COVERAGE))
    kinds = {
        # The last cell of Hc is public, and certain.
        "of at most a size": (
            running[:, :-1],
            intervals.at_most_lower[:, :-1],
            intervals.at_most_upper[:, :-1],
            drawn.cumulative.inside(running[:, :-1], middle),
        ),
        "of a size": (
            sizes,
            intervals.groups_lower,
            intervals.groups_upper,
            drawn.sizes.inside(sizes, middle),
        ),
    }
    levels = [case.hierarchy.level == level for level in range(case.levels)]
    return {
        name: [
            [
                _coverage(true[regions, a:b], low[regions, a:b], high[regions, a:b], split[regions, a:b])
                for a, b in CLASSES
            ]
            for regions in levels
        ]
        for name, (true, low, high, split) in kinds.items()
    }


def _coverage(
    true: NDArray[np.int64], low: NDArray[np.int64], high: NDArray[np.int64], split: NDArray[np.float64]
) -> Coverage:
    wide = low < high
    if not wide.any():
        return Coverage(0.0, float("nan"), float("nan"), 0.0)
    inside = (low <= true) & (true <= high)
    return Coverage(
        float(wide.mean()), float(inside[wide].mean()), float(split[wide].mean()), float((high - low)[wide].mean())
    )


def measured(case: Case, queries: QueryPlan, seed: int, reporter: Reporter) -> Levels:
    """Return the coverage under one seed."""
    estimate = posterior_estimate(queries.measured(case, seed), SolverChoices(), sizes=True)
    if not estimate.convergence.converged:
        reporter.note(f"{case.name}, {queries.name}, seed {seed}: the chains did not converge")
    return coverage_of(case, estimate)


def as_lists(coverage: Levels) -> dict[str, list[list[list[float]]]]:
    """Return what ``from_lists`` reads: numbers and lists of them."""
    return {kind: [[list(astuple(cell)) for cell in level] for level in levels] for kind, levels in coverage.items()}


def from_lists(coverage: dict[str, list[list[list[float]]]]) -> Levels:
    """Return the coverage that ``as_lists`` wrote."""
    return {kind: [[Coverage(*cell) for cell in level] for level in levels] for kind, levels in coverage.items()}


def interval_rows(case: Case, queries: QueryPlan, coverages: Sequence[Levels]) -> list[tuple[Cell, ...]]:
    """Return one row a kind of counts, level and class of sizes."""
    rows: list[tuple[Cell, ...]] = []
    for counts in coverages[0]:
        for level, (number, (low, end)) in product(range(case.levels), enumerate(CLASSES)):
            every = [levels[counts][level][number] for levels in coverages]
            every = [each for each in every if each.uncertain > 0.0]
            if not every:
                continue
            inside, split = (Mean.of([100 * getattr(each, name) for each in every]) for name in ("inside", "split"))
            uncertain = 100 * float(np.mean([each.uncertain for each in every]))
            width = float(np.mean([each.width for each in every]))
            key = case.name, queries.name, level, f"{low}-{end - 1}" if end else f"{low}-", counts
            shown = inside.value, inside.standard_error, split.value, split.standard_error, width, inside.runs
            rows.append((*key, uncertain, *shown))
    return rows


def table_of(settings: Sequence[tuple[Case, QueryPlan]], coverages: Sequence[Sequence[Levels]]) -> Table:
    """Return the table of what was found so far, a list of seeds' levels a case."""
    rows = [
        row
        for (case, queries), levels in zip(settings, coverages, strict=True)
        for row in interval_rows(case, queries, levels)
    ]
    notes = (
        SEEDED,
        f"Seeds from {SEEDS[0]} on, fixed beforehand; even split, total epsilon 1.",
        "Over the intervals that are wider than one number (% uncertain of all); both ends included.",
        "Counts are integers and intervals hold at least their share, so narrow ones hold more: with ties split, a",
        "count at an interval's end is inside in part (mid-p), and 90 % is what a right posterior gives.",
    )
    title = f"Intervals of {100 * COVERAGE:g} %: how often they hold the true count"
    return Table(title, COLUMNS, tuple(rows), notes)


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``beyond/coverage`` as CSV, anew after every seed; small: one seed on simulated data."""
    if small:
        dense, _, blocks = small_cases(60)
        settings = [(dense, cells(dense)), (blocks, grown(blocks, GROWTH[-3:])[0])]
    else:
        taxi, hawaii = taxi_case(data, TAXI_MAX_SIZE), hawaii_case(data)
        settings = [(taxi, cells(taxi)), (hawaii, grown(hawaii, GROWTH)[0])]
    seeds = SEEDS[:1] if small else SEEDS
    stored = StoredResults(out / f"{NAME}_seeds.json")
    coverages: list[list[Levels]] = [[] for _ in settings]
    for done, seed in enumerate(seeds, 1):
        for (case, queries), levels in zip(settings, coverages, strict=True):
            key = f"{case.name}, {queries.name}, {seed}"
            if key not in stored:
                stored[key] = as_lists(measured(case, queries, seed, reporter))
            levels.append(from_lists(stored[key]))
        table = table_of(settings, coverages)
        file = write_csv(out / f"{NAME}.csv", table)
        reporter.progress(NAME, done, len(seeds))
    reporter.table(table)
    return Outcome((table,), (file,))
