"""Dependent rounding: every number is rounded up with the probability of its fraction, and sums keep their values.

The problem: for fractions f [children, cells] draw integers F in {floor(f), ceil(f)} with E F = f such that the sum of
every cell, and with ``both_ways`` that of every child, keeps its integer value.

1. Take two fractions of one sum, or the fractions along a cycle of cells and children.
2. Move them in opposite directions until one of them is an integer; draw the direction with such odds that no
   expectation changes.
3. Repeat until no fraction is left. Fractions within 1e-9 of an integer count as that integer.

Invariant: all integer sums and all expectations stay the same at every step. Cost: O(entries) for one-way sums,
O(entries x the smaller side) for sums in both directions.
Source: pipage rounding; Gandhi, Khuller, Parthasarathy and Srinivasan 2006; for tables Cox 1987.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_NEAR = 1e-9


@compiled
def independent(fraction: Floats, uniform: Floats) -> None:
    """Round every fraction by itself, in place."""
    for j in range(fraction.shape[0]):
        for c in range(fraction.shape[1]):
            fraction[j, c] = 1.0 if uniform[j * fraction.shape[1] + c] < fraction[j, c] else 0.0


@compiled
def columns(fraction: Floats, uniform: Floats) -> None:
    """Round fractions [children, cells] in place; every cell keeps its integer sum. O(entries)."""
    used = 0
    for c in range(fraction.shape[1]):
        a = -1
        # ``a`` is the fraction that is still open in this cell; it is paired with the next one.
        for b in range(fraction.shape[0]):
            if _NEAR < fraction[b, c] < 1.0 - _NEAR:
                if a < 0:
                    a = b
                    continue
                both = fraction[a, c] + fraction[b, c]
                spare = min(both, 2.0 - both)
                # One of the two becomes an integer; the other takes the rest of their sum.
                odds = fraction[b, c] if both < 1.0 else 1.0 - fraction[b, c]
                integer = 0.0 if both < 1.0 else 1.0
                if uniform[used] * spare < odds:
                    fraction[a, c], fraction[b, c] = integer, both - integer
                    a = b
                else:
                    fraction[a, c], fraction[b, c] = both - integer, integer
                used += 1
                if not _NEAR < fraction[a, c] < 1.0 - _NEAR:
                    a = -1
        for b in range(fraction.shape[0]):
            fraction[b, c] = np.rint(fraction[b, c])


@compiled
def _drop(j: int, c: int, by_child: Ints, by_cell: Ints, place: Ints, degree: Ints) -> None:
    """Remove an entry that has become an integer from its child's and its cell's lists."""
    children = by_child.shape[0]
    degree[j] -= 1
    moved, position = by_child[j, degree[j]], place[0, j, c]
    by_child[j, position], place[0, j, moved] = moved, position
    degree[children + c] -= 1
    moved, position = by_cell[c, degree[children + c]], place[1, j, c]
    by_cell[c, position], place[1, moved, c] = moved, position


@compiled
def _following(node: int, before: int, by_child: Ints, by_cell: Ints) -> int:
    """Return a neighbour of a node other than the one before it."""
    children = by_child.shape[0]
    if node < children:
        neighbour = children + by_child[node, 0]
        return int(neighbour if neighbour != before else children + by_child[node, 1])
    neighbour = by_cell[node - children, 0]
    return int(neighbour if neighbour != before else by_cell[node - children, 1])


@compiled
def _turn(fraction: Floats, path: Ints, first: int, last: int, children: int, uniform: float) -> None:
    """Move the fractions along a cycle, nodes ``path[first:last]``, until one becomes an integer."""
    up, down = 1.0, 1.0
    # How far the alternating step can go up and down before a fraction of the cycle becomes an integer.
    for a in range(first, last):
        node, neighbour = path[a], path[a + 1]
        f = fraction[min(node, neighbour), max(node, neighbour) - children]
        rises = (a - first) % 2 == 0
        up = min(up, 1.0 - f if rises else f)
        down = min(down, f if rises else 1.0 - f)
    step = up if uniform * (up + down) < down else -down
    # Every other fraction moves by minus the step: each node on the cycle keeps its sum.
    for a in range(first, last):
        node, neighbour = path[a], path[a + 1]
        fraction[min(node, neighbour), max(node, neighbour) - children] += step if (a - first) % 2 == 0 else -step


@compiled
def _lists(fraction: Floats) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the fractional entries by child and by cell, each entry's place in both lists, and the lists' lengths."""
    children, cells = fraction.shape
    by_child, by_cell = np.empty((children, cells), np.int64), np.empty((cells, children), np.int64)
    place, degree = np.empty((2, children, cells), np.int64), np.zeros(children + cells, np.int64)
    for j in range(children):
        for c in range(cells):
            if not _NEAR < fraction[j, c] < 1.0 - _NEAR:
                fraction[j, c] = np.rint(fraction[j, c])
                continue
            place[0, j, c], place[1, j, c] = degree[j], degree[children + c]
            by_child[j, degree[j]], by_cell[c, degree[children + c]] = c, j
            degree[j] += 1
            degree[children + c] += 1
    return by_child, by_cell, place, degree


@compiled
def both_ways(fraction: Floats, uniform: Floats) -> None:
    """Round fractions [children, cells] in place; every child and every cell keeps its integer sum.

    O(entries x the smaller side): each cycle turns one entry into an integer.
    """
    children, cells = fraction.shape
    by_child, by_cell, place, degree = _lists(fraction)
    path, position, used = np.empty(children + cells + 1, np.int64), np.full(children + cells, -1), 0
    for start in range(children):
        # Walk from fraction to fraction until a node is met again: there a cycle closes.
        while degree[start] > 0:
            size, closed, path[0], position[start] = 1, -1, start, 0
            while closed < 0 and degree[path[size - 1]] > (1 if size > 1 else 0):
                before = path[size - 2] if size > 1 else -1
                path[size] = _following(path[size - 1], before, by_child, by_cell)
                closed = position[path[size]]
                if closed < 0:
                    position[path[size]] = size
                    size += 1
            for a in range(size):
                position[path[a]] = -1
            # Without a cycle the path ends in the only fraction of an integer sum: an integer up to rounding errors.
            first = closed if closed >= 0 else size - 2
            if closed >= 0:
                _turn(fraction, path, closed, size, children, uniform[used])
                used += 1
            # Fractions that have become integers leave the lists.
            for a in range(first, size if closed >= 0 else size - 1):
                j, c = min(path[a], path[a + 1]), max(path[a], path[a + 1]) - children
                if closed < 0 or not _NEAR < fraction[j, c] < 1.0 - _NEAR:
                    fraction[j, c] = np.rint(fraction[j, c])
                    _drop(j, c, by_child, by_cell, place, degree)
