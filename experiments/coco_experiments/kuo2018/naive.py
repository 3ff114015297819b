"""The naive table of section 6.2.1: published errors of 2e8 to 5e9 next to two readings of the naive estimator.

Noise of scale 2 / epsilon on every H[j] and clipping at zero *without* the sum constraint leaves E[max(X, 0)] =
a / (1 - a^2), a = exp(-1/2), in each empty cell: 0.96 K^2 / 2 in distance, the published magnitude. The problem the
paper states also fixes sum H = G; its error is far smaller. Which K or which code gave the published digits is
unknown: the last column says which K clipping alone would need.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from coco_experiments.groups import BARS
from coco_experiments.kuo2018.cases import not_comparable
from coco_experiments.kuo2018.sweep import SEEDS, SMALL_SEEDS
from coco_experiments.kuo2018.table3 import (
    CLIPPED,
    EPSILON,
    MAX_SIZE,
    VARIANTS,
    DataSet,
    clipped_error,
    data_sets,
    measured,
    small_data_set,
)
from coco_experiments.outcome import Record, Statement, Table
from coco_experiments.plots import Panel, comparison
from coco_experiments.statistics import Mean
from coco_experiments.study import Report, Runs, Study, seeded
from coco_opt.choices import SolverChoices
from coco_opt.groups.estimating.estimators import estimate
from coco_opt.histograms import emd


def measure(data: DataSet, seed: int) -> tuple[float, float]:
    """Return the distances of the clipped and of the stated naive estimate under one seed's noise."""
    answer = measured(data, "sizes", seed)
    stated = estimate(answer, VARIANTS[-1].options, SolverChoices()).histogram
    return float(clipped_error(data, answer)), float(emd(data.truth, stated))


def clipped_mean() -> float:
    """Return E[max(X, 0)] of the noise of one cell, scale 2 / epsilon."""
    a = math.exp(-float(EPSILON) / 2.0)
    return a / (1.0 - a * a)


def expected_clipped(max_size: int) -> float:
    """Return the expected distance of clipping over empty cells alone, in entities."""
    return clipped_mean() * (max_size + 1) * (max_size + 2) / 2.0


def size_for(distance: float) -> float:
    """Return the K at which clipping's expected distance is ``distance``."""
    return math.sqrt(2.0 * distance / clipped_mean())


def plan(data: Path | None, small: bool) -> list[tuple[DataSet, Sequence[int]]]:
    """Return the data sets of table 3, or simulated data."""
    if small:
        return seeded([replace(small_data_set(), max_size=20_000)], SMALL_SEEDS)
    return seeded(data_sets(data), SEEDS)


def report(results: Sequence[Runs[DataSet, tuple[float, float]]], path: Path) -> Report:
    """Return a row a data set; it fails where clipping has another magnitude, or is not far above the stated."""
    rows, panels, failures = list[Record](), {}, list[str]()
    statements: list[Statement] = []
    for runs in results:
        data, (clipped, stated) = runs.case, (Mean.of(errors) for errors in zip(*runs.found, strict=True))
        published, expected = data.published.get(CLIPPED), expected_clipped(data.max_size)
        size, above = None if published is None else size_for(published), clipped.value / stated.value
        rows.append(
            {
                "data": data.name,
                "published": published,
                **clipped.cells("clipped, no sum"),
                "expected of clipping": expected,
                "published / clipped": None if published is None else published / clipped.value,
                "stated problem (sum = G)": stated.value,
                "its standard error": stated.standard_error,
                "clipped / stated": above,
                "K at which clipping gives the published": size,
            }
        )
        if not 0.5 < clipped.value / expected < 2.0:
            failures.append(f"{data.name}: clipping is {clipped.value / expected:.2f} times its expectation")
        if above < 3.0:
            failures.append(f"{data.name}: the stated problem is only {above:.2f} times better than clipping")
        if published is not None:
            ours = f"{stated.value:,.0f} as stated, {clipped.value:,.0f} clipped without the sum, at K = {MAX_SIZE:,}"
            why = not_comparable(data.name) or f"K is not stated; clipping would give it at K = {size:,.0f}"
            where = f"section 6.2.1, {data.name}, naive"
            statements.append(Statement(where, f"{published:,.0f}", ours, None, why))
        panels[data.name] = Panel(
            ("clipped, no sum", "stated problem"),
            {"measured": (clipped.value, stated.value), "published": (published,) * 2},
            {"measured": (clipped.standard_error, stated.standard_error)},
        )
    notes = (
        "Noise is seeded: NOT PRIVATE. Published belongs to the paper's data; simulated data say what they are.",
        BARS,
    )
    table = Table.of(f"Naive estimation, one region, epsilon 1, {len(results[0].seeds)} runs (entities)", rows, notes)
    figures = comparison(path, panels, "mean earth mover's distance (entities)", log=True)
    return Report({"": table}, figures, failures, statements)


NAIVE = Study("kuo2018/naive", plan, measure, report)
