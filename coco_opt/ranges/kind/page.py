"""The report's sections of a release of ranges: the histogram with its standard errors, some ranges, quantiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.histograms import Hierarchy
from coco_opt.ranges.estimating.universal import UniversalHistogram
from coco_opt.ranges.interval_counts import IntervalCounts
from coco_opt.ranges.kind.forecast import fan_out_name, shares_name, words_of
from coco_opt.releases.kind import Shown
from coco_opt.report.chart import Axis
from coco_opt.report.explorer import Explored, explorer_section
from coco_opt.report.html import counted, guarantee_note, reading_section, table, unit_note
from coco_opt.report.plots import Band, Dots, Layer, Steps, linear, panel

_DRAWN = 300  # bars, each of as many cells as it takes
_PARTS = 4
_BARS = 40  # of a range; each is a range to explore in turn
_MOST_RANGES = 40_000
_SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)

_NOTES = (
    (
        "Estimate",
        "Entities, estimated from noisy counts alone; a fraction where the estimator does not round. Any range of "
        "cells is answered by read_ranges_release(folder) with its standard error.",
    ),
    (
        "Standard error",
        "That of the unbiased estimate: two times out of three the truth lies within one of it. Making counts "
        "nonnegative moves sparse cells up and lowers most errors, neither of which standard errors show.",
    ),
)


def sections(shown: Shown) -> Sequence[str]:
    """Return the sections as HTML."""
    histogram: UniversalHistogram = shown.result.histogram
    return (
        _method(histogram),
        _figure(shown, histogram),
        _ranges(histogram),
        _quantiles(histogram),
        _explorer(histogram),
        reading_section((*_NOTES, unit_note(shown.measurement.cost, "entity"), guarantee_note(shown.measurement))),
    )


def _method(histogram: UniversalHistogram) -> str:
    domain = histogram.domain
    tree = "the cells alone" if domain.fan_out is None else f"a tree of fan-out {fan_out_name(domain.fan_out)}"
    if domain.shares is not None:
        tree += f" whose levels have {shares_name(domain.shares)} of the budget"
    text = (
        f"Counts of {domain.cells:,} cells, values {domain.edges[0]:,} to {domain.edges[-1] - 1:,}, from {tree}, "
        f"{counted(domain.height, 'level')}. Estimator: {histogram.estimator}; standard errors are "
        f"{words_of(histogram.estimator)}."
    )
    return f"<h2>Domain and method</h2>\n<p>{escape(text)}</p>"


def _figure(shown: Shown, histogram: UniversalHistogram) -> str:
    cuts = np.unique(np.linspace(0, histogram.domain.cells, _DRAWN + 1).astype(np.int64))
    truth = None if shown.truth is None else np.add.reduceat(shown.truth.private.cells, cuts[:-1])
    noisy = _noisy(shown, cuts)

    bars = "cells" if cuts.size > histogram.domain.cells else f"{cuts.size - 1:,} ranges of about the same size"
    picture = _drawn(histogram, cuts, noisy, truth)
    return f"<h2>Histogram</h2>\n<p>Entities in {bars}, with one standard error on either side.</p>\n{picture}"


def _noisy(shown: Shown, cuts: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Return the noisy counts of the cells, None where a bar holds several."""
    counts = IntervalCounts.of(shown.measurement)
    return counts.values[counts.domain.first_leaf :] if cuts.size > counts.domain.cells else None


def _drawn(
    histogram: UniversalHistogram,
    cuts: NDArray[np.int64],
    noisy: NDArray[np.int64] | None,
    truth: NDArray[np.int64] | None,
) -> str:
    answers = histogram.ranges(cuts[:-1], cuts[1:])
    edges = histogram.domain.edges[cuts]
    middles = (edges[:-1] + edges[1:] - 1) / 2
    low, high = answers.estimate - answers.standard_error, answers.estimate + answers.standard_error
    layers: list[Layer] = [Band(edges, low, high, "one standard error")]
    if noisy is not None:
        layers.append(Dots("noisy", middles, noisy, "noisy"))
    if truth is not None:
        layers.append(Dots("true", middles, truth, "true (simulated data)"))
    layers.append(Steps("released", edges, answers.estimate, "released"))
    x = Axis("value", float(edges[0]), float(edges[-1]), "linear")
    y = linear("entities", *(layer.heights for layer in layers))
    return panel("", x, y, layers, "Estimated histogram; the explorer below has the figures")


def _ranges(histogram: UniversalHistogram) -> str:
    domain = histogram.domain
    cuts = np.unique(np.linspace(0, domain.cells, _PARTS + 1).astype(np.int64))
    begin, end = np.append(0, cuts[:-1]), np.append(domain.cells, cuts[1:])
    answers = histogram.ranges(begin, end)
    rows = [
        (_values(domain.edges[i], domain.edges[j] - 1), f"{estimate:,.1f}", f"{error:,.1f}")
        for i, j, estimate, error in zip(begin, end, answers.estimate, answers.standard_error, strict=True)
    ]
    return f"<h2>Some ranges</h2>\n{table(('values', 'estimate', 'standard error'), rows)}"


def _values(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _quantiles(histogram: UniversalHistogram) -> str:
    edges = histogram.domain.edges
    rows: list[tuple[Any, ...]] = [
        (f"{share:.0%}", _values(edges[cell], edges[cell + 1] - 1))
        for share, cell in zip(_SHARES, histogram.quantile(_SHARES), strict=True)
    ]
    text = "The first cell up to which the share of entities is reached."
    return f"<h2>Quantiles</h2>\n<p>{text}</p>\n{table(('share of entities', 'values of the cell'), rows)}"


def _explorer(histogram: UniversalHistogram) -> str:
    """Return nested ranges to explore, each with its subranges, down to single cells or the most that a page holds."""
    edges, (begin, end, parent) = histogram.domain.edges, _nested(histogram.domain.cells)
    answers = histogram.ranges(begin, end)
    names = [_values(*ends) for ends in zip(edges[begin].tolist(), (edges[end] - 1).tolist(), strict=True)]
    tree = Hierarchy(parent, tuple(names))
    narrowest = np.array(tree.leaves)  # their only bar is their own
    region = np.concatenate([parent[1:], narrowest])
    bars = np.concatenate([np.arange(1, tree.regions), narrowest])
    estimate, error = answers.estimate[bars], answers.standard_error[bars]
    explored = Explored(
        tree,
        ("all values", *("range" for _ in range(1, tree.levels))),
        (),
        np.maximum(answers.estimate, 0).round().astype(np.int64),
        region,
        edges[begin[bars]],
        estimate.round(1),
        {"weight": "entities", "key": "values from", "value": "entities", "rows": "parts", "places": "ranges"},
        lower=(estimate - error).round(1),
        upper=(estimate + error).round(1),
        from_zero=False,
    )
    note = "Lines are one standard error on either side. Ranges are divided evenly here, not as in the release's tree."
    return explorer_section(explored, note, "Every range")


def _nested(cells: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return ranges of cells within each other, begin and end behind it, and each one's parent (-1), breadth first.

    Every step has parts of one width, at most 40 in a range.
    """
    steps = max(1, math.ceil(math.log(cells) / math.log(_BARS) - 1e-9))
    parts = max(2, math.ceil(cells ** (1 / steps) - 1e-9))
    begins, parents, first = [np.zeros(1, np.int64)], [np.array([-1])], 0
    for width in (parts**step for step in reversed(range(steps))):
        begin = np.arange(0, cells, width)
        if first + begin.size > _MOST_RANGES and len(begins) > 1:
            break
        parents.append(first + begin // (width * parts))
        first += begins[-1].size
        begins.append(begin)
    ends = [np.append(begin[1:], cells) for begin in begins]
    return np.concatenate(begins), np.concatenate(ends), np.concatenate(parents)
