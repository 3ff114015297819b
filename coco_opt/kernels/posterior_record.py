"""Cumulative tables of a hierarchy's histograms, and compact counts of them over many draws.

The problem: quantiles of every cumulative count over many draws, without storing the draws. A draw is a table
x int64[regions, K] of cumulative counts. Every cell has a window of values, ragged as in
``coco_opt.kernels.posterior_weights``: the place start[v, i] + x - low[v, i] counts how often x was drawn; values
outside are counted at the nearer end, so quantiles are right as long as they lie inside.

1. ``cumulate``: sum the leaves' histograms over sizes and upwards over the tree.
2. ``count`` every draw, in windows around the values of the draws before.
3. ``quantile`` reads quantiles off the counts, in integers.

Invariant: the counts of a cell add up to the number of draws. Cost: O(cells) a draw.
Source: counting sort; ours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Ints = NDArray[np.int64]


@compiled
def cumulate(parent: Ints, leaves: Ints, histograms: NDArray[Any], table: Ints) -> None:
    """Fill table (regions, K) from the leaves' histograms (leaves, K + 1); parents are numbered before children."""
    table[:] = 0
    for leaf in range(leaves.size):
        row = table[leaves[leaf]]
        running = 0
        # Running sums over the sizes.
        for i in range(row.size):
            running += histograms[leaf, i]
            row[i] = running
    add_up(parent, table)


@compiled
def add_up(parent: Ints, table: Ints) -> None:
    """Add every row to its parent's; inner rows must be zero before."""
    # Children come after their parent, so that backwards they are complete.
    for v in range(parent.size - 1, 0, -1):
        up, row = table[parent[v]], table[v]
        for i in range(row.size):
            up[i] += row[i]


@compiled
def count(table: Ints, low: NDArray[Any], start: Ints, counts: NDArray[Any], sums: Ints) -> None:
    """Count one draw: ``start`` int64[cells of all rows + 1] runs through all cells by rows; sums are over draws."""
    cells = table.shape[1]
    for v in range(table.shape[0]):
        # Outside its window a value counts at the nearer end.
        for i in range(cells):
            position = v * cells + i
            x = table[v, i] - low[v, i]
            last = start[position + 1] - start[position] - 1
            counts[start[position] + min(max(x, 0), last)] += 1
            sums[v, i] += table[v, i]


@compiled
def quantile(
    low: NDArray[Any],
    start: Ints,
    counts: NDArray[Any],
    draws: int,
    part: int,
    denominator: int,
    upper: bool,
    quantiles: Ints,
) -> None:
    """Fill quantiles (regions, K) with the lower (or upper) quantile part / denominator, decided in integers.

    Lower: the smallest x with denominator #(draws <= x) >= part draws; upper: the smallest with more than that, or the
    largest value drawn. Draws are nondecreasing rows, so the quantiles are too.
    """
    target = part * draws
    cells = quantiles.shape[1]
    for v in range(quantiles.shape[0]):
        for i in range(cells):
            position = v * cells + i
            begin, end = start[position], start[position + 1]
            running = 0
            x = begin
            last = begin
            # Add up draws until the target is reached; ``last`` is the largest value drawn so far.
            while x < end:
                running += denominator * counts[x]
                last = x if counts[x] > 0 else last
                if running > target or (running == target and not upper and running > 0):
                    break
                x += 1
            quantiles[v, i] = low[v, i] + (x if x < end else last) - begin


@compiled
def summarise(table: Ints, groups: Ints, denominator: int, parts: Ints, summaries: Ints) -> None:
    """Fill summaries (regions, 3 + parts) from cumulative counts (regions, K) and the regions' groups.

    In order: the entities, sum_k k H[k]; the groups of size 1; the largest size, 0 of no groups; for each part the
    smallest size that at least part / ``denominator`` of the groups do not exceed, 0 of no groups.
    """
    for v in range(table.shape[0]):
        row, total = table[v], groups[v]
        k = row.size
        entities = k * total
        # sum_k k H[k] is K times all groups less the cumulative counts.
        for i in range(k):
            entities -= row[i]
        summaries[v, 0] = entities
        summaries[v, 1] = (row[1] if k > 1 else total) - row[0]
        largest = k
        # The largest size is where the cumulative count reaches all groups.
        while largest > 0 and row[largest - 1] == total:
            largest -= 1
        summaries[v, 2] = largest
        # A quantile of the sizes, by integers: denominator x count against part x total.
        for p in range(parts.size):
            size = 0
            while size < k and denominator * row[size] < parts[p] * total:
                size += 1
            summaries[v, 3 + p] = size
