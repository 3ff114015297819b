"""Euclidean projection on a scaled simplex by pivoting, without a sort, and its certificate.

    minimise  sum_i (x_i - y_i)^2   subject to   x >= 0,  sum_i x_i = total

The solution is x_i = max(y_i - nu/2, 0), where nu is the multiplier of the sum.

1. Subtract the largest entry, and drop what a bound on the threshold nu/2 excludes (``_candidates``).
2. Draw a pivot among the candidates, and sum the excess over it: this tells on which side the threshold lies.
3. Keep the candidates on that side; those above it count as positive for good. Repeat until none is left.
4. Polish the threshold by Newton steps on a compensated sum.

Invariant: entries above the threshold are never dropped without being counted. Cost: O(n) expected.
Source: Duchi, Shalev-Shwartz, Singer and Chandra 2008, figure 2; the compensated sum is Kahan's 1965.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]


@compiled
def _candidates(y: Any, total: float, out: Floats) -> int:
    """Keep the offsets (y less its maximum) that can be positive: the threshold is at least their bound."""
    data_sum = 0.0
    for value in y:
        data_sum += value
    # The slack keeps what rounding of the sum could wrongly leave out.
    mean_bound = (data_sum - total) / y.size
    bound = max(-total, mean_bound - 1e-12 * abs(mean_bound))
    count = 0
    # Every entry is written; the count moves on only past those that are kept.
    for value in y:
        out[count] = value
        count += value > bound
    if count == 0:
        count = 1
        out[0] = 0.0
    return count


@compiled
def _filter(values: Floats, size: int, pivot: float, above: bool) -> int:
    """Keep in place what lies strictly above, or strictly below, the pivot."""
    count = 0
    for i in range(size):
        value = values[i]
        values[count] = value  # written in any case: on unsorted data a branch would cost more
        count += value > pivot if above else value < pivot
    return count


@compiled
def _threshold(values: Floats, size: int, total: float) -> float:
    """Return tau with sum_i max(values_i - tau, 0) = total up to rounding; destroys ``values``."""
    active_sum, active, state = 0.0, 0, np.uint64(88172645463325252)
    # ``active`` entries are known to be positive; values[:size] are undecided.
    while size > 0:
        # A fixed pseudo-random pivot: expected linear time on any input, and the same result every time.
        state = state ^ (state << np.uint64(13))
        state = state ^ (state >> np.uint64(7))
        state = state ^ (state << np.uint64(17))
        pivot = values[np.int64(state >> np.uint64(33)) % size]
        part, count = 0.0, 0
        # The excess over the pivot, and how many entries are at least the pivot.
        for i in range(size):
            part += max(values[i] - pivot, 0.0)
            count += values[i] >= pivot
        below_total = part + (active_sum - active * pivot) < total
        if below_total:
            active_sum += part + count * pivot
            active += count
        size = _filter(values, size, pivot, not below_total)
    return (active_sum - total) / active


@compiled
def _polish(y: Any, tau: float, total: float) -> float:
    """Take Newton steps on sum_i max(y_i - tau, 0) = total with a compensated sum; they end exactly."""
    # A convex piecewise-linear function: Newton's method ends exactly when the set of positive entries stays the same.
    for _ in range(8):
        excess, lost, active = -total, 0.0, 0
        for value in y:
            if value > tau:
                term = (value - tau) - lost
                new = excess + term
                lost = (new - excess) - term
                excess = new
                active += 1
        step = excess / active if active > 0 else 0.0
        if tau + step == tau:
            break
        tau += step
    return tau


def project(y: NDArray[Any], total: float) -> tuple[Floats, float]:
    """Project y (n values) on {x >= 0, sum x = total}; return (x as n float64, the sum's multiplier nu).

    x_i = max(y_i - nu/2, 0). Raises ProblemError for a negative or infinite total, or a positive one with no
    entry to hold it. Expected O(n). Source: the pivot of Duchi et al. 2008 (figure 2), with Newton polishing.
    """
    if not 0.0 <= total < np.inf:
        raise ProblemError("simplex projection needs a total that is finite and not negative")
    data = np.ascontiguousarray(y, np.float64)
    if data.size == 0:
        if total > 0:
            raise ProblemError("simplex projection of no entries can only have the total 0")
        return np.zeros(0), 0.0
    largest = float(data.max())
    if not np.isfinite(largest) or not bool(np.isfinite(data).all()):
        raise ProblemError("simplex projection needs finite values")
    if total == 0.0:
        return np.zeros(data.size), 2.0 * largest
    # Counted from the largest entry, the threshold keeps its digits even where entries dwarf the total.
    offsets = data - largest
    buffer = np.empty(data.size)
    size = _candidates(offsets, float(total), buffer)
    tau = _polish(offsets, _threshold(buffer, size, float(total)), float(total))
    return np.maximum(offsets - tau, 0.0), 2.0 * (largest + tau)


def multiplier(x: Floats, y: NDArray[Any]) -> float:
    """Rebuild the sum's multiplier nu from a fit alone.

    Every positive x_i says nu = 2 (y_i - x_i); the mean is weighted by x, so entries that a backend leaves
    slightly above zero hardly count. A zero x takes the least valid nu, 2 max(y). O(n).
    """
    if not x.size:
        return 0.0
    positive = np.maximum(x, 0.0)
    mass = float(positive.sum())
    if mass == 0.0:
        return 2.0 * float(np.max(y))
    return 2.0 * float(np.dot(positive / mass, y - x))


@compiled
def _gap(x: Floats, y: Any, nu: float) -> float:
    total = 0.0
    # A square and a product of nonnegative numbers.
    for i in range(x.size):
        best = max(y[i] - 0.5 * nu, 0.0)
        miss = x[i] - best
        total += miss * miss + max(nu - 2.0 * y[i], 0.0) * x[i]
    return total


def gap(x: Floats, y: NDArray[Any], nu: float) -> float:
    """Return a certified bound on objective(x) - optimum for a feasible x and any multiplier nu.

    With z_i = max(y_i - nu/2, 0) and mu_i = max(nu - 2 y_i, 0) the duality gap is
    sum_i ((x_i - z_i)^2 + mu_i x_i) + nu (total - sum_i x_i); the last term is zero for a feasible x and is
    left to the caller's violation, so no term is negative. O(n).
    """
    if x.size == 0:
        return 0.0
    return float(_gap(np.ascontiguousarray(x, np.float64), np.ascontiguousarray(y, np.float64), float(nu)))
