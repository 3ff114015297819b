"""Measured points and curves of theory over a quantity that moves, written without a display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from coco_experiments.plots import Look, looks
from coco_opt.report.chart import tick
from coco_opt.report.style import PAGE, fitted_legend, plain, saved, styled, width_of, wrapped

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

Scale = Literal["linear", "log", "symlog"]

_ONE = 4.6  # inches across a figure of one panel
_PANEL, _HIGHEST = 2.1, 9.0  # inches of a row of panels at most, and of a figure
_BETWEEN = 0.5  # inches, for the labels of ticks
_FEW = 4  # names that a narrow figure has room for
_LETTER, _SPACE = 0.055, 0.02  # inches of a digit at a tick, and between two labels
_LEAST_LEFT, _EDGE = 0.75, 0.05  # inches left of the first panels, and of the canvas
_LINE = 0.13  # inches of a further line of a title


@dataclass(frozen=True, slots=True)
class Curve:
    """A named line; ``errors`` are half-lengths of its bars. Measured lines have marks, those of theory are dashed."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    errors: Sequence[float] = ()
    theory: bool = False


@dataclass(frozen=True, slots=True)
class CurvePanel:
    """One panel of curves under a title; its own label and scale of x where it has one."""

    title: str
    curves: tuple[Curve, ...]
    xlabel: str = ""
    xscale: Scale | None = None


def level_title(data: str, level: int) -> str:
    """Return the title of a level's panel; the first panel of a row also names the data set."""
    return f"level {level}" if level else f"{data}, level 0"


@dataclass(frozen=True, slots=True)
class AxisStyle:
    """Labels and scales of all panels of a figure; with ``same_y`` rows share limits; ``marks`` at measured points."""

    xlabel: str
    ylabel: str
    xscale: Scale = "log"
    yscale: Scale = "log"
    marks: bool = True
    ylim: tuple[float, float] | None = None
    same_y: bool = False


@styled()
def draw(path: Path, rows: Sequence[Sequence[CurvePanel]], style: AxisStyle) -> list[Path]:
    """Write ``path``.png and ``path``.pdf, panels in rows of any length under one legend; return the files."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width = max(len(row) for row in rows)
    names = list(dict.fromkeys(curve.name for row in rows for panel in row for curve in panel.curves))
    styles = looks(names)
    figure = Figure(figsize=(_ONE if width == 1 and len(names) <= _FEW else PAGE, 4.0))
    FigureCanvasAgg(figure)
    own_labels = any(panel.xlabel for row in rows for panel in row)
    handles: dict[str, Artist] = {}
    titles: list[Text] = []
    for line, row in enumerate(rows):
        for place, panel in enumerate(row):
            axes = figure.add_subplot(len(rows), width, line * width + place + 1)
            handles |= _draw(axes, panel, styles, style)
            titles.append(axes.set_title(panel.title, fontsize=8.0))
            axes.set_ylabel(style.ylabel if place == 0 else "")
            below = line == len(rows) - 1 or place >= len(rows[line + 1])
            axes.set_xlabel(panel.xlabel or (style.xlabel if below else ""))
        _label_y(figure.axes[-len(row) :], style)
    above = 0.0
    if len(names) > 1:
        legend = fitted_legend(figure, handles, 4, loc="upper center")
        above = legend.get_window_extent().height / figure.dpi
    _arrange(figure, (len(rows), width), above, titles, own_labels=own_labels)
    panels = [panel for row in rows for panel in row]
    for axes, panel in zip(figure.axes, panels, strict=True):
        _label_x(axes, panel)
    return saved(figure, path)


def _arrange(figure: Figure, shape: tuple[int, int], above: float, titles: Sequence[Text], *, own_labels: bool) -> None:
    """Set the figure's height and margins manually, so many inches left ``above`` the panels.

    A constrained layout draws every panel several times, half a minute for a page of them.
    """
    rows, columns = shape
    width, between, top = figure.get_figwidth(), 0.75 if own_labels else 0.5, 0.3 + above
    left, right = _beside_first(figure, columns), 0.12
    panel = (width - left - right - _BETWEEN * (columns - 1)) / columns
    lines = max(wrapped(title, panel + _BETWEEN / 2) for title in titles) - 1
    top, between = top + lines * _LINE, between + lines * _LINE
    around = top + (rows - 1) * between + 0.5
    high = min(_PANEL, (_HIGHEST - around) / rows)
    height = around + rows * high
    figure.set_figheight(height)
    figure.subplots_adjust(
        left=left / width,
        right=1.0 - right / width,
        bottom=0.5 / height,
        top=1.0 - top / height,
        hspace=between / high,
        wspace=_BETWEEN / panel,
    )


def _beside_first(figure: Figure, columns: int) -> float:
    """Return the inches that labels and ticks of the first panels of rows need to the left."""
    widths = [_LEAST_LEFT]
    for axes in figure.axes:
        place = axes.get_subplotspec()
        box = axes.yaxis.get_tightbbox() if place is not None and place.num1 % columns == 0 else None
        if box is not None:
            widths.append((axes.get_window_extent().x0 - box.x0) / figure.dpi + _EDGE)
    return max(widths)


def _draw(axes: Axes, panel: CurvePanel, styles: Mapping[str, Look], style: AxisStyle) -> dict[str, Artist]:
    axes.set_xscale(panel.xscale or style.xscale)
    axes.set_yscale(style.yscale)
    drawn = {curve.name: _curve(axes, curve, styles[curve.name], marks=style.marks) for curve in panel.curves}
    if style.ylim is not None:
        axes.set_ylim(*style.ylim)
    elif style.yscale == "symlog" and axes.get_ylim()[0] > -1.0:
        axes.set_ylim(bottom=0.0)
    axes.tick_params(which="both", labelsize=7)
    axes.grid(alpha=0.3)
    return drawn


def _label_y(panels: Sequence[Axes], style: AxisStyle) -> None:
    """Share the limits of a row's panels where the style says so, then label what they reach."""
    if style.same_y:
        lows, highs = zip(*(axes.get_ylim() for axes in panels), strict=True)
        for axes in panels:
            axes.set_ylim(min(lows), max(highs))
    if style.yscale != "linear":
        for axes in panels:
            plain(axes.yaxis)


def _label_x(axes: Axes, panel: CurvePanel) -> None:
    """Label the measured points, or what an axis has room for: once panels have their width."""
    from matplotlib.ticker import MaxNLocator

    points = sorted({x for curve in panel.curves for x in curve.x})
    if axes.get_xscale() != "linear":
        plain(axes.xaxis)
    if axes.get_xscale() == "log" and len(points) == 1:
        axes.set_xlim(points[0] / 2.0, points[0] * 2.0)
    labels = [tick(float(f"{x:.2g}")) for x in points]
    if axes.get_xscale() == "log" and _fit(axes, points, labels):
        axes.set_xticks(points, labels)
        axes.set_xticks([], minor=True)
    elif axes.get_xscale() == "linear" and all(x == int(x) for x in points):
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))


def _fit(axes: Axes, points: Sequence[float], labels: Sequence[str]) -> bool:
    """Return whether labels at all points of a logarithmic axis keep apart."""
    places = np.log10(points) * width_of(axes.xaxis) / np.diff(np.log10(axes.get_xlim()))
    wide = _LETTER * np.array([len(label) for label in labels])
    return bool((np.diff(places) >= (wide[1:] + wide[:-1]) / 2.0 + _SPACE).all())


def _curve(axes: Axes, curve: Curve, look: Look, *, marks: bool) -> Artist:
    own = _line(curve, look, marks=marks)
    if not any(curve.errors):
        return axes.plot(list(curve.x), list(curve.y), **own)[0]
    bars = {**own, "capsize": 2, "elinewidth": 0.9}
    return axes.errorbar(list(curve.x), list(curve.y), list(curve.errors), **bars).lines[0]


def _line(curve: Curve, look: Look, *, marks: bool) -> dict[str, Any]:
    """Return how a curve is drawn: theory dashed and without marks, variants dotted with hollow marks."""
    own = {"color": look.colour, "linewidth": 1.1, "label": curve.name}
    if curve.theory:
        return {**own, "linestyle": "--"}
    if not marks:
        return {**own, "linestyle": "-", "linewidth": 0.8}
    inside = "white" if look.hollow else look.colour
    return {
        **own,
        "linestyle": ":" if look.hollow else "-",
        "marker": look.mark,
        "markersize": 4,
        "markerfacecolor": inside,
    }
