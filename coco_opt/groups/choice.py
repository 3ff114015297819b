"""Choosing by data between ranks and cumulative counts (Kuo et al. 2018, section 6.2): one noisy number a level.

The error of isotonic regression is about the square root of the length of each run of equal values, because the noise
of a run is averaged (Hay et al. 2010, theorem 2, in squares and up to logarithms). A region's cumulative counts have
one run for each size that some group has, as long as the gap to the next such size. Its ranks also have one run for
each such size, as long as the number of groups that have it. So

    lead = sum of sqrt(lengths of the runs of Hc) - sum of sqrt(lengths of the runs of Hg),

added up over the regions of a level, is positive where ranks promise the smaller error. Both sums are in the same unit,
that of the noise. The publication proposes to run every candidate and to compare their noisy errors (Chaudhuri et al.
2011), which shares the budget among all of them. This module measures one number a level and leaves the rest of the
budget to the chosen query.

Sensitivity: an entity that comes or goes moves one group by one size, j to j + 1. In Hg the runs of j and j + 1 lose
and gain one group; the sum changes by -1 to 1, because each root changes by at most one. In Hc one cell, j, moves from
the run that begins there to the run before it, or becomes a run of its own; this sum also changes by -1 to 1. Where a
run of Hc begins or ends, one of Hg does too, and both sums change in the same direction. Their difference therefore
changes by at most 1 (brute force in the tests). Roots are rounded down to integer multiples of 1 / 256, which adds at
most ``_ROUNDED`` of them. Under "replace" two groups move. The numbers of groups are public here: ranks cannot be
measured where they are private.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.groups.queries import Query
from coco_opt.histograms import CountOfCounts
from coco_opt.privacy import Cost, LevelQuery, Measurement, Neighbours, Sensitivity

Int64 = NDArray[np.int64]
CHOICE = "lead of ranks"
"""The query about the root: a number for each level, root first."""

UNIT = 256
"""One unit of an answer is 1 / UNIT of the expected error that noise of scale 1 leaves in a single cell."""

_WORDS = "1/256 of the error that cumulative counts leave beyond ranks where noise has scale 1, for each level"
_ROUNDED = 4  # of the roots before and after a move at most four of one sign change, each rounded down by less than 1


def choice_query(levels: int, neighbours: Neighbours, cost: Cost) -> LevelQuery:
    """Return the query, about the root, for the lead of ranks on each of ``levels`` levels."""
    each = (UNIT + _ROUNDED) * (2 if neighbours == "replace" else 1)
    return LevelQuery(0, CHOICE, _WORDS, levels, Sensitivity(levels * each, levels * each**2), cost)


def lead_of_ranks(histogram: CountOfCounts, max_size: int) -> int:
    """Return one region's lead in integer units, with sizes clamped to ``max_size``; as private as its histogram.

    O(sizes that groups have).
    """
    clamped = histogram.clamp(max_size)
    begins = np.union1d([0], clamped.sizes[clamped.sizes < max_size])  # of runs of Hc[0..K-1]
    gaps = np.diff(np.append(begins, max_size))
    return int(_roots(gaps).sum() - _roots(clamped.counts).sum())


def noisy_leads(measurement: Measurement) -> tuple[float, ...]:
    """Return the noisy lead of ranks on each level, root first, in cells' errors; ProblemError if not measured.

    They are as public as any release of the measurement.
    """
    for answers in measurement.answers:
        if answers.query.name == CHOICE:
            return tuple((answers.values / UNIT).tolist())
    raise ProblemError("this measurement does not contain the lead of ranks, which chooses the query")


def chosen_queries(measurement: Measurement) -> tuple[Query, ...]:
    """Return the query that promises the smaller error on each level, root first."""
    return tuple("ranks" if lead > 0 else "cumulative" for lead in noisy_leads(measurement))


def _roots(numbers: Int64) -> Int64:
    """Return the square roots of numbers up to 2^40 in integer units, rounded down without floating-point errors."""
    squares = np.asarray(numbers, np.int64) * UNIT**2
    roots = np.sqrt(squares).astype(np.int64)
    roots -= roots * roots > squares
    roots += (roots + 1) * (roots + 1) <= squares
    return roots
