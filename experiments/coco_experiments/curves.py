"""Measured points and curves of theory over a quantity that moves, written without a display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from coco_experiments.plots import Look, looks
from coco_opt.report.chart import tick
from coco_opt.report.style import PAGE, fitted_legend, plain, saved, styled, wrapped

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

Scale = Literal["linear", "log", "symlog"]

_ONE = 4.6  # inches across a figure of one panel
_PANEL = 2.1  # inches of a row of panels
_BETWEEN = 0.5  # inches, for the labels of ticks
_MOST_IN_A_LEGEND = 4
_MANY_PANELS = 4  # in a row
_LETTERS = 20  # of all labels of ticks at the measured points, and a space each
_LEAST_LEFT, _EDGE = 0.75, 0.05  # inches left of the first panels, and of the canvas
_LINE = 0.13  # inches of a further line of a title
_NAME = 7.0  # points of a name next to a line
_APART = 0.13  # inches between two names


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


@dataclass(frozen=True, slots=True)
class AxisStyle:
    """Labels and scales shared by all panels of a figure; ``marks`` at the points that were measured."""

    xlabel: str
    ylabel: str
    xscale: Scale = "log"
    yscale: Scale = "log"
    marks: bool = True
    ylim: tuple[float, float] | None = None


@styled()
def draw(path: Path, rows: Sequence[Sequence[CurvePanel]], style: AxisStyle) -> list[Path]:
    """Write ``path``.png and ``path``.pdf, panels in rows of any length; return the files.

    A legend names few curves; many are named where they end, in the last panel of each row, if that has all of them and
    panels stay wide.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width = max(len(row) for row in rows)
    names = list(dict.fromkeys(curve.name for row in rows for panel in row for curve in panel.curves))
    last_has_all = all(_names(row) <= _names(row[-1:]) for row in rows)
    named = len(names) > _MOST_IN_A_LEGEND and width < _MANY_PANELS and last_has_all
    styles = looks(names)
    figure = Figure(figsize=(_ONE if width == 1 and not named else PAGE, 4.0))
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
    if len(names) == 1 or named:
        beside = _widest(figure, names) if named else 0.0
        _arrange(figure, (len(rows), width), 0.0, beside, titles, own_labels=own_labels)
    else:
        legend = fitted_legend(figure, handles, 4, loc="upper center")
        above = legend.get_window_extent().height / figure.dpi
        _arrange(figure, (len(rows), width), above, 0.0, titles, own_labels=own_labels)
    panels = [panel for row in rows for panel in row]
    for axes, panel in zip(figure.axes, panels, strict=True):
        _label_x(axes, panel)
    for last, row in zip(np.cumsum([len(row) for row in rows]) - 1, rows, strict=True) if named else ():
        _name_curves(figure, figure.axes[last], row[-1], styles, marks=style.marks)
    return saved(figure, path)


def _names(panels: Sequence[CurvePanel]) -> set[str]:
    return {curve.name for panel in panels for curve in panel.curves}


def _arrange(
    figure: Figure, shape: tuple[int, int], above: float, beside: float, titles: Sequence[Text], *, own_labels: bool
) -> None:
    """Set the figure's height and margins manually, so many inches left ``above`` and ``beside`` the panels.

    A constrained layout draws every panel several times, half a minute for a page of them.
    """
    rows, columns = shape
    width, between, top = figure.get_figwidth(), 0.75 if own_labels else 0.5, 0.3 + above
    left, right = _beside_first(figure, columns), 0.12 + beside
    panel = (width - left - right - _BETWEEN * (columns - 1)) / columns
    height = top + rows * _PANEL + (rows - 1) * between + 0.5
    lines = max(wrapped(title, panel + _BETWEEN / 2) for title in titles) - 1
    top, between = top + lines * _LINE, between + lines * _LINE
    height += rows * lines * _LINE
    figure.set_figheight(height)
    figure.subplots_adjust(
        left=left / width,
        right=1.0 - right / width,
        bottom=0.5 / height,
        top=1.0 - top / height,
        hspace=between / _PANEL,
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


def _widest(figure: Figure, names: Sequence[str]) -> float:
    """Return the inches that the widest name needs next to a panel, its line and mark included."""
    widths = []
    for name in names:
        text = figure.text(0, 0, name, fontsize=_NAME)
        widths.append(text.get_window_extent().width / figure.dpi)
        text.remove()
    return 0.55 + max(widths)


def _draw(axes: Axes, panel: CurvePanel, styles: Mapping[str, Look], style: AxisStyle) -> dict[str, Artist]:
    axes.set_xscale(panel.xscale or style.xscale)
    axes.set_yscale(style.yscale)
    drawn = {curve.name: _curve(axes, curve, styles[curve.name], marks=style.marks) for curve in panel.curves}
    if style.ylim is not None:
        axes.set_ylim(*style.ylim)
    elif style.yscale == "symlog" and axes.get_ylim()[0] > -1.0:
        axes.set_ylim(bottom=0.0)
    if axes.get_yscale() != "linear":
        plain(axes.yaxis)
    axes.tick_params(which="both", labelsize=7)
    axes.grid(alpha=0.3)
    return drawn


def _label_x(axes: Axes, panel: CurvePanel) -> None:
    """Label the measured points, or what an axis has room for: once panels have their width."""
    from matplotlib.ticker import MaxNLocator

    points = sorted({x for curve in panel.curves for x in curve.x})
    if axes.get_xscale() != "linear":
        plain(axes.xaxis)
    if axes.get_xscale() == "log" and len(points) == 1:
        axes.set_xlim(points[0] / 2.0, points[0] * 2.0)
    labels = [tick(x) for x in points]
    if axes.get_xscale() == "log" and sum(map(len, labels)) + len(labels) <= _LETTERS:
        axes.set_xticks(points, labels)
        axes.set_xticks([], minor=True)
    elif axes.get_xscale() == "linear" and all(x == int(x) for x in points):
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))


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


def _name_curves(figure: Figure, axes: Axes, panel: CurvePanel, styles: Mapping[str, Look], *, marks: bool) -> None:
    """Write every curve's name to the right of where it ends, a line in its colour between; names kept apart."""
    box = axes.get_window_extent()
    wide, high = box.width / figure.dpi, box.height / figure.dpi
    ends = np.array([max(zip(curve.x, curve.y, strict=True)) for curve in panel.curves])
    places = axes.transAxes.inverted().transform(axes.transData.transform(ends))
    order = np.argsort(places[:, 1])
    heights = _spread(np.clip(places[order, 1], 0.0, 1.0), _APART / high)
    edge = 1.0 + 0.22 / wide
    for i, height in zip(order, heights, strict=True):
        curve, look = panel.curves[i], styles[panel.curves[i].name]
        own = _line(curve, look, marks=marks) | {"clip_on": False, "transform": axes.transAxes, "label": ""}
        ends_at = min(max(float(places[i, 1]), 0.0), 1.0)
        axes.plot([float(places[i, 0]), edge], [ends_at, height], **own | {"marker": "", "linewidth": 0.6})
        axes.plot([edge + 0.02 / wide, edge + 0.2 / wide], [height] * 2, **own | {"markevery": (1, 2)})
        axes.text(edge + 0.28 / wide, height, curve.name, fontsize=_NAME, va="center", transform=axes.transAxes)


def _spread(heights: NDArray[np.float64], apart: float) -> NDArray[np.float64]:
    """Return sorted heights moved as little as needed, in squares, to lie ``apart``: isotonic regression."""
    from scipy.optimize import isotonic_regression

    steps = apart * np.arange(heights.size)
    fitted = isotonic_regression(heights - steps).x
    spread: NDArray[np.float64] = np.minimum(fitted, 1.0 - apart * (heights.size - 1)) + steps
    return spread
