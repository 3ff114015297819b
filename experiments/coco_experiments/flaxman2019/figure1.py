"""Figure 1: residuals of GDPC, RDPC and ADPC and the empirical privacy loss read off them, his curves next to ours.

(a) residuals in unit bins, each mechanism at the budget that gives a loss of about 0.025; (b) the smoothed loss: for
GDPC the whole budget, for ADPC half of 0.05, for RDPC a quarter of 0.1. Ours uses his sampler (ratio 1 - epsilon) and,
in the table, the exact one (ratio exp(-epsilon)) as well.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coco_experiments.data import data_file
from coco_experiments.flaxman2019.counting import MECHANISMS, MechanismName, SamplerName
from coco_experiments.flaxman2019.setting import (
    EPSILONS,
    HIS_NAMES,
    MOVED,
    NOT_PRIVATE,
    PAPERS,
    SMALL,
    TAILS,
    Database,
    residuals,
    share_claims,
)
from coco_experiments.outcome import Outcome, Reporter, Statement, Table, publish, write_csv
from coco_experiments.plots import looks
from coco_opt.array_types import Floats
from coco_opt.audit.privacy_loss import CAVEAT, PrivacyLoss, empirical_privacy_loss
from coco_opt.report.style import PAGE, fitted_legend, saved, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "flaxman2019/figure1"
SEED = 12
PLATEAU = (20.0, 100.0)
PLATEAU_BAND = 0.1  # relative to the published mean: another seed, another database
SAMPLERS: tuple[SamplerName, ...] = ("ratio", "exact")
COLUMNS = (
    "mechanism",
    "epsilon",
    "sampler",
    "mean |EPL|, 20 to 100",
    "of the budget",
    "his figure, same mean",
    "maximum |EPL|",
    "deviation of residuals",
    "residual range K",
)
CURVES = ("panel", "mechanism", "epsilon", "whose", "error", "value")
_DASHES: dict[str, str] = {"GDPC": "-", "RDPC": "--", "ADPC": "-."}
_BIN = 5  # people: single ones of 1,000 cells are a thicket

Losses = dict[MechanismName, PrivacyLoss]


@dataclass(frozen=True, eq=False, slots=True)
class Curve:
    """One mechanism's curve: errors and values, float64[m] each."""

    error: Floats
    value: Floats

    def mean_between(self, low: float, high: float) -> float:
        """Return the mean |value| over low <= |error| <= high."""
        inside = (np.abs(self.error) >= low) & (np.abs(self.error) <= high)
        return float(np.abs(self.value[inside]).mean())


Panels = dict[str, dict[MechanismName, Curve]]


def his_curves(folder: Path | None) -> Panels:
    """Read the published curves: panel a (residuals a bin) and b (loss), by mechanism."""
    with data_file("flaxman_fig1/fig1_curves.csv", folder).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    panels: Panels = {}
    for panel, label in (("a", "a_hist"), ("b", "b_epl")):
        panels[panel] = {}
        for name in MECHANISMS:
            points = [row for row in rows if (row["panel"], row["series"]) == (label, HIS_NAMES[name])]
            points.sort(key=lambda row: float(row["error"]))
            error, value = (np.array([float(row[key]) for row in points]) for key in ("error", "value"))
            panels[panel][name] = Curve(error, value)
    return panels


def losses_of(database: Database, sampler: SamplerName, seed: int = SEED) -> Losses:
    """Return the less-obvious estimate of each mechanism from one run."""
    return {name: empirical_privacy_loss(values) for name, values in residuals(database, seed, sampler).items()}


def our_curves(losses: Losses) -> Panels:
    """Return our curves in the form of his."""
    return {
        "a": {name: Curve(loss.centres, loss.counts.astype(np.float64)) for name, loss in losses.items()},
        "b": {name: Curve(loss.centres[:-1], loss.loss) for name, loss in losses.items()},
    }


def table_of(losses: dict[SamplerName, Losses], his: Panels | None) -> Table:
    """Return the table: one row a mechanism and sampler."""
    rows = []
    for sampler, each in losses.items():
        for name, loss in each.items():
            mean = loss.mean_between(*PLATEAU)
            published = his["b"][name].mean_between(*PLATEAU) if his is not None and sampler == "ratio" else None
            figures = (loss.maximum, loss.deviation, loss.residual_range)
            rows.append((name, EPSILONS[name], sampler, mean, mean / EPSILONS[name], published, *figures))
    notes = (
        f"The loss is {CAVEAT}; its maximum depends on the seed.",
        "Samplers: ratio 1 - epsilon (his) and exp(-epsilon) (exact).",
        TAILS,
        MOVED,
        NOT_PRIVATE,
    )
    return Table("Flaxman 2019, Figure 1: empirical privacy loss of three mechanisms", COLUMNS, tuple(rows), notes)


def curves_table(ours: Panels, his: Panels | None) -> Table:
    """Return every point of every curve, ours and his."""
    rows = [
        (panel, name, EPSILONS[name], whose, float(error), float(value))
        for whose, panels in (("measured", ours), ("published", his or {}))
        for panel, curves in panels.items()
        for name, curve in curves.items()
        for error, value in zip(curve.error, curve.value, strict=True)
    ]
    return Table("Figure 1, curves", CURVES, tuple(rows))


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure, draw and write ``flaxman2019/figure1`` as CSV, PNG and PDF; small: fewer people, and his absent."""
    his = None if small else his_curves(data)
    losses: dict[SamplerName, Losses] = {}
    for done, sampler in enumerate(SAMPLERS, 1):
        losses[sampler] = losses_of(SMALL if small else PAPERS, sampler)
        reporter.progress(NAME, done, len(SAMPLERS))
    table = table_of(losses, his)
    ours = our_curves(losses["ratio"])
    files = [write_csv(out / f"{NAME}_curves.csv", curves_table(ours, his)), *_draw(out / NAME, ours, his)]
    return publish(NAME, {"": table}, out, reporter, files=files, statements=statements(table))


def statements(table: Table) -> tuple[Statement, ...]:
    """Return what section 3 says, and the plateaus of his curves next to ours, where his were read."""
    own = [row for row in table.records() if row[COLUMNS[2]] == "ratio"]
    claims = share_claims({row[COLUMNS[0]]: row[COLUMNS[4]] for row in own})
    for row in table.records():
        published, mean = row[COLUMNS[5]], row[COLUMNS[3]]
        if isinstance(published, float) and isinstance(mean, float):
            near = abs(mean / published - 1.0) <= PLATEAU_BAND
            where = f"Figure 1 (b), {row[COLUMNS[0]]}, mean loss of the plateau"
            claims.append(Statement(where, f"{published:.4f}", f"{mean:.4f}", near, "" if near else TAILS))
    return tuple(claims)


@styled()
def _draw(path: Path, ours: Panels, his: Panels | None) -> list[Path]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = {"measured": ours} if his is None else {"published": his, "measured": ours}
    figure = Figure(figsize=(4.6 if his is None else PAGE, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(columns), sharex=True, sharey="row", squeeze=False)
    for place, (title, panels) in enumerate(columns.items()):
        _residual_panel(axes[0][place], panels["a"], f"(a) how far cells are off, {title}")
        _loss_panel(axes[1][place], panels["b"], f"(b) loss, {title}", first=place == 0)
    axes[0][0].set_ylabel(f"cells a bin of {_BIN} people")
    axes[1][0].set_ylabel("empirical privacy loss")
    handles, labels = axes[0][0].get_legend_handles_labels()
    fitted_legend(figure, dict(zip(labels, handles, strict=True)), 3, loc="outside upper center")
    return saved(figure, path)


def _residual_panel(axes: Axes, curves: dict[MechanismName, Curve], title: str) -> None:
    for name, curve in curves.items():
        middles, cells = _in_bins(curve)
        label = f"{name}, epsilon {EPSILONS[name]:g}"
        axes.step(
            middles,
            cells,
            where="mid",
            color=looks([name])[name].colour,
            linestyle=_DASHES[name],
            linewidth=1.0,
            label=label,
        )
    axes.set_title(title)
    axes.grid(alpha=0.3)


def _in_bins(curve: Curve) -> tuple[Floats, Floats]:
    """Return the middles of wider bins and the cells in them; a curve read off a figure has gaps."""
    bins = np.floor(curve.error / _BIN).astype(np.int64)
    first = int(bins.min())
    cells: Floats = np.bincount(bins - first, curve.value).astype(np.float64)
    middles: Floats = (np.arange(cells.size) + first + 0.5).astype(np.float64) * _BIN
    return middles, cells


def _loss_panel(axes: Axes, curves: dict[MechanismName, Curve], title: str, *, first: bool) -> None:
    axes.axhspan(0.02, 0.03, color="#dddddd", alpha=0.6, linewidth=0)
    axes.axhspan(-0.03, -0.02, color="#dddddd", alpha=0.6, linewidth=0)
    for name, curve in curves.items():
        colour = looks([name])[name].colour
        axes.plot(curve.error, curve.value, color=colour, linestyle=_DASHES[name], linewidth=1.2)
        for sign in (-1, 1):
            axes.axhline(sign * EPSILONS[name], color=colour, linestyle=":", linewidth=0.9)
        if first:
            words = f"budget of {name}: {EPSILONS[name]:g}"
            place = axes.get_yaxis_transform()
            white = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5}
            axes.text(0.02, EPSILONS[name] + 0.002, words, fontsize=7, va="bottom", transform=place, bbox=white)
    axes.set(xlabel="error (people); band: 0.025 \u00b1 0.005", ylim=(-0.115, 0.115))
    axes.set_title(title)
    axes.grid(alpha=0.3)
