"""The report's figures, drawn with matplotlib's SVG backend and returned as data URIs."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

INK, NOISE, TRUTH, GRID = "#1f4e79", "#c8553d", "#7a8b3a", "#dddddd"
_COLOURS = (INK, NOISE, TRUTH, "#6b4c9a", "#888888")
MAX_POINTS = 1_500
_MOST_SHAPES = 300
_DOTS = 200  # an inch, for parts drawn as an image
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.titlesize": 10.0,
    "axes.titlelocation": "left",
    "svg.hashsalt": "coco-opt",
    "svg.fonttype": "path",
}
_ONE_PANEL = 5.2, {"left": 0.18, "right": 0.98, "bottom": 0.18, "top": 0.97}
_TWO_PANELS = 8.6, {"left": 0.1, "right": 0.97, "bottom": 0.18, "top": 0.9, "wspace": 0.2}
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


def error_figure(errors: Mapping[str, Sequence[float]], what: str) -> str:
    """Return mean errors by level, one line a method, as a data URI; ``what`` names the error with its unit."""

    def draw(axes: Sequence[Axes]) -> None:
        _draw_errors(axes[0], errors, what)

    return picture(draw, panels=1, height=2.6)


def thin(count: int, limit: int = MAX_POINTS) -> NDArray[np.int64]:
    """Return at most ``limit`` positions out of 0..count-1: all where they fit, else log-spaced ones."""
    if count <= limit:
        return np.arange(count)
    return np.unique(np.geomspace(1, count, limit).astype(np.int64) - 1)


def dots(axes: Axes, x: NDArray[Any], y: NDArray[Any], mark: str, **style: Any) -> None:
    """Draw points; many are drawn as an image, because a browser takes a second to place thousands singly."""
    axes.plot(x, y, mark, rasterized=x.size > _MOST_SHAPES, **style)


def plain_symlog(set_scale: Callable[..., None], axis: Axis) -> None:
    """Make an axis logarithmic outside -1..1, labelled 1, 10, 100: it must show zero and negative counts."""
    set_scale("symlog", linthresh=1)
    axis.set_major_formatter(_tick)


def _tick(value: float, _: float) -> str:
    """Return a label that fits the fixed margins: 7 characters at most, such as 100,000, below 10^11."""
    return f"{value / 1e6:,.0f}M" if abs(value) >= 1e6 else f"{value:,.0f}"


def _draw_errors(axes: Axes, errors: Mapping[str, Sequence[float]], what: str) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    for k, (name, values) in enumerate(errors.items()):
        style = "o-" if k == 0 else "s--"
        # A logarithmic axis has no zero: an exact answer is drawn at its low end.
        heights = np.maximum(values, 0.5)
        axes.plot(range(len(values)), heights, style, color=_COLOURS[k % len(_COLOURS)], label=name, markersize=4)
    axes.set(yscale="log", xlabel="level (0 is the root)", ylabel=what)
    axes.set_xticks(range(max((len(values) for values in errors.values()), default=1)))
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(_tick)
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.legend(frameon=False)


def picture(draw: Callable[[Sequence[Axes]], None], *, panels: int, height: float) -> str:
    """Return what ``draw`` puts on so many panels as an SVG data URI, in the report's style."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        width, margins = _ONE_PANEL if panels == 1 else _TWO_PANELS
        # Fixed margins: a layout engine draws everything twice to find them.
        figure = Figure(figsize=(width, height))
        figure.subplots_adjust(**margins)
        FigureCanvasSVG(figure)
        draw(list(figure.subplots(1, panels, squeeze=False)[0]))
        return _data_uri(figure)


def _data_uri(figure: Figure) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata=_NO_METADATA, dpi=_DOTS)
    drawing = buffer.getvalue()
    # The XML prologue names an external document type: the picture needs none.
    drawing = drawing[drawing.index(b"<svg") :]
    return "data:image/svg+xml;base64," + base64.b64encode(drawing).decode("ascii")
