"""Figure 5: squared error of S~, S~r and S-bar on lists of counts, with Theorem 2's quantities.

Each data set is measured with Laplace noise as in the paper, and S-bar with geometric noise for p = 2 and p = 1 next to
it. Whether S-bar is better by an order of magnitude is reported against S~ and against S~r, per data set and epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.hay2010.data import SNAP, Counts, generated, unattributed
from coco_experiments.hay2010.theory import Runs, noisy_ranks_deviation, noisy_ranks_error
from coco_experiments.hay2010.unattributed import (
    ESTIMATORS,
    FIT,
    GEOMETRIC,
    GEOMETRIC_L1,
    RAW,
    SORTED,
    estimates,
    squared_error,
)
from coco_experiments.outcome import Cell, Outcome, Reporter, Statement, Table, publish, statements_table, write_csv
from coco_experiments.statistics import Mean

NAME = "hay2010/figure5"
EPSILONS = (Fraction(1), Fraction(1, 10), Fraction(1, 100))
SAMPLES, SMALL_SAMPLES = 50, 10
SEED = 5
ORDER = 10.0  # an order of magnitude
COMPARABLE = 3.0  # times
BAND = 4.0  # standard errors

COLUMNS = (
    "data",
    "epsilon",
    RAW,
    SORTED,
    FIT,
    "standard error",
    GEOMETRIC,
    GEOMETRIC_L1,
    f"{RAW} / {FIT}",
    f"{SORTED} / {FIT}",
    f"ten times below {RAW}",
    f"ten times below {SORTED}",
)
THEORY_COLUMNS = (
    "data",
    "epsilon",
    "n",
    "distinct",
    "longest run",
    "sum log^3 n_r",
    RAW,
    "exact 2n/eps^2",
    FIT,
    "bound sum 2H(n_r)/eps^2",
    "share of bound",
    "Theorem 2",
)


@dataclass(frozen=True, eq=False, slots=True)
class Measured:
    """The mean squared errors of one data set at one epsilon, by estimator."""

    data: Counts
    epsilon: Fraction
    runs: Runs
    errors: Mapping[str, Mean]

    def times(self, worse: str) -> float:
        """Return how many times S-bar's error goes into another's."""
        return self.errors[worse].value / self.errors[FIT].value

    @property
    def bound(self) -> float:
        """Return the bound on S-bar's error without unknown constants."""
        return self.runs.harmonic(float(self.epsilon))

    @property
    def n(self) -> int:
        """Return the number of counts."""
        return self.data.values.size

    @property
    def label(self) -> str:
        """Return data set and epsilon in one phrase."""
        return f"{self.data.label}, epsilon {float(self.epsilon):g}"


def measure(data: Counts, epsilon: Fraction, samples: int) -> Measured:
    """Return mean errors over seeded samples; every estimator reads the same noise of its kind."""
    ranks = data.ranks
    errors: dict[str, list[float]] = {name: [] for name in ESTIMATORS}
    for sample in range(samples):
        rng = np.random.default_rng([SEED, sample, epsilon.denominator, ranks.size])
        for name, estimate in estimates(ranks, epsilon, rng).items():
            errors[name].append(squared_error(estimate, ranks))
    return Measured(data, epsilon, Runs.of(ranks), {name: Mean.of(values) for name, values in errors.items()})


def table_of(results: list[Measured], samples: int) -> Table:
    """Return the errors: one row a data set and epsilon."""
    return Table(
        f"Figure 5: mean squared error of unattributed histograms, {samples} samples",
        COLUMNS,
        tuple(_row(result) for result in results),
        ("Noise is seeded: NOT PRIVATE. Simulated data share the original's published totals, nothing else.",),
    )


def _row(result: Measured) -> tuple[Cell, ...]:
    value = {name: mean.value for name, mean in result.errors.items()}
    return (
        result.data.label,
        float(result.epsilon),
        value[RAW],
        value[SORTED],
        value[FIT],
        result.errors[FIT].standard_error,
        value[GEOMETRIC],
        value[GEOMETRIC_L1],
        result.times(RAW),
        result.times(SORTED),
        result.times(RAW) >= ORDER,
        result.times(SORTED) >= ORDER,
    )


def theory_table(results: list[Measured]) -> Table:
    """Return Theorem 2's quantities next to the measured errors."""
    return Table(
        "Theorem 2: runs of equal counts and what they say about the error",
        THEORY_COLUMNS,
        tuple(_theory_row(result) for result in results),
        (
            f"Bound: the error of {FIT} is at most the sum over runs of 2 H(n_r) / eps^2, H harmonic numbers: it has",
            "no unknown constants and log n_r in place of log^3 n_r. Theorem 2's own shape, sum (log^3 n_r + 1) /",
            "eps^2, is shown with both of its unknown constants set to 1. Logarithms are natural.",
        ),
    )


def _theory_row(result: Measured) -> tuple[Cell, ...]:
    runs, epsilon = result.runs, float(result.epsilon)
    return (
        result.data.label,
        epsilon,
        result.n,
        runs.distinct,
        int(runs.lengths.max()),
        runs.log_cubed,
        result.errors[RAW].value,
        noisy_ranks_error(result.n, epsilon),
        result.errors[FIT].value,
        result.bound,
        result.errors[FIT].value / result.bound,
        runs.theorem2(epsilon),
    )


def failures_in(results: list[Measured]) -> tuple[str, ...]:
    """Return one line wherever mathematics is contradicted: S~'s exact error, or S-bar's bound."""
    lines = []
    for result in results:
        epsilon = float(result.epsilon)
        raw, smooth = result.errors[RAW], result.errors[FIT]
        allowed = BAND * noisy_ranks_deviation(result.n, epsilon) / math.sqrt(raw.runs)
        if abs(raw.value - noisy_ranks_error(result.n, epsilon)) > allowed:
            lines.append(f"{result.label}: the error of {RAW} is not 2n/eps^2")
        if smooth.value - result.bound > BAND * (smooth.standard_error or 0.0):
            lines.append(f"{result.label}: the error of {FIT} exceeds its bound")
    return tuple(lines)


def statements(results: list[Measured]) -> list[Statement]:
    """Return section 5.1's statements next to what was measured."""
    kinds = {
        "SNAP degree sequences": [result for result in results if result.data.origin == SNAP],
        "the paper's data sets or simulated ones": [result for result in results if result.data.origin != SNAP],
    }
    return [
        *(_order_of_magnitude(group, worse, kind) for worse in (RAW, SORTED) for kind, group in kinds.items() if group),
        *_social_network(results),
        _relative(results),
    ]


def _order_of_magnitude(results: list[Measured], worse: str, kind: str) -> Statement:
    below = [f"{result.data.name} at {float(result.epsilon):g}" for result in results if result.times(worse) < ORDER]
    times = [result.times(worse) for result in results]
    missing = f"; below ten: {', '.join(below)}" if below else ""
    return Statement(
        "section 5.1",
        f"{FIT} at least an order of magnitude below {worse} for all data and epsilons ({kind})",
        f"{min(times):.3g} to {max(times):.3g} times{missing}",
        not below,
    )


def _social_network(results: list[Measured]) -> list[Statement]:
    return [
        Statement(
            "section 5.1",
            f"{SORTED} and {FIT} comparable on Social Network at large epsilon",
            f"{result.data.label}, epsilon 1: {result.times(SORTED):.3g} times",
            result.times(SORTED) < COMPARABLE,
        )
        for result in results
        if result.data.name == "Social Network" and result.epsilon == 1
    ]


def _relative(results: list[Measured]) -> Statement:
    times: dict[str, list[float]] = {}
    for result in results:
        times.setdefault(result.data.name, []).append(result.times(RAW))
    parts = [f"{name} {' / '.join(f'{value:.3g}' for value in values)}" for name, values in times.items()]
    return Statement(
        "section 5.1",
        f"the relative accuracy of {FIT} improves as epsilon falls",
        f"{RAW} / {FIT} by falling epsilon: {'; '.join(parts)}",
        all(values == sorted(values) for values in times.values()),
    )


def _plot(out: Path, results: list[Measured]) -> list[Path]:
    panels: dict[str, list[Measured]] = {}
    for result in results:
        panels.setdefault(result.data.label, []).append(result)
    drawn = [CurvePanel(label, _curves(group)) for label, group in panels.items()]
    style = AxisStyle("epsilon", "mean squared error")
    return draw(out / NAME, [drawn[start : start + 3] for start in range(0, len(drawn), 3)], style)


def _curves(results: list[Measured]) -> tuple[Curve, ...]:
    x = [float(result.epsilon) for result in results]
    measured = [Curve(name, x, [result.errors[name].value for result in results]) for name in (RAW, SORTED, FIT)]
    return (
        *measured,
        Curve(f"exact {RAW}", x, [noisy_ranks_error(results[0].n, e) for e in x], theory=True),
        Curve(f"bound {FIT}", x, [result.bound for result in results], theory=True),
        Curve("Theorem 2", x, [result.runs.theorem2(e) for result, e in zip(results, x, strict=True)], theory=True),
    )


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure figure 5 and write CSV, PNG and PDF; small: ten samples of simulated data."""
    sets = [generated(1_024)] if small else unattributed(data)
    samples = SMALL_SAMPLES if small else SAMPLES
    results = []
    for done, (counts, epsilon) in enumerate([(data_set, e) for data_set in sets for e in EPSILONS], 1):
        results.append(measure(counts, epsilon, samples))
        reporter.progress(NAME, done, len(sets) * len(EPSILONS))
    tables = {
        "": table_of(results, samples),
        "_theorem2": theory_table(results),
    }
    claims = statements(results)
    files = [write_csv(out / f"{NAME}_statements.csv", statements_table(claims)), *_plot(out, results)]
    return publish(NAME, tables, out, reporter, files=files, failures=failures_in(results), statements=claims)
