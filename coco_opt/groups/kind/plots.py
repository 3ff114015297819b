"""The figures of a release of groups: histograms and the noisy measurements they were estimated from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coco_opt.groups.noisy_measurements import RegionMeasurement
from coco_opt.groups.queries import exact_answers
from coco_opt.histograms import CountOfCounts
from coco_opt.report.plots import GRID, INK, NOISE, TRUTH, dots, picture, plain_symlog, thin

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_AXES = {
    "sizes": "group size (groups of that size)",
    "cumulative": "group size (groups up to that size)",
    "buckets": "first size of the bucket (its sum)",
    "ranks": "rank of the group (its size)",
    "split": "group size up to the split, then rank of the group",
}


def region_figure(measurement: RegionMeasurement | None, estimate: CountOfCounts, truth: CountOfCounts | None) -> str:
    """Return a region's estimated and noisy histograms, and next to them noisy minus released, as a data URI.

    ``measurement`` is None where the region's level was not measured: then the estimate is drawn alone.
    """

    def draw(axes: Sequence[Axes]) -> None:
        _draw_histogram(axes[0], measurement, estimate, truth)
        if measurement is not None:
            _draw_residual(axes[1], measurement, estimate)

    return picture(draw, panels=2 if measurement is not None else 1, height=2.6)


def residuals(measurement: RegionMeasurement, estimate: CountOfCounts, cells: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the noisy value of some measured cells, in increasing order, minus the released value."""
    if measurement.query != "ranks":
        exact = exact_answers(estimate, measurement.query, measurement.max_size, measurement.scheme)
        return (measurement.values - exact)[cells]
    sizes, stops = estimate.clamp(measurement.max_size).rank_runs()
    noisy = [
        piece[cells[slice(*np.searchsorted(cells, [start, start + piece.size]))] - start]
        for start, piece in measurement.pieces()
    ]
    return np.concatenate([np.empty(0, np.int64), *noisy]) - sizes[np.searchsorted(stops, cells, side="right")]


def _draw_histogram(
    axes: Axes, measurement: RegionMeasurement | None, estimate: CountOfCounts, truth: CountOfCounts | None
) -> None:
    if measurement is not None:
        sizes, noisy = measurement.histogram()
        shown = thin(sizes.size)
        dots(axes, sizes[shown], noisy[shown], ".", color=NOISE, markersize=3, alpha=0.5, label="noisy")
    if truth is not None:
        dots(axes, truth.sizes, truth.counts, "_", color=TRUTH, markersize=7, label="true (simulated data)")
    dots(axes, estimate.sizes, estimate.counts, "o", color=INK, markersize=3, label="released")
    plain_symlog(axes.set_xscale, axes.xaxis)
    plain_symlog(axes.set_yscale, axes.yaxis)
    axes.set(xlabel="group size (people)", ylabel="groups", title="Groups of each size")
    axes.legend(frameon=False, fontsize=8)


def _draw_residual(axes: Axes, measurement: RegionMeasurement, estimate: CountOfCounts) -> None:
    cells = thin(measurement.stored.size)
    difference = residuals(measurement, estimate, cells)
    positions = (
        cells + (measurement.query == "ranks") if measurement.buckets is None else measurement.buckets.begin[cells]
    )
    deviation = measurement.distribution.variance**0.5
    axes.axhspan(-deviation, deviation, color=GRID, alpha=0.6, linewidth=0)
    dots(axes, positions, difference, ".", color=NOISE, markersize=3, alpha=0.6)
    axes.axhline(0.0, color=INK, linewidth=1)
    plain_symlog(axes.set_xscale, axes.xaxis)
    axes.set_xlim(left=-0.2)
    axes.set(xlabel=_AXES[measurement.query], title="Noisy minus released")
