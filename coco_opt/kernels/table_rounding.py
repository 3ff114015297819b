"""Parts of controlled rounding of several tables: the reach of rows, whether rows are nested, largest fractions.

    minimise  sum_jc |X_jc - x_jc|   subject to   low <= X <= high,  sum_j X_jc = total_c,  rows within their sides

over integers X [children, cells]. These are the steps before the flow of ``table_rounding_flow``:

1. ``reach``: the least and largest value of every row tell which rows bind.
2. ``nest``: whether each child's binding rows form a forest, which makes the problem a flow.
3. ``largest_fractions``: the cheapest tables that meet the cells' totals, rows left out, and each cell's price.

Invariant: cells stay between ``low`` and ``high``. Cost: O(entries x children), and a sort of the children in every
cell for the largest fractions.
Source: Cox and Ernst 1982; Kuo et al. 2018, section 5, for the largest fractions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled
from coco_opt.kernels.sorting import falling

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Box(NamedTuple):
    """Fractional tables x, and the least and largest integers that a table may hold, all [children, cells]."""

    x: Floats
    low: Ints
    high: Ints


class Nest(NamedTuple):
    """The row around each cell (-1: none) [children, cells], and around each row [children, rows].

    ``up`` is -1 for an outermost row and -2 for one that does not bind.
    """

    leaf: Ints
    up: Ints


class RowSides(NamedTuple):
    """The sides [children, rows] of what rows hold above the least tables; integer or infinite."""

    lower: Floats
    upper: Floats


class Prices(NamedTuple):
    """Prices of the cells' sums [cells], which may be empty, and of rows [children, rows]."""

    cells: Floats
    rows: Floats


@compiled
def reach(start: Ints, cell: Ints, value: Floats, room: Ints) -> tuple[Floats, Floats]:
    """Return the least and largest value of every row [children, rows] over tables from 0 to ``room``."""
    children, rows = room.shape[0], start.size - 1
    least, most = np.zeros((children, rows)), np.zeros((children, rows))
    for j in range(children):
        # Negative entries reach their least where the cell is full.
        for r in range(rows):
            for a in range(start[r], start[r + 1]):
                part = value[a] * room[j, cell[a]]
                if part < 0.0:
                    least[j, r] += part
                else:
                    most[j, r] += part
    return least, most


@compiled
def nest(start: Ints, cell: Ints, value: Floats, room: Ints, binds: Bools) -> tuple[bool, Ints, Ints]:
    """Return whether each child's binding rows form a forest, the row around each cell (-1: none) and around each row.

    Only cells with room count. ``up`` is -1 for an outermost row and -2 for one that does not bind.
    """
    children, cells = room.shape
    rows = start.size - 1
    leaf, up = np.empty((children, cells), np.int64), np.empty((children, rows), np.int64)
    size, order = np.zeros(rows, np.int64), np.empty(rows, np.int64)
    for j in range(children):
        for c in range(cells):
            leaf[j, c] = -1
        for r in range(rows):
            up[j, r] = -2
    for j in range(children):
        # The sizes of the binding rows, by cells with room; other entries than 1 are no flow.
        for r in range(rows):
            size[r] = -1
            if binds[j, r]:
                size[r] = 0
                for a in range(start[r], start[r + 1]):
                    if room[j, cell[a]] > 0:
                        if value[a] != 1.0:
                            return False, leaf, up
                        size[r] += 1
        falling(size, order)
        # From the largest row down: all its cells must lie in one row so far, which is the row around it.
        for k in range(rows):
            r = order[k]
            if size[r] < 0:
                break
            around = np.int64(-3)
            for a in range(start[r], start[r + 1]):
                c = cell[a]
                if room[j, c] > 0:
                    if around == -3:
                        around = leaf[j, c]
                    elif around != leaf[j, c]:
                        return False, leaf, up
                    leaf[j, c] = r
            up[j, r] = around if around >= 0 else -1
    return True, leaf, up


@compiled
def largest_fractions(x: Floats, low: Ints, high: Ints, total: Ints, table: Ints, price: Floats) -> int:
    """Fill ``table`` [children, cells] with the cheapest tables that sum to ``total``, and each cell's marginal price.

    Ties go to the first child. Return the first cell whose total is out of reach, or -1.
    """
    children, cells = x.shape
    fraction, order = np.empty(children), np.empty(children, np.int64)
    # Start from the floors; ``need`` is what the total still lacks.
    for c in range(cells):
        need = total[c]
        most = -1.0
        for j in range(children):
            table[j, c] = min(max(np.int64(np.floor(x[j, c])), low[j, c]), high[j, c])
            need -= table[j, c]
            fraction[j] = 0.0
            if table[j, c] < high[j, c] and table[j, c] < x[j, c]:
                fraction[j] = x[j, c] - table[j, c]
                most = max(most, fraction[j])
        price[c] = 1.0 if most < 0.0 else 1.0 - 2.0 * most
        if need > 0 and most > 0.0:
            falling(fraction, order)
            # The largest fractions go up, as many as are needed.
            for k in range(children):
                j = order[k]
                if need == 0 or fraction[j] == 0.0:
                    break
                table[j, c] += 1
                need -= 1
                price[c] = 1.0 - 2.0 * fraction[j]
        # Totals beyond floors and ceilings: whole persons more or fewer, at cost 1 each, the first child first.
        for j in range(children):
            if need > 0:
                step = min(need, high[j, c] - table[j, c])
                price[c] = 1.0 if step > 0 else price[c]
            else:
                step = max(need, low[j, c] - table[j, c])
                price[c] = -1.0 if step < 0 else price[c]
            table[j, c] += step
            need -= step
        if need != 0:
            return c
    return -1


@compiled
def nearest(x: Floats, low: Ints, high: Ints, table: Ints) -> None:
    """Fill ``table`` [children, cells] with the nearest integer tables, halves down."""
    for j in range(x.shape[0]):
        for c in range(x.shape[1]):
            table[j, c] = min(max(np.int64(np.ceil(x[j, c] - 0.5)), low[j, c]), high[j, c])
