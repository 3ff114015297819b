"""The certificate of joint estimation: prices of all cells, and the gap they prove, region by region.

Prices s (regions, cells) put a linear bound under every cell's loss. What is left to minimise is linear in the
leaves' rows: a leaf pays the sum t of the prices on its path to the root, and the cheapest nondecreasing row within
[0, G] jumps from 0 to G at the cell where the suffix sums T_k = t_k + t_{k+1} + ... (T = 0 past the end) are
least. So any prices give a bound, and the order needs no multipliers of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@compiled
def add_upward(first_child: Ints, table: Any) -> None:
    """Replace the rows of inner regions by the sums of their children's, from the leaves up, in place."""
    for v in range(table.shape[0] - 1, -1, -1):
        begin, end = first_child[v], first_child[v + 1]
        for c in range(begin, end):
            for i in range(table.shape[1]):
                table[v, i] = table[c, i] + (table[v, i] if c > begin else 0)


@compiled
def path_sums(parent: Ints, regions: Ints, prices: Floats) -> Floats:
    """Return, for some regions, the sums of prices over those strictly above; O(regions x cells x depth)."""
    total = np.zeros((regions.size, prices.shape[1]))
    for k in range(regions.size):
        up = parent[regions[k]]
        while up >= 0:
            for i in range(prices.shape[1]):
                total[k, i] += prices[up, i]
            up = parent[up]
    return total


@compiled
def order_gap(x: Floats, t: Floats, top: float) -> float:
    """Return t x minus the least t z over nondecreasing rows z within [0, top], as a sum of nonnegative terms.

    x is such a row: its increments, the last one up to ``top``, weigh the suffix sums' distances to the least one.
    """
    suffix = least = 0.0
    for i in range(x.size - 1, -1, -1):
        suffix += t[i]
        least = min(least, suffix)
    suffix = 0.0
    total = -least * (top - x[-1]) if x.size else -least * top
    for i in range(x.size - 1, -1, -1):
        suffix += t[i]
        step = x[i] - x[i - 1] if i > 0 else x[i]
        total += (suffix - least) * max(step, 0.0)
    return total


@compiled
def leaves_gap(x: Floats, t: Floats, top: Floats) -> float:
    """Return the sum of ``order_gap`` over rows x and path sums t (leaves, cells), top (leaves,)."""
    total = 0.0
    for v in range(x.shape[0]):
        total += order_gap(x[v], t[v], top[v])
    return total
