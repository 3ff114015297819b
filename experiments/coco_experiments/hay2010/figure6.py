"""Figure 6: mean squared error of range queries by L~, H~ and H-bar, with their exact errors and Theorem 4 (iii).

The paper rounds every count to the nearest nonnegative integer. On sparse domains this adds a bias whose square grows
with the square of the range, while the text calls L~'s growth linear: each strategy is measured rounded and unrounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.groups import means_of
from coco_experiments.hay2010.data import generated, universal
from coco_experiments.hay2010.range_statements import Measured, Theory, statements
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
)
from coco_experiments.hay2010.theory import range_bound
from coco_experiments.outcome import Record, Table
from coco_experiments.study import Report, Runs, Study
from coco_opt.ranges.domain import DomainTree

EPSILONS = (1.0, 0.1, 0.01)
SAMPLES, SMALL_SAMPLES = 50, 4
RANGES, SMALL_RANGES = 1_000, 50
SEED = 6

EXACT = {RAW_UNIT: "exact L~", RAW_NODES: "exact H~", RAW_FIT: "exact H-bar"}


def measure(result: Measured, number: int) -> dict[str, list[float]]:
    """Return each strategy's mean squared errors by size in one seeded sample, with fresh random ranges."""
    domain = DomainTree(result.data.values.size)
    truth = domain.counts(result.data.values)
    rng = np.random.default_rng([SEED, number, round(1 / result.epsilon), domain.cells])
    sample = Sample.draw(domain, truth, result.epsilon, rng)
    queries = [Ranges.random(domain.cells, int(size), result.ranges, rng) for size in result.theory.sizes]
    exact = [fewest_nodes(domain, truth, query) for query in queries]
    return {
        name: [
            float(((sample.answer(name, query) - true) ** 2).mean()) for query, true in zip(queries, exact, strict=True)
        ]
        for name in STRATEGIES
    }


def _rows(result: Measured) -> list[Record]:
    measured = {name: result.curve(name).tolist() for name in STRATEGIES}
    exact = {label: result.exact(name).tolist() for name, label in EXACT.items()}
    return [
        {
            "data": result.data.label,
            "epsilon": result.epsilon,
            "size": int(size),
            **{name: curve[place] for name, curve in (measured | exact).items()},
            "Theorem 4 (iii)": range_bound(result.theory.height, result.epsilon),
        }
        for place, size in enumerate(result.theory.sizes)
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


def _plot(path: Path, results: list[Measured]) -> list[Path]:
    style = AxisStyle("range size", "mean squared error")
    grid: dict[str, list[CurvePanel]] = {}
    for result in results:
        prefix = "" if result.data.label in grid else f"{result.data.label}, "
        panel = CurvePanel(f"{prefix}epsilon {result.epsilon:g}", _curves(result))
        grid.setdefault(result.data.label, []).append(panel)
    return draw(path, list(grid.values()), style)


def _curves(result: Measured) -> tuple[Curve, ...]:
    x = [float(size) for size in result.theory.sizes]
    shown = (UNIT, NODES, FIT, FIT_LEAVES, NONNEGATIVE)
    bound = range_bound(result.theory.height, result.epsilon)
    return (
        *(Curve(name, x, result.curve(name).tolist()) for name in shown),
        *(Curve(f"{label}, unrounded", x, result.exact(name).tolist(), theory=True) for name, label in EXACT.items()),
        Curve("Theorem 4 (iii)", x, [bound] * len(x), theory=True),
    )


def plan(data: Path | None, small: bool) -> list[tuple[Measured, Sequence[int]]]:
    """Return the data sets at every epsilon, with their samples."""
    sets = [generated(512)] if small else universal(data)
    samples, ranges = (SMALL_SAMPLES, SMALL_RANGES) if small else (SAMPLES, RANGES)
    theories = [Theory.of(DomainTree(counts.values.size)) for counts in sets]
    return [
        (Measured(counts, epsilon, theory, ranges), range(samples))
        for counts, theory in zip(sets, theories, strict=True)
        for epsilon in EPSILONS
    ]


def report(found: Sequence[Runs[Measured, dict[str, list[float]]]], path: Path) -> Report:
    """Return one row a data set, epsilon and range size, section 5.2's statements and the figure."""
    results = [
        replace(runs.case, errors={name: means_of(sample[name] for sample in runs.found) for name in STRATEGIES})
        for runs in found
    ]
    notes = (
        "Noise is seeded: NOT PRIVATE. Without 'unrounded' counts are rounded to nonnegative integers, but for the",
        "exact nonnegative fit. Exact: mean over all places, no sampling. Theorem 4 (iii): 4 height^3 / epsilon^2.",
        "Bounds bias every nonnegative strategy: over long ranges of nearly empty cells it adds up.",
    )
    samples, ranges = len(found[0].seeds), results[0].ranges
    title = f"Figure 6: mean squared error of range queries, {samples} samples, {ranges:,} ranges a size"
    table = Table.of(title, (row for result in results for row in _rows(result)), notes)
    return Report({"": table}, _plot(path, results), failures_in(results), statements(results))


FIGURE6 = Study("hay2010/figure6", plan, measure, report)
