"""Intervals of sizes that no answers separate: widened to every count that the released buckets permit.

Inside a bucket the posterior knows the counts by its smooth prior alone. Where sizes fall off steeply, the prior can be
confidently wrong. There the intervals also hold the counts of every table with

- the released sum of cumulative counts in each bucket, and the released cumulative counts next to it;
- counts between the mean counts of a size in this bucket, the one before and the one after.

Where neighbouring buckets have about the same counts this changes little, and nothing where sizes have less than one
group. Only released counts are read. The construction is our own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimating.intervals import Intervals
from coco_opt.groups.estimating.posterior.observations import Ranks, Survey
from coco_opt.histograms import CountOfCounts

_SLACK = 1e-6  # of bounds, before they are rounded down to integers: half a group becomes none


def finest_buckets(survey: Survey) -> Buckets:
    """Return the buckets of cells 0 .. K - 1 that begin wherever a bucket of any answers begins; ranks separate all."""
    queries = {id(answers.query): answers.query for answers in survey.answers}.values()
    begins = [np.arange(query.floor, survey.max_size) if isinstance(query, Ranks) else query.begin for query in queries]
    begin = np.unique(np.concatenate([np.zeros(1, np.int64), *begins]))
    return Buckets.from_starts(begin[begin < survey.max_size], survey.max_size)


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
