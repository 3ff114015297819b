"""The sweep the paper describes: the less-obvious estimate over N, J, mu, epsilon, bandwidth and percentile.

One factor moves at a time from the figure's setting. The plateau is the mean |EPL| where 20 <= |k| <= 100 in the
figure, where K is 184, and scales with K elsewhere (K at the default percentile, so that it is no factor's).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.flaxman2019.setting import EPSILONS, MOVED, NOT_PRIVATE, PAPERS, SMALL, TAILS, Database, residuals
from coco_experiments.outcome import Outcome, Reporter, Table, publish
from coco_experiments.statistics import Mean
from coco_opt.audit.counting import MechanismName, SamplerName, budget_loss
from coco_opt.audit.privacy_loss import (
    BANDWIDTH,
    CAVEAT,
    PERCENTILE,
    ResidualCounts,
    empirical_privacy_loss,
    residual_range,
)

NAME = "flaxman2019/sweep"
SEEDS = tuple(range(5))
SMALL_SEEDS = SEEDS[:2]
PLATEAU = (20 / 184, 100 / 184)  # of the range K at the default percentile
SAMPLER: SamplerName = "exact"
FACTORS = {
    "N": ("number of people", "N"),
    "J": ("depth of the tree", "J (levels)"),
    "mu": ("people a cell", "mu"),
    "epsilon, times": ("budget", "times the figure's epsilon"),
    "bandwidth": ("bandwidth", "standard deviations"),
    "percentile": ("range looked at", "percentile"),
}
"""What moves: the title of its panel and the label of its axis."""
COLUMNS = (
    "factor",
    "value",
    "mechanism",
    "epsilon",
    "cells",
    "mean |EPL| on the plateau",
    "standard error",
    "of the budget",
    "maximum |EPL|",
    "maximum, of the budget",
    "residual range K",
)


@dataclass(frozen=True, slots=True)
class Point:
    """One setting: ``scale`` multiplies every mechanism's budget; ``value`` is what moved, as shown."""

    factor: str
    value: float
    database: Database
    scale: float = 1.0
    bandwidth: float = BANDWIDTH
    percentile: float = PERCENTILE


def points(base: Database) -> Iterator[Point]:
    """Yield every setting, factor by factor."""
    for people in (base.people // 64, base.people // 8, base.people, 4 * base.people):
        yield Point("N", people, replace(base, people=people))
    for levels in (1, 2, 3, 4, 6):
        yield Point("J", levels, replace(base, levels=levels))
    for per_cell in (10, 30, 100, 300, 1000):
        yield Point("mu", per_cell, replace(base, per_cell=Fraction(per_cell)))
    for scale in (0.4, 1.0, 4.0, 10.0, 40.0):
        yield Point("epsilon, times", scale, base, scale=scale)
    for bandwidth in (0.02, 0.05, 0.1, 0.15, 0.3, 0.6):
        yield Point("bandwidth", bandwidth, base, bandwidth=bandwidth)
    for percentile in (75.0, 90.0, 95.0, 99.0, 99.9):
        yield Point("percentile", percentile, base, percentile=percentile)


@dataclass(frozen=True, slots=True)
class SettingResult:
    """What one setting gave for one mechanism, over databases."""

    point: Point
    mechanism: MechanismName
    epsilon: float
    cells: int
    plateau: Mean
    maximum: Mean
    residual_range: Mean


def measure(point: Point, seeds: tuple[int, ...]) -> list[SettingResult]:
    """Return the estimates of every mechanism at one setting."""
    epsilons = {name: point.scale * epsilon for name, epsilon in EPSILONS.items()}
    runs: dict[MechanismName, list[tuple[float, float, float]]] = {name: [] for name in epsilons}
    for seed in seeds:
        for name, values in residuals(point.database, seed, SAMPLER, epsilons).items():
            loss = empirical_privacy_loss(values, bandwidth=point.bandwidth, percentile=point.percentile)
            plateau = loss.mean_between(*(edge * residual_range(ResidualCounts.of(values)) for edge in PLATEAU))
            runs[name].append((plateau, loss.maximum, loss.residual_range))
    cells = point.database.tree.cells
    return [
        SettingResult(point, name, epsilons[name], cells, *(Mean.of(column) for column in zip(*figures, strict=True)))
        for name, figures in runs.items()
    ]


def table_of(results: list[SettingResult], databases: int) -> Table:
    """Return the table, one row a setting and mechanism."""
    rows = tuple(
        (
            result.point.factor,
            result.point.value,
            result.mechanism,
            result.epsilon,
            result.cells,
            result.plateau.value,
            result.plateau.standard_error,
            result.plateau.value / budget_loss(result.epsilon, SAMPLER),
            result.maximum.value,
            result.maximum.value / budget_loss(result.epsilon, SAMPLER),
            result.residual_range.value,
        )
        for result in results
    )
    notes = (
        f"The loss is {CAVEAT}; the maximum grows with the noise of the tails.",
        "Exact sampler. RDPC splits its budget over J + 1 levels; its cells' own share is 1 / (J + 1).",
        "At 40 times the figure's epsilon a unit bin spans much of the noise: the plateau falls short of the budget.",
        "RDPC at mu = 10: noise makes sums of siblings nearly zero, and raking divides by them. The tails are so heavy "
        "that a bandwidth in standard deviations smooths everything away; an estimate near zero is no privacy.",
        TAILS,
        MOVED,
        NOT_PRIVATE,
    )
    title = f"Flaxman 2019: the less-obvious estimate, one factor at a time, {databases} databases each"
    return Table(title, COLUMNS, rows, notes)


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, print and write ``flaxman2019/sweep`` as CSV, PNG and PDF; needs no data."""
    settings = list(points(SMALL if small else PAPERS))
    seeds = SMALL_SEEDS if small else SEEDS
    results: list[SettingResult] = []
    for done, point in enumerate(settings, 1):
        results += measure(point, seeds)
        reporter.progress(NAME, done, len(settings))
    table = table_of(results, len(seeds))
    return publish(NAME, {"": table}, out, reporter, files=_draw(out / NAME, results))


def _draw(path: Path, results: list[SettingResult]) -> list[Path]:
    factors = list(dict.fromkeys(result.point.factor for result in results))
    panels = [_panel(factor, [result for result in results if result.point.factor == factor]) for factor in factors]
    style = AxisStyle("", "empirical privacy loss\nover the budget", yscale="linear", ylim=(0.0, 3.0))
    return draw(path, [panels[start : start + 3] for start in range(0, len(panels), 3)], style)


def _panel(factor: str, results: list[SettingResult]) -> CurvePanel:
    curves = []
    for name in EPSILONS:
        each = [result for result in results if result.mechanism == name]
        values = [result.point.value for result in each]
        budgets = [budget_loss(result.epsilon, SAMPLER) for result in each]
        for what, means in (
            ("plateau", [result.plateau for result in each]),
            ("maximum", [result.maximum for result in each]),
        ):
            shares = [mean.value / budget for mean, budget in zip(means, budgets, strict=True)]
            curves.append(Curve(f"{name}, {what}", values, shares))
    curves.append(Curve("budget", values, [1.0] * len(values), theory=True))
    title, xlabel = FACTORS[factor]
    return CurvePanel(title, tuple(curves), xlabel, "linear" if factor in ("J", "percentile") else "log")
