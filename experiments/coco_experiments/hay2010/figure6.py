"""Figure 6: mean squared error of range queries by L~, H~ and H-bar, with their exact errors and Theorem 4 (iii).

The paper rounds every count to the nearest nonnegative integer. On sparse domains this adds a bias whose square grows
with the square of the range, while the text calls L~'s growth linear: each strategy is measured rounded and unrounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.hay2010.data import Counts, generated, universal
from coco_experiments.hay2010.range_statements import statements
from coco_experiments.hay2010.strategies import (
    FIT,
    FIT_LEAVES,
    NODES,
    NONNEGATIVE,
    RAW_FIT,
    RAW_NODES,
    RAW_UNIT,
    STRATEGIES,
    UNIT,
    Ranges,
    Sample,
    fewest_nodes,
    fit_variances,
    node_numbers,
)
from coco_experiments.hay2010.theory import range_bound, unit_range_error
from coco_experiments.outcome import Cell, Outcome, Reporter, Table, statements_table, write_csv
from coco_experiments.statistics import Mean
from coco_opt.array_types import Floats, Ints
from coco_opt.ranges.domain import DomainTree

NAME = "hay2010/figure6"
EPSILONS = (1.0, 0.1, 0.01)
SAMPLES, SMALL_SAMPLES = 50, 4
RANGES, SMALL_RANGES = 1_000, 50
SEED = 6
DOUBT = 1e-7  # the share of sound comparisons that may fail

EXACT = {RAW_UNIT: "exact L~", RAW_NODES: "exact H~", RAW_FIT: "exact H-bar"}
COLUMNS = ("data", "epsilon", "size", *STRATEGIES, *EXACT.values(), "Theorem 4 (iii)")


@dataclass(frozen=True, eq=False, slots=True)
class Theory:
    """Exact mean errors over all places of a range, by strategy and size, at epsilon 1."""

    height: int
    sizes: Ints
    errors: Mapping[str, Floats]

    @classmethod
    def of(cls, domain: DomainTree) -> Theory:
        """Return the errors for sizes 1, 2, 4, .. up to half the domain; O(n log n) ranges are looked at."""
        sizes = 2 ** np.arange(max(1, domain.height - 1))
        unit = 2.0 * domain.height**2
        nodes, fit = np.empty(sizes.size), np.empty(sizes.size)
        for i, size in enumerate(sizes):
            everywhere = Ranges.everywhere(domain.cells, int(size))
            nodes[i] = unit * node_numbers(domain, everywhere).mean()
            fit[i] = unit * fit_variances(domain, everywhere).mean()
        return cls(domain.height, sizes, {RAW_UNIT: unit_range_error(sizes, 1.0), RAW_NODES: nodes, RAW_FIT: fit})


@dataclass(frozen=True, eq=False, slots=True)
class Measured:
    """Mean squared errors of one data set at one epsilon: by strategy, one Mean a range size."""

    data: Counts
    epsilon: float
    theory: Theory
    errors: Mapping[str, tuple[Mean, ...]] = field(default_factory=dict)

    def curve(self, strategy: str) -> Floats:
        """Return the mean errors (sizes,)."""
        return np.array([mean.value for mean in self.errors[strategy]])

    def exact(self, strategy: str) -> Floats:
        """Return the exact mean errors (sizes,) of an unrounded strategy."""
        errors: Floats = self.theory.errors[strategy] / self.epsilon**2
        return errors

    def doubt(self, strategy: str) -> Floats:
        """Return the half-lengths (sizes,) of the means' confidence intervals, by Student's distribution."""
        from scipy.stats import t

        means = self.errors[strategy]
        quantiles = t.isf(DOUBT / 2, [mean.runs - 1 for mean in means])
        return np.array([mean.standard_error or 0.0 for mean in means]) * quantiles


def measure(data: Counts, epsilon: float, theory: Theory, samples: int, ranges: int) -> Measured:
    """Return mean squared errors over seeded samples, each with fresh random ranges of every size."""
    domain = DomainTree(data.values.size)
    truth = domain.counts(data.values)
    errors: dict[str, list[list[float]]] = {name: [] for name in STRATEGIES}
    for number in range(samples):
        rng = np.random.default_rng([SEED, number, round(1 / epsilon), domain.cells])
        sample = Sample.draw(domain, truth, epsilon, rng)
        queries = [Ranges.random(domain.cells, int(size), ranges, rng) for size in theory.sizes]
        exact = [fewest_nodes(domain, truth, query) for query in queries]
        for name in STRATEGIES:
            pairs = zip(queries, exact, strict=True)
            errors[name].append([float(((sample.answer(name, query) - true) ** 2).mean()) for query, true in pairs])
    means = {name: tuple(Mean.of(column) for column in zip(*runs, strict=True)) for name, runs in errors.items()}
    return Measured(data, epsilon, theory, means)


def table_of(results: list[Measured], samples: int, ranges: int) -> Table:
    """Return one row a data set, epsilon and range size."""
    rows = [row for result in results for row in _rows(result)]
    return Table(
        f"Figure 6: mean squared error of range queries, {samples} samples, {ranges:,} ranges a size",
        COLUMNS,
        tuple(rows),
        (
            "Noise is seeded: NOT PRIVATE. Without 'unrounded' counts are rounded to nonnegative integers, but for the",
            "exact nonnegative fit. Exact: mean over all places, no sampling. Theorem 4 (iii): 4 height^3 / epsilon^2.",
            "Bounds bias every nonnegative strategy: over long ranges of nearly empty cells it adds up.",
        ),
    )


def _rows(result: Measured) -> list[tuple[Cell, ...]]:
    measured = [result.curve(name) for name in STRATEGIES]
    exact = [result.exact(name) for name in EXACT]
    bound = range_bound(result.theory.height, result.epsilon)
    return [
        (
            result.data.label,
            result.epsilon,
            int(size),
            *(float(curve[i]) for curve in measured),
            *(float(curve[i]) for curve in exact),
            bound,
        )
        for i, size in enumerate(result.theory.sizes)
    ]


def failures_in(results: list[Measured]) -> tuple[str, ...]:
    """Return one line wherever mathematics is contradicted: exact errors, Theorem 4 (iii) or H-bar above H~."""
    lines = []
    for result in results:
        where = f"{result.data.label}, epsilon {result.epsilon:g}"
        lines += [
            f"{where}: {name} does not have its exact error"
            for name in EXACT
            if np.any(np.abs(result.curve(name) - result.exact(name)) > result.doubt(name))
        ]
        if np.any(result.exact(RAW_FIT) > result.exact(RAW_NODES)):
            lines.append(f"{where}: the exact error of {RAW_FIT} exceeds that of {RAW_NODES}")
        if np.any(result.exact(RAW_FIT) > range_bound(result.theory.height, result.epsilon)):
            lines.append(f"{where}: the exact error of {RAW_FIT} exceeds Theorem 4 (iii)")
    return tuple(lines)


def _plot(out: Path, results: list[Measured]) -> list[Path]:
    style = AxisStyle("range size", "mean squared error")
    grid: dict[str, list[CurvePanel]] = {}
    for result in results:
        panel = CurvePanel(f"{result.data.label}, epsilon {result.epsilon:g}", _curves(result))
        grid.setdefault(result.data.label, []).append(panel)
    return draw(out / NAME, list(grid.values()), style)


def _curves(result: Measured) -> tuple[Curve, ...]:
    x = [float(size) for size in result.theory.sizes]
    shown = (UNIT, NODES, FIT, FIT_LEAVES, NONNEGATIVE)
    bound = range_bound(result.theory.height, result.epsilon)
    return (
        *(Curve(name, x, result.curve(name).tolist()) for name in shown),
        *(Curve(f"{label}, unrounded", x, result.exact(name).tolist(), theory=True) for name, label in EXACT.items()),
        Curve("Theorem 4 (iii)", x, [bound] * len(x), theory=True),
    )


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure figure 6 and write CSV, PNG and PDF; small: four samples of simulated data."""
    sets = [generated(512)] if small else universal(data)
    samples, ranges = (SMALL_SAMPLES, SMALL_RANGES) if small else (SAMPLES, RANGES)
    results = []
    for counts in sets:
        theory = Theory.of(DomainTree(counts.values.size))
        for epsilon in EPSILONS:
            results.append(measure(counts, epsilon, theory, samples, ranges))
            reporter.progress(NAME, len(results), len(sets) * len(EPSILONS))
    table = table_of(results, samples, ranges)
    claims = statements(results)
    reporter.note(f"The errors of {len(STRATEGIES)} strategies at every size are in {NAME}.csv.")
    files = [write_csv(out / f"{NAME}.csv", table), write_csv(out / f"{NAME}_statements.csv", statements_table(claims))]
    return Outcome((table,), (*files, *_plot(out, results)), failures_in(results), tuple(claims))
