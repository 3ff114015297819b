"""Intervals of released counts: every region's groups of a size, and summaries of its sizes.

Those of sizes that no answers separate are widened to every count that the released buckets permit. Inside a bucket the
posterior knows the counts by its smooth prior alone. Where sizes fall off steeply, the prior can be confidently wrong.
There the intervals also hold the counts of every table with

- the released sum of cumulative counts in each bucket, and the released cumulative counts next to it;
- counts between the mean counts of a size in this bucket, the one before and the one after.

Where neighbouring buckets have about the same counts this changes little, and nothing where sizes have less than one
group. Only released counts are read. The construction is our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.groups.buckets import Buckets
from coco_opt.histograms import CountOfCounts

_SLACK = 1e-6  # of bounds, before they are rounded down to integers: half a group becomes none

NO_INTERVALS = 'has no intervals: estimate the measurement with consistency = "posterior"'

QUANTILES = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), Fraction(9, 10))
"""The quantiles of the sizes of a region's groups that have intervals."""
SUMMARIES = (
    "mean_size",
    "share_of_size_1",
    "largest_size",
    *(f"size_quantile_{float(quantile):g}" for quantile in QUANTILES),
)


@dataclass(frozen=True, eq=False, slots=True)
class SummaryIntervals:
    """Released summaries and their intervals, float64[regions, names] each, both ends included; NaN without groups.

    ``names`` are SUMMARIES; the quantile P is the smallest size that at least the share P of the groups do not exceed.
    """

    names: tuple[str, ...]
    value: Floats
    lower: Floats
    upper: Floats


@dataclass(frozen=True, eq=False, slots=True)
class Intervals:
    """Lower and upper ends, both included: of H (groups of a size) and Hc (at most it).

    Arrays are int64[regions, K + 1], or int64[K + 1] of one region. Every interval holds its released count;
    ``summaries`` are those of regions' means, quantiles and the like, where available. ``coverage`` is a lower bound on
    the posterior probability that one interval holds the true count. It accounts for the uncertainty of a region's size
    distribution. The shape over all regions is learned from the same answers, and the coverage does not account for it.
    Inside buckets intervals are wider (``widen_in_buckets``).
    """

    coverage: float
    groups_lower: Ints
    groups_upper: Ints
    at_most_lower: Ints
    at_most_upper: Ints
    summaries: SummaryIntervals | None = None

    def of(self, region: int) -> Intervals:
        """Return the intervals of one region's counts, by its number."""
        ends = (self.groups_lower, self.groups_upper, self.at_most_lower, self.at_most_upper)
        return Intervals(self.coverage, *(end[region] for end in ends))


def widen_in_buckets(intervals: Intervals, histograms: Sequence[CountOfCounts], buckets: Buckets) -> None:
    """Widen all regions' intervals, in place, at sizes that ``buckets`` do not separate; O(regions K)."""
    if buckets.count == buckets.end[-1]:
        return
    width = buckets.end - buckets.begin
    for region, histogram in enumerate(histograms):
        below = np.append(0, np.cumsum(histogram.counts))
        at_end = below[np.searchsorted(histogram.sizes, buckets.end - 1, side="right")]
        means = np.diff(at_end, prepend=0) / width
        dense = np.flatnonzero(means >= 1.0)
        # Beyond the bucket after the last with one group a size, nothing changes.
        if dense.size:
            count = min(int(dense[-1]) + 2, buckets.count)
            _widen_region(intervals, region, histogram, buckets, means, count)


def _widen_region(
    intervals: Intervals, region: int, histogram: CountOfCounts, buckets: Buckets, means: Floats, count: int
) -> None:
    """Widen the intervals of one region in its first ``count`` buckets."""
    begin, end = buckets.begin[:count], buckets.end[:count]
    size = int(end[-1])
    row = histogram.cumulative(int(buckets.end[-1]))[: size + 1]
    least, most = _near_means(means, count)
    width = end - begin
    lowest, highest = permitted(row, begin, end, least, most)
    least, most = np.repeat(least, width), np.repeat(most, width)
    apart = np.repeat(width > 1, width)
    # A size is open where its own cumulative count or the one before it is.
    apart |= np.append(False, apart[:-1])
    lower = np.maximum(lowest - np.append(0, highest[:-1]), least)
    upper = np.minimum(highest - np.append(0, lowest[:-1]), most)
    for ends, bound, choose in (
        (intervals.groups_lower, np.floor(lower + _SLACK), np.minimum),
        (intervals.groups_upper, np.floor(upper + _SLACK), np.maximum),
        (intervals.at_most_lower, np.floor(lowest + _SLACK), np.minimum),
        (intervals.at_most_upper, np.floor(highest + _SLACK), np.maximum),
    ):
        values = ends[region, :size]
        values[apart] = choose(values[apart], bound[apart].astype(values.dtype))


def _near_means(means: Floats, count: int) -> tuple[Floats, Floats]:
    """Return the least and the largest mean of each of the first buckets, the one before and the one after."""
    near = np.stack([np.append(means[0], means[:-1]), means, np.append(means[1:], means[-1])])[:, :count]
    return near.min(axis=0), near.max(axis=0)


def permitted(row: Ints, begin: Ints, end: Ints, least: Floats, most: Floats) -> tuple[Floats, Floats]:
    """Return the least and the largest cumulative counts, float64[cells], that buckets of cells permit.

    ``row`` int64[cells + 1] are cumulative counts, nondecreasing. In each bucket their sum and those next to it stay as
    they are, and a size has ``least`` to ``most`` groups (buckets,).
    """
    width = end - begin
    before = np.repeat(np.append(0, row)[begin], width)
    after = np.repeat(row[end], width)
    total = np.repeat(np.add.reduceat(row[: end[-1]], begin), width)
    done = np.arange(int(end[-1])) - np.repeat(begin, width) + 1
    left = np.repeat(width, width) - done
    # The largest: all cells before are as low as can be, all later ones the same. The least: the other way round.
    highest = np.minimum((total - (done - 1) * before) / (left + 1), before + done * np.repeat(most, width))
    lowest = np.maximum((total - left * after) / done, before + done * np.repeat(least, width))
    return np.maximum(lowest, before), np.minimum(highest, after)
