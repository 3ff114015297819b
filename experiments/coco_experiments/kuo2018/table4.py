"""Poster Table 4 on Taxi: three levels, total epsilon = 1, cumulative L1, every region with its own noise.

Bottom-up spends everything on the leaves and sums them; top-down (Algorithm 1) splits evenly over the levels,
matches groups and merges sizes, weighted by variance or plainly averaged. The published numbers fit one seed shared
by all regions, which is not private in parallel composition; with independent noise bottom-up gains at the upper
levels, so they stand beside as published, and only the independent means of this project are compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from coco_experiments.data import taxi
from coco_experiments.experiment import Outcome, Reporter, Table, write_csv
from coco_experiments.made import made_counts
from coco_experiments.plots import Panel, comparison
from coco_experiments.statistics import Mean
from coco_opt.choices import SolverChoices
from coco_opt.groups import FitOptions, SizeEstimate, estimate
from coco_opt.groups.consistency import bottom_up, matching
from coco_opt.histograms import CountOfCounts, emd
from coco_opt.kernels.merging import Merge, Rounding
from coco_opt.privacy import Loss, Measurements, Query, SeededNoise, measure_hierarchy, uniform_split
from coco_opt.tables.private import PrivateCounts

NAME = "kuo2018/table4"
SEEDS = tuple(range(2018, 2038))
SMALL_SEEDS = SEEDS[:3]
MAX_SIZE = 100_000
SMALL_MAX_SIZE = 500
EPSILON = Fraction(1)
BAND = 0.06  # relative to the reference, at every level

BOTTOM_UP = "bottom-up, all budget on the leaves"
TOP_DOWN: dict[str, tuple[Merge, Rounding]] = {
    "top-down, weighted, half up": ("weighted", "half_up"),
    "top-down, average, half up": ("average", "half_up"),
    "top-down, average, half even": ("average", "half_even"),
}
METHODS = (BOTTOM_UP, *TOP_DOWN)
REFERENCES: dict[str, tuple[float, float, float]] = {
    BOTTOM_UP: (8_053.0, 4_459.0, 768.0),
    "top-down, weighted, half up": (10_147.0, 6_060.0, 2_387.0),
    "top-down, average, half up": (13_258.0, 7_303.0, 2_406.0),
    "top-down, average, half even": (16_649.0, 8_840.0, 2_385.0),
}
PUBLISHED: dict[str, tuple[float, float, float]] = {
    BOTTOM_UP: (20_731.0, 10_405.5, 772.8),
    "top-down, weighted, half up": (10_547.0, 5_431.5, 1_601.8),
}
COLUMNS = (
    "method",
    "level",
    "measured",
    "standard error",
    "reference",
    "difference %",
    "within 6 %",
    "published (one seed for all regions)",
)

Levels = tuple[float, ...]


def noisy(
    data: PrivateCounts, truth: Sequence[CountOfCounts], epsilons: Sequence[Fraction], max_size: int, seed: int
) -> Measurements:
    """Return the seeded cumulative measurement of every region of the levels with a budget."""
    levels = data.hierarchy.levels
    queries: list[Query] = ["cumulative"] * levels
    losses: list[Loss] = ["l1"] * levels
    return measure_hierarchy(
        truth,
        data.hierarchy,
        data.group_counts,
        queries=queries,
        losses=losses,
        epsilons=epsilons,
        max_size=max_size,
        neighbours="add_remove",
        source=SeededNoise(seed),
    )


def errors_of_seed(data: PrivateCounts, truth: Sequence[CountOfCounts], max_size: int, seed: int) -> dict[str, Levels]:
    """Return every method's mean earth mover's distance (entities) a region, level by level, under one seed.

    The three top-down methods share their noise and their regions' estimates; bottom-up has its own scale.
    """
    solvers, levels = SolverChoices(), data.hierarchy.levels
    on_leaves = (Fraction(0),) * (levels - 1) + (EPSILON,)
    leaves = _estimates(noisy(data, truth, on_leaves, max_size, seed), solvers)
    errors = {BOTTOM_UP: _by_level(data, truth, bottom_up(data.hierarchy, leaves))}
    each = _estimates(noisy(data, truth, uniform_split(EPSILON, levels), max_size, seed), solvers)
    for name, (merge, rounding) in TOP_DOWN.items():
        merged = matching(data.hierarchy, each, solvers, merge=merge, rounding=rounding)
        errors[name] = _by_level(data, truth, merged)
    return errors


def _estimates(measurements: Measurements, solvers: SolverChoices) -> list[SizeEstimate]:
    """Return one estimate a region, empty where the level was not measured."""
    unmeasured = SizeEstimate.from_histogram(CountOfCounts.empty(), 0.0)
    options = FitOptions("l1", "upper", "half_up")
    return [unmeasured if answer is None else estimate(answer, options, solvers) for answer in measurements]


def _by_level(data: PrivateCounts, truth: Sequence[CountOfCounts], estimates: Sequence[CountOfCounts]) -> Levels:
    errors = np.array([emd(a, b) for a, b in zip(truth, estimates, strict=True)], np.float64)
    levels = range(data.hierarchy.levels)
    return tuple(float(errors[data.hierarchy.level == level].mean()) for level in levels)


def measure_errors(
    data: PrivateCounts, max_size: int, seeds: Sequence[int], reporter: Reporter
) -> dict[str, tuple[Mean, ...]]:
    """Return every method's mean error over the seeds, one Mean a level."""
    truth = [histogram.clamp(max_size) for histogram in data.histograms()]
    runs: list[dict[str, Levels]] = []
    for done, seed in enumerate(seeds, 1):
        runs.append(errors_of_seed(data, truth, max_size, seed))
        reporter.progress(NAME, done, len(seeds))
    return {
        method: tuple(Mean.of([run[method][level] for run in runs]) for level in range(data.hierarchy.levels))
        for method in METHODS
    }


def table_of(means: dict[str, tuple[Mean, ...]], title: str, *, compare: bool) -> Table:
    """Return the table, one row a method and level; ``compare`` sets references and published values beside."""
    rows = [
        _row(method, level, mean, compare=compare)
        for method, levels in means.items()
        for level, mean in enumerate(levels)
    ]
    return Table(
        title,
        COLUMNS,
        tuple(rows),
        ("Noise is seeded (NOT PRIVATE) and independent between regions; the published table shares one seed.",),
    )


def _row(method: str, level: int, mean: Mean, *, compare: bool) -> tuple[str | int | float | bool | None, ...]:
    reference = REFERENCES[method][level] if compare else None
    apart = None if reference is None else mean.value / reference - 1.0
    return (
        method,
        level,
        mean.value,
        mean.standard_error,
        reference,
        None if apart is None else 100.0 * apart,
        None if apart is None else abs(apart) <= BAND,
        PUBLISHED[method][level] if compare and method in PUBLISHED else None,
    )


def failures_in(table: Table) -> tuple[str, ...]:
    """Return one line for every method and level further than 6 % from its reference."""
    return tuple(
        f"{row['method']}, level {row['level']}: {row['difference %']:+.1f} % from the reference"
        for row in table.records()
        if row["within 6 %"] is False
    )


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``kuo2018/table4`` as CSV, PNG and PDF; small: three seeds on made data."""
    counts = made_counts(2, 3, 400, SMALL_MAX_SIZE // 4, np.random.default_rng(4)) if small else taxi(data)
    seeds = SMALL_SEEDS if small else SEEDS
    means = measure_errors(counts, SMALL_MAX_SIZE if small else MAX_SIZE, seeds, reporter)
    name = "made data" if small else "Taxi"
    title = f"Poster Table 4, {name}: mean earth mover's distance (entities) a region, {len(seeds)} seeds"
    table = table_of(means, title, compare=not small)
    reporter.table(table)
    files = [write_csv(out / f"{NAME}.csv", table), *_plots(out, means, compare=not small)]
    return Outcome((table,), tuple(files), failures_in(table))


def _plots(out: Path, means: dict[str, tuple[Mean, ...]], *, compare: bool) -> list[Path]:
    panels = {}
    for level in range(len(means[BOTTOM_UP])):
        series: dict[str, tuple[float | None, ...]] = {
            "measured": tuple(means[method][level].value for method in METHODS)
        }
        if compare:
            series["reference"] = tuple(REFERENCES[method][level] for method in METHODS)
            series["published, one seed for all regions"] = tuple(
                PUBLISHED[method][level] if method in PUBLISHED else None for method in METHODS
            )
        errors = {"measured": tuple(means[method][level].standard_error for method in METHODS)}
        panels[f"level {level}"] = Panel(METHODS, series, errors)
    return comparison(out / NAME, panels, "mean earth mover's distance (entities) a region")
