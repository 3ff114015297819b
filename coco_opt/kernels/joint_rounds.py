"""Alternating directions for a hierarchy of cumulative tables: the steps of a round, on blocks of rows or of cells.

    minimise    sum_v sum_i w_v u_i |x_vi - y_vi|^p
    subject to  nondecreasing rows within [0, G_v] that add up to their parents'

The method makes copies of the table equal: ``m``, monotone within its region's bounds; for p = 1 also ``u``, near the
noisy measurements; and ``x``, in which parents are the sums of their children. With duals folded in
(``c = x + scaled dual``, as in Douglas-Rachford splitting) a round is

1. ``monotone``: m_v = nearest nondecreasing row to c_v (for p = 2 to the mean of c_v and y_v weighted by the penalty
   and the loss), clipped to [0, G_v]: pool adjacent violators, one region after another;
2. ``reconcile``: x = the table of sums nearest to the reflected copies, two passes over the tree with constants that
   do not depend on the cell; then ``c += step (x - copy)``.

The first runs over rows and the second over cells, so both split over threads without changing a single bit. Penalties
are proportional to the cells' weights u, which then matter to the first step alone. Rounds are taken by ``joint_rows``,
which does all steps of a row together; this file has the first fits and the penalties' measure.

Invariant: x adds up after every round. Cost: O(cells of all regions) a round.
Source: Eckstein and Bertsekas 1992 (Douglas-Rachford splitting); Barlow et al. 1972, chapter 1 (pool adjacent
violators); Hay et al. 2010, Theorem 3, for unequal weights.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@compiled
def pass_weights(first_child: Ints, penalty: Floats) -> tuple[Floats, Floats]:
    """Return the constants of both passes (n,): the weight of the own value, and the share of the parent's discrepancy.

    A row's variance is 1 / penalty_v, of its own copies; a leaf's own part is 1.
    """
    n = penalty.size
    variance, own, share = 1.0 / penalty, np.ones(n), np.zeros(n)
    # Upwards: a node's variance given what lies below it, and its children's shares of a discrepancy.
    for v in range(n - 1, -1, -1):
        begin, end = first_child[v], first_child[v + 1]
        if begin == end:
            continue
        below = 0.0
        for c in range(begin, end):
            below += variance[c]
        for c in range(begin, end):
            share[c] = variance[c] / below
        own[v] = below / (below + variance[v])
        variance[v] *= own[v]
    return own, share


@compiled
def pool_row(c: Floats, scale: Floats, top: float, m: Floats, sums: Floats, spans: Floats, ends: Ints) -> None:
    """Write into m (cells,) the nearest nondecreasing row within [0, top] to c, squares weighed by ``scale`` (cells,).

    m may be c; ``sums``, ``spans`` and ``ends`` (cells,) are scratch.
    """
    block = -1
    # Pool adjacent violators: the means of the blocks on the stack increase strictly.
    for i in range(c.size):
        total, span = scale[i] * c[i], scale[i]
        # Means are compared as products of sums and spans.
        while block >= 0 and sums[block] * span >= total * spans[block]:
            total += sums[block]
            span += spans[block]
            block -= 1
        block += 1
        sums[block], spans[block], ends[block] = total, span, i + 1
    position = 0
    value = 0.0
    # Write each block's clipped mean over its cells.
    for k in range(block + 1):
        value = min(max(sums[k] / spans[k], value), top)  # never below the block before, whatever is rounded
        for i in range(position, ends[k]):
            m[i] = value
        position = ends[k]


@compiled
def monotone(c: Floats, y: Floats, toward: Floats, scale: Floats, top: Floats, begin: int, end: int, m: Floats) -> None:
    """Write into rows begin:end of m the nearest nondecreasing rows within [0, top_v] to c + toward_v (y - c).

    The square at cell i is weighed by ``scale[i]``. m may be c.
    """
    cells = c.shape[1]
    mixed, sums, spans, ends = np.empty(cells), np.empty(cells), np.empty(cells), np.empty(cells, np.int64)
    for v in range(begin, end):
        for i in range(cells):
            mixed[i] = c[v, i] + toward[v] * (y[v, i] - c[v, i])
        pool_row(mixed, scale, top[v], m[v], sums, spans, ends)


@compiled
def _add_up(first_child: Ints, parent: Ints, own: Floats, x: Floats, below: Floats, v: int) -> None:
    """Finish row v on the way up: mix an inner row with its children's sum, add it to its parent's."""
    size = x.shape[1]
    if first_child[v] < first_child[v + 1]:
        part = own[v]
        # The mean of the own value and the children's sum, weighted by the inverse variances.
        for i in range(size):
            x[v, i] = below[v, i] + part * (x[v, i] - below[v, i])
    if v > 0:
        up = below[parent[v]]
        for i in range(size):
            up[i] += x[v, i]


@compiled
def _hand_down(first_child: Ints, parent: Ints, share: Floats, x: Floats, below: Floats, v: int) -> None:
    """Finish row v on the way down: add its share of its parent's discrepancy, leave an inner row's own in below."""
    size = x.shape[1]
    if v > 0:
        part, up = share[v], below[parent[v]]
        for i in range(size):
            x[v, i] += part * up[i]
    if first_child[v] < first_child[v + 1]:
        for i in range(size):
            below[v, i] = x[v, i] - below[v, i]


@compiled
def displacement(first_child: Ints, parent: Ints, own: Floats, share: Floats, m: Floats, width: int) -> Floats:
    """Return for each row how far, on average over its cells, m lies from the nearest table of sums."""
    n, cells = m.shape
    far = np.zeros(n)
    # A strip of cells at a time, so that its columns of all regions stay in the cache.
    for left in range(0, cells, width):
        right = min(left + width, cells)
        x, below = m[:, left:right].copy(), np.zeros((n, right - left))
        for v in range(n - 1, -1, -1):
            _add_up(first_child, parent, own, x, below, v)
        for v in range(n):
            _hand_down(first_child, parent, share, x, below, v)
            for i in range(right - left):
                far[v] += abs(x[v, i] - m[v, left + i]) / cells
    return far
