"""Cumulative tables of a hierarchy's histograms, and compact counts of them over many draws.

A draw is a table x int64[regions, K] of cumulative counts. Every cell has a window of values, ragged as in
``coco_opt.kernels.posterior_region``: the place start[v, i] + x - low[v, i] counts how often x was drawn; values
outside are counted at the nearer end, so that quantiles are right as long as they lie inside.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@compiled
def cumulate(parent: Ints, leaves: Ints, histograms: NDArray[Any], table: Ints) -> None:
    """Fill table (regions, K) from the leaves' histograms (leaves, K + 1); parents are numbered before children."""
    table[:] = 0
    for leaf in range(leaves.size):
        row = table[leaves[leaf]]
        running = 0
        for i in range(row.size):
            running += histograms[leaf, i]
            row[i] = running
    add_up(parent, table)


@compiled
def add_up(parent: Ints, table: Ints) -> None:
    """Add every row to its parent's; inner rows hold zeros before."""
    for v in range(parent.size - 1, 0, -1):
        up, row = table[parent[v]], table[v]
        for i in range(row.size):
            up[i] += row[i]


@compiled
def differences(table: Ints, groups: Ints, sizes: Ints) -> None:
    """Fill sizes (regions, K + 1), the groups of each size, from cumulative counts and the regions' groups."""
    for v in range(table.shape[0]):
        before = 0
        for i in range(table.shape[1]):
            sizes[v, i] = table[v, i] - before
            before = table[v, i]
        sizes[v, table.shape[1]] = groups[v] - before


@compiled
def widen(table: Ints, lowest: NDArray[Any], highest: NDArray[Any]) -> None:
    """Widen the range of values seen so far, cell by cell."""
    for v in range(table.shape[0]):
        for i in range(table.shape[1]):
            lowest[v, i] = min(lowest[v, i], table[v, i])
            highest[v, i] = max(highest[v, i], table[v, i])


@compiled
def count(table: Ints, low: NDArray[Any], start: Ints, counts: NDArray[Any], sums: Ints) -> int:
    """Count one draw: ``start`` int64[cells of all rows + 1] runs through all cells, row by row; sums are over draws.

    Returns how many values lay outside their windows.
    """
    cells = table.shape[1]
    outside = 0
    for v in range(table.shape[0]):
        for i in range(cells):
            at = v * cells + i
            x = table[v, i] - low[v, i]
            last = start[at + 1] - start[at] - 1
            counts[start[at] + min(max(x, 0), last)] += 1
            outside += x < 0 or x > last
            sums[v, i] += table[v, i]
    return outside


@compiled
def quantile(
    low: NDArray[Any], start: Ints, counts: NDArray[Any], draws: int, part: int, of: int, upper: bool, found: Ints
) -> None:
    """Fill found (regions, K) with the lower (or upper) quantile part / of, decided in whole numbers.

    Lower: the smallest x with of #(draws <= x) >= part draws; upper: the smallest with more than that, or the largest
    value drawn. Draws are nondecreasing rows, so the quantiles are too.
    """
    wanted = part * draws
    cells = found.shape[1]
    for v in range(found.shape[0]):
        for i in range(cells):
            at = v * cells + i
            begin, end = start[at], start[at + 1]
            running = 0
            x = begin
            last = begin
            while x < end:
                running += of * counts[x]
                last = x if counts[x] > 0 else last
                if running > wanted or (running == wanted and not upper and running > 0):
                    break
                x += 1
            found[v, i] = low[v, i] + (x if x < end else last) - begin


@compiled
def inside(
    low: NDArray[Any], start: Ints, counts: NDArray[Any], draws: int, table: Ints, part: int, of: int, found: Floats
) -> None:
    """Fill found (regions, K) with how far values lie between the quantiles part / of and 1 - part / of: 0 to 1.

    A value x has the stretch from #(draws < x) to #(draws <= x) of the distribution; found is the part of it between
    the two quantiles, so that a value at an interval's end counts in part. A value never drawn is inside or not.
    """
    cells = table.shape[1]
    lowest, highest = part * draws, (of - part) * draws
    for v in range(table.shape[0]):
        for i in range(cells):
            at = v * cells + i
            x = table[v, i] - low[v, i]
            width = start[at + 1] - start[at]
            below = 0
            for j in range(min(max(x, 0), width)):
                below += of * counts[start[at] + j]
            here = of * counts[start[at] + x] if 0 <= x < width else 0
            if here == 0:
                found[v, i] = 1.0 if lowest < below < highest else 0.0
            else:
                found[v, i] = max(min(below + here, highest) - max(below, lowest), 0) / here


@compiled
def summarise(table: Ints, groups: Ints, of: int, parts: Ints, found: Ints) -> None:
    """Fill found (regions, 3 + parts) from cumulative counts (regions, K) and the regions' groups.

    In order: the entities, sum_k k H[k]; the groups of size 1; the largest size, 0 of no groups; for each part the
    smallest size that at least part / ``of`` of the groups do not exceed, 0 of no groups.
    """
    for v in range(table.shape[0]):
        row, total = table[v], groups[v]
        k = row.size
        entities = k * total
        for i in range(k):
            entities -= row[i]
        found[v, 0] = entities
        found[v, 1] = (row[1] if k > 1 else total) - row[0]
        largest = k
        while largest > 0 and row[largest - 1] == total:
            largest -= 1
        found[v, 2] = largest
        for p in range(parts.size):
            size = 0
            while size < k and of * row[size] < parts[p] * total:
                size += 1
            found[v, 3 + p] = size
