"""Draws of a hierarchy kept as the sizes that occur: what a nation's regions have is a few dozen of thousands.

A draw lists for every region its occupied sizes in order and their groups. After all draws the entries of a region are
sorted by size, and one pass over the sizes tells every cumulative count's distribution: it changes only where some draw
has groups.
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
    """Each region's parent (-1 at the root), its place among the leaves and among the others (-1: it is no such)."""

    parent: Ints
    leaf: Ints
    inner: Ints


class Lists(NamedTuple):
    """The leaves' histograms [leaves, K + 1], and their lists of occupied sizes (``kernels.posterior_moves.State``)."""

    histograms: NDArray[Any]
    occupied: NDArray[Any]
    held: Ints


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
    for v in range(tree.parent.size - 1, 0, -1):
        above = inner[tree.inner[tree.parent[v]]]
        leaf = tree.leaf[v]
        if leaf >= 0:
            for n in range(lists.held[leaf]):
                size = lists.occupied[leaf, n]
                above[size] += lists.histograms[leaf, size]
        else:
            own = inner[tree.inner[v]]
            for size in range(own.size):
                above[size] += own[size]
    start[0] = 0
    for v in range(tree.parent.size):
        leaf = tree.leaf[v]
        held = lists.held[leaf] if leaf >= 0 else 0
        if leaf < 0:
            for count in inner[tree.inner[v]]:
                held += count > 0
        start[v + 1] = start[v] + held


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
        at, leaf = start[v], tree.leaf[v]
        if leaf >= 0:
            for size in np.sort(lists.occupied[leaf, : lists.held[leaf]]):
                sizes[at], counts[at] = size, lists.histograms[leaf, size]
                at += 1
        else:
            own = inner[tree.inner[v]]
            for size in range(own.size):
                if own[size] > 0:
                    sizes[at], counts[at] = size, own[size]
                    at += 1
        for n in range(start[v], at):
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
        for d in range(start.shape[0]):
            for n in range(start[d, v], start[d, v + 1]):
                place[sizes[n] + 1] += 1
        place[0] = entries.first[v]
        for size in range(largest + 1):
            place[size + 1] += place[size]
        for d in range(start.shape[0]):
            for n in range(start[d, v], start[d, v + 1]):
                at = place[sizes[n]]
                entries.size[at], entries.draw[at], entries.groups[at] = sizes[n], d, counts[n]
                place[sizes[n]] += 1


@compiled
def _distinct(values: Ints, scratch: Ints, points: Ints, masses: Ints) -> int:
    """Fill the distinct values in order and how many draws have each; return their number."""
    low = high = values[0]
    for value in values:
        low, high = min(low, value), max(high, value)
    found = 0
    if high - low < scratch.size:
        for j in range(high - low + 1):
            scratch[j] = 0
        for value in values:
            scratch[value - low] += 1
        for j in range(high - low + 1):
            if scratch[j] > 0:
                points[found], masses[found] = low + j, scratch[j]
                found += 1
        return found
    for value in np.sort(values):
        if found > 0 and points[found - 1] == value:
            masses[found - 1] += 1
        else:
            points[found], masses[found] = value, 1
            found += 1
    return found


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
    at = 0
    offsets[0] = 0
    for v in range(regions):
        found = _distinct(running[v], scratch, points, masses)
        lower, upper = _place(points, masses, ranks[0]), _place(points, masses, ranks[1])
        for k in range(begin, end):
            held = 0
            while reached[v] < entries.first[v + 1] and entries.size[reached[v]] == k:
                n = reached[v]
                running[v, entries.draw[n]] += entries.groups[n]
                of_size[held] = entries.groups[n]
                held += 1
                reached[v] += 1
            ends.groups_lower[v, k] = ends.groups_upper[v, k] = 0
            if held > 0:
                found = _distinct(running[v], scratch, points, masses)
                lower, upper = _place(points, masses, ranks[0]), _place(points, masses, ranks[1])
                if ranks[1] >= draws - held:
                    ordered = np.sort(of_size[:held])
                    ends.groups_upper[v, k] = ordered[ranks[1] - (draws - held)]
                    if ranks[0] >= draws - held:
                        ends.groups_lower[v, k] = ordered[ranks[0] - (draws - held)]
            ends.at_most_lower[v, k], ends.at_most_upper[v, k] = lower, upper
            if at + found > atoms.size:
                atoms = np.concatenate((atoms, np.empty(atoms.size + found, np.int64)))
                weights = np.concatenate((weights, np.empty(weights.size + found, np.int64)))
            for n in range(found):
                atoms[at + n], weights[at + n] = points[n], masses[n]
            at += found
            offsets[v * (end - begin) + k - begin + 1] = at
    return atoms[:at], weights[:at]


@compiled
def summarise(
    start: Ints, sizes: NDArray[Any], counts: NDArray[Any], groups: Ints, of: int, parts: Ints, found: Ints
) -> None:
    """Fill found [draws, regions, 3 + parts] as ``kernels.posterior_record.summarise`` does."""
    for d in range(start.shape[0]):
        for v in range(groups.size):
            row = found[d, v]
            row[:] = 0
            running = p = 0
            for n in range(start[d, v], start[d, v + 1]):
                size, count = sizes[n], counts[n]
                row[0] += size * count
                if size == 1:
                    row[1] = count
                row[2] = size
                running += count
                while p < parts.size and of * running >= parts[p] * groups[v]:
                    row[3 + p] = size
                    p += 1
