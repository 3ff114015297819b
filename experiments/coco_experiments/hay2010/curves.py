"""Measured points and curves of theory on logarithmic axes, written without a display."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from coco_experiments.plots import plain, saved, styled, width_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Scale = Literal["linear", "log", "symlog"]
_MARKS = "os^Dv<>P"


@dataclass(frozen=True, slots=True)
class Curve:
    """One named line; measured ones have marks, those of theory are dashed."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    theory: bool = False


@dataclass(frozen=True, slots=True)
class CurvePanel:
    """One panel of curves under a title."""

    title: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True, slots=True)
class AxisStyle:
    """Labels and scales shared by all panels of a figure."""

    xlabel: str
    ylabel: str
    xscale: Scale = "log"
    yscale: Scale = "log"
    marks: bool = True


@styled()
def draw(path: Path, rows: Sequence[Sequence[CurvePanel]], style: AxisStyle) -> list[Path]:
    """Write ``path``.png and ``path``.pdf, panels in rows; return the files."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width = max(len(row) for row in rows)
    figure = Figure(figsize=(width_of(width), 0.6 + 2.6 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    for number, row in enumerate(rows):
        for place, panel in enumerate(row):
            axes = figure.add_subplot(len(rows), width, number * width + place + 1)
            _draw(axes, panel, style)
            axes.set_ylabel(style.ylabel if place == 0 else "")
            axes.set_xlabel(style.xlabel if number == len(rows) - 1 else "")
    handles = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(list(handles.values()), list(handles), loc="outside upper center", ncols=2 if width == 1 else 4)
    return saved(figure, path)


def _draw(axes: Axes, panel: CurvePanel, style: AxisStyle) -> None:
    for number, curve in enumerate(panel.curves):
        mark = None if curve.theory or not style.marks else _MARKS[number % len(_MARKS)]
        axes.plot(
            list(curve.x),
            list(curve.y),
            "--" if curve.theory else "-",
            color=f"C{number}",
            marker=mark,
            markersize=4,
            linewidth=1.1,
            label=curve.name,
        )
    axes.set_xscale(style.xscale)
    axes.set_yscale(style.yscale)
    for scale, axis in ((style.xscale, axes.xaxis), (style.yscale, axes.yaxis)):
        if scale == "log":
            plain(axis)
    if style.yscale == "symlog":
        axes.set_ylim(bottom=0.0)
    axes.set_title(panel.title, fontsize=10)
    axes.grid(alpha=0.3)
