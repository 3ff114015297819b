"""Quantiles of answers over draws of tables, and the tables of least expected error that add up.

Draws are the leaves' occupied cells: draw d of leaf b has the entries offset[d, b] .. offset[d, b + 1] - 1 of ``cell``
and ``number``.

1. Gather the answers of the leaves below a region, draw by draw.
2. Sort the draws of each answer; most rows are all 0.
3. Read quantiles off, or find those of least expected error, of answers and of sums of them, with given other sums.

Invariant: of such tables those have the least expected error in which an answer is at the level 1/2 plus a number for
each sum that contains it: a free sum is then at the level 1/2 less its number over its weight, and the number of a
given sum is what meets it. Each step changes one number alone.
Cost: O(entries + answers x draws log draws).
Source: the conditions of Karush, Kuhn and Tucker for sum E|X - x|, whose slope is 2 P(X <= x) - 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled_in_place
from coco_opt.kernels.sorting import first_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROUNDS, _HALVINGS = 12, 30
_EDGE = 0.05  # of the levels of equal draws at either end, where quantiles rise
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
        # A row that is sorted already stays as it is.
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
    the nearest integer is the plain quantile. They rise near the ends alone: a cell is between two integers only where
    both have about the same expected error. Beyond the draws the line goes on in proportion to the largest.
    """
    size = values.shape[1]
    largest = float(values[row, size - 1])
    if level >= 1.0:
        return largest + 0.5 + (level - 1.0) * (largest + 1.0)
    if level <= 0.0:
        return max(float(values[row, 0]) - 0.5 + level * (largest + 1.0), 0.0)
    # The draws equal to the one at this level, to either side of it.
    at = min(int(level * size), size - 1)
    k = int(values[row, at])
    first, end = first_of(values, row, k, 0, at), first_of(values, row, k + 1, at + 1, size)
    part = float(level * size - first) / float(end - first)
    if part < _EDGE:
        return max(float(k) - 0.5 * (1.0 - part / _EDGE), 0.0)
    return float(k) + 0.5 * max(1.0 - (1.0 - part) / _EDGE, 0.0)


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
def level_of(values: NDArray[Any], row: int, x: float) -> float:
    """Return the level at which ``quantile`` of a sorted row is x >= 0."""
    size = values.shape[1]
    largest = float(values[row, size - 1])
    if x > largest + 0.5:
        return 1.0 + (x - largest - 0.5) / (largest + 1.0)
    k = int(x + 0.5)
    first = first_of(values, row, k, 0, size)
    last = first_of(values, row, k + 1, first, size)
    beyond = x - k
    part = 0.5
    if beyond < 0.0:
        part = _EDGE * (1.0 + 2.0 * beyond)
    elif beyond > 0.0:
        part = 1.0 - _EDGE * (1.0 - 2.0 * beyond)
    return float((first + part * (last - first)) / size)


@compiled_in_place
def balance(values: NDArray[Any], sums: Sums, of_sums: NDArray[Any], weight: float, number: int, own: Floats) -> float:
    """Return what to add to the levels ``own`` of a set's rows so that the set's level is 1/2 less this / ``weight``.

    The sorted draws of the set's sum are a row of ``of_sums``.
    """
    low, high = -_WIDEST, _WIDEST
    # The sum rises with what is added: halve.
    for _ in range(_HALVINGS):
        middle, reached = 0.5 * (low + high), 0.0
        for k in range(sums.start[number], sums.start[number + 1]):
            row = sums.row[k]
            reached += quantile(values, row, own[row] + middle)
        if level_of(of_sums, number, reached) + middle / weight < 0.5:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


@compiled_in_place
def fit(
    values: NDArray[Any],
    across: Sums,
    of_sums: NDArray[Any],
    weight: float,
    down: Sums,
    added: Floats,
    levels: Floats,
    x: Floats,
) -> None:
    """Fill x with the quantiles of the sorted rows of ``values`` that have the least expected error with their sums.

    The sums are those of the sets ``across``, with sorted draws ``of_sums``, a row each, and their errors count
    ``weight`` times; the sets ``down`` have given totals, which are met last. ``added`` [sets across, then down] and
    ``levels`` [rows] are scratch.
    """
    sets = across.start.size - 1
    added[:] = 0.0
    for k in range(x.size):
        levels[k] = 0.5
    for _ in range(_ROUNDS):
        for s in range(sets):
            for k in range(across.start[s], across.start[s + 1]):
                levels[across.row[k]] -= added[s]
            added[s] = balance(values, across, of_sums, weight, s, levels)
            for k in range(across.start[s], across.start[s + 1]):
                levels[across.row[k]] += added[s]
        for s in range(down.total.size):
            for k in range(down.start[s], down.start[s + 1]):
                levels[down.row[k]] -= added[sets + s]
            added[sets + s] = solve_level(values, down, s, levels)
            for k in range(down.start[s], down.start[s + 1]):
                levels[down.row[k]] += added[sets + s]
        if sets == 0:
            break
    for k in range(x.size):
        x[k] = quantile(values, k, levels[k])
