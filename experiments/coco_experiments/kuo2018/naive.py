"""The naive table of section 6.2.1: published errors of 2e8 to 5e9 next to two readings of the naive estimator.

Noise of scale 2 / epsilon on every H[j] and clipping at zero *without* the sum constraint leaves E[max(X, 0)] =
a / (1 - a^2), a = exp(-1/2), in each empty cell: 0.96 K^2 / 2 in distance, the published magnitude. The problem the
paper states also fixes sum H = G; its error is far smaller. Which K or which code gave the published digits is
unknown: the last column says which K clipping alone would need.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from coco_experiments.kuo2018.cases import not_comparable
from coco_experiments.kuo2018.sweep import BARS, SEEDS, SMALL_SEEDS
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
from coco_experiments.outcome import Cell, Outcome, Reporter, Statement, Table, publish
from coco_experiments.plots import Panel, comparison
from coco_experiments.statistics import Mean
from coco_opt.choices import SolverChoices
from coco_opt.groups.estimating.estimators import estimate
from coco_opt.histograms import emd

NAME = "kuo2018/naive"
COLUMNS = (
    "data",
    "published",
    "clipped, no sum",
    "standard error",
    "expected of clipping",
    "published / clipped",
    "stated problem (sum = G)",
    "its standard error",
    "clipped / stated",
    "K at which clipping gives the published",
)


def errors_of_seed(data: DataSet, seed: int) -> tuple[float, float]:
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


def _row(data: DataSet, clipped: Mean, stated: Mean) -> tuple[Cell, ...]:
    published = data.published.get(CLIPPED)
    return (
        data.name,
        published,
        clipped.value,
        clipped.standard_error,
        expected_clipped(data.max_size),
        None if published is None else published / clipped.value,
        stated.value,
        stated.standard_error,
        clipped.value / stated.value,
        None if published is None else size_for(published),
    )


def failures_in(table: Table) -> tuple[str, ...]:
    """Return one line for every data set where the claims do not hold: clipping's magnitude, and far above stated."""
    lines = []
    for row in table.records():
        clipped, expected, ratio = row[COLUMNS[2]], row[COLUMNS[4]], row[COLUMNS[8]]
        assert isinstance(clipped, float)
        assert isinstance(expected, float)
        assert isinstance(ratio, float)
        if not 0.5 < clipped / expected < 2.0:
            lines.append(f"{row['data']}: clipping is {clipped / expected:.2f} times its expectation")
        if ratio < 3.0:
            lines.append(f"{row['data']}: the stated problem is only {ratio:.2f} times better than clipping")
    return tuple(lines)


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``kuo2018/naive`` as CSV, PNG and PDF; small: two seeds on simulated data."""
    sets = [replace(small_data_set(), max_size=20_000)] if small else data_sets(data)
    seeds = SMALL_SEEDS if small else SEEDS
    rows, panels = [], {}
    for done, data_set in enumerate(sets, 1):
        runs = np.array([errors_of_seed(data_set, seed) for seed in seeds])
        clipped, stated = Mean.of(runs[:, 0].tolist()), Mean.of(runs[:, 1].tolist())
        rows.append(_row(data_set, clipped, stated))
        panels[data_set.name] = Panel(
            ("clipped, no sum", "stated problem"),
            {"measured": (clipped.value, stated.value), "published": (data_set.published.get(CLIPPED),) * 2},
            {"measured": (clipped.standard_error, stated.standard_error)},
        )
        reporter.progress(NAME, done, len(sets))
    notes = (
        "Noise is seeded: NOT PRIVATE. Published belongs to the paper's data; simulated data say what they are.",
        BARS,
    )
    table = Table(f"Naive estimation, one region, epsilon 1, {len(seeds)} runs (entities)", COLUMNS, tuple(rows), notes)
    files = comparison(out / NAME, panels, "mean earth mover's distance (entities)", log=True)
    failures, claims = failures_in(table), statements(table)
    return publish(NAME, {"": table}, out, reporter, files=files, failures=failures, statements=claims)


def statements(table: Table) -> tuple[Statement, ...]:
    """Return the published errors of the naive estimate next to the stated problem's and clipping's."""
    claims = []
    for row in table.records():
        published, clipped, stated, size = (row[COLUMNS[place]] for place in (1, 2, 6, 9))
        if published is None:
            continue
        measured = f"{stated:,.0f} as stated, {clipped:,.0f} clipped without the sum, at K = {MAX_SIZE:,}"
        why = f"K is not stated; clipping would give it at K = {size:,.0f}"
        where = f"section 6.2.1, {row['data']}, naive"
        claims.append(Statement(where, f"{published:,.0f}", measured, None, not_comparable(str(row["data"])) or why))
    return tuple(claims)
