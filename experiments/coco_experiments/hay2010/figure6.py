"""Figure 6: mean squared error of range queries by L~, H~ and H-bar, with their exact errors and Theorem 4 (iii).

The paper rounds every count to the nearest nonnegative integer. On sparse domains this adds a bias whose square grows
with the square of the range, while the text calls L~'s growth linear: each strategy is measured rounded and unrounded.

Section 5.2 in statements: where two error curves cross, and by how much one lies below another. Where errors are known
exactly (unrounded answers) those are judged, and the measured ones stand next to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.groups import means_of
from coco_experiments.hay2010.data import Counts, generated, universal
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
    range_bound,
    unit_range_error,
)
from coco_experiments.outcome import Record, Statement, Table
from coco_experiments.statistics import Mean
from coco_experiments.study import Report, Runs, Study
from coco_opt.array_types import Floats, Ints
from coco_opt.ranges.domain import DomainTree

WHERE = "section 5.2"
PUBLISHED_CROSSING = 2_000.0
NEAR = 2.0  # times: "about 2000" on an axis of powers of two
BIAS = "rounding to nonnegative integers biases sums of nearly empty cells"
TREE_ALONE = "exact errors depend on the tree alone: no data would change them"
DOUBT = 1e-7  # the share of sound comparisons that may fail


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
    """Mean squared errors of one data set at one epsilon: by strategy, one Mean a range size.

    ``ranges`` are as many of every size a sample.
    """

    data: Counts
    epsilon: float
    theory: Theory
    ranges: int
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


def crossing(sizes: NDArray[np.int64], low: Floats, high: Floats) -> float | None:
    """Return the size from which ``low``, first the lower curve, lies above ``high``: log-log interpolation.

    None where they do not cross, or ``low`` starts above.
    """
    above = np.log(low / high)
    after = np.flatnonzero(above > 0)
    if after.size == 0 or after[0] == 0:
        return None
    i = int(after[0])
    share = -above[i - 1] / (above[i] - above[i - 1])
    return float(sizes[i - 1] * (sizes[i] / sizes[i - 1]) ** share)


def statements(results: Sequence[Measured]) -> list[Statement]:
    """Return section 5.2's statements next to what was measured."""
    statements = [
        _unit_lengths(results),
        *_growth(results),
        *(_crossings(results, rounded) for rounded in (False, True)),
        *(_largest(results, rounded) for rounded in (False, True)),
        *(_uniformly_lower(results, fit, nodes) for fit, nodes in _PAIRS),
        *(_reductions(results, fit, nodes) for fit, nodes in _PAIRS),
        *(_below_unit(results, fit) for fit in (FIT, NONNEGATIVE)),
        _more_noise(results),
    ]
    causes = {
        item: TREE_ALONE if item.measured.startswith("exact") else BIAS for item in statements if item.holds is False
    }
    return [replace(item, why=causes.get(item, "")) for item in statements]


_PAIRS = ((FIT, NODES), (FIT_LEAVES, NODES), (NONNEGATIVE, NODES), (RAW_FIT, RAW_NODES))


def _each(results: Sequence[Measured], values: Sequence[float | None]) -> str:
    """Return values in words, by data set and falling epsilon."""
    words: dict[str, list[str]] = {}
    for result, value in zip(results, values, strict=True):
        words.setdefault(result.data.label, []).append("none" if value is None else f"{value:,.4g}")
    return "; ".join(f"{label}: {' / '.join(parts)}" for label, parts in words.items())


def _unit_lengths(results: Sequence[Measured]) -> Statement:
    ratios = [float(result.curve(NODES)[0] / result.curve(UNIT)[0]) for result in results]
    return Statement(
        WHERE, "for unit lengths L~ is more accurate than H~", f"H~ / L~: {_each(results, ratios)}", min(ratios) > 1
    )


def _growth(results: Sequence[Measured]) -> list[Statement]:
    """Return how errors grow with the size of a range: the slope of log error by log size, of exact errors."""
    slopes = {
        name: [
            float(np.polyfit(np.log(result.theory.sizes), np.log(result.exact(name)), 1)[0])
            for result in results
            if result.theory.sizes.size > 1
        ]
        for name in (RAW_UNIT, RAW_NODES)
    }
    says = {RAW_UNIT: "the error of L~ grows linearly with the size of the range", RAW_NODES: "that of H~ slowly"}
    holds = {
        RAW_UNIT: all(abs(slope - 1.0) < 0.05 for slope in slopes[RAW_UNIT]),
        RAW_NODES: all(0.0 < slope < 0.5 for slope in slopes[RAW_NODES]),
    }
    return [
        Statement(WHERE, words, f"power of the size: {_each(results, slopes[name])}", holds[name])
        for name, words in says.items()
    ]


def _pair(rounded: bool) -> tuple[str, str, str]:
    return (UNIT, NODES, "rounded") if rounded else (RAW_UNIT, RAW_NODES, "unrounded")


def _crossings(results: Sequence[Measured], rounded: bool) -> Statement:
    unit, nodes, how = _pair(rounded)
    judged = [crossing(result.theory.sizes, result.curve(unit), result.curve(nodes)) for result in results]
    text = f"{how}: {_each(results, judged)}"
    if not rounded:
        judged = [crossing(result.theory.sizes, result.exact(unit), result.exact(nodes)) for result in results]
        text = f"exact {_each(results, judged)}; measured {text}"
    holds = all(size is not None and 1 / NEAR <= size / PUBLISHED_CROSSING <= NEAR for size in judged)
    return Statement(WHERE, "the error of L~ is above H~'s for ranges larger than about 2,000", text, holds)


def _largest(results: Sequence[Measured], rounded: bool) -> Statement:
    unit, nodes, how = _pair(rounded)
    judged = [float(result.curve(unit)[-1] / result.curve(nodes)[-1]) for result in results]
    text = f"{how}: {_each(results, judged)}"
    if not rounded:
        judged = [float(result.exact(unit)[-1] / result.exact(nodes)[-1]) for result in results]
        text = f"exact {_each(results, judged)}; measured {text}"
    return Statement(
        WHERE,
        "for the largest ranges the error of L~ is 4 to 8 times H~'s",
        f"size {_last(results)}: {text}",
        min(judged) >= 3.5 and max(judged) < 8.5,
    )


def _last(results: Sequence[Measured]) -> str:
    return " and ".join(f"{size:,}" for size in sorted({int(result.theory.sizes[-1]) for result in results}))


def _uniformly_lower(results: Sequence[Measured], fit: str, nodes: str) -> Statement:
    ratios = [float((result.curve(fit) / result.curve(nodes)).max()) for result in results]
    return Statement(
        WHERE,
        "the error of H-bar is below H~'s for all sizes, epsilons and data",
        f"largest {fit} / {nodes}: {_each(results, ratios)}",
        max(ratios) < 1,
    )


def _reductions(results: Sequence[Measured], fit: str, nodes: str) -> Statement:
    larger = [result.curve(fit) / result.curve(nodes) for result in results]
    large = [part[result.theory.sizes >= PUBLISHED_CROSSING] for result, part in zip(results, larger, strict=True)]
    ratios = np.concatenate([part if part.size else curve[-1:] for part, curve in zip(large, larger, strict=True)])
    low, high = 100 * (1 - float(ratios.max())), 100 * (1 - float(ratios.min()))
    return Statement(
        "section 1",
        "H-bar reduces the error of larger ranges by 45 to 98 %",
        f"{fit} below {nodes}, sizes from 2,000 on: {low:,.0f} to {high:,.0f} %",
        low >= 45,
    )


def _below_unit(results: Sequence[Measured], fit: str) -> Statement:
    ratios = [float(result.curve(fit)[0] / result.curve(UNIT)[0]) for result in results]
    return Statement(
        WHERE,
        "H-bar can be below L~ for small ranges, even for single cells",
        f"{fit} / L~ at size 1: {_each(results, ratios)}",
        min(ratios) < 1,
    )


def _more_noise(results: Sequence[Measured]) -> Statement:
    ratios = [float(np.exp(np.log(result.curve(FIT) / result.curve(NODES)).mean())) for result in results]
    by_data: dict[str, list[float]] = {}
    for result, ratio in zip(results, ratios, strict=True):
        by_data.setdefault(result.data.label, []).append(ratio)
    return Statement(
        WHERE,
        "at smaller epsilon H-bar is more accurate relative to H~",
        f"geometric mean of {FIT} / {NODES} by falling epsilon: {_each(results, ratios)}",
        all(values == sorted(values, reverse=True) for values in by_data.values()),
    )


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
