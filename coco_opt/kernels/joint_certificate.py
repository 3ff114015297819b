"""The certificate of joint estimation: prices of all cells, and the gap they prove, region by region.

The problem is to minimise sum_v sum_i w_v u_i |x_vi - y_vi|^p over nondecreasing rows within [0, G_v] that add up to
their parents'. Prices s (regions, cells) put a linear bound under every cell's loss. What is left to minimise is linear
in the leaves' rows.

1. A leaf pays the sum t of the prices on its path to the root (``path_sum``).
2. The cheapest nondecreasing row within [0, G] jumps from 0 to G at the cell where the suffix sums
   T_k = t_k + t_{k+1} + ... (T = 0 past the end) are least (``order_gap``).
3. The gap is what the losses exceed their linear bounds by, plus what the leaves' rows pay more than the cheapest.

So any prices give a bound, and the order needs no multipliers of its own.

Invariant: every term of the gap is nonnegative. Cost: O(cells) a region, and O(cells x depth) for the sums on the
paths.
Source: Fenchel duality (Rockafellar 1970, section 31); the prices of paths are our own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Measured(NamedTuple):
    """The regions' noisy rows y [regions, n], their weights, their numbers of groups and their parents [regions].

    ``scale`` (n,) are the cells' weights: cell i of region v weighs weight_v scale_i.
    """

    parent: Ints
    y: Floats
    weight: Floats
    top: Floats
    scale: Floats


@compiled
def path_sum(parent: Ints, v: int, prices: Floats, total: Floats) -> None:
    """Write the sums of prices over the regions strictly above v into total (n,)."""
    for i in range(total.size):
        total[i] = 0.0
    up = parent[v]
    # Climb to the root.
    while up >= 0:
        row = prices[up]
        for i in range(total.size):
            total[i] += row[i]
        up = parent[up]


@compiled
def order_gap(x: Floats, t: Floats, top: float) -> float:
    """Return t x minus the least t z over nondecreasing rows z within [0, top], as a sum of nonnegative terms.

    x is such a row: its increments, the last one up to ``top``, weigh the suffix sums' distances to the least one.
    """
    suffix = least = 0.0
    # The least suffix sum, 0 of no cells included.
    for i in range(x.size - 1, -1, -1):
        suffix += t[i]
        least = min(least, suffix)
    suffix = 0.0
    total = -least * (top - x[-1]) if x.size else -least * top
    # Each increment of x weighs how far its suffix sum lies above the least one.
    for i in range(x.size - 1, -1, -1):
        suffix += t[i]
        step = x[i] - x[i - 1] if i > 0 else x[i]
        total += (suffix - least) * max(step, 0.0)
    return total


@compiled
def path_gap(x: Floats, above: Floats, s: Floats, top: float) -> float:
    """Return ``order_gap`` of a row under its own prices s and the sums of those above it, to which it adds them."""
    for i in range(s.size):
        above[i] += s[i]
    return order_gap(x, above, top)


@compiled
def absolute_gap(x: Floats, y: Floats, w: float, scale: Floats, s: Floats) -> float:
    """Return what the prices of a row leave of its loss for p = 1: the sum of w u |x - y| - s (x - y)."""
    total = 0.0
    for i in range(x.size):
        off = x[i] - y[i]
        total += w * scale[i] * abs(off) - s[i] * off
    return total


@compiled
def squares_gap(x: Floats, y: Floats, w: float, scale: Floats, s: Floats) -> float:
    """Return what the prices of a row leave of its loss for p = 2: the sum of w u (x - y - s / 2 w u)^2."""
    total, half = 0.0, 0.5 / w if w > 0.0 else 0.0
    # The square is 0 exactly where the price is the slope of the loss.
    for i in range(x.size):
        off = x[i] - y[i] - half / scale[i] * s[i]
        total += scale[i] * off * off
    return w * total


@compiled
def write_gaps(
    measured: Measured, squares: bool, regions: Ints, ends: Bools, prices: Floats, x: Floats, gaps: Floats
) -> None:
    """Write into gaps (all regions,) what prices (all regions, n) leave of some rows x, in ``squares`` or for p = 1.

    A row whose path ends there (``ends``) pays for the order of all the rows below it.
    """
    parent, y, w, top, scale = measured
    above = np.empty(y.shape[1])
    # A row's own loss, and at the end of a path the order.
    for v in regions:
        if squares:
            gaps[v] = squares_gap(x[v], y[v], w[v], scale, prices[v])
        else:
            gaps[v] = absolute_gap(x[v], y[v], w[v], scale, prices[v])
        if ends[v]:
            path_sum(parent, v, prices, above)
            gaps[v] += path_gap(x[v], above, prices[v], top[v])


@compiled
def distances(x: Floats, y: Floats, scale: Floats, squares: bool) -> Floats:
    """Return each row's sum of absolute or squared differences, weighed by the cells' ``scale``."""
    far = np.zeros(x.shape[0])
    # The loss is the same for a whole row, so that its loop stays free of branches.
    for v in range(x.shape[0]):
        if squares:
            for i in range(x.shape[1]):
                far[v] += scale[i] * (x[v, i] - y[v, i]) ** 2
        else:
            for i in range(x.shape[1]):
                far[v] += scale[i] * abs(x[v, i] - y[v, i])
    return far
