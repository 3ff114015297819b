"""One round of alternating directions for a hierarchy of cumulative tables, on blocks of rows or of cells.

Copies of the table are made equal: ``m``, monotone within its region's bounds; for p = 1 also ``u``, near the noisy
answers; and ``x``, in which parents are the sums of their children. With duals folded in (``c = x + scaled dual``,
as in Douglas-Rachford splitting) a round is

* ``monotone``: m_v = nearest nondecreasing row to c_v (for p = 2 to the mean of c_v and y_v weighted by the penalty
  and the loss), clipped to [0, G_v]: pool adjacent violators, one region after another;
* ``reconcile``: x = the table of sums nearest to the reflected copies, two passes over the tree with constants that
  do not depend on the cell (Hay et al. 2010, Theorem 3, for unequal weights); then ``c += step (x - copy)``.

The first runs over rows and the second over cells, so both split over threads without changing a single bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@compiled
def pass_weights(first_child: Ints, penalty: Floats) -> tuple[Floats, Floats]:
    """Return the constants of both passes (n,): the own answer's part, and the share of the parent's discrepancy.

    A row's variance is 1 / penalty_v, of its own copies; a leaf's own part is 1.
    """
    n = penalty.size
    variance, own, share = 1.0 / penalty, np.ones(n), np.zeros(n)
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
def monotone(
    c: Floats, y: Floats, toward: Floats, top: Floats, begin: int, end: int, m: Floats, sums: Floats, counts: Ints
) -> None:
    """Write into rows begin:end of m the nearest nondecreasing rows within [0, top_v] to c + toward_v (y - c).

    ``sums`` and ``counts`` are scratch of one row's cells.
    """
    cells = c.shape[1]
    for v in range(begin, end):
        part = toward[v]
        block = -1
        for i in range(cells):
            total = c[v, i] + part * (y[v, i] - c[v, i])
            count = 1
            while block >= 0 and sums[block] * count >= total * counts[block]:
                total += sums[block]
                count += counts[block]
                block -= 1
            block += 1
            sums[block] = total
            counts[block] = count
        at = 0
        value = 0.0
        for k in range(block + 1):
            value = min(max(sums[k] / counts[k], value), top[v])  # never below the block before, whatever is rounded
            for i in range(at, at + counts[k]):
                m[v, i] = value
            at += counts[k]


@compiled
def _passes(first_child: Ints, own: Floats, share: Floats, x: Floats, below: Floats) -> None:
    """Replace x (n, cells) by the table of sums nearest to it; below is scratch of the same shape."""
    n, cells = x.shape
    for v in range(n - 1, -1, -1):
        begin, end = first_child[v], first_child[v + 1]
        if begin == end:
            continue
        for i in range(cells):
            below[v, i] = 0.0
        for c in range(begin, end):
            for i in range(cells):
                below[v, i] += x[c, i]
        part = own[v]
        for i in range(cells):
            x[v, i] = below[v, i] + part * (x[v, i] - below[v, i])
    for v in range(n):
        for i in range(cells):
            below[v, i] = x[v, i] - below[v, i]
        for c in range(first_child[v], first_child[v + 1]):
            part = share[c]
            for i in range(cells):
                x[c, i] += part * below[v, i]


@compiled
def reconcile_squares(
    first_child: Ints, own: Floats, share: Floats, step: float, begin: int, end: int, c: Floats, m: Floats, width: int
) -> None:
    """Take the second half of a round for p = 2 on cells begin:end, ``width`` at a time."""
    n = c.shape[0]
    x, below = np.empty((n, width)), np.empty((n, width))
    for left in range(begin, end, width):
        size = min(width, end - left)
        table, scratch = x[:, :size], below[:, :size]
        for v in range(n):
            for i in range(size):
                table[v, i] = 2.0 * m[v, left + i] - c[v, left + i]
        _passes(first_child, own, share, table, scratch)
        for v in range(n):
            for i in range(size):
                c[v, left + i] += step * (table[v, i] - m[v, left + i])


@compiled
def reconcile_absolute(
    first_child: Ints,
    own: Floats,
    share: Floats,
    step: float,
    begin: int,
    end: int,
    c: Floats,
    m: Floats,
    near: Floats,
    y: Floats,
    reach: Floats,
    width: int,
) -> None:
    """Take the second half of a round for p = 1 on cells begin:end.

    ``near`` is the folded copy of u = y + soft threshold of (near - y) by reach_v, the weight over the penalty.
    """
    n = c.shape[0]
    x, below, u = np.empty((n, width)), np.empty((n, width)), np.empty((n, width))
    for left in range(begin, end, width):
        size = min(width, end - left)
        table, scratch = x[:, :size], below[:, :size]
        for v in range(n):
            far = reach[v]
            for i in range(size):
                folded = near[v, left + i]
                off = folded - y[v, left + i]
                u[v, i] = folded - 0.5 * (abs(off + far) - abs(off - far))  # without branches: vector instructions
                table[v, i] = u[v, i] + m[v, left + i] - 0.5 * (folded + c[v, left + i])
        _passes(first_child, own, share, table, scratch)
        for v in range(n):
            for i in range(size):
                c[v, left + i] += step * (table[v, i] - m[v, left + i])
                near[v, left + i] += step * (table[v, i] - u[v, i])
