"""Proportional fitting: the tables nearest to given ones, in relative entropy, whose sums over rows of cells are given.

The problem: from x [cells, children] >= 0, find x times one factor for each row and child, and for each cell, such that
the sum over the cells of row a of child j lies in [lower, upper]_aj and every cell's sum over the children is met.

1. Scale the cells of each row to the nearest side of its interval, where their sum lies outside.
2. Scale each cell to its sum over the children, if there are such sums.
3. Repeat until no row's sum, at its turn, lay further outside than ``enough``, or ``rounds`` are over.

Invariant: x stays nonnegative, a zero stays zero, and sums of cells hold after every round. Cost: O(entries x children)
a round; the error falls linearly where tables without further zeros exist, more slowly where they do not.
Source: Deming and Stephan 1940; Csiszar 1975 for the limit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled, compiled_in_place

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@compiled
def fit(
    start: Ints, cell: Ints, lower: Floats, upper: Floats, sums: Floats, x: Floats, rounds: int, enough: float
) -> float:
    """Fit x in place and return how far outside a row's sum lay at most in the last round.

    Row a has the cells ``cell[start[a]:start[a + 1]]``; ``sums`` [cells] is empty where there are none.
    """
    worst, now = 0.0, np.empty(x.shape[1])
    for _ in range(rounds):
        worst = _scale_rows(start, cell, lower, upper, x, now)
        if sums.size > 0:
            _scale_cells(sums, x)
        if worst <= enough:
            break
    return worst


@compiled_in_place
def _scale_rows(start: Ints, cell: Ints, lower: Floats, upper: Floats, x: Floats, now: Floats) -> float:
    """Scale every row into its interval, one after the other; return how far outside its sum lay at most."""
    worst = 0.0
    for a in range(start.size - 1):
        # Sums of the row, which then become factors.
        for j in range(x.shape[1]):
            now[j] = 0.0
        for e in range(start[a], start[a + 1]):
            for j in range(x.shape[1]):
                now[j] += x[cell[e], j]
        for j in range(x.shape[1]):
            nearest = min(max(now[j], lower[a, j]), upper[a, j])
            worst = max(worst, abs(nearest - now[j]))
            now[j] = nearest / now[j] if now[j] > 0.0 else 1.0
        for e in range(start[a], start[a + 1]):
            for j in range(x.shape[1]):
                x[cell[e], j] *= now[j]
    return worst


@compiled_in_place
def _scale_cells(sums: Floats, x: Floats) -> None:
    """Scale every cell to its sum over the children; one that has become empty is shared evenly."""
    for c in range(x.shape[0]):
        now = 0.0
        for j in range(x.shape[1]):
            now += x[c, j]
        for j in range(x.shape[1]):
            x[c, j] = x[c, j] * (sums[c] / now) if now > 0.0 else sums[c] / x.shape[1]
