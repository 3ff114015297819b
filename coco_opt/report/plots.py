"""The report's figures, drawn with matplotlib's SVG backend and returned as data URIs."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.histograms import CountOfCounts
from coco_opt.privacy import Measurement

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

INK, NOISE, TRUTH, GRID = "#1f4e79", "#c8553d", "#7a8b3a", "#dddddd"
_COLOURS = (INK, NOISE, TRUTH, "#6b4c9a", "#888888")
MAX_POINTS = 1_500
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


def region_figure(
    measurement: Measurement | None, estimate: CountOfCounts, truth: CountOfCounts | None, max_size: int
) -> str:
    """Return one region's estimated and noisy histograms, and beside them noise minus fit, as a data URI.

    ``measurement`` is None where the region's level was not measured: then the estimate is drawn alone.
    """

    def draw(axes: Sequence[Axes]) -> None:
        _draw_histogram(axes[0], measurement, estimate, truth)
        if measurement is not None:
            _draw_residual(axes[1], measurement, estimate, max_size)

    return _picture(draw, panels=2 if measurement is not None else 1, height=2.6)


def error_figure(errors: Mapping[str, Sequence[float]]) -> str:
    """Return mean errors (entities a region) by level, one line a method, as a data URI."""

    def draw(axes: Sequence[Axes]) -> None:
        _draw_errors(axes[0], errors)

    return _picture(draw, panels=1, height=2.6)


def noisy_histogram(measurement: Measurement) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the sizes and the noisy number of groups of each, as the measurement alone tells them.

    Noisy cumulative counts are differenced and noisy sizes counted after rounding; noise makes negative counts.
    """
    values = measurement.values
    if measurement.query == "rank":
        lengths = np.ones(values.size, np.int64) if measurement.lengths is None else measurement.lengths
        sizes = np.rint(values / lengths).astype(np.int64)
        distinct, where = np.unique(sizes, return_inverse=True)
        return distinct, np.bincount(where, lengths, distinct.size).astype(np.float64)
    if measurement.query == "cumulative":
        values = np.diff(np.append(values, measurement.groups), prepend=0)
    return np.arange(values.size, dtype=np.int64), values.astype(np.float64)


def residuals(
    measurement: Measurement, estimate: CountOfCounts, max_size: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the position of each measured cell and its noisy value minus the released one."""
    values = measurement.values
    if measurement.query == "naive":
        return np.arange(values.size), (values - estimate.to_dense(max_size)).astype(np.float64)
    if measurement.query == "cumulative":
        return np.arange(values.size), (values - estimate.cumulative(max_size)[:-1]).astype(np.float64)
    lengths = np.ones(values.size, np.int64) if measurement.lengths is None else measurement.lengths
    ends = np.cumsum(lengths)
    sizes, stops = estimate.rank_runs()
    at = (ends - (lengths + 1) // 2).clip(0)
    return ends, values / lengths - sizes[np.searchsorted(stops, at, side="right")]


def thin(count: int, limit: int = MAX_POINTS) -> NDArray[np.int64]:
    """Return at most ``limit`` positions out of 0..count-1: all where they fit, else log-spaced ones."""
    if count <= limit:
        return np.arange(count)
    return np.unique(np.geomspace(1, count, limit).astype(np.int64) - 1)


def _draw_histogram(
    axes: Axes, measurement: Measurement | None, estimate: CountOfCounts, truth: CountOfCounts | None
) -> None:
    if measurement is not None:
        sizes, noisy = noisy_histogram(measurement)
        kept = thin(sizes.size)
        axes.plot(sizes[kept], noisy[kept], ".", color=NOISE, markersize=3, alpha=0.5, label="noisy")
    if truth is not None:
        axes.plot(truth.sizes, truth.counts, "_", color=TRUTH, markersize=7, label="true (made data)")
    axes.plot(estimate.sizes, estimate.counts, "o", color=INK, markersize=3, label="released")
    _plain_symlog(axes.set_xscale, axes.xaxis)
    _plain_symlog(axes.set_yscale, axes.yaxis)
    axes.set(xlabel="group size (people)", ylabel="groups", title="Groups of each size")
    axes.legend(frameon=False, fontsize=8)


def _draw_residual(axes: Axes, measurement: Measurement, estimate: CountOfCounts, max_size: int) -> None:
    at, difference = residuals(measurement, estimate, max_size)
    kept = thin(at.size)
    deviation = float(measurement.variance) ** 0.5
    axes.axhspan(-deviation, deviation, color=GRID, alpha=0.6, linewidth=0)
    axes.plot(at[kept], difference[kept], ".", color=NOISE, markersize=3, alpha=0.6)
    axes.axhline(0.0, color=INK, linewidth=1)
    _plain_symlog(axes.set_xscale, axes.xaxis)
    what = {
        "naive": "group size (groups of that size)",
        "cumulative": "group size (groups up to that size)",
        "rank": "rank of the group (its size)",
    }[measurement.query]
    axes.set_xlim(left=-0.2)
    axes.set(xlabel=what, title="Noisy minus released")


def _plain_symlog(set_scale: Callable[..., None], axis: Axis) -> None:
    """Make an axis logarithmic outside -1..1, labelled 1, 10, 100: it must show zero and negative counts."""
    set_scale("symlog", linthresh=1)
    axis.set_major_formatter(_tick)


def _tick(value: float, _: float) -> str:
    """Return a label that fits the fixed margins: 7 characters at most, such as 100,000, below 10^11."""
    return f"{value / 1e6:,.0f}M" if abs(value) >= 1e6 else f"{value:,.0f}"


def _draw_errors(axes: Axes, errors: Mapping[str, Sequence[float]]) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    for k, (name, values) in enumerate(errors.items()):
        style = "o-" if k == 0 else "s--"
        # A logarithmic axis has no zero: an exact answer is drawn at its foot.
        shown = np.maximum(values, 0.5)
        axes.plot(range(len(values)), shown, style, color=_COLOURS[k % len(_COLOURS)], label=name, markersize=4)
    axes.set(yscale="log", xlabel="level (0 is the root)", ylabel="people, mean over regions")
    axes.set_xticks(range(max((len(values) for values in errors.values()), default=1)))
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(_tick)
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.legend(frameon=False)


def _picture(draw: Callable[[Sequence[Axes]], None], *, panels: int, height: float) -> str:
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
    figure.savefig(buffer, format="svg", metadata=_NO_METADATA)
    drawing = buffer.getvalue()
    # The XML prologue names an external document type: the picture needs none.
    drawing = drawing[drawing.index(b"<svg") :]
    return "data:image/svg+xml;base64," + base64.b64encode(drawing).decode("ascii")
