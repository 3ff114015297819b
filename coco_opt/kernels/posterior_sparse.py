"""Draws of a hierarchy stored by the sizes that occur: a few dozen sizes a region, out of thousands.

The problem: the distribution of every count and cumulative count over many draws, in memory for the sizes that occur.

1. ``add_up`` and ``write``: a draw lists for every region its occupied sizes in order and their groups.
2. ``by_size``: after all draws the entries of a region are sorted by size.
3. ``distributions``: one pass over the sizes gives the distribution of every cumulative count, which changes only where
   some draw has groups.

Invariant: ``running`` holds every draw's cumulative count below the present size. Cost: O(entries x draws) at worst.
Source: counting sort; ours.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled, compiled_in_place

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_WIDEST = 4  # times the draws: the widest range of values that is counted, not sorted


class Tree(NamedTuple):
    """Each region's parent (-1 at the root), its place among the leaves and among the inner regions (-1: none)."""

    parent: Ints
    leaf: Ints
    inner: Ints


class Lists(NamedTuple):
    """The leaves' histograms [leaves, K + 1], and their lists of occupied sizes (``kernels.posterior_moves.State``)."""

    histograms: NDArray[Any]
    occupied: NDArray[Any]
    occupied_count: Ints


class Entries(NamedTuple):
    """All draws' groups of region v and some size, sorted by size, at ``first[v]`` to ``first[v + 1]``."""

    first: Ints
    size: NDArray[Any]
    draw: NDArray[Any]
    groups: NDArray[Any]


class Ends(NamedTuple):
    """Ends of intervals [regions, sizes]: lower and upper of H, and of Hc."""

    groups_lower: NDArray[Any]
    groups_upper: NDArray[Any]
    at_most_lower: NDArray[Any]
    at_most_upper: NDArray[Any]


@compiled
def add_up(tree: Tree, lists: Lists, inner: Ints, start: Ints) -> None:
    """Fill the histograms [inner regions, K + 1] of all but the leaves, and where every region's entries begin."""
    inner[:] = 0
    # Children come after their parent, so that backwards they are complete.
    for v in range(tree.parent.size - 1, 0, -1):
        above = inner[tree.inner[tree.parent[v]]]
        leaf = tree.leaf[v]
        if leaf >= 0:
            for n in range(lists.occupied_count[leaf]):
                size = lists.occupied[leaf, n]
                above[size] += lists.histograms[leaf, size]
        else:
            own = inner[tree.inner[v]]
            for size in range(own.size):
                above[size] += own[size]
    start[0] = 0
    # Count the sizes that occur.
    for v in range(tree.parent.size):
        leaf = tree.leaf[v]
        entries = lists.occupied_count[leaf] if leaf >= 0 else 0
        if leaf < 0:
            for count in inner[tree.inner[v]]:
                entries += count > 0
        start[v + 1] = start[v] + entries


@compiled
def write(
    tree: Tree,
    lists: Lists,
    inner: Ints,
    start: Ints,
    probe: int,
    sizes: NDArray[Any],
    counts: NDArray[Any],
    scalars: Floats,
) -> None:
    """Write a draw's entries, and scalars [regions, 3]: the entities, Hc[0] and Hc[probe]."""
    scalars[:] = 0.0
    for v in range(tree.parent.size):
        position, leaf = start[v], tree.leaf[v]
        if leaf >= 0:
            for size in np.sort(lists.occupied[leaf, : lists.occupied_count[leaf]]):
                sizes[position], counts[position] = size, lists.histograms[leaf, size]
                position += 1
        else:
            own = inner[tree.inner[v]]
            for size in range(own.size):
                if own[size] > 0:
                    sizes[position], counts[position] = size, own[size]
                    position += 1
        # The scalars by which convergence is judged.
        for n in range(start[v], position):
            scalars[v, 0] += float(sizes[n]) * counts[n]
            if sizes[n] == 0:
                scalars[v, 1] += counts[n]
            if sizes[n] <= probe:
                scalars[v, 2] += counts[n]


@compiled
def by_size(start: Ints, sizes: NDArray[Any], counts: NDArray[Any], largest: int, entries: Entries) -> None:
    """Sort the entries of every region by size; draw d has those of region v at start[d, v] to start[d, v + 1]."""
    place = np.empty(largest + 2, np.int64)
    for v in range(entries.first.size - 1):
        place[:] = 0
        # Count the entries of each size, ...
        for d in range(start.shape[0]):
            for n in range(start[d, v], start[d, v + 1]):
                place[sizes[n] + 1] += 1
        place[0] = entries.first[v]
        # ... find where each size begins, ...
        for size in range(largest + 1):
            place[size + 1] += place[size]
        # ... and put every entry there, in the order of draws.
        for d in range(start.shape[0]):
            for n in range(start[d, v], start[d, v + 1]):
                position = place[sizes[n]]
                entries.size[position], entries.draw[position], entries.groups[position] = sizes[n], d, counts[n]
                place[sizes[n]] += 1


@compiled
def _distinct(values: Ints, scratch: Ints, points: Ints, masses: Ints) -> int:
    """Fill the distinct values in order and how many draws have each; return their number."""
    low = high = values[0]
    for value in values:
        low, high = min(low, value), max(high, value)
    count = 0
    # A narrow range is counted, a wide one is sorted.
    if high - low < scratch.size:
        for j in range(high - low + 1):
            scratch[j] = 0
        for value in values:
            scratch[value - low] += 1
        for j in range(high - low + 1):
            if scratch[j] > 0:
                points[count], masses[count] = low + j, scratch[j]
                count += 1
        return count
    for value in np.sort(values):
        if count > 0 and points[count - 1] == value:
            masses[count - 1] += 1
        else:
            points[count], masses[count] = value, 1
            count += 1
    return count


@compiled_in_place
def _place(points: Ints, masses: Ints, rank: int) -> int:
    """Return the value of a rank, from 0, among all draws."""
    n = 0
    while rank >= masses[n]:
        rank -= masses[n]
        n += 1
    return int(points[n])


@compiled
def distributions(
    entries: Entries, reached: Ints, running: Ints, begin: int, end: int, ranks: Ints, ends: Ends, offsets: Ints
) -> tuple[Ints, Ints]:
    """Return the atoms of Hc[begin..end - 1] of all regions and their weights, cell by cell, and fill ``ends``.

    ``offsets`` int64[regions x cells + 1] become the atoms' places. ``reached`` int64[regions] and ``running``
    int64[regions, draws], the entries passed and every draw's count below ``begin``, go on to ``end``; ``ranks`` are
    those of the lower and the upper end among the sorted draws. O(entries x draws) where sizes are all apart.
    """
    regions, draws = running.shape
    scratch = np.empty(_WIDEST * draws, np.int64)
    points, masses = np.empty(draws, np.int64), np.empty(draws, np.int64)
    of_size = np.empty(draws, np.int64)
    atoms, weights = np.empty(4 * regions * (end - begin), np.int64), np.empty(4 * regions * (end - begin), np.int64)
    position = 0
    offsets[0] = 0
    for v in range(regions):
        distinct = _distinct(running[v], scratch, points, masses)
        lower, upper = _place(points, masses, ranks[0]), _place(points, masses, ranks[1])
        # Sizes in order; entries of the present size move their draws on.
        for k in range(begin, end):
            occurring = 0
            while reached[v] < entries.first[v + 1] and entries.size[reached[v]] == k:
                n = reached[v]
                running[v, entries.draw[n]] += entries.groups[n]
                of_size[occurring] = entries.groups[n]
                occurring += 1
                reached[v] += 1
            ends.groups_lower[v, k] = ends.groups_upper[v, k] = 0
            if occurring > 0:
                distinct = _distinct(running[v], scratch, points, masses)
                lower, upper = _place(points, masses, ranks[0]), _place(points, masses, ranks[1])
                # Draws without the size count as 0: ranks are among the few others.
                if ranks[1] >= draws - occurring:
                    ordered = np.sort(of_size[:occurring])
                    ends.groups_upper[v, k] = ordered[ranks[1] - (draws - occurring)]
                    if ranks[0] >= draws - occurring:
                        ends.groups_lower[v, k] = ordered[ranks[0] - (draws - occurring)]
            ends.at_most_lower[v, k], ends.at_most_upper[v, k] = lower, upper
            if position + distinct > atoms.size:
                atoms = np.concatenate((atoms, np.empty(atoms.size + distinct, np.int64)))
                weights = np.concatenate((weights, np.empty(weights.size + distinct, np.int64)))
            for n in range(distinct):
                atoms[position + n], weights[position + n] = points[n], masses[n]
            position += distinct
            offsets[v * (end - begin) + k - begin + 1] = position
    return atoms[:position], weights[:position]


@compiled
def summarise(
    start: Ints, sizes: NDArray[Any], counts: NDArray[Any], groups: Ints, denominator: int, parts: Ints, summaries: Ints
) -> None:
    """Fill summaries [draws, regions, 3 + parts] as ``kernels.posterior_record.summarise`` does."""
    for d in range(start.shape[0]):
        for v in range(groups.size):
            row = summaries[d, v]
            row[:] = 0
            running = p = 0
            # The entries are in order of size: quantiles are passed one after the other.
            for n in range(start[d, v], start[d, v + 1]):
                size, count = sizes[n], counts[n]
                row[0] += size * count
                if size == 1:
                    row[1] = count
                row[2] = size
                running += count
                while p < parts.size and denominator * running >= parts[p] * groups[v]:
                    row[3 + p] = size
                    p += 1
