"""Feasibility and certificates of the tree problems: implied bounds, violations, multipliers, gaps.

The problems minimise ``sum_v f_v(x_v)`` subject to x_v = sum of the children's x and lo <= x <= hi. A vector lam (n,)
holds a multiplier for the sum of every inner node and 0 at leaves; with d_v = lam_v - lam_parent(v) (lam above the
root is 0) and x feasible::

    objective(x) - optimum <= sum_v  f_v(x_v) + d_v x_v - min over [lo_v, hi_v] of (f_v(u) + d_v u)

1. ``implied_bounds`` and ``violation`` check feasibility.
2. ``multipliers`` finds lam whose d_v lie in given ranges: upwards the interval of every lam, downwards a choice.
3. ``multipliers_l2`` and ``balanced_multipliers_l2`` do so for the ranges in which the point is optimal for each node
   alone.
4. ``gap_l2`` adds up the right-hand side.

Invariant: every term of the gap is nonnegative. Cost: each function is one or two passes over the tree, O(n).
Source: Lagrangian duality (Rockafellar 1970, section 28); rebuilding multipliers from the point is our own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@compiled
def implied_bounds(first_child: Ints, lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    """Return for every node (n,) the range of values that it and the nodes below it allow; O(n)."""
    low, high = lower.copy(), upper.copy()
    # Children before parents: a node's range is also the sum of its children's.
    for v in range(lower.size - 1, -1, -1):
        if first_child[v] < first_child[v + 1]:
            least = most = 0.0
            for c in range(first_child[v], first_child[v + 1]):
                least += low[c]
                most += high[c]
            low[v], high[v] = max(low[v], least), min(high[v], most)
    return low, high


@compiled
def violation(first_child: Ints, lower: Floats, upper: Floats, x: Any) -> float:
    """Return the largest error of a sum (beyond what rounding explains) or excess over a bound; O(n).

    Infinite where a value is no finite number.
    """
    worst = 0.0
    # Bounds first, then the sum of the children.
    for v in range(lower.size):
        value = float(x[v])
        if not np.isfinite(value):
            return np.inf
        worst = max(worst, lower[v] - value, value - upper[v])
        begin, end = first_child[v], first_child[v + 1]
        if begin < end:
            error, size = value, abs(value)
            for c in range(begin, end):
                error -= float(x[c])
                size += abs(float(x[c]))
            # A sum of k floats is exact up to rounding only: an error of that size is no violation.
            if error != 0.0 and abs(error) > 1e-15 * (1.0 + np.sqrt(end - begin)) * size:
                worst = max(worst, abs(error))
    return worst


@compiled
def multipliers(parent: Ints, first_child: Ints, d_low: Floats, d_high: Floats, target: Floats) -> Floats:
    """Return lam (n,) with d_low <= lam_v - lam_parent(v) <= d_high, near ``target``; O(n).

    Upward: the interval of every lam that the nodes below allow, or its middle where they contradict each other.
    Downward: the value nearest to the target in that interval and in reach of the parent's.
    """
    n = parent.size
    low, high = np.full(n, -np.inf), np.full(n, np.inf)
    # Upwards: a child's interval and the range of its d bound the parent's lam.
    for v in range(n - 1, -1, -1):
        if first_child[v] == first_child[v + 1]:
            low[v] = high[v] = 0.0
        elif low[v] > high[v]:
            low[v] = high[v] = 0.5 * (low[v] + high[v])
        if v > 0:
            p = parent[v]
            low[p] = max(low[p], low[v] - d_high[v])
            high[p] = min(high[p], high[v] - d_low[v])
    lam = np.zeros(n)
    # Downwards: near the target, in reach of the parent's lam, and in the own interval.
    for v in range(n):
        if first_child[v] < first_child[v + 1]:
            above = lam[parent[v]] if v > 0 else 0.0
            near = min(max(target[v], above + d_low[v]), above + d_high[v])
            lam[v] = min(max(near, low[v]), high[v])
    return lam


@compiled
def _range_l2(x: float, y: float, w: float, lower: float, upper: float) -> tuple[float, float]:
    """Return the range of lam_v - lam_parent(v) that makes x optimal for f_v = w (x - y)^2."""
    d = 2.0 * w * (y - x)
    return -np.inf if x >= upper else d, np.inf if x <= lower else d


@compiled
def multipliers_l2(
    parent: Ints, first_child: Ints, y: Floats, weights: Floats, lower: Floats, upper: Floats, x: Any
) -> Floats:
    """Return ``multipliers`` near 0 for f_v = w (x - y)^2, with two vectors of memory instead of six; O(n)."""
    n = parent.size
    low, high = np.full(n, -np.inf), np.full(n, np.inf)
    # Upwards: the interval of every lam.
    for v in range(n - 1, -1, -1):
        if first_child[v] == first_child[v + 1]:
            low[v] = high[v] = 0.0
        elif low[v] > high[v]:
            low[v] = high[v] = 0.5 * (low[v] + high[v])
        if v > 0:
            p = parent[v]
            d_low, d_high = _range_l2(x[v], y[v], weights[v], lower[v], upper[v])
            low[p] = max(low[p], low[v] - d_high)
            high[p] = min(high[p], high[v] - d_low)
    # Downwards: the choice overwrites the interval's lower end.
    for v in range(n):
        if first_child[v] < first_child[v + 1]:
            above = low[parent[v]] if v > 0 else 0.0  # of a parent: lam already
            d_low, d_high = _range_l2(x[v], y[v], weights[v], lower[v], upper[v])
            near = min(max(0.0, above + d_low), above + d_high)
            low[v] = min(max(near, low[v]), high[v])
    return low


@compiled
def balanced_multipliers_l2(
    parent: Ints, first_child: Ints, y: Floats, weights: Floats, lower: Floats, upper: Floats, x: Any
) -> Floats:
    """Return lam (n,) for f_v = w (x - y)^2 that spreads rounding errors to where they cost least; O(n).

    A slope 2 w (x - y) has an error of w times the rounding of x, and an error e of lam_v - lam_parent(v) costs
    e^2 / (4 w): where variances differ by many powers of ten, slopes of small w must be met exactly. Upward: the mean
    of the children's estimates and its precision (1 / w of a leaf), and the interval that bounds allow. Downward: the
    mean of that and the parent's estimate.
    """
    n = parent.size
    low, high = np.full(n, -np.inf), np.full(n, np.inf)
    mean, precision = np.zeros(n), np.zeros(n)
    # Upwards: intervals, and the mean and precision of what the children say.
    for v in range(n - 1, -1, -1):
        if first_child[v] == first_child[v + 1]:
            low[v] = high[v] = 0.0
        elif low[v] > high[v]:
            low[v] = high[v] = 0.5 * (low[v] + high[v])
        mean[v] = min(max(mean[v], low[v]), high[v])
        if v == 0:
            break
        p, w = parent[v], weights[v]
        d_low, d_high = _range_l2(x[v], y[v], w, lower[v], upper[v])
        free, determined = d_low == d_high, low[v] == high[v] and w > 0.0
        if free and (determined or precision[v] > 0.0):
            share = 1.0 / w if determined else precision[v] / (1.0 + precision[v] * w)
            precision[p] += share
            mean[p] += (mean[v] - d_low - mean[p]) * (share / precision[p])
        if not (free and determined):
            low[p] = max(low[p], low[v] - d_high)
            high[p] = min(high[p], high[v] - d_low)
    # Downwards: combine it with what the parent says.
    for v in range(n):
        if first_child[v] < first_child[v + 1]:
            above, w = mean[parent[v]] if v > 0 else 0.0, weights[v]
            d_low, d_high = _range_l2(x[v], y[v], w, lower[v], upper[v])
            if w > 0.0 and d_low == d_high:
                mean[v] += (above + d_low - mean[v]) / (1.0 + precision[v] * w)
            else:
                mean[v] = min(max(mean[v], above + d_low), above + d_high)
            mean[v] = min(max(mean[v], low[v]), high[v])
    return mean


@compiled
def gap_l2(
    parent: Ints,
    first_child: Ints,
    y: Floats,
    weights: Floats,
    lower: Floats,
    upper: Floats,
    x: Floats,
    lam: Floats,
) -> float:
    """Return the gap for f_v = w (x - y)^2: with u the minimiser, w (x - u)^2 and the slope at u times x - u.

    Any finite lam will do, entries at leaves are not read; infinite where a node's minimum is.
    """
    total = 0.0
    # The minimiser u of f + d u within the bounds, and what x costs more.
    for v in range(x.size):
        d = lam[v] if first_child[v] < first_child[v + 1] else 0.0
        if v > 0:
            d -= lam[parent[v]]
        if not np.isfinite(d):
            return np.inf
        w = weights[v]
        if w > 0.0:
            free = y[v] - d / (2.0 * w)
            u = min(max(free, lower[v]), upper[v])
            total += w * (x[v] - u) * (x[v] - u)
            if u != free:
                total += max(0.0, (2.0 * w * (u - y[v]) + d) * (x[v] - u))
        elif d != 0.0:
            total += max(0.0, d * (x[v] - (lower[v] if d > 0.0 else upper[v])))
    return total
