"""Prices of rows by coordinate ascent: each row in turn gets the people it lacks from the other children, cell by cell.

The problem is that of ``table_rounding_flow``, where each cell may hold ``low`` or one person more; this is a start
that leaves few rows unmet. Every cell gives its people to the children with the least ``value = marginal cost -
price``. ``mark`` says of a child's cell whether it holds the one person more (1), could hold them (0), or is closed;
``best`` names, for each cell, the child that would take the next person most cheaply and the child that would give one
at least loss.

1. For a row that lacks people, find in each of its cells the gap in value to the best other child that
   has someone there (``_gaps``).
2. Raise the row's price by the n-th smallest gap, where n people are lacking (``_step``): n people move in (``_move``).
   A row with too many does the opposite.
3. Go through all rows, round after round, while the unmet people fall (``ascend``).
4. Shortest paths do the rest (``table_rounding_flow``).

Invariant: all cells stay optimal at the present prices. Cost: O(entries x children) a round at worst.
Source: Bertsekas 1988 (auction algorithm) has the same steps for one person at a time; several at once is our own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled, compiled_in_place
from coco_opt.kernels.sorting import nth_smallest
from coco_opt.kernels.table_rounding import Box, Prices, RowSides

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Marks = NDArray[np.int8]

_CLOSED = 2
_NOBODY = -1
_PROGRESS = 0.7  # what a round must leave of the unmet people at most to be worth another


@compiled_in_place
def _shortage(has: int, price: float, lower: float, upper: float) -> float:
    """Return how many more people a row should have at its price."""
    if price > 0.0 or (price == 0.0 and has < lower):
        return lower - has
    if price < 0.0 or has > upper:
        return upper - has
    return 0.0


@compiled_in_place
def _best(value: Floats, mark: Marks, state: int, without: int) -> int:
    """Return the child of a cell that gives a person (mark 1) at least loss or takes one (0) at least cost, or -1."""
    best = -1
    # Among the children in this state: the dearest that gives, or the cheapest that takes.
    for i in range(value.size):
        if mark[i] != state or i == without:
            continue
        if best < 0 or (value[i] > value[best] if state == 1 else value[i] < value[best]):
            best = i
    return best


@compiled
def _gaps(j: int, cells: Ints, more: bool, value: Floats, mark: Marks, best: Ints) -> tuple[Floats, Ints, Ints]:
    """Return the change of price at which each cell moves a person in (or out), the other child, and the cell."""
    gap, rival, where = np.empty(cells.size), np.empty(cells.size, np.int64), np.empty(cells.size, np.int64)
    count, state = 0, 1 if more else 0
    # Only where the child can still take (or give) a person, and another one can do the opposite.
    for c in cells:
        if mark[c, j] == 1 - state:
            partner = best[c, state] if best[c, state] != j else _best(value[c], mark[c], state, j)
            if partner >= 0:
                apart = value[c, j] - value[c, partner]
                gap[count], rival[count], where[count] = max(0.0, apart if more else -apart), partner, c
                count += 1
    return gap[:count], rival[:count], where[:count]


@compiled
def _step(gap: Floats, moved: int) -> tuple[float, float]:
    """Return the largest of the ``moved`` least gaps, and a change of price between it and the next one."""
    ordered = gap.copy()
    if moved == gap.size:
        last = float(nth_smallest(ordered, moved - 1))
        return last, last
    above = float(nth_smallest(ordered, moved))
    last = -np.inf
    for k in range(moved):  # selection leaves the smaller ones before it
        last = max(last, ordered[k])
    return last, last + 0.5 * (above - last)


@compiled_in_place
def _reprice(j: int, cells: Ints, change: float, value: Floats, mark: Marks, best: Ints) -> None:
    """Lower the values of a child's cells, and see who is now best in them."""
    # Recompute a cell's best child only if it was this one or has changed its state.
    for c in cells:
        value[c, j] -= change
        for state in range(2):
            current = best[c, state]
            if current == j or (current >= 0 and mark[c, current] != state):
                best[c, state] = _best(value[c], mark[c], state, _NOBODY)
            elif mark[c, j] != state:
                continue
            elif current < 0 or (value[c, j] > value[c, current] if state == 1 else value[c, j] < value[c, current]):
                best[c, state] = j


@compiled
def _move(j: int, cells: Ints, lacking: float, price: float, value: Floats, mark: Marks, best: Ints) -> float:
    """Move people into (or out of) one row of child j; return the change of its price."""
    more = lacking > 0.0
    gap, rival, where = _gaps(j, cells, more, value, mark, best)
    if gap.size == 0:
        return 0.0
    moved = min(gap.size, int(abs(lacking)))
    last, step = _step(gap, moved)
    if (price < 0.0) == more and price != 0.0:  # a price may reach zero but not cross it
        step = min(step, abs(price))
    ties = moved
    # How many gaps equal to the largest one are still to be taken.
    for a in range(gap.size):
        ties -= gap[a] < last
    # Exchange one person in every cell whose gap is passed.
    for a in range(gap.size):
        if gap[a] > last or gap[a] > step or (gap[a] == last and ties == 0):
            continue
        ties -= gap[a] == last
        c = where[a]
        mark[c, j], mark[c, rival[a]] = 1 if more else 0, 0 if more else 1
        # Naming j makes the next step look at all children of this cell again.
        best[c, 0] = best[c, 1] = j
    change = step if more else -step
    _reprice(j, cells, change, value, mark, best)
    return change


@compiled
def ascend(
    box: Box, start: Ints, cell: Ints, up: Ints, sides: RowSides, table: Ints, prices: Prices, rounds: int
) -> None:
    """Improve the prices of rows, and ``table`` [children, cells] and the cells' prices with them.

    Every cell may hold ``low`` or at most one person more. Rows are ``cell[start[r]:start[r + 1]]`` where ``up`` is not
    -2 (``Nest``). O(entries x children) a round at worst, about O(entries) as a rule.
    """
    x, low, high = box
    cell_price, row_price = prices
    children, cells = x.shape
    value, mark = np.empty((cells, children)), np.empty((cells, children), np.int8)
    # What the one person more costs in each cell, and which child has them.
    for j in range(children):
        for c in range(cells):
            value[c, j] = 1.0 - 2.0 * (x[j, c] - low[j, c])
            mark[c, j] = _CLOSED if high[j, c] == low[j, c] else table[j, c] - low[j, c]
    best = np.empty((cells, 2), np.int64)
    # Every cell's best taker and giver.
    for c in range(cells):
        for state in range(2):
            best[c, state] = _best(value[c], mark[c], state, _NOBODY)
    before = np.inf
    # A round sees every binding row once.
    for _ in range(rounds):
        unmet = 0.0
        for j in range(children):
            for r in range(up.shape[1]):
                if up[j, r] == -2:
                    continue
                members, has = cell[start[r] : start[r + 1]], 0
                # How many people the row has above the least table.
                for c in members:
                    has += mark[c, j] == 1
                lacking = _shortage(has, row_price[j, r], sides.lower[j, r], sides.upper[j, r])
                if lacking != 0.0:
                    unmet += abs(lacking)
                    row_price[j, r] += _move(j, members, lacking, row_price[j, r], value, mark, best)
        if unmet > _PROGRESS * before or unmet == 0.0:
            break
        before = unmet
    # Write the tables; a cell's price lies between its dearest holder and its cheapest taker.
    for c in range(cells):
        dearest, cheapest = -np.inf, np.inf
        for j in range(children):
            if mark[c, j] != _CLOSED:
                table[j, c] = low[j, c] + mark[c, j]
                if mark[c, j] == 1:
                    dearest = max(dearest, value[c, j])
                else:
                    cheapest = min(cheapest, value[c, j])
        if dearest == -np.inf:
            cell_price[c] = 0.0 if cheapest == np.inf else cheapest
        else:
            cell_price[c] = dearest if cheapest == np.inf else 0.5 * (dearest + cheapest)
