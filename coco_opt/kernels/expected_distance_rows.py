"""Best rows of single regions under prices of their cells, and what they prove: tilted isotonic fits in integers.

    minimise  sum_i f_i(z_i) + d_i z_i   subject to   z integer,  0 <= z_0 <= ... <= z_{n-1} <= top

with convex piecewise-linear f_i whose atoms (where the slope changes) and slopes are integer.

1. Find for every cell alone the interval of its least values.
2. Cut the row wherever the largest lower end so far is at most the smallest upper end to come: parts on either side are
   solved alone, clipped to what lies between them, and no cost rises. Most parts are single cells.
3. Solve the other parts by the slope trick: the cost of a part's beginning, as a function of the bound on its last
   value, is convex and nonincreasing, and stored as a heap of its breakpoints.
4. The best rows' costs add up to a lower bound on the cost of every consistent table; a table's excess over it is
   counted region by region (``row_gaps``), and prices of the order follow from the rows (``order_prices``).

All numbers are int64, so bounds are exact; the caller ensures that no sum overflows. Costs are counted from f(0) = 0.

Invariant: no consistent table costs less than the best rows do together, prices included.
Cost: O(m log m) for the m atoms of a part.
Source: Lagrangian duality; the slope trick is a special case of Rockafellar 1970, section 5; the cuts are our own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled
from coco_opt.kernels.heap import pop, push

Ints = NDArray[np.int64]

_NEVER = 2**61  # a slope beyond all others: the sides of a bound
_FINITE = 2**60


class Costs(NamedTuple):
    """Convex piecewise-linear costs of cells c = region * cells + i, in compressed rows.

    offsets (regions * cells + 1,); atoms (m,) rising within a cell, above 0 and below the region's groups; slopes (m,)
    right of each atom; first (regions * cells,) the slope left of all of them.
    """

    offsets: Ints
    atoms: Ints
    slopes: Ints
    first: Ints


class Shape(NamedTuple):
    """The tree's arrays (``Tree``) and every region's largest value: parent, first_child, top (regions,)."""

    parent: Ints
    first_child: Ints
    top: Ints


@compiled
def _rise(costs: Costs, c: int, x: int) -> int:
    """Return f(x) - f(0)."""
    total, slope, position = 0, costs.first[c], 0
    # Add up the pieces between atoms until x.
    for k in range(costs.offsets[c], costs.offsets[c + 1]):
        if costs.atoms[k] >= x:
            break
        total += slope * (costs.atoms[k] - position)
        slope, position = costs.slopes[k], costs.atoms[k]
    return int(total + slope * (x - position))


@compiled
def _sides(costs: Costs, c: int, d: int, top: int) -> tuple[int, int]:
    """Return the ends of the interval of least f(u) + d u over 0 <= u <= top."""
    begin, end = costs.offsets[c], costs.offsets[c + 1]
    if costs.first[c] + d > 0:
        return 0, 0
    low, high = begin, end
    # The first atom from which on the cost does not fall, by bisection.
    while low < high:
        middle = (low + high) // 2
        if costs.slopes[middle] + d >= 0:
            high = middle
        else:
            low = middle + 1
    least = costs.atoms[low] if low < end else top
    if costs.first[c] + d == 0:
        return 0, least
    if low < end and costs.slopes[low] + d == 0:
        return least, costs.atoms[low + 1] if low + 1 < end else top
    return least, least


@compiled
def slopes_at(costs: Costs, c: int, x: int, top: int) -> tuple[int, int]:
    """Return the slopes left and right of x, without end beyond 0 and top."""
    left = right = costs.first[c]
    for k in range(costs.offsets[c], costs.offsets[c + 1]):
        if costs.atoms[k] > x:
            break
        right = costs.slopes[k]
        if costs.atoms[k] < x:
            left = right
    return -_NEVER if x <= 0 else left, _NEVER if x >= top else right


@compiled
def _fit(costs: Costs, c: int, begin: int, end: int, d: Ints, top: int, z: Ints, places: Ints, jump: Ints) -> None:
    """Write the best values of cells begin:end of the region whose cell 0 is c; ``places`` and ``jump`` are scratch."""
    size = slope = 0  # of the beginning's cost right of its last breakpoint; never positive once flattened
    # Add the cell's breakpoints, then drop what rises: beyond its argmin the beginning may stay there at no cost.
    for i in range(begin, end):
        last = costs.first[c + i]
        for k in range(costs.offsets[c + i], costs.offsets[c + i + 1]):
            push(places, jump, size, costs.atoms[k], costs.slopes[k] - last)
            last = costs.slopes[k]
            size += 1
        slope += last + d[i]
        z[i] = top if slope <= 0 else 0
        # Take breakpoints away, the largest first, until the slope on the right is at most 0.
        while slope > 0 and size > 0:
            z[i] = places[0]
            if jump[0] > slope:
                jump[0] -= slope
                slope = 0
            else:
                slope -= jump[0]
                pop(places, jump, size)
                size -= 1
        if slope > 0:
            slope = z[i] = 0
    # Backwards each cell takes its own argmin or the value after it, whichever is less.
    for i in range(end - 2, begin - 1, -1):
        z[i] = min(z[i], z[i + 1])


@compiled
def _best_row(
    costs: Costs, c: int, d: Ints, top: int, low: Ints, high: Ints, z: Ints, places: Ints, jump: Ints
) -> None:
    """Write the best row into z (n,) from the ends ``low`` and ``high`` (n,) of its cells' least values.

    While z is written from the left, its part not yet written holds the smallest upper end from there on.
    """
    n = d.size
    most = top
    # z[i] is for now the smallest upper end from i on.
    for i in range(n - 1, -1, -1):
        most = min(most, high[i])
        z[i] = most
    begin = highest = written = 0
    # A part ends where the largest lower end so far is at most the smallest upper end to come.
    for i in range(n):
        highest = max(highest, low[i])
        most = z[i + 1] if i + 1 < n else top
        if highest > most:
            continue
        if begin == i:
            written = z[i] = max(written, low[i])
        else:
            _fit(costs, c, begin, i + 1, d, top, z, places, jump)
            for k in range(begin, i + 1):
                written = z[k] = max(written, min(z[k], most))
        begin = i + 1


@compiled
def _room(costs: Costs, regions: int, cells: int) -> int:
    """Return the largest number of atoms in one region's row."""
    room = 0
    for v in range(regions):
        room = max(room, costs.offsets[(v + 1) * cells] - costs.offsets[v * cells])
    return room


@compiled
def _own_price(shape: Shape, prices: Ints, v: int, i: int) -> int:
    """Return what a group in a cell is charged: the price of its sum less that of its parent's."""
    return int(prices[v, i] - (prices[shape.parent[v], i] if shape.parent[v] >= 0 else 0))


@compiled
def best_rows(costs: Costs, shape: Shape, prices: Ints, best: Ints) -> None:
    """Write the best rows of all regions under prices of the tree's sums, both (regions, cells).

    The sum of their costs, prices included, is a lower bound on the cost of every consistent table.
    """
    regions, cells = prices.shape
    room = _room(costs, regions, cells)
    places, jump = np.empty(room, np.int64), np.empty(room, np.int64)
    d, low, high = np.empty(cells, np.int64), np.empty(cells, np.int64), np.empty(cells, np.int64)
    for v in range(regions):
        for i in range(cells):
            d[i] = _own_price(shape, prices, v, i)
            low[i], high[i] = _sides(costs, v * cells + i, d[i], shape.top[v])
        _best_row(costs, v * cells, d, shape.top[v], low, high, best[v], places, jump)


@compiled
def row_gaps(costs: Costs, shape: Shape, x: Ints, prices: Ints, best: Ints, gaps: Ints) -> None:
    """Write how much more each region's row of x (regions, cells) costs than its best one into gaps (regions,)."""
    regions, cells = x.shape
    # The part f(value) - f(best) and the prices' part together are never negative.
    for v in range(regions):
        gaps[v] = 0
        for i in range(cells):
            if x[v, i] != best[v, i]:
                c, price = v * cells + i, _own_price(shape, prices, v, i)
                gaps[v] += _rise(costs, c, x[v, i]) - _rise(costs, c, best[v, i]) + price * (x[v, i] - best[v, i])


@compiled
def order_prices(costs: Costs, shape: Shape, prices: Ints, best: Ints, order: Ints) -> None:
    """Write prices ``order`` (regions, cells) >= 0 of z_i <= z_{i+1} that prove the best rows z, each cell alone.

    order[v, i] raises the cost of z_i and lowers that of z_{i+1}; it is 0 where the row rises, and at the last cell.
    The prices that the cells before allow form an interval, computed from the left; one is chosen from the right, in
    the middle where the interval ends.
    """
    regions, cells = order.shape
    low, high, d = np.empty(cells, np.int64), np.empty(cells, np.int64), np.empty(cells, np.int64)
    for v in range(regions):
        z = best[v]
        least = most = 0
        # Left to right: the interval of prices that proves the cells so far; {0} where the row rises.
        for i in range(cells):
            d[i] = _own_price(shape, prices, v, i)
            left, right = slopes_at(costs, v * cells + i, z[i], shape.top[v])
            limit = _NEVER if i + 1 < cells and z[i + 1] == z[i] else 0
            least = min(max(least - d[i] - right, 0), limit)
            most = min(max(most - d[i] - left, 0), limit)
            low[i], high[i] = least, most
        order[v, cells - 1] = after = 0
        # Right to left: a price in the interval of the cells before and in that of the present cell.
        for i in range(cells - 1, 0, -1):
            left, right = slopes_at(costs, v * cells + i, z[i], shape.top[v])
            least = max(low[i - 1], after + d[i] + left)
            most = min(high[i - 1], after + d[i] + right)
            after = max((least + most) // 2 if least <= most < _FINITE else least, 0)
            order[v, i - 1] = after


@compiled
def costs_of_rows(costs: Costs, x: Ints, total: Ints) -> None:
    """Write each region's cost of integer values x (regions, cells) into total (regions,), f(0) left out."""
    regions, cells = x.shape
    for v in range(regions):
        total[v] = 0
        for i in range(cells):
            total[v] += _rise(costs, v * cells + i, x[v, i])
