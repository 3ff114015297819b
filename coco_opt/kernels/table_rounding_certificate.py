"""The certified gap of controlled rounding of several tables, term by term.

    gap = sum_jc max_Y (|X - x| - s X) - (|Y - x| - s Y)   over integers Y in low..high

1. ``slopes``: the value s of a person in a cell at the prices of sums and rows.
2. ``cells``: every cell is compared with the best integer it could have; the cost is convex, so the best is an end of
   the range or next to x.

Invariant: each term is nonnegative, so nothing cancels. Cost: O(entries x children).
Source: linear programming duality of the flow (Ahuja, Magnanti and Orlin 1993, section 9.4).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@compiled
def slopes(start: Ints, cell: Ints, value: Floats, rows: Floats, parent: Floats) -> Floats:
    """Return ``parent + C' rows`` [children, cells]: the value of one person in a cell at these prices."""
    children = rows.shape[0]
    out = np.empty((children, parent.size))
    # The cell's price, and those of the rows that count it.
    for j in range(children):
        for c in range(parent.size):
            out[j, c] = parent[c]
        for r in range(start.size - 1):
            if rows[j, r] != 0.0:
                for a in range(start[r], start[r + 1]):
                    out[j, cell[a]] += rows[j, r] * value[a]
    return out


@compiled
def _excess(x: float, value: int, alternative: int, slope: float) -> float:
    """Return by how much ``|value - x| - slope value`` exceeds the same of ``alternative``."""
    # Added up from the part between them and its ends: distances of large numbers have no digits to spare.
    moved = float(alternative - value)
    if (value >= x) != (alternative >= x):
        return slope * moved - (abs(alternative - x) - abs(value - x))
    return slope * moved - (moved if value >= x else -moved)


@compiled
def cells(table: Ints, low: Ints, high: Ints, x: Floats, slope: Floats) -> float:
    """Return ``sum max_Y (|X - x| - s X) - (|Y - x| - s Y)`` over integers Y in low..high; every term >= 0."""
    total = 0.0
    for j in range(x.shape[0]):
        for c in range(x.shape[1]):
            worst = 0.0
            down = np.int64(np.floor(x[j, c]))
            # Between kinks the cost is linear: only ends and the two integers next to x can be best.
            for alternative in (low[j, c], high[j, c], down, down + 1):
                alternative = min(max(alternative, low[j, c]), high[j, c])
                if alternative != table[j, c]:
                    worst = max(worst, _excess(x[j, c], table[j, c], alternative, slope[j, c]))
            total += worst
    return total
