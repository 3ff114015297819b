"""Schedules for rounding children's cumulative rows to integer ones that add up to their parent's.

    minimise  sum_j sum_i |X_ji - x_ji|   subject to   sum_j X_ji = parent_i,  0 <= X_j0 <= ... <= X_j,n-1 <= top_j

over integers. A child's row is a sequence of units: unit u is placed at the cell from which on the row is at least u.
In every cell the parent fixes how many units have been placed; the schedule chooses whose units these are.

1. ``schedule`` by due cell: unit u of child j may be placed from the first cell with x_j > u - 1 on and is due at the
   first with x_j >= u (earliest deadline first: where the parent is the half-up rounding of the children's sum, every
   unit meets its dates and no cell moves by 1 or more).
2. ``schedule`` by middle cell, the first with x_j >= u - 1/2: units sorted by where they belong meet the cells in
   order, which is the nearest assignment where the rows are integer already.
3. ``improve`` the nearer one: move a unit from one child to another over a stretch of cells wherever that is nearer.
4. ``cell_prices``: prices of the cells' sums that bound the optimum.

Invariant: in every cell the rows are nondecreasing, within bounds and sum to the parent's. Cost: O(children) a unit.
Source: Steiner and Yeomans 1993 (just-in-time schedules); the moves are our own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled
from coco_opt.kernels.sorting import sort

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@compiled
def _overdue(x: Floats, i: int, top: Ints, units: Ints, part: float, need: int) -> int:
    """Place together the units whose cell has come; return how many are needed after it.

    If more units have come than are needed, the excess are the last ones in order. No child has more of them than
    there are, so that many units of every child are left to be placed one by one.
    """
    late = 0
    # How many units have come by this cell and are not placed yet.
    for j in range(x.shape[0]):
        late += max(min(int(np.floor(x[j, i] + 1.0 - part)), top[j]) - units[j], 0)
    excess = max(late - need, 0)
    # Place all but the last ``excess`` of each child, which are then chosen one by one.
    for j in range(x.shape[0]):
        come = min(int(np.floor(x[j, i] + 1.0 - part)), top[j]) - units[j] - excess
        if come > 0:
            units[j] += come
            need -= come
    return need


@compiled
def _next(x: Floats, i: int, top: Ints, units: Ints, part: float, wait: bool, first: Ints) -> int:
    """Return the child whose next unit comes first: earliest cell, then the one that lags most at this cell."""
    n, cells = x.shape
    best, best_cell, best_lag, best_ready = -1, 0, 0.0, False
    # first[j] is the cell of child j's next unit; it only moves forward.
    for j in range(n):
        if units[j] >= top[j]:
            continue
        ready = not wait or x[j, i] > units[j]
        while first[j] < cells and x[j, first[j]] < units[j] + part:
            first[j] += 1
        lag = x[j, i] - units[j]
        cell = first[j]
        better = best < 0 or (ready and not best_ready)
        if not better and ready == best_ready:
            better = cell < best_cell or (cell == best_cell and lag > best_lag)
        if better:
            best, best_cell, best_lag, best_ready = j, cell, lag, ready
    return best


@compiled
def schedule(x: Floats, parent: Ints, top: Ints, part: float, wait: bool) -> Ints:
    """Return integer nondecreasing rows (children, cells) that sum to ``parent`` (cells,), row j within [0, top_j].

    x (children, cells) nondecreasing; ``parent`` nondecreasing and at most the sum of top. Units come in the order of
    the first cell with x_j >= u - 1 + part; with ``wait`` only once x_j > u - 1, if any unit has. O(children) a unit
    that is not placed with the others due: at most children^2 times what the parent and the rows' sum differ by, a
    cell.
    """
    n, cells = x.shape
    units, first = np.zeros(n, np.int64), np.zeros(n, np.int64)
    out = np.empty((n, cells), np.int64)
    placed = 0
    # The parent fixes how many units this cell places; first those that are due together, then one by one.
    for i in range(cells):
        need = _overdue(x, i, top, units, part, parent[i] - placed)
        placed = parent[i]
        while need > 0:
            units[_next(x, i, top, units, part, wait, first)] += 1
            need -= 1
        for j in range(n):
            out[j, i] = units[j]
    return out


@compiled
def _stretch(x: Floats, rows: Ints, top: Ints, give: int, take: int, begin: int) -> int:
    """Return the end of the cells from ``begin`` on over which a unit can be moved at a gain, or ``begin``.

    The unit leaves the row ``give`` and joins ``take``; both must stay nondecreasing and within bounds. It may start
    only where ``give`` rises, and end before ``take`` rises; the stretch of largest gain is chosen.
    """
    cells = x.shape[1]
    if rows[give, begin] <= (rows[give, begin - 1] if begin > 0 else 0):
        return begin
    gain, best, end = 0.0, 1e-9, begin
    # ``gain`` is how much nearer the stretch up to i is; the move may end only where ``take`` rises.
    for i in range(begin, cells):
        if rows[take, i] >= top[take]:
            break
        less = abs(rows[give, i] - x[give, i]) - abs(rows[give, i] - 1 - x[give, i])
        more = abs(rows[take, i] + 1 - x[take, i]) - abs(rows[take, i] - x[take, i])
        gain += less - more
        if gain < -2.0:
            break
        rises = rows[take, i + 1] > rows[take, i] if i + 1 < cells else rows[take, i] < top[take]
        if rises and gain > best:
            best, end = gain, i + 1
    return end


@compiled
def improve(x: Floats, top: Ints, rows: Ints, sweeps: int) -> int:
    """Move units between pairs of children, in place, until no move helps or ``sweeps`` are done; return the moves.

    Every move lowers the L1 distance and keeps all sums. O(children^2 x rises x stretch) a sweep.
    """
    n, cells = x.shape
    moves = 0
    for _ in range(sweeps):
        before = moves
        # A stretch starts where the giving row rises.
        for i in range(cells):
            for give in range(n):
                if rows[give, i] <= (rows[give, i - 1] if i > 0 else 0):
                    continue
                if i > 0 and rows[give, i] <= x[give, i] - 0.5 and (i + 1 >= cells or x[give, i + 1] > rows[give, i]):
                    continue
                for take in range(n):
                    if take == give:
                        continue
                    end = _stretch(x, rows, top, give, take, i)
                    for k in range(i, end):
                        rows[give, k] -= 1
                        rows[take, k] += 1
                    moves += end > i
                    if rows[give, i] <= (rows[give, i - 1] if i > 0 else 0):
                        break
        if moves == before:
            break
    return moves


@compiled
def cell_prices(x: Floats, parent: Ints) -> Floats:
    """Return for each cell a price that makes the parent's number of units the cheapest choice, the order left out.

    A child's next unit costs -1 below its floor, 1 - 2 fraction from floor to ceiling and 1 above; the price lies
    between the last unit taken and the first left, as near to 0 as possible.
    """
    n, cells = x.shape
    prices, slopes = np.empty(cells), np.empty(n)
    # The cheapest ``up`` units of the children are taken; the price lies between the last one and the next.
    for i in range(cells):
        up = parent[i]
        for j in range(n):
            floor = np.floor(x[j, i])
            up -= int(floor)
            slopes[j] = 1.0 - 2.0 * (x[j, i] - floor)
        sort(slopes)
        low = -1.0 if up <= 0 else (slopes[up - 1] if up <= n else 1.0)
        high = -1.0 if up < 0 else (slopes[up] if up < n else 1.0)
        prices[i] = min(max(0.0, low), high)
    return prices
