"""Rounds of alternating directions row by row: what a round does to a region's row, while that row is in the cache.

The problem and its splitting are those of ``joint_rounds``. A round is

1. ``rows_absolute`` or ``rows_squares``: a row takes its share of its parent's discrepancy, is made monotone, and is
   reflected; leaves pass the sum of a run of siblings up;
2. ``reconcile``: the regions with children, few of all, are made consistent cell by cell.

Where cells have weights of their own, a row is pooled anew (``pool_row``). Elsewhere it is made monotone starting from
the runs of equal cells of the round before:

1. A run stays in one piece if its sums from the left stay on or above their chord: then its mean is what the pool of
   its cells alone would be, and pools of pools are pools.
2. Elsewhere it is cut where the sums are farthest below the chord, a vertex of their minorant.
3. The pieces are pooled as blocks.

Near the end of a search hardly a run is cut, and a row costs one sum and one comparison a cell where pooling cell by
cell guesses a branch each. Rows split over threads by runs of siblings and cells by ranges, which changes no bit.

Invariant: every row of m stays nondecreasing within its bounds. Cost: O(cells of all regions) a round.
Source: Barlow et al. 1972, section 1.2 (greatest convex minorant); starting from the last round's runs is our own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled
from coco_opt.kernels.joint_rounds import pool_row

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_NONE, _ONE = -1, 1
_SHORT = 6  # cells of a run that are pooled one by one
_CUTS = 8  # times that the cells of a run are looked at before they are pooled one by one


class Passes(NamedTuple):
    """The tree, and which rows are done together.

    ``inner`` (n,) numbers the regions with children, -1 at leaves; ``own`` and ``share`` (n,) are those of
    ``joint_rounds.pass_weights``. Rows begin[k]:begin[k + 1] are one region with children, or leaves of one parent:
    then their sum goes into row ``into[k]`` of ``State.handed``, else into[k] is -1. ``owner`` is the number of the
    parent that each row of ``handed`` is for.
    """

    parent: Ints
    inner: Ints
    own: Floats
    share: Floats
    begin: Ints
    into: Ints
    owner: Ints


class State(NamedTuple):
    """The copies of the table (n, cells) as in ``joint_rounds``, and the values that rows and tree exchange.

    ``weight`` is the reach of p = 1, the weight over the penalty, or for p = 2 the share of y in the row to pool;
    ``near`` has no rows for p = 2. ``scale`` (cells,) are the cells' weights, empty where all are equal. ``x`` and
    ``off`` (inner, cells) are the rows of regions with children and their discrepancies, ``handed`` the sums of leaves.
    """

    c: Floats
    near: Floats
    m: Floats
    y: Floats
    weight: Floats
    top: Floats
    scale: Floats
    x: Floats
    off: Floats
    handed: Floats


@compiled
def _push(sums: Floats, counts: Ints, block: int, total: float, count: int) -> int:
    """Put a block behind blocks of increasing means, pooled with those that are not below it; return its place."""
    # Means are compared as products of sums and counts.
    while block >= 0 and sums[block] * count >= total * counts[block]:
        total += sums[block]
        count += counts[block]
        block -= 1
    sums[block + 1] = total
    counts[block + 1] = count
    return block + 1


@compiled
def _run_end(m: Floats, i: int) -> int:
    """Return where the run of equal cells that begins at i ends; rows are nondecreasing."""
    end, value = i + 1, m[i]
    # Rows are nondecreasing: if the sixteenth cell is equal, so are those between.
    while end + 16 <= m.size and m[end + 15] == value:
        end += 16
    while end < m.size and m[end] == value:
        end += 1
    return end


@compiled
def _add_along(c: Floats, value: float, i: int, end: int, rise: Floats) -> float:
    """Write the sums of c - value over i:k into rise[k], i <= k <= end; return the least of them."""
    total = least = 0.0
    rise[i] = 0.0
    k = i
    while k + 4 <= end:  # four at a time: one addition waits for the last
        first = c[k] - value
        third = c[k + 2] - value
        second = first + (c[k + 1] - value)
        fourth = second + (third + (c[k + 3] - value))
        third = second + third
        rise[k + 1] = total + first
        rise[k + 2] = total + second
        rise[k + 3] = total + third
        rise[k + 4] = total + fourth
        least = min(least, total + min(min(first, second), min(third, fourth)))
        total += fourth
        k += 4
    while k < end:
        total += c[k] - value
        rise[k + 1] = total
        least = min(least, total)
        k += 1
    return least


@compiled
def _below_chord(rise: Floats, begin: int, end: int, slope: float) -> float:
    """Return the least of rise less its chord of a slope from ``begin`` on, over begin < k < end; at most 0."""
    first = second = third = fourth = 0.0
    start, along, k = rise[begin], 1.0, begin + 1
    # Four minima at a time, each with a chain of its own.
    while k + 4 <= end:
        first = min(first, rise[k] - start - along * slope)
        second = min(second, rise[k + 1] - start - (along + 1.0) * slope)
        third = min(third, rise[k + 2] - start - (along + 2.0) * slope)
        fourth = min(fourth, rise[k + 3] - start - (along + 3.0) * slope)
        along += 4.0
        k += 4
    while k < end:
        first = min(first, rise[k] - start - along * slope)
        along += 1.0
        k += 1
    return min(min(first, second), min(third, fourth))


@compiled
def _lowest(rise: Floats, begin: int, end: int, slope: float) -> int:
    """Return the k, begin < k < end, where rise is least relative to its chord."""
    place, least = begin + 1, np.inf
    # The first of the lowest points.
    for k in range(begin + 1, end):
        off = rise[k] - rise[begin] - (k - begin) * slope
        if off < least:
            place, least = k, off
    return place


@compiled
def _pool_run(
    c: Floats,
    value: float,
    top: float,
    i: int,
    end: int,
    sums: Floats,
    counts: Ints,
    rise: Floats,
    ends: Ints,
    block: int,
) -> int:
    """Push the blocks of cells i:end, a run of one value in the round before; return the last one's place."""
    free_end = end
    least = _add_along(c, value, i, end, rise)
    if value >= top:  # whatever is above the bound is cut off: what follows the lowest sum stays at it
        free_end = i if least >= 0.0 else _lowest(rise, i, end + 1, 0.0)
    left, right, deep, work = i, free_end, 0, _CUTS * (end - i)
    # left:right is one piece of the run: cut at its lowest point, or pooled; ``ends`` stacks the parts right of it.
    while left < free_end:
        size = right - left
        if size >= _SHORT and work > 0:
            slope = (rise[right] - rise[left]) / size
            work -= size
            if _below_chord(rise, left, right, slope) < 0.0:
                ends[deep] = right
                deep += 1
                right = _lowest(rise, left, right, slope)
                continue
            block = _push(sums, counts, block, value * size + (rise[right] - rise[left]), size)
        else:
            # A short piece, or one looked at too often: pool its cells one by one.
            for k in range(left, right):
                block = _push(sums, counts, block, c[k], _ONE)
        left = right
        if deep > 0:
            deep -= 1
            right = ends[deep]
    if free_end < end:
        block = _push(sums, counts, block, value * (end - free_end) + (rise[end] - rise[free_end]), end - free_end)
    return block


@compiled
def monotone_again(c: Floats, m: Floats, top: float, sums: Floats, counts: Ints, rise: Floats, ends: Ints) -> None:
    """Replace m, that of an earlier round, by the nearest nondecreasing row within [0, top] to c.

    Whatever m was, its runs are only where the search begins. ``sums``, ``counts`` and ``ends`` (cells,) and ``rise``
    (cells + 1,) are scratch.
    """
    block, i = _NONE, 0
    # One run of the round before at a time.
    while i < m.size:
        end = _run_end(m, i)
        if end - i < _SHORT:
            for k in range(i, end):
                block = _push(sums, counts, block, c[k], _ONE)
        else:
            block = _pool_run(c, m[i], top, i, end, sums, counts, rise, ends, block)
        i = end
    position, value = 0, 0.0
    # Write each block's clipped mean over its cells.
    for k in range(block + 1):
        value = min(max(sums[k] / counts[k], value), top)  # never below the block before, whatever is rounded
        for i in range(position, position + counts[k]):
            m[i] = value
        position += counts[k]


@compiled
def rows_absolute(passes: Passes, state: State, step: float, first: int, last: int) -> None:
    """Take the runs first:last of rows through a round for p = 1; a step of 0 leaves them and only hands them on.

    ``near`` is the folded copy of u = y + soft threshold of (near - y) by the reach. The threshold is written without
    branches, for vector instructions, and taken again: reading u back costs more.
    """
    cells = state.c.shape[1]
    sums, counts = np.empty(cells), np.empty(cells, np.int64)
    rise, ends = np.empty(cells + 1), np.empty(cells, np.int64)
    for k in range(first, last):
        for v in range(passes.begin[k], passes.begin[k + 1]):
            c, near, m, y = state.c[v], state.near[v], state.m[v], state.y[v]
            far, number = state.weight[v], passes.inner[v]
            if step > 0.0 and number >= 0:
                x = state.x[number]
                # A region with children: its row of sums is at hand.
                for i in range(cells):
                    away = near[i] - y[i]
                    u = near[i] - 0.5 * (abs(away + far) - abs(away - far))
                    c[i] += step * (x[i] - m[i])
                    near[i] += step * (x[i] - u)
            elif step > 0.0:
                off, part = state.off[max(passes.inner[passes.parent[v]], 0)], passes.share[v]
                # A leaf: its row of sums is the reflected mean of its copies and its share of the parent's discrepancy.
                for i in range(cells):
                    away = near[i] - y[i]
                    u = near[i] - 0.5 * (abs(away + far) - abs(away - far))
                    moved = u + m[i] - 0.5 * (near[i] + c[i]) + part * off[i]
                    c[i] += step * (moved - m[i])
                    near[i] += step * (moved - u)
            if step > 0.0 and state.scale.size > 0:
                pool_row(c, state.scale, state.top[v], m, sums, rise, ends)
            elif step > 0.0:
                monotone_again(c, m, state.top[v], sums, counts, rise, ends)
            out = state.x[number] if number >= 0 else state.handed[passes.into[k]]
            fresh = 1.0 if v > passes.begin[k] else 0.0
            # Hand the mean of the two reflected copies on: to the region's own row, or added to its siblings'.
            for i in range(cells):
                away = near[i] - y[i]
                u = near[i] - 0.5 * (abs(away + far) - abs(away - far))
                out[i] = fresh * out[i] + (u + m[i] - 0.5 * (near[i] + c[i]))


@compiled
def rows_squares(passes: Passes, state: State, step: float, first: int, last: int) -> None:
    """Take the runs first:last of rows through a round for p = 2; a step of 0 leaves them and only hands them on."""
    cells = state.c.shape[1]
    sums, counts, mixed = np.empty(cells), np.empty(cells, np.int64), np.empty(cells)
    rise, ends = np.empty(cells + 1), np.empty(cells, np.int64)
    for k in range(first, last):
        for v in range(passes.begin[k], passes.begin[k + 1]):
            c, m, y = state.c[v], state.m[v], state.y[v]
            toward, number = state.weight[v], passes.inner[v]
            if step > 0.0 and number >= 0:
                x = state.x[number]
                # A region with children: its row of sums is at hand.
                for i in range(cells):
                    c[i] += step * (x[i] - m[i])
            elif step > 0.0:
                off, part = state.off[max(passes.inner[passes.parent[v]], 0)], passes.share[v]
                # A leaf: its row of sums is the reflected copy and its share of the parent's discrepancy.
                for i in range(cells):
                    c[i] += step * (m[i] - c[i] + part * off[i])
            if step > 0.0:
                # The loss joins the projection: the mean of the copy and the measurement.
                for i in range(cells):
                    mixed[i] = c[i] + toward * (y[i] - c[i])
                if state.scale.size > 0:
                    pool_row(mixed, state.scale, state.top[v], m, sums, rise, ends)
                else:
                    monotone_again(mixed, m, state.top[v], sums, counts, rise, ends)
            out = state.x[number] if number >= 0 else state.handed[passes.into[k]]
            fresh = 1.0 if v > passes.begin[k] else 0.0
            for i in range(cells):
                out[i] = fresh * out[i] + (2.0 * m[i] - c[i])


@compiled
def reconcile(passes: Passes, state: State, regions: Ints, begin: int, end: int, width: int) -> None:
    """Reconcile the regions with children on cells begin:end: their rows of sums, and their discrepancies.

    ``regions`` (inner,) are these regions, in order; ``width`` cells are done at a time.
    """
    # A strip of cells at a time: first collect what the rows of children handed up.
    for left in range(begin, end, width):
        right = min(left + width, end)
        for s in range(regions.size):
            off = state.off[s, left:right]
            for i in range(right - left):
                off[i] = 0.0
        for k in range(passes.owner.size):
            off, handed = state.off[passes.owner[k], left:right], state.handed[k, left:right]
            for i in range(right - left):
                off[i] += handed[i]
        # Upwards: mix each row with its children's sum, and add it to its parent's.
        for s in range(regions.size - 1, -1, -1):
            x, off, part = state.x[s, left:right], state.off[s, left:right], passes.own[regions[s]]
            for i in range(right - left):
                x[i] = off[i] + part * (x[i] - off[i])
            if s > 0:
                up = state.off[passes.inner[passes.parent[regions[s]]], left:right]
                for i in range(right - left):
                    up[i] += x[i]
        # Downwards: take the share of the parent's discrepancy, and leave the own one for the children.
        for s in range(regions.size):
            x, off = state.x[s, left:right], state.off[s, left:right]
            if s > 0:
                part = passes.share[regions[s]]
                up = state.off[passes.inner[passes.parent[regions[s]]], left:right]
                for i in range(right - left):
                    x[i] += part * up[i]
            for i in range(right - left):
                off[i] = x[i] - off[i]
