"""The posterior of cells and of buckets against joint estimation, Algorithm 1 and bottom-up: errors and intervals.

Total epsilon 1, independent noise, five seeds fixed beforehand; released whole tables. Cells are read by every method
from the same noise, seed by seed; buckets and other splits have noise of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from coco_experiments.beyond.wrong_priors import NAME as WRONG_PRIORS
from coco_experiments.beyond.wrong_priors import cases as wrong_prior_cases
from coco_experiments.beyond.wrong_priors import wrong_prior_table
from coco_experiments.experiment import Cell, Outcome, Reporter, Table, write_csv
from coco_experiments.kuo2018.answers import split_evenly
from coco_experiments.kuo2018.cases import Case, hawaii_case, small_cases, taxi_case
from coco_experiments.kuo2018.draws import Draws, Levels, errors_by_level
from coco_experiments.kuo2018.joint import TAXI_MAX_SIZE
from coco_experiments.kuo2018.methods import jointly, leaves_only, matched
from coco_experiments.kuo2018.sweep import BARS, SEEDED, means_of
from coco_experiments.statistics import Mean
from coco_opt.choices import SolverChoices
from coco_opt.groups import measure_hierarchy
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimated.posterior.consistent import PosteriorEstimate, posterior_estimate
from coco_opt.histograms import CountOfCounts
from coco_opt.privacy import Epsilon, Measurement, SeededNoise

NAME = "beyond/posterior"
EPSILON = Fraction(1)
SEEDS = (2018, 2019, 2020, 2021, 2022)
SMALL_SEEDS = SEEDS[:1]
COVERAGE = 0.9
GROWTH = (0.05, 0.1, 0.3, 0.5)  # of Hawaii's levels, root first
TOWARDS_LEAVES = tuple(Fraction(share) for share in ("1/20", "1/20", "1/10", "4/5"))
JOINT = "joint p = 1"
COLUMNS = ("data", "K", "method", "level", "measured", "standard error", "runs", "times joint", "against joint, paired")
CLASSES = ((0, 10), (10, 100), (100, None))  # of sizes, by which coverage is told apart
INTERVAL_COLUMNS = (
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
)


@dataclass(frozen=True, slots=True)
class Questions:
    """What the posterior is asked to read: buckets by growth (0: cells) and the split, one a level, root first."""

    name: str
    growth: tuple[float, ...]
    split: tuple[Fraction, ...]

    def measured(self, case: Case, seed: int) -> Measurement:
        """Return the noisy answers under a seed; NOT PRIVATE."""
        buckets = [Buckets.by_growth(case.max_size, growth) if growth else None for growth in self.growth]
        return measure_hierarchy(
            case.truth,
            case.hierarchy,
            case.counts.group_counts,
            queries=["cumulative"] * case.levels,
            costs=[Epsilon(EPSILON * share) for share in self.split],
            max_size=case.max_size,
            neighbours="add_remove",
            source=SeededNoise(seed),
            buckets=buckets,
        )


@dataclass(frozen=True, slots=True)
class Coverage:
    """Of one kind of counts, level, class of sizes and seed: the share uncertain, and of those inside.

    ``inside`` counts interval ends in whole, ``split`` in part (mid-p); ``width`` is the mean.
    """

    uncertain: float
    inside: float
    split: float
    width: float


@dataclass(eq=False, slots=True)
class Results:
    """What was found on one case: by method, the errors and seconds of every seed, and coverage by kind of counts."""

    case: Case
    errors: dict[str, list[Levels]]
    seconds: dict[str, list[float]]
    coverage: dict[tuple[str, str], list[list[list[Coverage]]]]
    failures: list[str]

    def add(self, method: str, histograms: Sequence[CountOfCounts], seconds: float) -> None:
        """Keep one seed's table, and a failure where it does not add up."""
        self.errors.setdefault(method, []).append(errors_by_level(self.case, histograms))
        self.seconds.setdefault(method, []).append(seconds)
        tree = self.case.hierarchy
        for region in range(tree.regions):
            children = tree.children(region)
            if len(children) and not histograms[region].equals(CountOfCounts.total(histograms[c] for c in children)):
                self.failures.append(f"{self.case.name}, {method}: {tree.paths[region]} is not its children's sum")


def questions_of(case: Case, growth: tuple[float, ...] | None) -> list[Questions]:
    """Return the questions asked of a case: cells where no growth is given, else buckets by both splits."""
    even = split_evenly(Fraction(1), case.levels)
    if growth is None:
        return [Questions("posterior, cells", (0.0,) * case.levels, even)]
    leaves = TOWARDS_LEAVES[-case.levels :]
    leaves = tuple(share / sum(leaves) for share in leaves)
    words = "(" + ", ".join(f"{float(share):.3g}" for share in leaves) + ")"
    return [
        Questions("posterior, buckets", growth, even),
        Questions(f"posterior, buckets, split {words}", growth, leaves),
    ]


def results_of(case: Case, growth: tuple[float, ...] | None, seeds: Sequence[int], reporter: Reporter) -> Results:
    """Return the results of every method on one case."""
    results = Results(case, {}, {}, {}, [])
    for done, seed in enumerate(seeds, 1):
        draws = Draws(case, seed)
        for method in (matched(("Hc",) * case.levels), jointly("l1"), leaves_only("Hc")):
            start = perf_counter()
            results.add(method.name, method.run(draws, EPSILON), perf_counter() - start)
        for questions in questions_of(case, growth):
            noisy, start = questions.measured(case, seed), perf_counter()
            found = posterior_estimate(noisy, SolverChoices(), sizes=True)
            results.add(questions.name, found.histograms, perf_counter() - start)
            for counts, levels in coverage_of(case, found).items():
                results.coverage.setdefault((questions.name, counts), []).append(levels)
            if not found.convergence.converged:
                reporter.note(f"{case.name}, {questions.name}, seed {seed}: the chains did not converge")
        reporter.progress(f"{NAME} {case.name}", done, len(seeds))
    return results


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


def error_table(found: Sequence[Results]) -> Table:
    """Return one row a case, method and level; beside it the quotient of means with joint estimation's."""
    rows: list[tuple[Cell, ...]] = []
    for one in found:
        beside = np.array(one.errors[JOINT])
        for method, runs in one.errors.items():
            differences = means_of([tuple(row) for row in np.array(runs) - beside])
            for level, (mean, difference) in enumerate(zip(means_of(runs), differences, strict=True)):
                own: tuple[Cell, ...] = (one.case.name, one.case.max_size, method, level)
                quotient = mean.value / float(beside[:, level].mean()) if beside[:, level].any() else None
                error = difference.standard_error
                paired = None if error is None else f"{difference.value:+,.1f} +- {error:,.1f}"
                rows.append((*own, mean.value, mean.standard_error, mean.runs, quotient, paired))
    notes = (
        SEEDED,
        BARS,
        f"Seeds {', '.join(map(str, SEEDS))}, fixed beforehand. Whole consistent tables, as released.",
        "Even split but for bottom-up, which spends all on the leaves, and where a split is named.",
        f"Buckets of max(1, c x size) sizes, c = {GROWTH} at Hawaii's levels, root first.",
    )
    return Table("The posterior: mean distance (entities) a region, total epsilon 1", COLUMNS, tuple(rows), notes)


def interval_table(found: Sequence[Results]) -> Table:
    """Return how often intervals hold the truth, by level, class of sizes and kind of counts."""
    rows: list[tuple[Cell, ...]] = []
    for one in found:
        for (method, counts), seeds in one.coverage.items():
            for level, (number, (low, end)) in product(range(one.case.levels), enumerate(CLASSES)):
                every = [levels[level][number] for levels in seeds if levels[level][number].uncertain > 0.0]
                if not every:
                    continue
                inside, split = (Mean.of([100 * getattr(each, name) for each in every]) for name in ("inside", "split"))
                uncertain = 100 * float(np.mean([each.uncertain for each in every]))
                width = float(np.mean([each.width for each in every]))
                key: tuple[Cell, ...] = (one.case.name, method, level, f"{low}-{end - 1}" if end else f"{low}-", counts)
                shown = inside.value, inside.standard_error, split.value, split.standard_error, width
                rows.append((*key, uncertain, *shown))
    notes = (
        "Over the intervals that are wider than one number (% uncertain of all); both ends included.",
        "Counts are whole and intervals hold at least their share, so narrow ones hold more: with ties split, a count",
        "at an interval's end is inside in part (mid-p), and 90 % is what a right posterior gives.",
    )
    title = f"Intervals of {100 * COVERAGE:g} %: how often they hold the true count"
    return Table(title, INTERVAL_COLUMNS, tuple(rows), notes)


def seconds_table(found: Sequence[Results]) -> Table:
    """Return the mean seconds a run, noise left out for the posterior."""
    rows = [(one.case.name, name, float(np.mean(runs))) for one in found for name, runs in one.seconds.items()]
    return Table("Seconds a run", ("data", "method", "seconds"), tuple(rows), ("The first run of all compiles.",))


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``beyond/posterior`` as CSV; small: one seed on made data."""
    if small:
        dense, _, blocks = small_cases(60)
        found = [results_of(dense, None, SMALL_SEEDS, reporter), results_of(blocks, GROWTH[-3:], SMALL_SEEDS, reporter)]
    else:
        found = [results_of(taxi_case(data, TAXI_MAX_SIZE), None, SEEDS, reporter)]
        found.append(results_of(hawaii_case(data), GROWTH, SEEDS, reporter))
    wrong = wrong_prior_table(wrong_prior_cases(small=small), SMALL_SEEDS if small else SEEDS, reporter)
    tables = error_table(found), interval_table(found), wrong, seconds_table(found)
    for table in tables:
        reporter.table(table)
    names = (NAME, f"{NAME}_intervals", WRONG_PRIORS, f"{NAME}_seconds")
    files = tuple(write_csv(out / f"{name}.csv", table) for name, table in zip(names, tables, strict=True))
    return Outcome(tables, files, tuple(line for one in found for line in one.failures))
