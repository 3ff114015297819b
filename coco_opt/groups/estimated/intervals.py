"""Intervals of released counts: for every region and size, how many groups there may be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Intervals:
    """Lower and upper ends, both included: of H (groups of a size) and Hc (at most it).

    Arrays are int64[regions, K + 1], or int64[K + 1] of one region. Every interval holds its released count.
    ``coverage`` is the chance that one holds the true count, under the posterior and at least: the prior is learned
    from the same answers and is no part of the promise.
    """

    coverage: float
    groups_lower: Int64
    groups_upper: Int64
    at_most_lower: Int64
    at_most_upper: Int64
