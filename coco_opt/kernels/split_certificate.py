"""Certificates of top-down splits: sparse products, and the prices that make the duality gap small.

All tables are [cells, children]. The split minimises squares of answers' residuals over x >= 0 whose children add up to
the parent and whose rows C x lie between sides. With reduced costs s, curvatures d and caps u of the cells, what a cell
adds to the gap of x is the most that any y in [0, u] could gain::

    phi(s) = max_y  s (x - y) - d (x - y)^2  >= 0,

which is convex in s, hence in every price.

1. Choose the price of every parent sum: the root of a monotone derivative, by bisection (``parent_prices``).
2. The gap is the sum of phi over the cells (``cells_gap``) and of the rows' prices times the distances from their sides
   (``sides_gap``).

Invariant: every term of the gap is nonnegative, whatever the prices are. Cost: O(entries x children) a product or round
of prices.
Source: Lagrangian duality (Rockafellar 1970, section 28); the choice of prices is our own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_HALVINGS = 64


class Matrix(NamedTuple):
    """A sparse matrix by rows and by columns: row a has ``cell[start[a]:start[a + 1]]``, and so on."""

    start: Ints
    cell: Ints
    value: Floats
    column_start: Ints
    row: Ints
    column_value: Floats


@compiled
def by_rows_and_columns(row: Ints, cell: Ints, value: Floats, rows: int, cells: int) -> Matrix:
    """Return a matrix's entries by rows and by columns, in their order."""
    start, column_start = np.zeros(rows + 1, np.int64), np.zeros(cells + 1, np.int64)
    # Count the entries of each row and column.
    for e in range(row.size):
        start[row[e] + 1] += 1
        column_start[cell[e] + 1] += 1
    # Running sums: where each row and column starts.
    for a in range(rows):
        start[a + 1] += start[a]
    for c in range(cells):
        column_start[c + 1] += column_start[c]
    of_row, of_cell = np.empty(row.size, np.int64), np.empty(row.size, np.int64)
    by_row, by_cell = np.empty(row.size), np.empty(row.size)
    next_row, next_cell = start.copy(), column_start.copy()
    # Put every entry at the next free place of its row and its column.
    for e in range(row.size):
        position, below = next_row[row[e]], next_cell[cell[e]]
        of_row[position], by_row[position] = cell[e], value[e]
        of_cell[below], by_cell[below] = row[e], value[e]
        next_row[row[e]] += 1
        next_cell[cell[e]] += 1
    return Matrix(start, of_row, by_row, column_start, of_cell, by_cell)


@compiled
def single_cells(
    start: Ints, cell: Ints, value: Floats, weight: Floats, answer: Floats, cells: int
) -> tuple[Floats, Floats]:
    """Return the weight of the rows with one cell and their mean answer, 0 without weight, both [cells, children]."""
    children = weight.shape[1]
    heavy, mean = np.zeros((cells, children)), np.zeros((cells, children))
    # A row with one cell is a term of that cell alone: weights add up, answers average.
    for a in range(start.size - 1):
        if start[a + 1] - start[a] == 1:
            c, v = cell[start[a]], value[start[a]]
            for j in range(children):
                heavy[c, j] += weight[a, j] * v * v
                mean[c, j] += weight[a, j] * v * answer[a, j]
    for c in range(cells):
        for j in range(children):
            mean[c, j] = mean[c, j] / heavy[c, j] if heavy[c, j] > 0.0 else 0.0
    return heavy, mean


@compiled
def wide_cells(column_start: Ints, row: Ints, value: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Return the rows' part of the Hessian's halved diagonal and the least weight above 0 a cell meets (0: none).

    Rows beyond ``weight`` [rows, children] do not count.
    """
    cells, children = column_start.size - 1, weight.shape[1]
    diagonal, least = np.zeros((cells, children)), np.zeros((cells, children))
    # The diagonal of R' W R, and the least positive weight in the column.
    for c in range(cells):
        for e in range(column_start[c], column_start[c + 1]):
            if row[e] < weight.shape[0]:
                for j in range(children):
                    now = weight[row[e], j]
                    diagonal[c, j] += now * value[e] * value[e]
                    if now > 0.0 and (now < least[c, j] or least[c, j] == 0.0):
                        least[c, j] = now
    return diagonal, least


@compiled
def products(start: Ints, index: Ints, value: Floats, x: Floats) -> Floats:
    """Return a sparse matrix, stored by rows, times a table [columns, children]; O(entries x children)."""
    rows, children = start.size - 1, x.shape[1]
    out = np.zeros((rows, children))
    # The children's numbers lie side by side: the inner loop runs over them.
    for a in range(rows):
        for e in range(start[a], start[a + 1]):
            c, v = index[e], value[e]
            for j in range(children):
                out[a, j] += v * x[c, j]
    return out


@compiled
def normal_matrix(
    column_start: Ints, row: Ints, value: Floats, number: Ints, size: int, measure: Floats, summed: bool
) -> Floats:
    """Return ``A diag(measure) A'`` of the constraints' rows, less the parent sums' part (if ``summed``).

    ``number`` [rows, children] is the place of a row in the (size, size) result, -1 where it is left out.
    """
    out = np.zeros((size, size))
    children = measure.shape[1]
    # Each cell adds the outer product of its column, and with sums subtracts what moving the sum would undo.
    for c in range(measure.shape[0]):
        total = 0.0
        for j in range(children):
            total += measure[c, j]
        for e in range(column_start[c], column_start[c + 1]):
            for j in range(children):
                position = number[row[e], j]
                if position < 0 or measure[c, j] == 0.0:
                    continue
                entry = value[e] * measure[c, j]
                for f in range(column_start[c], column_start[c + 1]):
                    if number[row[f], j] >= 0:
                        out[position, number[row[f], j]] += entry * value[f]
                    if summed:
                        for i in range(children):
                            if number[row[f], i] >= 0:
                                out[position, number[row[f], i]] -= entry / total * value[f] * measure[c, i]
    return out


@compiled
def _best(s: float, x: float, d: float, cap: float) -> float:
    """Return the y in [0, cap] that gains most."""
    if d > 0.0:
        return min(max(x - s / (2.0 * d), 0.0), cap)
    if s == 0.0:
        return x
    return 0.0 if s > 0.0 else cap


@compiled
def cells_gap(s: Floats, x: Floats, d: Floats, cap: Floats) -> float:
    """Return the sum of phi over all cells; infinite where a cell without cap or curvature has a negative price."""
    total = 0.0
    # phi at the y that gains most.
    for c in range(x.shape[0]):
        for j in range(x.shape[1]):
            y = _best(s[c, j], x[c, j], d[c, j], cap[c, j])
            if np.isinf(y):
                return np.inf
            away = x[c, j] - y
            total += max(0.0, (s[c, j] - d[c, j] * away) * away)
    return total


@compiled
def sides_gap(prices: Floats, values: Floats, lower: Floats, upper: Floats) -> float:
    """Return what the rows of C, all [rows, children], add to the gap: prices times the distances from their sides."""
    total = 0.0
    # A positive price belongs to the lower side, a negative one to the upper side.
    for k in range(prices.shape[0]):
        for j in range(prices.shape[1]):
            if prices[k, j] > 0.0:
                total += prices[k, j] * max(0.0, values[k, j] - lower[k, j])
            elif prices[k, j] < 0.0:
                total -= prices[k, j] * max(0.0, upper[k, j] - values[k, j])
    return total


@compiled
def parent_prices(g: Floats, x: Floats, d: Floats, parent: Floats) -> Floats:
    """Return for every cell the price of its parent sum that makes its part of the gap least, for gradients g."""
    prices = np.empty(parent.size)
    for c in range(parent.size):
        low, high = np.inf, -np.inf
        # At the lower end every best y is at most x, at the upper end it is at the cap.
        for j in range(x.shape[1]):
            low = min(low, g[c, j] - 2.0 * d[c, j] * x[c, j])
            high = max(high, g[c, j] + 2.0 * d[c, j] * max(0.0, parent[c] - x[c, j]))
        # The sum of the best y rises with the price: bisect for the parent's number.
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            if not low < middle < high:
                break
            total = 0.0
            for j in range(x.shape[1]):
                total += _best(g[c, j] - middle, x[c, j], d[c, j], parent[c])
            if total <= parent[c]:
                low = middle
            else:
                high = middle
        prices[c] = low
    return prices
