"""Prices of rows by coordinate ascent: one row after the other gets its people from the other children, cell by cell.

Every cell gives its people to the children with the least ``v = marginal cost - price``. Raising the price of a child's
row by the n-th smallest gap to another child that now has someone there moves n people in. All cells stay optimal at
the prices so far, which makes few people unmet in a few rounds; shortest paths do the rest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Marks = NDArray[np.int8]

_CLOSED = 2
_PROGRESS = 0.7  # what a round must leave of the unmet people at most to be worth another


@compiled
def _wanted(has: int, price: float, lower: float, upper: float) -> float:
    """Return how many people more a row should have at its price."""
    if price > 0.0 or (price == 0.0 and has < lower):
        return lower - has
    if price < 0.0 or has > upper:
        return upper - has
    return 0.0


@compiled
def _rival(value: Floats, mark: Marks, child: int, more: bool) -> int:
    """Return the other child that gives a person for the least (or, with ``more`` false, takes one), -1 for none."""
    best, wanted = -1, 1 if more else 0
    for i in range(value.size):
        if mark[i] == wanted and i != child:
            if best < 0 or (value[i] > value[best] if more else value[i] < value[best]):
                best = i
    return best


@compiled
def _move(j: int, cells: Ints, wanted: float, price: float, value: Floats, mark: Marks) -> float:
    """Move people into (or out of) one row of child j; return the change of its price."""
    more = wanted > 0.0
    gap, rival, place = np.empty(cells.size), np.empty(cells.size, np.int64), np.empty(cells.size, np.int64)
    found = 0
    for c in cells:
        if mark[c, j] == (0 if more else 1):
            other = _rival(value[c], mark[c], j, more)
            if other >= 0:
                apart = value[c, j] - value[c, other]
                gap[found], rival[found], place[found] = max(0.0, apart if more else -apart), other, c
                found += 1
    if found == 0:
        return 0.0
    order = np.argsort(gap[:found], kind="mergesort")
    moved = min(found, np.int64(abs(wanted)))
    step = gap[order[moved - 1]]
    if moved < found:
        step += 0.5 * (gap[order[moved]] - step)
    if (price < 0.0) == more and price != 0.0:  # a price may reach zero but not cross it
        step = min(step, abs(price))
    for a in order[:moved]:
        if gap[a] <= step:
            mark[place[a], j] = 1 if more else 0
            mark[place[a], rival[a]] = 0 if more else 1
    change = step if more else -step
    for c in cells:
        value[c, j] -= change
    return change


@compiled
def ascend(
    x: Floats,
    low: Ints,
    high: Ints,
    start: Ints,
    cell: Ints,
    up: Ints,
    lower: Floats,
    upper: Floats,
    held: Ints,
    cell_price: Floats,
    row_price: Floats,
    rounds: int,
) -> None:
    """Improve the prices of rows [children, rows], and tables ``held`` and cells' prices with them.

    Every cell may hold ``low`` or at most one person more. Rows are ``cell[start[r]:start[r + 1]]`` where ``up`` is not
    -2. O(children^2 x entries) a round at worst.
    """
    children, cells = x.shape
    value, mark = np.empty((cells, children)), np.empty((cells, children), np.int8)
    for j in range(children):
        for c in range(cells):
            value[c, j] = 1.0 - 2.0 * (x[j, c] - low[j, c])
            mark[c, j] = _CLOSED if high[j, c] == low[j, c] else held[j, c] - low[j, c]
    before = np.inf
    for _ in range(rounds):
        unmet = 0.0
        for j in range(children):
            for r in range(up.shape[1]):
                if up[j, r] == -2:
                    continue
                members, has = cell[start[r] : start[r + 1]], 0
                for c in members:
                    has += mark[c, j] == 1
                wanted = _wanted(has, row_price[j, r], lower[j, r], upper[j, r])
                if wanted != 0.0:
                    unmet += abs(wanted)
                    row_price[j, r] += _move(j, members, wanted, row_price[j, r], value, mark)
        if unmet > _PROGRESS * before or unmet == 0.0:
            break
        before = unmet
    for c in range(cells):
        dearest, cheapest = -np.inf, np.inf
        for j in range(children):
            if mark[c, j] != _CLOSED:
                held[j, c] = low[j, c] + mark[c, j]
                if mark[c, j] == 1:
                    dearest = max(dearest, value[c, j])
                else:
                    cheapest = min(cheapest, value[c, j])
        if dearest == -np.inf:
            cell_price[c] = 0.0 if cheapest == np.inf else cheapest
        else:
            cell_price[c] = dearest if cheapest == np.inf else 0.5 * (dearest + cheapest)
