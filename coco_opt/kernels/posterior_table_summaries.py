"""Quantiles of answers over draws of tables, and the tables of least expected error that add up.

Draws are the leaves' occupied cells: draw d of leaf b has the entries offset[d, b] .. offset[d, b + 1] - 1 of ``cell``
and ``number``.

1. Gather the answers of the leaves below a region, draw by draw.
2. Sort the draws of each answer; most rows are all 0.
3. Read quantiles off, or find quantiles that add up over regions and over answers.

Invariant: of tables with given sums, those have the least expected error whose quantiles have levels that are a number
of the region's sum plus one of the answer's; each pass changes one kind of number alone.
Cost: O(entries + answers x draws log draws).
Source: the conditions of Karush, Kuhn and Tucker for sum E|X - x|, whose slope is 2 P(X <= x) - 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled_in_place

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROUNDS, _HALVINGS = 12, 30
_WIDEST = 4.0  # a level of a quantile, moved beyond 0 and 1 where no draw is as small or as large as the sums


class Draws(NamedTuple):
    """Draws of all leaves' tables; ``offset`` [draws, leaves + 1] are places in ``cell`` and ``number``."""

    offset: Ints
    cell: NDArray[Any]
    number: NDArray[Any]


class Sums(NamedTuple):
    """Sets of rows and the total of each: set s has the rows row[start[s]:start[s + 1]]."""

    row: Ints
    start: Ints
    total: Floats


@compiled_in_place
def gather(
    draws: Draws, begin: int, end: int, column: Ints, answer: Ints, coefficient: Ints, values: NDArray[Any]
) -> None:
    """Fill ``values`` [answers, draws] with the answers of leaves begin .. end - 1, draw by draw.

    Cell c counts ``coefficient`` times in the entries column[c]:column[c + 1] of ``answer``.
    """
    for a in range(values.shape[0]):
        for d in range(values.shape[1]):
            values[a, d] = 0
    for d in range(values.shape[1]):
        for k in range(draws.offset[d, begin], draws.offset[d, end]):
            cell, number = draws.cell[k], draws.number[k]
            for j in range(column[cell], column[cell + 1]):
                values[answer[j], d] += coefficient[j] * number


@compiled_in_place
def sort_rows(values: NDArray[Any]) -> None:
    """Sort every row (Shell 1959, gaps of Ciura 2001)."""
    size = values.shape[1]
    for row in range(values.shape[0]):
        rising = 1
        while rising < size and values[row, rising - 1] <= values[row, rising]:
            rising += 1
        if rising >= size:
            continue
        for gap in (301, 132, 57, 23, 10, 4, 1):
            for i in range(gap, size):
                value, j = values[row, i], i
                while j >= gap and values[row, j - gap] > value:
                    values[row, j] = values[row, j - gap]
                    j -= gap
                values[row, j] = value


@compiled_in_place
def quantile(values: NDArray[Any], row: int, level: float) -> float:
    """Return a quantile of a sorted row, smoothed by half a person to either side; at least 0.

    The draws equal to k share the levels from P(X < k) to P(X <= k): their quantiles run from k - 1/2 to k + 1/2, so
    the nearest integer is the plain quantile. Beyond the draws the line goes on in proportion to the largest.
    """
    size = values.shape[1]
    largest = float(values[row, size - 1])
    if level >= 1.0:
        return largest + 0.5 + (level - 1.0) * (largest + 1.0)
    if level <= 0.0:
        return max(float(values[row, 0]) - 0.5 + level * (largest + 1.0), 0.0)
    # The draws equal to the one at this level, by halving to either side.
    at = min(int(level * size), size - 1)
    k = values[row, at]
    low, high = 0, at
    while low < high:
        middle = (low + high) // 2
        if values[row, middle] < k:
            low = middle + 1
        else:
            high = middle
    first, low, high = low, at, size
    while high - low > 1:
        middle = (low + high) // 2
        if values[row, middle] > k:
            high = middle
        else:
            low = middle
    return max(float(k) - 0.5 + float(level * size - first) / float(high - first), 0.0)


@compiled_in_place
def solve_level(values: NDArray[Any], sums: Sums, number: int, own: Floats) -> float:
    """Return what to add to the levels ``own`` of a set's rows so that their quantiles add up to its total."""
    low, high = -_WIDEST, _WIDEST
    # Quantiles rise with their level: halve.
    for _ in range(_HALVINGS):
        middle, reached = 0.5 * (low + high), 0.0
        for k in range(sums.start[number], sums.start[number + 1]):
            row = sums.row[k]
            reached += quantile(values, row, own[row] + middle)
        if reached < sums.total[number]:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


@compiled_in_place
def level_sets(values: NDArray[Any], sums: Sums, other: Floats, own: Floats, levels: Floats) -> None:
    """Set the rows' ``levels`` so that each set of ``sums`` has its total, next to the ``other`` levels of the rows."""
    for k in range(own.size):
        own[k], levels[k] = 0.5 + other[k], 0.0
    for s in range(sums.total.size):
        moved = solve_level(values, sums, s, own)
        for k in range(sums.start[s], sums.start[s + 1]):
            levels[sums.row[k]] = moved


@compiled_in_place
def fit(values: NDArray[Any], across: Sums, down: Sums, own: Floats, levels: Floats, x: Floats) -> None:
    """Fill x with quantiles of the sorted rows of ``values`` that add up two ways; x has the least expected error.

    The sets ``down`` are met last. ``own`` and ``levels`` [rows] are scratch.
    """
    for k in range(x.size):
        levels[k] = 0.0
    for _ in range(_ROUNDS):
        # x holds the levels of the sets across until the end.
        level_sets(values, across, levels, own, x)
        level_sets(values, down, x, own, levels)
        if across.total.size == 0 or down.total.size == 0:
            break
    for k in range(x.size):
        x[k] = quantile(values, k, 0.5 + x[k] + levels[k])
