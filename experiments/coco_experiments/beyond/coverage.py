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

from coco_experiments.beyond.kept import Kept
from coco_experiments.beyond.questions import GROWTH, Questions, cells, grown
from coco_experiments.experiment import Cell, Outcome, Reporter, Table, write_csv
from coco_experiments.kuo2018.cases import Case, hawaii_case, small_cases, taxi_case
from coco_experiments.kuo2018.joint import TAXI_MAX_SIZE
from coco_experiments.kuo2018.sweep import SEEDED
from coco_experiments.statistics import Mean
from coco_opt.choices import SolverChoices
from coco_opt.groups.estimated.posterior.consistent import PosteriorEstimate, posterior_estimate

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


def coverage_of(case: Case, found: PosteriorEstimate) -> dict[str, list[list[Coverage]]]:
    """Return the coverage of both kinds of counts, by level and class of sizes, over the intervals of any width."""
    drawn, intervals = found.posterior, found.intervals(COVERAGE)
    assert drawn.sizes is not None
    sizes = np.array([one.to_dense(case.max_size) for one in case.truth])
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
            [_coverage(true[at, a:b], low[at, a:b], high[at, a:b], split[at, a:b]) for a, b in CLASSES] for at in levels
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


def measured(case: Case, questions: Questions, seed: int, reporter: Reporter) -> Levels:
    """Return the coverage under one seed."""
    estimate = posterior_estimate(questions.measured(case, seed), SolverChoices(), sizes=True)
    if not estimate.convergence.converged:
        reporter.note(f"{case.name}, {questions.name}, seed {seed}: the chains did not converge")
    return coverage_of(case, estimate)


def as_lists(found: Levels) -> dict[str, list[list[list[float]]]]:
    """Return what ``from_lists`` reads: numbers and lists of them."""
    return {kind: [[list(astuple(one)) for one in level] for level in levels] for kind, levels in found.items()}


def from_lists(found: dict[str, list[list[list[float]]]]) -> Levels:
    """Return the coverage that ``as_lists`` wrote."""
    return {kind: [[Coverage(*one) for one in level] for level in levels] for kind, levels in found.items()}


def interval_rows(case: Case, questions: Questions, found: Sequence[Levels]) -> list[tuple[Cell, ...]]:
    """Return one row a kind of counts, level and class of sizes."""
    rows: list[tuple[Cell, ...]] = []
    for counts in found[0]:
        for level, (number, (low, end)) in product(range(case.levels), enumerate(CLASSES)):
            every = [levels[counts][level][number] for levels in found]
            every = [each for each in every if each.uncertain > 0.0]
            if not every:
                continue
            inside, split = (Mean.of([100 * getattr(each, name) for each in every]) for name in ("inside", "split"))
            uncertain = 100 * float(np.mean([each.uncertain for each in every]))
            width = float(np.mean([each.width for each in every]))
            key = case.name, questions.name, level, f"{low}-{end - 1}" if end else f"{low}-", counts
            shown = inside.value, inside.standard_error, split.value, split.standard_error, width, inside.runs
            rows.append((*key, uncertain, *shown))
    return rows


def table_of(asked: Sequence[tuple[Case, Questions]], found: Sequence[Sequence[Levels]]) -> Table:
    """Return the table of what was found so far, a list of seeds' levels a case."""
    rows = [row for (case, one), levels in zip(asked, found, strict=True) for row in interval_rows(case, one, levels)]
    notes = (
        SEEDED,
        f"Seeds from {SEEDS[0]} on, fixed beforehand; even split, total epsilon 1.",
        "Over the intervals that are wider than one number (% uncertain of all); both ends included.",
        "Counts are whole and intervals hold at least their share, so narrow ones hold more: with ties split, a count",
        "at an interval's end is inside in part (mid-p), and 90 % is what a right posterior gives.",
    )
    title = f"Intervals of {100 * COVERAGE:g} %: how often they hold the true count"
    return Table(title, COLUMNS, tuple(rows), notes)


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``beyond/coverage`` as CSV, anew after every seed; small: one seed on made data."""
    if small:
        dense, _, blocks = small_cases(60)
        asked = [(dense, cells(dense)), (blocks, grown(blocks, GROWTH[-3:])[0])]
    else:
        taxi, hawaii = taxi_case(data, TAXI_MAX_SIZE), hawaii_case(data)
        asked = [(taxi, cells(taxi)), (hawaii, grown(hawaii, GROWTH)[0])]
    seeds = SEEDS[:1] if small else SEEDS
    kept = Kept(out / f"{NAME}_seeds.json")
    found: list[list[Levels]] = [[] for _ in asked]
    for done, seed in enumerate(seeds, 1):
        for (case, one), levels in zip(asked, found, strict=True):
            key = f"{case.name}, {one.name}, {seed}"
            if key not in kept:
                kept[key] = as_lists(measured(case, one, seed, reporter))
            levels.append(from_lists(kept[key]))
        table = table_of(asked, found)
        file = write_csv(out / f"{NAME}.csv", table)
        reporter.progress(NAME, done, len(seeds))
    reporter.table(table)
    return Outcome((table,), (file,))
