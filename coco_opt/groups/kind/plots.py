"""The figures of a release of groups: histograms and the noisy measurements they were estimated from."""

from __future__ import annotations

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.groups.noisy_measurements import RegionMeasurement
from coco_opt.groups.queries import exact_answers
from coco_opt.histograms import CountOfCounts
from coco_opt.report.plots import Band, Dots, Steps, linear, panel, panels, signed, thin

_AXES = {
    "sizes": "group size (groups of that size)",
    "cumulative": "group size (groups up to that size)",
    "buckets": "first size of the bucket (its sum)",
    "ranks": "rank of the group (its size)",
    "split": "group size up to the split, then rank of the group",
}


def region_figure(
    name: str, measurement: RegionMeasurement | None, estimate: CountOfCounts, truth: CountOfCounts | None
) -> str:
    """Return a region's estimated and noisy histograms, and next to them noisy minus released, as pictures of a page.

    ``measurement`` is None where the region's level was not measured: then the estimate is drawn alone.
    """
    drawn = [_histogram(name, measurement, estimate, truth)]
    if measurement is not None:
        drawn.append(_residual(name, measurement, estimate))
    return panels(drawn)


def residuals(measurement: RegionMeasurement, estimate: CountOfCounts, cells: Ints) -> Ints:
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


def _histogram(
    name: str, measurement: RegionMeasurement | None, estimate: CountOfCounts, truth: CountOfCounts | None
) -> str:
    layers = []
    if measurement is not None:
        sizes, noisy = measurement.histogram()
        shown = thin(sizes.size)
        layers.append(Dots("noisy", sizes[shown], noisy[shown], "noisy"))
    if truth is not None:
        layers.append(Dots("true", truth.sizes, truth.counts, "true (simulated data)"))
    layers.append(Dots("released", estimate.sizes, estimate.counts, "released"))
    x = signed("group size (people)", *(layer.x for layer in layers))
    y = signed("groups", *(layer.y for layer in layers))
    return panel("Groups of each size", x, y, layers, f"Released and noisy groups by size in {name}")


def _residual(name: str, measurement: RegionMeasurement, estimate: CountOfCounts) -> str:
    cells = thin(measurement.stored.size)
    difference = residuals(measurement, estimate, cells)
    positions = (
        cells + (measurement.query == "ranks") if measurement.buckets is None else measurement.buckets.begin[cells]
    )
    deviation = measurement.distribution.variance**0.5
    x = signed(_AXES[measurement.query], positions)
    y = linear("noisy minus released", difference, [-deviation, deviation])
    layers = (
        Band([x.low, x.high], [-deviation], [deviation], "one standard deviation"),
        Dots("noisy", positions, difference),
        Steps("released", [x.low, x.high], [0.0]),
    )
    return panel("Noisy minus released", x, y, layers, f"Noisy minus released answers in {name}")
