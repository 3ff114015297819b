"""Passes over a tree for integer tables (regions, cells) of values: sums, a real fit, rounding, bounds and prices.

Each pass visits every region once and treats all cells together: O(regions x cells) in time and memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.problems.tree.data import Tree

_SNAP = 1e-5  # values closer than this to an integer count as it


def families(tree: Tree) -> list[tuple[int, slice]]:
    """Return every inner region with the rows of its children, root first."""
    first = tree.first_child.tolist()
    return [(v, slice(first[v], first[v + 1])) for v in np.flatnonzero(~tree.is_leaf).tolist()]


def height(tree: Tree) -> int:
    """Return the number of regions on the longest way from the root to a leaf."""
    level = np.ones(tree.nodes, np.int64)
    for v, below in families(tree):
        level[below] = level[v] + 1
    return int(level.max())


def least_squares(tree: Tree, y: Ints, precision: Floats) -> Floats:
    """Return the real table of sums nearest to y in squares weighted by ``precision`` (regions,), all above 0.

    Two passes (Hay et al. 2010, Theorem 3, for unequal weights).
    """
    variance, z = 1.0 / precision, y.astype(np.float64)
    for v, below in reversed(families(tree)):
        spread = variance[below].sum()
        variance[v] = 1.0 / (precision[v] + 1.0 / spread)
        z[v] = variance[v] * (precision[v] * z[v] + z[below].sum(axis=0) / spread)
    for v, below in families(tree):
        part = variance[below] / variance[below].sum()
        z[below] += part[:, None] * (z[v] - z[below].sum(axis=0))
    return z


def rounded(tree: Tree, x: NDArray[Any]) -> Ints:
    """Return an integer table of sums around a real table: the root half up, then the children's largest fractions up.

    Integer values stay where the real table adds up.
    """
    near = np.rint(x)
    snapped = np.where(np.abs(x - near) < _SNAP, near, x)
    floors = np.floor(snapped)
    integer_table = floors.astype(np.int64)
    integer_table[0] = np.floor(snapped[0] + 0.5).astype(np.int64)
    for v, below in families(tree):
        missing = integer_table[v] - integer_table[below].sum(axis=0)
        order = np.argsort(floors[below] - snapped[below], axis=0, kind="stable")
        integer_table[below] += np.argsort(order, axis=0, kind="stable") < missing
    return np.asarray(tree.sums(integer_table), dtype=np.int64)


def within(tree: Tree, x: Ints, least: Ints, most: Ints) -> Ints:
    """Return an integer table of sums within bounds (regions,), moved from x as far as they require.

    The bounds of inner regions must lie in reach of the leaves'. Siblings are moved in order.
    """
    low, high = least[:, None], most[:, None]
    x = np.clip(x, low, high)
    for v, below in reversed(families(tree)):
        x[v] = np.clip(x[below].sum(axis=0), low[v], high[v])
    for v, below in families(tree):
        extra = x[v] - x[below].sum(axis=0)
        for child in range(below.start, below.stop):
            step = np.clip(extra, low[child] - x[child], high[child] - x[child])
            x[child] += step
            extra -= step
    return x


def prices(tree: Tree, d_low: Floats, d_high: Floats) -> Floats:
    """Return lam (regions, cells), 0 at leaves, with d_low <= lam_v - lam_parent(v) <= d_high where there is one.

    Upward: the interval of every lam that the regions below allow, or its middle where they contradict each other.
    Downward: the value nearest to 0 in that interval and in reach of the parent's.
    """
    low, high = np.full(d_low.shape, -np.inf), np.full(d_low.shape, np.inf)
    low[tree.is_leaf] = high[tree.is_leaf] = 0.0
    for v, below in reversed(families(tree)):
        low[v], high[v] = (low[below] - d_high[below]).max(axis=0), (high[below] - d_low[below]).min(axis=0)
        torn = low[v] > high[v]
        low[v][torn] = high[v][torn] = 0.5 * (low[v][torn] + high[v][torn])
    lam = np.zeros(d_low.shape)
    for v, _ in families(tree):
        above = lam[tree.parent[v]] if v else 0.0
        near = np.minimum(np.maximum(0.0, above + d_low[v]), above + d_high[v])
        lam[v] = np.minimum(np.maximum(near, low[v]), high[v])
    return np.where(np.isfinite(lam), lam, 0.0)
