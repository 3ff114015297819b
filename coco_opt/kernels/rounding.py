"""Controlled rounding with a fixed sum: largest fractional parts, and its certificate.

    minimise  sum_i |X_i - x_i|   subject to   X_i in {floor(x_i), ceil(x_i)},  sum_i X_i = total

With f_i the fractional part and b_i = X_i - floor(x_i) the objective is sum f_i + sum (1 - 2 f_i) b_i over the
fractional entries, where b is 0 or 1; integer entries stay.

1. Round everything down, and count how many entries must go up to reach the total.
2. Find the least fraction that goes up, by partition.
3. Every larger fraction goes up, and of the equal ones the first in order.

Invariant: every entry stays between its floor and its ceiling. Cost: O(n) expected.
Source: Kuo et al. 2018, sections 4.1 and 5.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def _split(x: Floats) -> tuple[Ints, Floats]:
    floors = np.floor(x)
    if not float(np.abs(floors).sum()) < 2.0**62:
        raise ProblemError("controlled rounding needs finite values whose sum stays below 2^62")
    return floors.astype(np.int64), x - floors


def _ups(floors: Ints, fractions: Floats, total: int) -> int:
    """Return how many entries go up; raises where the total is out of reach."""
    ups = int(total) - int(floors.sum())
    fractional = int(np.count_nonzero(fractions))
    if not 0 <= ups <= fractional:
        raise ProblemError(
            "controlled rounding cannot reach the total: it must lie between the sums of floors and of ceilings"
        )
    return ups


def largest_fractions(x: NDArray[np.float64], total: int) -> Ints:
    """Round x (n values) down or up so that the sum is ``total``, the largest fractions up; n int64.

    Ties go to the lowest index. Raises ProblemError for a total outside [sum of floors, sum of ceilings].
    Expected O(n) by partition. Source: Kuo et al. 2018, sections 4.1 and 5.
    """
    values = np.ascontiguousarray(x, np.float64)
    rounded, fractions = _split(values)
    ups = _ups(rounded, fractions, total)
    if ups == 0:
        return rounded
    # The least fraction that goes up; larger ones go up in any case, equal ones from the lowest index on.
    least = np.partition(fractions, fractions.size - ups)[fractions.size - ups]
    above = fractions > least
    rounded[above] += 1
    ties = np.flatnonzero(fractions == least)[: ups - int(np.count_nonzero(above))]
    rounded[ties] += 1
    return rounded


def multiplier(x: NDArray[np.float64], total: int) -> float:
    """Return an optimal multiplier nu of the sum: the entries with 1 - 2 f_i + nu < 0 go up.

    It lies midway between the costs of the last entry that goes up and the first that does not. Expected O(n).
    """
    floors, fractions = _split(np.ascontiguousarray(x, np.float64))
    ups = _ups(floors, fractions, total)
    costs = 1.0 - 2.0 * fractions[fractions > 0]
    # Nothing goes up, or everything: the price of the one border that there is.
    if ups == 0:
        return -float(costs.min()) if costs.size else 0.0
    if ups == costs.size:
        return -float(costs.max())
    ordered = np.partition(costs, (ups - 1, ups))
    return -0.5 * float(ordered[ups - 1] + ordered[ups])


def gap(x: NDArray[np.float64], rounded: Ints, nu: float) -> float:
    """Return a certified bound on objective(rounded) - optimum for a feasible rounding and any nu.

    With c_i = 1 - 2 f_i it is the sum over fractional entries of (c_i + nu) b_i - min(0, c_i + nu); no term is
    negative. O(n).
    """
    floors, fractions = _split(np.ascontiguousarray(x, np.float64))
    free = fractions > 0
    # The cost of going up, with the multiplier of the sum.
    reduced = 1.0 - 2.0 * fractions[free] + nu
    up = (rounded - floors)[free]
    return float(np.sum(reduced * up - np.minimum(reduced, 0.0)))
