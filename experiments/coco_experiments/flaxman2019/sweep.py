"""The sweep the paper describes: the less-obvious estimate over N, J, mu, epsilon, bandwidth and percentile.

One factor moves at a time from the figure's setting. The plateau is the mean |EPL| where 20 <= |k| <= 100 in the
figure, where K is 184, and scales with K elsewhere (K at the default percentile, so that it is no factor's).

``plateaus``: Figure 1's over 15 databases, what of the figure does not depend on the seed, against reference values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from pathlib import Path

from coco_experiments.curves import AxisStyle, Curve, CurvePanel, draw
from coco_experiments.flaxman2019.counting import MECHANISMS, MechanismName, SamplerName, budget_loss
from coco_experiments.flaxman2019.setting import (
    EPSILONS,
    MOVED,
    NOT_PRIVATE,
    PAPERS,
    SHARE_BAND,
    SHARES,
    SMALL,
    TAILS,
    Database,
    residuals,
    share_claims,
)
from coco_experiments.outcome import Record, Statement, Table
from coco_experiments.plots import Panel, comparison
from coco_experiments.statistics import Mean, Reference
from coco_experiments.study import Report, Runs, Study, seeded
from coco_opt.audit.privacy_loss import (
    BANDWIDTH,
    CAVEAT,
    PERCENTILE,
    ResidualCounts,
    empirical_privacy_loss,
    residual_range,
)

SEEDS = tuple(range(5))
SMALL_SEEDS = SEEDS[:2]
PLATEAU = (20 / 184, 100 / 184)  # of the range K at the default percentile
SAMPLER: SamplerName = "exact"
_COARSE = 40.0  # times the figure's budget, where a unit bin spans much of the noise
FACTORS = {
    "N": ("number of people", "N"),
    "J": ("depth of the tree", "J (levels)"),
    "mu": ("people a cell", "mu"),
    "epsilon, times": ("budget", "times the figure's epsilon"),
    "bandwidth": ("bandwidth", "standard deviations"),
    "percentile": ("range looked at", "percentile"),
}
"""What moves: the title of its panel and the label of its axis."""


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
    plateau: Mean
    maximum: Mean
    residual_range: Mean

    @property
    def epsilon(self) -> float:
        """Return the mechanism's budget."""
        return self.point.scale * EPSILONS[self.mechanism]

    @property
    def row(self) -> Record:
        """Return the row of the table."""
        budget = budget_loss(self.epsilon, SAMPLER)
        return {
            "factor": self.point.factor,
            "value": self.point.value,
            "mechanism": self.mechanism,
            "epsilon": self.epsilon,
            "cells": self.point.database.tree.cells,
            **self.plateau.cells("mean |EPL| on the plateau"),
            "of the budget": self.plateau.value / budget,
            "maximum |EPL|": self.maximum.value,
            "maximum, of the budget": self.maximum.value / budget,
            "residual range K": self.residual_range.value,
        }


Found = dict[MechanismName, tuple[float, float, float]]


def measure(point: Point, seed: int) -> Found:
    """Return plateau, maximum and range of every mechanism at one setting, on one database."""
    epsilons, found = {name: point.scale * epsilon for name, epsilon in EPSILONS.items()}, Found()
    for name, values in residuals(point.database, seed, SAMPLER, epsilons).items():
        loss = empirical_privacy_loss(values, bandwidth=point.bandwidth, percentile=point.percentile)
        plateau = loss.mean_between(*(edge * residual_range(ResidualCounts.of(values)) for edge in PLATEAU))
        found[name] = plateau, loss.maximum, loss.residual_range
    return found


def plan(data: Path | None, small: bool) -> list[tuple[Point, Sequence[int]]]:
    """Return every setting; no data are needed."""
    return seeded(points(SMALL if small else PAPERS), SMALL_SEEDS if small else SEEDS)


def report(found: Sequence[Runs[Point, Found]], path: Path) -> Report:
    """Return the table, one row a setting and mechanism, and the figure."""
    results = [
        SettingResult(runs.case, name, *map(Mean.of, zip(*(figures[name] for figures in runs.found), strict=True)))
        for runs in found
        for name in EPSILONS
    ]
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
    databases = len(found[0].seeds)
    title = f"Flaxman 2019: the less-obvious estimate, one factor at a time, {databases} databases each"
    own = [
        result.row["of the budget"]
        for result in results
        if result.mechanism == "GDPC" and result.point.factor == "epsilon, times" and result.point.scale < _COARSE
    ]
    claim = Statement(
        "section 3",
        "for a range of epsilons the empirical loss of geometric noise matches its theoretical bound",
        f"{min(own):.3g} to {max(own):.3g} of it where a unit bin is narrower than the noise",
        all(abs(share - 1.0) <= SHARE_BAND for share in own),
    )
    table = Table.of(title, (result.row for result in results), notes)
    return Report({"": table}, _draw(path, results), statements=[claim])


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


SWEEP = Study("flaxman2019/sweep", plan, measure, report)


PLATEAUS_SEEDS = tuple(range(15))
PLATEAUS_SMALL_SEEDS = PLATEAUS_SEEDS[:3]
BAND = 4.0  # standard deviations over databases

LOSS, DEVIATION, RANGE = "mean |EPL|, 20 to 100", "deviation of residuals", "residual range K"
FIGURES = (LOSS, DEVIATION, RANGE)
# The standard deviation is that of one database, and so is the band: the mean of 15 lies well inside it.
REFERENCES: dict[tuple[MechanismName, str], Reference] = {
    ("GDPC", LOSS): Reference(0.0251, 0.0005, 15),
    ("RDPC", LOSS): Reference(0.0257, 0.0007, 15),
    ("ADPC", LOSS): Reference(0.0212, 0.0005, 15),
    ("GDPC", DEVIATION): Reference(55.9, 0.6, 15),
    ("RDPC", DEVIATION): Reference(55.9, 0.9, 15),
    ("ADPC", DEVIATION): Reference(56.2, 0.5, 15),
    ("GDPC", RANGE): Reference(184.0, 3.0, 15),
    ("RDPC", RANGE): Reference(181.0, 3.0, 15),
    ("ADPC", RANGE): Reference(186.0, 3.0, 15),
}
PlateausFound = dict[tuple[MechanismName, str], float]


def measure_plateaus(database: Database, seed: int) -> PlateausFound:
    """Return the three figures of every mechanism on one database, with the paper's sampler."""
    figures = PlateausFound()
    for name, values in residuals(database, seed, "ratio").items():
        loss = empirical_privacy_loss(values)
        of_loss = loss.mean_between(20, 100), loss.deviation, loss.residual_range
        figures |= {(name, figure): value for figure, value in zip(FIGURES, of_loss, strict=True)}
    return figures


def plan_plateaus(data: Path | None, small: bool) -> list[tuple[Database, Sequence[int]]]:
    """Return the paper's databases, or smaller ones; no data are needed."""
    return [(SMALL, PLATEAUS_SMALL_SEEDS) if small else (PAPERS, PLATEAUS_SEEDS)]


def report_plateaus(results: Sequence[Runs[Database, PlateausFound]], path: Path) -> Report:
    """Return one row a figure and mechanism; it fails further than four deviations from a reference."""
    (runs,) = results
    means = {key: Mean.of([found[key] for found in runs.found]) for key in runs.found[0]}
    rows, failures = list[Record](), list[str]()
    for figure, name in product(FIGURES, MECHANISMS):
        mean, reference = means[name, figure], REFERENCES[name, figure] if runs.case == PAPERS else None
        apart = None if reference is None else abs(mean.value - reference.value) / reference.deviation
        rows.append(
            {
                "mechanism": name,
                "epsilon": EPSILONS[name],
                "figure": figure,
                **mean.cells(),
                "reference": reference and reference.value,
                "deviation of one database": reference and reference.deviation,
                "deviations apart": apart,
                "within four": None if apart is None else apart <= BAND,
            }
        )
        if apart is not None and apart > BAND:
            failures.append(f"{name}, {figure}: {apart:.1f} deviations from the reference")
    plateaus = [(means[name, LOSS], EPSILONS[name]) for name in MECHANISMS]
    series = {
        "measured": tuple(mean.value / budget for mean, budget in plateaus),
        "published": tuple(SHARES[name][0] for name in MECHANISMS),
    }
    errors = {"measured": tuple(mean.standard_error and mean.standard_error / budget for mean, budget in plateaus)}
    panel = {f"{len(runs.seeds)} databases": Panel(MECHANISMS, series, errors)}
    notes = (f"The loss is {CAVEAT}.", TAILS, "The maximum depends on the seed and is not compared.", NOT_PRIVATE)
    table = Table.of(f"Flaxman 2019: plateaus of Figure 1, {len(runs.seeds)} databases", rows, notes)
    claims = share_claims({name: means[name, LOSS].value / EPSILONS[name] for name in MECHANISMS})
    figures = comparison(path, panel, "empirical privacy loss of the plateau over the budget")
    return Report({"": table}, figures, failures, claims)


PLATEAUS = Study("flaxman2019/plateaus", plan_plateaus, measure_plateaus, report_plateaus)
