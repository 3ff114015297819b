"""The report's sections of a release of ranges: the histogram with its standard errors, some ranges, quantiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from coco_opt.array_types import Floats, Ints
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
        "Entities, estimated from noisy counts alone; fractions where the configuration wants them. Any range of "
        "cells is answered by read_ranges_release(folder) with its standard error.",
    ),
    (
        "Standard error",
        "That of the unbiased estimate: two times out of three the truth lies within one of it. Making counts "
        "nonnegative moves sparse cells up and lowers most errors, neither of which standard errors show.",
    ),
)


_INTERVAL = (
    "Interval",
    "Holds the true count with the stated probability, under a model that is learned from the noisy counts; each "
    "interval on its own, not many at the same time.",
)


@dataclass(frozen=True, eq=False, slots=True)
class _Answers:
    """What the page shows of ranges: estimates and ends, which are ``words``: standard errors, or intervals."""

    histogram: UniversalHistogram
    coverage: float

    @property
    def band(self) -> str:
        """Return what lies between the ends."""
        return f"{100 * self.coverage:g} % interval" if self.coverage else "one standard error"

    @property
    def words(self) -> str:
        """Return what the ends are, in a sentence."""
        return f"the {self.band}" if self.coverage else "one standard error on either side"

    def __call__(self, begin: Ints, end: Ints) -> tuple[Floats, Floats, Floats]:
        """Return estimates, lower and upper ends of ranges begin:end."""
        answers = self.histogram.ranges(begin, end)
        if not self.coverage:
            error = answers.standard_error
            return answers.estimate, answers.estimate - error, answers.estimate + error
        spans = self.histogram.intervals(begin, end, self.coverage)
        return answers.estimate, spans.lower.astype(np.float64), spans.upper.astype(np.float64)


def sections(shown: Shown) -> Sequence[str]:
    """Return the sections as HTML."""
    histogram: UniversalHistogram = shown.result.histogram
    answers = _Answers(histogram, shown.result.coverage)
    notes = (*_NOTES, *((_INTERVAL,) if answers.coverage else ()))
    return (
        _method(histogram),
        _figure(shown, answers),
        _ranges(answers),
        _quantiles(histogram),
        _explorer(answers),
        reading_section((*notes, unit_note(shown.measurement.cost, "entity"), guarantee_note(shown.measurement))),
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
    return f"<h2>Domain and method</h2>\n<p>{escape(text + _chains(histogram))}</p>"


def _chains(histogram: UniversalHistogram) -> str:
    """Return whether the posterior's chains agree, "" for other estimators."""
    if histogram.posterior is None:
        return ""
    sampled = histogram.posterior.sampled
    agree = "have converged" if sampled.converged else "have NOT converged, so intervals are less certain"
    return (
        f" {len(sampled.cells):,} draws of all counts; the chains {agree} (worst R-hat {sampled.r_hat:.2f}, least "
        f"effective sample size {sampled.effective:,.0f})."
    )


def _figure(shown: Shown, answers: _Answers) -> str:
    histogram = answers.histogram
    cuts = np.unique(np.linspace(0, histogram.domain.cells, _DRAWN + 1).astype(np.int64))
    truth = None if shown.truth is None else np.add.reduceat(shown.truth.private.cells, cuts[:-1])
    noisy = _noisy(shown, cuts)

    bars = "cells" if cuts.size > histogram.domain.cells else f"{cuts.size - 1:,} ranges of about the same size"
    picture = _drawn(answers, cuts, noisy, truth)
    return f"<h2>Histogram</h2>\n<p>Entities in {bars}, with {answers.words}.</p>\n{picture}"


def _noisy(shown: Shown, cuts: Ints) -> Ints | None:
    """Return the noisy counts of the cells, None where a bar holds several."""
    counts = IntervalCounts.of(shown.measurement)
    return counts.values[counts.domain.first_leaf :] if cuts.size > counts.domain.cells else None


def _drawn(
    answers: _Answers,
    cuts: Ints,
    noisy: Ints | None,
    truth: Ints | None,
) -> str:
    estimate, low, high = answers(cuts[:-1], cuts[1:])
    edges = answers.histogram.domain.edges[cuts]
    middles = (edges[:-1] + edges[1:] - 1) / 2
    layers: list[Layer] = [Band(edges, low, high, answers.band)]
    if noisy is not None:
        layers.append(Dots("noisy", middles, noisy, "noisy"))
    if truth is not None:
        layers.append(Dots("true", middles, truth, "true (simulated data)"))
    layers.append(Steps("released", edges, estimate, "released"))
    x = Axis("value", float(edges[0]), float(edges[-1]), "linear")
    y = linear("entities", *(layer.heights for layer in layers))
    return panel("", x, y, layers, "Estimated histogram; the explorer below has the figures")


def _ranges(answers: _Answers) -> str:
    domain = answers.histogram.domain
    cuts = np.unique(np.linspace(0, domain.cells, _PARTS + 1).astype(np.int64))
    begin, end = np.append(0, cuts[:-1]), np.append(domain.cells, cuts[1:])
    estimate, low, high = answers(begin, end)
    errors = answers.histogram.ranges(begin, end).standard_error
    rows = [
        (
            _values(domain.edges[i], domain.edges[j] - 1),
            f"{estimate[row]:,.1f}",
            f"{errors[row]:,.1f}",
            *((f"{low[row]:,.0f} to {high[row]:,.0f}",) if answers.coverage else ()),
        )
        for row, (i, j) in enumerate(zip(begin, end, strict=True))
    ]
    header = ("values", "estimate", "standard error", *((answers.band,) if answers.coverage else ()))
    return f"<h2>Some ranges</h2>\n{table(header, rows)}"


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


def _explorer(answers: _Answers) -> str:
    """Return nested ranges to explore, each with its subranges, down to single cells or the most that a page holds."""
    histogram = answers.histogram
    edges, (begin, end, parent) = histogram.domain.edges, _nested(histogram.domain.cells)
    all_estimates, low, high = answers(begin, end)
    names = [_values(*ends) for ends in zip(edges[begin].tolist(), (edges[end] - 1).tolist(), strict=True)]
    tree = Hierarchy(parent, tuple(names))
    narrowest = np.array(tree.leaves)  # their only bar is their own
    region = np.concatenate([parent[1:], narrowest])
    bars = np.concatenate([np.arange(1, tree.regions), narrowest])
    estimate = all_estimates[bars]
    explored = Explored(
        tree,
        ("all values", *("range" for _ in range(1, tree.levels))),
        (),
        np.maximum(all_estimates, 0).round().astype(np.int64),
        region,
        edges[begin[bars]],
        estimate.round(1),
        {"weight": "entities", "key": "values from", "value": "entities", "rows": "parts", "places": "ranges"},
        lower=low[bars].round(1),
        upper=high[bars].round(1),
        from_zero=False,
    )
    note = f"Lines are {answers.words}. Ranges are divided evenly here, not as in the release's tree."
    return explorer_section(explored, note, "Every range")


def _nested(cells: int) -> tuple[Ints, Ints, Ints]:
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
