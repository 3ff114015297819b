"""Intervals of what is released: of every region's groups of a size, and of what sums its sizes up."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

NO_INTERVALS = 'has no intervals: estimate the measurement with consistency = "posterior"'

QUANTILES = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), Fraction(9, 10))
"""Of the sizes of a region's groups: those with intervals of their own."""
SUMMARIES = (
    "mean_size",
    "share_of_size_1",
    "largest_size",
    *(f"size_quantile_{float(one):g}" for one in QUANTILES),
)


@dataclass(frozen=True, eq=False, slots=True)
class SummaryIntervals:
    """Released summaries and their intervals, float64[regions, names] each, both ends included; NaN of no groups.

    ``names`` are SUMMARIES; the quantile P is the smallest size that at least the part P of the groups do not exceed.
    """

    names: tuple[str, ...]
    value: Float64
    lower: Float64
    upper: Float64


@dataclass(frozen=True, eq=False, slots=True)
class Intervals:
    """Lower and upper ends, both included: of H (groups of a size) and Hc (at most it).

    Arrays are int64[regions, K + 1], or int64[K + 1] of one region. Every interval holds its released count;
    ``summaries`` are those of regions' means, quantiles and the like, where they are known. ``coverage`` is the chance
    that one holds the true count, under the posterior and at least. What is unknown of a region's law of sizes is part
    of it; the shape over all regions is learned from the same answers, and is no part of the promise.
    """

    coverage: float
    groups_lower: Int64
    groups_upper: Int64
    at_most_lower: Int64
    at_most_upper: Int64
    summaries: SummaryIntervals | None = None

    def of(self, region: int) -> Intervals:
        """Return those of one region's counts, by its number."""
        ends = (self.groups_lower, self.groups_upper, self.at_most_lower, self.at_most_upper)
        return Intervals(self.coverage, *(end[region] for end in ends))
