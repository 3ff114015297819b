"""The report's sections of a release of ranges: the histogram with its standard errors, some ranges, quantiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from statistics import NormalDist

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.histograms import Hierarchy
from coco_opt.ranges.estimating.universal import UniversalHistogram
from coco_opt.ranges.interval_counts import IntervalCounts
from coco_opt.ranges.kind.forecast import fan_out_name, shares_name, words_of
from coco_opt.releases.kind import Shown
from coco_opt.releases.manifest import Words, date_of, open_ends, protection, unit_words
from coco_opt.report.chart import Axis, Band, Dots, Layer, Steps, linear, panel
from coco_opt.report.explorer import Explored, explorer_section
from coco_opt.report.front import TRIAL, Figure, between, front_section, precision, small_figures
from coco_opt.report.html import counted, reading_section

_DRAWN = 300  # bars, all of as many cells as it takes: wider ones would stand out
_BARS = 40  # of a range; each is a range to explore in turn
_MOST_RANGES = 40_000
_LIKELY = 0.9
"""The coverage of intervals by standard errors."""
_Z = NormalDist().inv_cdf(0.5 + _LIKELY / 2)

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
    """What the page shows of ranges: estimates and ends: standard errors, or intervals."""

    histogram: UniversalHistogram
    coverage: float
    unbiased: UniversalHistogram | None  # whose standard errors are stated; None where the release has intervals

    @property
    def band(self) -> str:
        """Return what lies between the ends."""
        return f"{100 * self.coverage:g} % interval" if self.coverage else "one standard error"

    def __call__(self, begin: Ints, end: Ints) -> tuple[Floats, Floats, Floats]:
        """Return estimates, lower and upper ends of ranges begin:end."""
        answers = self.histogram.ranges(begin, end)
        if not self.coverage:
            error = answers.standard_error
            return answers.estimate, answers.estimate - error, answers.estimate + error
        spans = self.histogram.intervals(begin, end, self.coverage)
        return answers.estimate, spans.lower.astype(np.float64), spans.upper.astype(np.float64)

    def likely(self, begin: Ints, end: Ints) -> tuple[Floats, Floats]:
        """Return the ends of intervals of ranges: the release's own, else those of ``_LIKELY`` by standard errors.

        Those lie about the unbiased estimate and are extended to the released one, which sums of counts made
        nonnegative exceed. All are integers; no interval of a count from 0 on begins below 0, where no true count lies.
        """
        middle, low, high = self(begin, end)
        if self.unbiased is not None:
            unbiased, reach = self.unbiased.ranges(begin, end).estimate, _Z * (high - middle)
            low, high = np.minimum(middle, unbiased - reach), np.maximum(middle, unbiased + reach)
        return np.maximum(np.floor(low), np.minimum(middle, 0.0)), np.ceil(high)


def sections(shown: Shown) -> Sequence[str]:
    """Return the sections as HTML."""
    histogram: UniversalHistogram = shown.result.histogram
    coverage, words = shown.result.coverage, unit_words(shown.manifest)
    estimator = "noisy" if histogram.estimator == "noisy" else "consistent"
    unbiased = None if coverage else UniversalHistogram.fit(shown.measurement, estimator)
    answers = _Answers(histogram, coverage, unbiased)
    notes = (*_NOTES, *((_INTERVAL,) if answers.coverage else ()))
    edges, cells, ends = histogram.domain.edges, np.arange(histogram.domain.cells), open_ends(shown.manifest)
    values = _values(edges[0], edges[-1] - 1)
    what = ", ".join(filter(None, (f"{words.entities} by {words.value} ({values})", date_of(shown.manifest))))
    low, high = answers.likely(cells, cells + 1)
    half = float(np.median(high - low)) / 2
    sure = (
        TRIAL if shown.measurement.status == "NOT PRIVATE" else protection(shown.manifest),
        precision(answers.coverage or _LIKELY),
        small_figures(half, f"the {words.entities} {'at any one value' if _single(edges) else 'in any one class'}"),
        "Any range can be added up from the table; for its size, the sum of many parts is surer than each of them.",
    )
    return (
        front_section(what, _figures(answers, words, ends), _explorer(answers, words, ends), sure),
        _method(histogram),
        _figure(shown, answers, words, ends),
        reading_section(notes),
    )


def _figures(answers: _Answers, words: Words, ends: str) -> list[Figure]:
    """Return the main figures: all entities, the median and the middle half, as the cells that hold them."""
    histogram = answers.histogram
    edges, root = histogram.domain.edges, (np.array([0]), np.array([histogram.domain.cells]))
    low, high = answers.likely(*root)
    first, middle, last = histogram.quantile((0.25, 0.5, 0.75))
    median, half = _name(edges, middle, middle + 1, ends), _name(edges, first, last + 1, ends)
    if _single(edges):
        of_median = Figure(median, f"{words.value}, the median", f"half of all {words.entities} are at most that")
        of_half = Figure(half, f"{words.value}, the middle half", "a quarter lie below, a quarter above")
    else:  # nothing tells where in a cell of several values they lie
        sure = f"at most half of all {words.entities} lie below, and at most half above"
        of_median = Figure(median, f"{words.value}, where the median lies", sure)
        sure = "at most a quarter lie below, and at most a quarter above"
        of_half = Figure(half, f"{words.value}, where the middle half lies", sure)
    total = Figure(f"{answers(*root)[0][0]:,.0f}", f"{words.entities} in all", between(max(0.0, low[0]), high[0]))
    return [total, of_median, of_half]


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
    if histogram.posterior is not None:
        sampled = histogram.posterior.sampled
        agree = "have converged" if sampled.converged else "have NOT converged, so intervals are less certain"
        text += (
            f" {len(sampled.cells):,} draws of all counts; the chains {agree} (worst R-hat {sampled.r_hat:.2f}, least "
            f"effective sample size {sampled.effective:,.0f})."
        )
    return f"<h2>Domain and method</h2>\n<p>{escape(text)}</p>"


def _figure(shown: Shown, answers: _Answers, words: Words, ends: str) -> str:
    """Return the histogram as a picture, of ranges where there are many cells."""
    domain = answers.histogram.domain
    cuts = np.append(np.arange(0, domain.cells, math.ceil(domain.cells / _DRAWN)), domain.cells)
    of_cells = cuts.size > domain.cells
    estimate, low, high = answers(cuts[:-1], cuts[1:])
    edges = domain.edges[cuts]
    middles = (edges[:-1] + edges[1:] - 1) / 2
    layers: list[Layer] = [Band(edges, low, high, answers.band)]
    if of_cells:
        layers.append(Dots("noisy", middles, IntervalCounts.of(shown.measurement).values[domain.first_leaf :], "noisy"))
    if shown.truth is not None:
        truth = np.add.reduceat(shown.truth.private.cells, cuts[:-1])
        layers.append(Dots("true", middles, truth, "true (simulated data)"))
    layers.append(Steps("released", edges, estimate, "released"))
    x = Axis(words.value, float(edges[0]), float(edges[-1]), "linear")
    y = linear(words.entities, *(layer.heights for layer in layers))
    picture = panel("", x, y, layers, "Estimated histogram; the explorer above has the figures")
    bars = "cells" if of_cells else f"ranges of {cuts[1]:,} cells"
    return f"<h2>Histogram</h2>\n<p>The {escape(words.entities)} in {bars}, with {answers.band}. {ends}</p>\n{picture}"


def _single(edges: Ints) -> bool:
    """Return whether each cell is one value."""
    return bool((np.diff(edges) == 1).all())


def _name(edges: Ints, begin: int, end: int, ends: str) -> str:
    """Return the values of the cells begin:end in words; where there are ``ends``, outer cells hold those beyond."""
    low, high = int(edges[begin]), int(edges[end]) - 1
    if ends and begin == 0 and end < edges.size - 1:
        return f"{high:,} or less"
    return f"{low:,} or more" if ends and begin > 0 and end == edges.size - 1 else _values(low, high)


def _values(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _explorer(answers: _Answers, words: Words, ends: str) -> str:
    """Return nested ranges to explore, each with its subranges, down to single cells or the most that a page holds."""
    histogram = answers.histogram
    edges, (begin, end, parent) = histogram.domain.edges, _nested(histogram.domain.cells)
    all_estimates, _, _ = answers(begin, end)
    low, high = answers.likely(begin, end)
    names = [_name(edges, *within, ends) for within in zip(begin.tolist(), end.tolist(), strict=True)]
    tree = Hierarchy(parent, tuple(names))
    title = f"{words.entities} by {words.value}"
    narrowest = np.array(tree.leaves)  # their only bar is their own
    region = np.concatenate([parent[1:], narrowest])
    bars = np.concatenate([np.arange(1, tree.regions), narrowest])
    estimate = all_estimates[bars]
    explored = Explored(
        tree,
        ("whole range", *("range" for _ in range(1, tree.levels))),
        (),
        np.maximum(all_estimates, 0).round().astype(np.int64),
        region,
        edges[begin[bars]],
        estimate.round(1),
        {**dict.fromkeys(("weight", "value"), words.entities), "key": words.value, "places": "ranges", "title": title},
        lower=low[bars],
        upper=high[bars],
        from_zero=False,
    )
    return explorer_section(explored, ends)


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
