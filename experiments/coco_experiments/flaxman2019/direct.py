"""The direct estimate of section 2.3: 500 runs on D and 500 on D', log-ratios of frequencies in area 0.

D' moves one person from area 0 to area 1001. The paper found "error = k" too noisy to read and "error >= k" visually
consistent with the bound; a sound lower bound from more runs stands next to them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coco_experiments.flaxman2019.counting import (
    MECHANISMS,
    DirectEstimate,
    MechanismName,
    direct_estimate,
    mechanism,
    population,
)
from coco_experiments.flaxman2019.setting import EPSILONS, MOVED, NOT_PRIVATE, PAPERS, SMALL, Database
from coco_experiments.outcome import Record, Statement, Table
from coco_experiments.study import Report, Runs, Study, seeded
from coco_opt.array_types import Floats
from coco_opt.audit.bounds import LowerBound, lower_bound
from coco_opt.report.style import PAGE, fitted_legend, saved, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SEED = 5
RUNS = 500
SMALL_RUNS = 60
FROM, TO = 0, 1001
FEW = 50


@dataclass(frozen=True, slots=True)
class Setting:
    """A mechanism on a database, and the runs a side."""

    database: Database
    mechanism: MechanismName
    runs: int


def measure(setting: Setting, seed: int) -> tuple[Floats, Floats]:
    """Return the errors of areas 0 and 1001 against D's exact counts, float64[runs, 2], on D and on D'."""
    database, name, runs = setting.database, setting.mechanism, setting.runs
    tree = database.tree
    rng = np.random.default_rng([2019, seed, MECHANISMS.index(name)])
    leaves = population(database.people, tree, rng)
    moved = leaves.copy()
    areas = [FROM, TO % tree.cells]
    moved[areas] += (-1, 1)
    sides = []
    for counts in (leaves, moved):
        once = mechanism(name, tree, counts, EPSILONS[name], sampler="ratio")
        sides.append(np.array([once(rng)[areas] - leaves[areas] for _ in range(runs)]))
    return sides[0], sides[1]


def estimate(first: Floats, second: Floats) -> tuple[DirectEstimate, LowerBound]:
    """Return the direct estimate in area 0 and a sound bound from both areas and their difference."""
    scores = [np.column_stack([side, side[:, 1] - side[:, 0]]) for side in (first, second)]
    return direct_estimate(first[:, 0], second[:, 0]), lower_bound(*scores)


def supported(estimate: DirectEstimate, first: Floats, second: Floats) -> float:
    """Return the largest |log-ratio| of "error >= k" among the k that both sides reached in 50 runs or more."""
    reached = [
        np.array([np.count_nonzero(np.floor(side[:, 0]) >= k) >= FEW for k in estimate.k]) for side in (first, second)
    ]
    ratios = estimate.at_least[reached[0] & reached[1]]
    return float(np.abs(ratios).max()) if ratios.size else float("nan")


def plan(data: Path | None, small: bool) -> list[tuple[Setting, Sequence[int]]]:
    """Return every mechanism; no data are needed."""
    database, runs = (SMALL, SMALL_RUNS) if small else (PAPERS, RUNS)
    return seeded((Setting(database, name, runs) for name in MECHANISMS), (SEED,))


def report(results: Sequence[Runs[Setting, tuple[Floats, Floats]]], path: Path) -> Report:
    """Return the largest log-ratios next to a sound bound, and their figure."""
    rows, estimates = list[Record](), dict[MechanismName, DirectEstimate]()
    for found in results:
        name, sides = found.case.mechanism, found.found[0]
        estimates[name], bound = estimate(*sides)
        equal, at_least = estimates[name].maximum
        rows.append(
            {
                "mechanism": name,
                "epsilon": EPSILONS[name],
                "runs a side": found.case.runs,
                "largest |log-ratio|, error = k": equal,
                "largest |log-ratio|, error >= k": at_least,
                "the same where both have 50 runs": supported(estimates[name], *sides),
                "sound lower bound": bound.epsilon,
            }
        )
    notes = (
        f"The maxima are over events that happened on both sides, and biased upwards; {results[0].case.runs} runs tell "
        "little.",
        "The bound is sound at 99.9 %, its event chosen on one half of the runs.",
        MOVED,
        NOT_PRIVATE,
    )
    title = "Flaxman 2019, section 2.3: direct estimate, one person moved from area 0 to area 1001"
    return Report({"": Table.of(title, rows, notes)}, _draw(path, estimates), statements=claims(rows))


def claims(rows: Sequence[Record]) -> list[Statement]:
    """Return what section 3 says of the direct estimate: of frequencies of 50 runs the log-ratio errs by 0.2."""
    equal, at_least = ("largest |log-ratio|, error = k", "the same where both have 50 runs")
    doubt = 3.0 * math.sqrt(2.0 / FEW)
    return [
        Statement(
            "section 3",
            "the direct estimate by error = k is too noisy to be interpreted (taken as: ten times the budget)",
            ", ".join(f"{row['mechanism']} {row[equal]:.3g} of {row['epsilon']:g}" for row in rows),
            all(row[equal] > 10.0 * row["epsilon"] for row in rows),
        ),
        Statement(
            "section 3",
            "by error >= k it is visually consistent with the bound epsilon",
            ", ".join(f"{row['mechanism']} {row[at_least]:.3g} of {row['epsilon']:g}" for row in rows)
            + f", where three standard errors are {doubt:.2g}",
            not any(row[at_least] > row["epsilon"] + doubt for row in rows),
        ),
    ]


@styled()
def _draw(path: Path, estimates: dict[MechanismName, DirectEstimate]) -> list[Path]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(PAGE, 2.8), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(estimates), squeeze=False)[0]
    for axes, (name, estimate) in zip(panels, estimates.items(), strict=True):
        _panel(axes, name, estimate)
    panels[0].set_ylabel("log-ratio of frequencies,\nD over D'")
    handles, labels = panels[0].get_legend_handles_labels()
    fitted_legend(figure, dict(zip(labels, handles, strict=True)), 3, loc="outside upper center")
    return saved(figure, path)


def _panel(axes: Axes, name: MechanismName, estimate: DirectEstimate) -> None:
    axes.plot(estimate.k, estimate.equal, ".", color="C8", markersize=3, label="error = k")
    axes.plot(estimate.k, estimate.at_least, "-", color="C0", linewidth=1.1, label="error \u2265 k")
    for sign in (-1, 1):
        axes.axhline(sign * EPSILONS[name], color="black", linestyle=":", label="budget" if sign > 0 else None)
    axes.set(title=f"{name}, epsilon {EPSILONS[name]:g}", xlabel="k (people)")
    axes.grid(alpha=0.3)


DIRECT = Study("flaxman2019/direct", plan, measure, report)
