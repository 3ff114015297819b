"""Integer tables on a tree of least convex piecewise-linear cost, one cell at a time: segments merged by slope.

    minimise  sum_v f_v(x_v)   subject to   x_v = sum of the children's x,  0 <= x_v <= top_v,  x integer

in one cell, over the regions v. The least cost of a region's subtree, as a function of the region's value, is convex
and piecewise linear: a list of segments, each with its slope and its length, from value 0 on.

1. A leaf's list is its own cost's.
2. Siblings are joined by sorting their segments by slope (the infimal convolution).
3. A region's own cost cuts the joined list at its atoms and adds its slopes.
4. The root takes the segments that lower the cost.
5. From there down, a region's value lies in some segment of its joined list, whose slope is the price of its children's
   sum: every child takes its segments below the price, and segments at the price are shared.

If cells are solved from the last to the first, each bounded by the values of the next one, the rows are nondecreasing.

Invariant: every list is sorted by slope. Cost: O(m log m) for m atoms in the cell, times the tree's height.
Source: Rockafellar 1970, sections 5 and 31 (infimal convolution, prices of sums).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled
from coco_opt.kernels.expected_distance_rows import Costs, Shape, slopes_at
from coco_opt.kernels.sorting import sort_by_slope

Ints = NDArray[np.int64]

_NEVER = 2**61
_FINITE = 2**60


class Lists(NamedTuple):
    """Scratch: every region's list, and its children's joined one; those of v from begin[v] to end[v] (regions,)."""

    slopes: Ints
    lengths: Ints
    begin: Ints
    end: Ints
    joined_slopes: Ints
    joined_lengths: Ints
    joined_begin: Ints
    joined_end: Ints


@compiled
def _lists(costs: Costs, first_child: Ints, cells: int) -> Lists:
    """Return scratch for the largest cell: a region's list has the atoms and leaves below it, itself included."""
    regions = first_child.size - 1
    most = 0
    weight = np.empty(regions, np.int64)
    for i in range(cells):
        total = 0
        # Children come after their parent, so that backwards their weights are complete.
        for v in range(regions - 1, -1, -1):
            c = v * cells + i
            weight[v] = costs.offsets[c + 1] - costs.offsets[c] + (first_child[v] == first_child[v + 1])
            for child in range(first_child[v], first_child[v + 1]):
                weight[v] += weight[child]
            total += weight[v]
        most = max(most, total)
    return Lists(
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(regions, np.int64),
        np.empty(regions, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(regions, np.int64),
        np.empty(regions, np.int64),
    )


@compiled
def _leaf_list(costs: Costs, c: int, tilt: int, top: int, lists: Lists, position: int) -> int:
    """Write a leaf's segments on 0..top from ``position`` on; return their end."""
    k, end = costs.offsets[c], costs.offsets[c + 1]
    x, slope = 0, costs.first[c]
    # One segment from each atom to the next; the slope changes at atoms.
    while x < top:
        following = min(costs.atoms[k], top) if k < end else top
        lists.slopes[position], lists.lengths[position] = slope + tilt, following - x
        position += 1
        x = following
        if k < end:
            slope = costs.slopes[k]
            k += 1
    return position


@compiled
def _gather(first_child: Ints, v: int, lists: Lists, position: int) -> int:
    """Copy the segments of v's children, in no order, from ``position`` on; return their end."""
    for child in range(first_child[v], first_child[v + 1]):
        for k in range(lists.begin[child], lists.end[child]):
            # Neighbours of equal slope become one segment at once.
            if position > lists.joined_begin[v] and lists.joined_slopes[position - 1] == lists.slopes[k]:
                lists.joined_lengths[position - 1] += lists.lengths[k]
            else:
                lists.joined_slopes[position], lists.joined_lengths[position] = lists.slopes[k], lists.lengths[k]
                position += 1
    return position


@compiled
def _join(first_child: Ints, v: int, lists: Lists, position: int) -> int:
    """Write v's children's segments in order of slope, equal ones merged, from ``position`` on; return the end."""
    end = _gather(first_child, v, lists, position)
    slopes, lengths = lists.joined_slopes, lists.joined_lengths
    sort_by_slope(position, end, slopes, lengths)
    last = position
    # After sorting, segments of equal slope are neighbours: merge them in place.
    for m in range(position + 1, end):
        if slopes[m] == slopes[last]:
            lengths[last] += lengths[m]
        else:
            last += 1
            slopes[last], lengths[last] = slopes[m], lengths[m]
    return last + 1 if end > position else position


@compiled
def _own_list(costs: Costs, c: int, tilt: int, begin: int, end: int, lists: Lists, position: int) -> int:
    """Cut joined segments begin:end at the region's atoms, add its slopes, write them from ``position`` on."""
    k, last = costs.offsets[c], costs.offsets[c + 1]
    x, slope = 0, costs.first[c] + tilt
    for m in range(begin, end):
        left = lists.joined_lengths[m]
        # A segment ends where it is used up or at the next atom, whichever comes first.
        while left > 0:
            length = left
            if k < last:
                length = min(left, costs.atoms[k] - x)
            lists.slopes[position], lists.lengths[position] = lists.joined_slopes[m] + slope, length
            position += 1
            x, left = x + length, left - length
            if k < last and costs.atoms[k] == x:
                slope = costs.slopes[k] + tilt
                k += 1
    return position


@compiled
def _price(costs: Costs, c: int, tilt: int, up: int, x: int, top: int, v: int, lists: Lists) -> tuple[int, int]:
    """Return a price of v's sum that fits its value x, its parent's price and its children's segments; and their slope.

    The second is the slope up to which the children's segments fill x. The price lies between it and the next one and
    within the parent's price less the own slopes: in the middle where both ends are finite.
    """
    below, above, filled = -_NEVER, _NEVER, 0
    # Find the two slopes between which the joined list is filled up to x.
    for m in range(lists.joined_begin[v], lists.joined_end[v]):
        if filled >= x:
            above = lists.joined_slopes[m]
            break
        below = lists.joined_slopes[m]
        filled += lists.joined_lengths[m]
    if filled > x:
        above = below
    left, right = slopes_at(costs, c, x, top)
    low, high = max(below, up - tilt - right), min(above, up - tilt - left)
    if low > -_FINITE and high < _FINITE:
        return (low + high) // 2, below
    return min(max(0, low), high), below


@compiled
def _share(first_child: Ints, v: int, slope: int, lists: Lists, x: Ints) -> None:
    """Give x[v] to the children: all their segments below ``slope``, then those at it, one child after the other."""
    left = x[v]
    # What is cheaper than the price goes to its child in full ...
    for child in range(first_child[v], first_child[v + 1]):
        x[child] = 0
        for k in range(lists.begin[child], lists.end[child]):
            if lists.slopes[k] >= slope:
                break
            x[child] += lists.lengths[k]
        left -= x[child]
    # ... and what is left is taken from the segments at the price, the first child first.
    for child in range(first_child[v], first_child[v + 1]):
        if left == 0:
            break
        for k in range(lists.begin[child], lists.end[child]):
            if lists.slopes[k] == slope:
                more = min(left, lists.lengths[k])
                x[child] += more
                left -= more
            elif lists.slopes[k] > slope:
                break


@compiled
def _solve(
    costs: Costs, shape: Shape, cells: int, i: int, top: Ints, tilt: Ints, lists: Lists, x: Ints, prices: Ints
) -> None:
    """Write the best values x (regions,) of cell i within 0..top that add up, and the prices of the sums."""
    regions = x.size
    position = joined = 0
    # Upwards: lists lie one after the other, each region's behind those below it.
    for v in range(regions - 1, -1, -1):
        c = v * cells + i
        lists.begin[v], lists.joined_begin[v] = position, joined
        if shape.first_child[v] == shape.first_child[v + 1]:
            position = _leaf_list(costs, c, tilt[v], top[v], lists, position)
        else:
            joined = _join(shape.first_child, v, lists, joined)
            position = _own_list(costs, c, tilt[v], lists.joined_begin[v], joined, lists, position)
        lists.end[v], lists.joined_end[v] = position, joined
    x[0] = 0
    # The root's value: all segments that lower the cost.
    for k in range(lists.begin[0], lists.end[0]):
        if lists.slopes[k] >= 0:
            break
        x[0] += lists.lengths[k]
    # Downwards: a region's value is known; find the price of its children's sum and share the value out.
    for v in range(regions):
        prices[v] = 0
        if shape.first_child[v] < shape.first_child[v + 1]:
            up = prices[shape.parent[v]] if v > 0 else 0
            prices[v], slope = _price(costs, v * cells + i, tilt[v], up, x[v], top[v], v, lists)
            _share(shape.first_child, v, slope, lists, x)


@compiled
def solve_cells(costs: Costs, shape: Shape, order: Ints, down: bool, x: Ints, prices: Ints) -> None:
    """Write the best values x (regions, cells) of all cells and the prices of their sums.

    order (regions, cells): the prices of the order of rows (``expected_distance_rows.order_prices``). Every cell is
    solved on its own; or, with ``down``, from the last cell to the first, each within the values of the cell after it:
    then x is a consistent integer table. Only the prices of the order tell what the cells before it will cost, so good
    prices make a good table.
    """
    regions, cells = x.shape
    lists = _lists(costs, shape.first_child, cells)
    tilt, values, price = np.empty(regions, np.int64), np.empty(regions, np.int64), np.empty(regions, np.int64)
    top = shape.top.copy()
    # From the last cell on, so that with ``down`` each one is bounded by the cell after it.
    for i in range(cells - 1, -1, -1):
        for v in range(regions):
            tilt[v] = (0 if down else order[v, i]) - (order[v, i - 1] if i > 0 else 0)
        _solve(costs, shape, cells, i, top, tilt, lists, values, price)
        for v in range(regions):
            x[v, i], prices[v, i] = values[v], price[v]
            top[v] = values[v] if down else top[v]
