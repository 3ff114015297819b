"""Moves that improve a consistent integer table: all regions shift over one stretch of cells, each by its own units.

The problem: for a stretch begin..end - 1 find integer shifts s_v with s_v = sum of the children's s that lower

    sum_v sum_i f_vi(x_vi + s_v) - f_vi(x_vi)   subject to   rows that stay nondecreasing within their bounds.

Shifting keeps the order within the stretch, so only its ends bound how far a leaf can go: down to its value in the cell
before, up to its value in the cell after. The cost of a shift is convex in the number of units, so this is a one-cell
problem on the tree:

1. Skip the stretch if the certificate's gap in its cells and at its ends is less than the least possible gain.
2. Upwards, merge the unit slopes of siblings in order; every region adds its own cost's slopes.
3. The root takes the slopes that lower the cost. Each stems from one leaf, which moves through it exactly if the root
   does.
4. Shift the table if the total cost falls.

Invariant: the table stays consistent, and its cost never rises. Cost: O(regions (length + log regions)) a stretch.
Source: the merging of slopes is the infimal convolution (Rockafellar 1970, section 5); the moves are our own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled
from coco_opt.kernels.expected_distance_rows import Costs, Shape
from coco_opt.kernels.sorting import sort_by_slope

Ints = NDArray[np.int64]


class Steps(NamedTuple):
    """Scratch: unit slopes and their leaves, those of region v from begin[v] on, size[v] of them from low[v] units."""

    slopes: Ints
    leaves: Ints
    begin: Ints
    size: Ints
    low: Ints
    shift: Ints


@compiled
def _slope(costs: Costs, c: int, x: int) -> int:
    """Return the cost of the unit from x to x + 1."""
    low, high = costs.offsets[c], costs.offsets[c + 1]
    begin = low
    # The last atom at or below x, by bisection.
    while low < high:
        middle = (low + high) // 2
        if costs.atoms[middle] <= x:
            low = middle + 1
        else:
            high = middle
    return int(costs.slopes[low - 1] if low > begin else costs.first[c])


@compiled
def _stretch_slope(costs: Costs, x: Ints, v: int, begin: int, end: int, units: int) -> int:
    """Return the cost of shifting region v over cells begin:end from ``units`` to one more."""
    total = 0
    for i in range(begin, end):
        total += _slope(costs, v * x.shape[1] + i, x[v, i] + units)
    return total


@compiled
def _join(first_child: Ints, v: int, steps: Steps, position: int) -> int:
    """Write the slopes of v's children in order from ``position`` on; return how many there are."""
    place = position
    for child in range(first_child[v], first_child[v + 1]):
        for k in range(steps.begin[child], steps.begin[child] + steps.size[child]):
            steps.slopes[place], steps.leaves[place] = steps.slopes[k], steps.leaves[k]
            place += 1
    sort_by_slope(position, place, steps.slopes, steps.leaves)
    return place - position


@compiled
def _shifts(costs: Costs, shape: Shape, x: Ints, begin: int, end: int, reach: int, steps: Steps) -> None:
    """Write the best shift of every region over cells begin:end, at most ``reach`` units at a leaf."""
    regions, cells = x.shape
    position = 0
    # Upwards: a leaf's slopes start at 0, an inner region's are those of its children; then the own cost is added.
    for v in range(regions - 1, -1, -1):
        steps.begin[v] = position
        first, last = shape.first_child[v], shape.first_child[v + 1]
        if first == last:
            low = max((x[v, begin - 1] if begin > 0 else 0) - x[v, begin], -reach)
            high = min((x[v, end] if end < cells else shape.top[v]) - x[v, end - 1], reach)
            steps.low[v], steps.size[v] = low, high - low
            for k in range(high - low):
                steps.slopes[position + k], steps.leaves[position + k] = 0, v
        else:
            steps.low[v] = 0
            for child in range(first, last):
                steps.low[v] += steps.low[child]
            steps.size[v] = _join(shape.first_child, v, steps, position)
        for k in range(steps.size[v]):
            steps.slopes[position + k] += _stretch_slope(costs, x, v, begin, end, steps.low[v] + k)
        position += steps.size[v]
    for v in range(regions):
        steps.shift[v] = steps.low[v] if shape.first_child[v] == shape.first_child[v + 1] else 0
    # The root goes through every slope that lowers the cost, and so do their leaves.
    for k in range(steps.begin[0], steps.begin[0] + steps.size[0]):
        if steps.slopes[k] < 0:
            steps.shift[steps.leaves[k]] += 1
    # Shifts of inner regions are the sums of their children's.
    for v in range(regions - 1, 0, -1):
        steps.shift[shape.parent[v]] += steps.shift[v]


@compiled
def _move(costs: Costs, x: Ints, begin: int, end: int, shift: Ints) -> int:
    """Shift the regions over cells begin:end if that lowers the cost; return by how much."""
    gain = 0
    # What the shift gains, unit by unit: the slopes may have been merged for a region alone.
    for v in range(shift.size):
        for units in range(shift[v]):
            gain -= _stretch_slope(costs, x, v, begin, end, units)
        for units in range(shift[v], 0):
            gain += _stretch_slope(costs, x, v, begin, end, units)
    if gain <= 0:
        return 0
    for v in range(shift.size):
        for i in range(begin, end):
            x[v, i] += shift[v]
    return gain


@compiled
def improve(costs: Costs, shape: Shape, x: Ints, own: Ints, between: Ints, unit: int, longest: int, reach: int) -> int:
    """Try all stretches of at most ``longest`` cells once, in place; return what was gained.

    own and between (cells,) say where the gap lies (``expected_distance_rows.cell_gaps``); ``unit`` is the least gain
    there is. O(regions (length + log regions)) a stretch that is tried.
    """
    regions, cells = x.shape
    height, v = 1, regions - 1
    # Every slope of a leaf is stored once at each region above it.
    while v > 0:
        v, height = shape.parent[v], height + 1
    room = 2 * reach * regions * height
    steps = Steps(
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(regions, np.int64),
        np.empty(regions, np.int64),
        np.empty(regions, np.int64),
        np.empty(regions, np.int64),
    )
    gained = 0
    # Short stretches first: they are cheap, and long ones need less gain afterwards.
    for length in range(1, longest + 1):
        for begin in range(cells - length + 1):
            end = begin + length
            within = between[begin - 1] if begin > 0 else 0
            for i in range(begin, end):
                within += own[i] + between[i]
            if within < unit:
                continue
            _shifts(costs, shape, x, begin, end, reach, steps)
            gained += _move(costs, x, begin, end, steps.shift)
    return gained
