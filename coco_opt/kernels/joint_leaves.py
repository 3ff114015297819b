"""Best rows and prices of leaves under given prices of the regions above: a tilted isotonic regression a leaf.

    minimise  sum_i a_i z_i + w_i |z_i - y_i|^p   subject to   0 <= z_0 <= ... <= z_{n-1} <= G

p = 2 is isotonic regression of y - a / 2w: pool adjacent violators. p = 1 is solved by the slope trick:

1. The cost of a prefix, as a function of the bound on its last value, is convex, piecewise linear and nonincreasing; it
   is stored as a heap of breakpoints.
2. Each cell adds its breakpoint and its tilt; breakpoints are taken away until the cost does not rise. What is left
   tells the cell's argmin.
3. Backwards each cell takes the least of its argmin and the value after it.
4. The prices s of an optimal row are subgradients of its losses for which the suffix sums of a + s are least wherever
   the row rises; they are completed cell by cell through the intervals they can lie in.

Invariant: after each cell the stored slopes are at most 0, so the prefix's cost does not rise. Cost: O(n log n) a row.
Source: Rockafellar 1970, section 5, for the cost of prefixes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled
from coco_opt.kernels.heap import pop, push
from coco_opt.kernels.joint_certificate import Measured, absolute_gap, path_gap, path_sum, squares_gap

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@compiled
def _flatten(places: Floats, weight: Floats, size: int, slope: float, top: float) -> tuple[float, float, int]:
    """Take breakpoints away until the prefix's cost no longer rises; return its least argument, slope and ``size``."""
    least = top if slope <= 0.0 else 0.0
    # The largest breakpoint takes its weight off the slope, or as much as makes the slope 0.
    while slope > 0.0 and size > 0:
        least = places[0]
        if weight[0] > slope:
            weight[0] -= slope
            slope = 0.0
        else:
            slope -= weight[0]
            pop(places, weight, size)
            size -= 1
    return (0.0, 0.0, size) if slope > 0.0 else (least, slope, size)


@compiled
def fit_absolute(y: Floats, a: Floats, w: Floats, top: float, z: Floats, places: Floats, weight: Floats) -> None:
    """Write an optimal row for p = 1 into z (n,); ``places`` and ``weight`` are scratch of the same length."""
    size = 0
    slope = 0.0  # of the prefix's cost right of its last breakpoint; never positive once that is flattened
    # |z - y| changes its slope by 2 w at y; clipping y to the bounds moves no argmin within them.
    for i in range(y.size):
        push(places, weight, size, min(max(y[i], 0.0), top), 2.0 * w[i])
        size += 1
        slope += a[i] + w[i]
        z[i], slope, size = _flatten(places, weight, size, slope, top)
    # The last value is the argmin of the full cost; each one before it is capped by the value after it.
    for i in range(y.size - 2, -1, -1):
        z[i] = min(z[i], z[i + 1])


@compiled
def prices_absolute(
    z: Floats, y: Floats, a: Floats, w: Floats, top: float, s: Floats, least: Floats, most: Floats
) -> None:
    """Write prices within w of 0 into s (n,) that prove an optimal row z; for another row, nearby ones.

    With D_k the suffix sum from k on less the least one, D_k = D_{k+1} + a_k + s_k, D >= 0, and D_k = 0 where z
    rises. ``least`` and ``most`` (n + 1,) hold the interval of each D that the cells before it allow.
    """
    n = z.size
    least[0] = 0.0
    most[0] = np.inf if n and z[0] <= 0.0 else 0.0
    # Forward: the interval of each suffix sum that the cells before it allow; {0} where the row rises.
    for k in range(n):
        low = w[k] if z[k] > y[k] else -w[k]
        high = -w[k] if z[k] < y[k] else w[k]
        rises = z[k + 1] > z[k] if k + 1 < n else z[k] < top
        limit = 0.0 if rises else np.inf
        least[k + 1] = min(max(least[k] - a[k] - high, 0.0), limit)
        most[k + 1] = min(max(most[k] - a[k] - low, 0.0), limit)
    after = least[n]
    # Backward: the value in the interval that is nearest to no change, within reach of the price's bounds.
    for k in range(n - 1, -1, -1):
        low = w[k] if z[k] > y[k] else -w[k]
        high = -w[k] if z[k] < y[k] else w[k]
        before = min(max(min(max(after + a[k], least[k]), most[k]), after + a[k] + low), after + a[k] + high)
        s[k] = min(max(before - after - a[k], -w[k]), w[k])
        after = max(after + a[k] + s[k], 0.0)


@compiled
def _tighten_squares(
    y: Floats,
    above: Floats,
    w: float,
    scale: Floats,
    top: float,
    s: Floats,
    values: Floats,
    heavy: Floats,
    counts: Ints,
) -> None:
    """Write the best prices of a leaf for p = 2, weights w scale, into s (n,); a weight of zero gives zeros."""
    if w == 0.0:
        for i in range(s.size):
            s[i] = 0.0
        return
    block = -1
    # Pool adjacent violators on y - a / 2w; differences of means, not sums, keep the digits of large values.
    for i in range(y.size):
        value, weight, count = y[i] - above[i] / (2.0 * w * scale[i]), scale[i], 1
        while block >= 0 and values[block] >= value:
            together = heavy[block] + weight
            value += (values[block] - value) * (heavy[block] / together)
            weight = together
            count += counts[block]
            block -= 1
        block += 1
        values[block], heavy[block], counts[block] = value, weight, count
    position = 0
    # The price of a cell is the slope of its loss at the fit.
    for k in range(block + 1):
        value = min(max(values[k], 0.0), top)
        for i in range(position, position + counts[k]):
            s[i] = 2.0 * w * scale[i] * (value - y[i])
        position += counts[k]


@compiled
def tighten_absolute(measured: Measured, regions: Ints, prices: Floats, x: Floats, gaps: Floats) -> None:
    """Replace the prices (all regions, n) of some regions by the best ones for p = 1 under those above.

    Writes into gaps (all regions,) the gaps of their rows x; if x has no rows, only the prices are written.
    """
    parent, y, w, top, scale = measured
    n = y.shape[1]
    above, z, places, weight, own = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    least, most = np.empty(n + 1), np.empty(n + 1)
    # Fit each row under the prices above it, then read its own prices off.
    for v in regions:
        path_sum(parent, v, prices, above)
        for i in range(n):
            own[i] = w[v] * scale[i]
        fit_absolute(y[v], above, own, top[v], z, places, weight)
        prices_absolute(z, y[v], above, own, top[v], prices[v], least, most)
        if x.shape[0] > 0:
            gaps[v] = absolute_gap(x[v], y[v], w[v], scale, prices[v]) + path_gap(x[v], above, prices[v], top[v])


@compiled
def tighten_squares(measured: Measured, regions: Ints, prices: Floats, x: Floats, gaps: Floats) -> None:
    """Do for p = 2 what ``tighten_absolute`` does for p = 1."""
    parent, y, w, top, scale = measured
    n = y.shape[1]
    above, values, heavy, counts = np.empty(n), np.empty(n), np.empty(n), np.empty(n, np.int64)
    for v in regions:
        path_sum(parent, v, prices, above)
        _tighten_squares(y[v], above, w[v], scale, top[v], prices[v], values, heavy, counts)
        if x.shape[0] > 0:
            gaps[v] = squares_gap(x[v], y[v], w[v], scale, prices[v]) + path_gap(x[v], above, prices[v], top[v])
