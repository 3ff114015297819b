"""Intervals of released counts: every region's groups of a size, and summaries of its sizes."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from coco_opt.array_types import Floats, Ints

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
    Inside buckets intervals are wider (``posterior.in_buckets``).
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
