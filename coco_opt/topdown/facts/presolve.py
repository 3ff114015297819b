"""What facts about single leaves leave each variable: boxes tightened until nothing changes, in integers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.topdown.bounds import UNBOUNDED
from coco_opt.topdown.facts.system import FactSystem

Ints = NDArray[np.int64]

_ROUNDS = 8
_FAR = 2**40


def tightened(system: FactSystem) -> tuple[Ints, Ints]:
    """Return lower and upper sides int64[leaves, classes] that every whole table keeps; lower > upper proves none.

    Rows of single leaves are used, with coefficients of any sign; rows of larger regions bound from above only, as in
    ``FactSystem.box``. O(rounds x rows x leaves x classes).
    """
    lower, upper = (side.copy() for side in system.box)
    last = system.hierarchy.levels - 1
    rows = [row for row in system.rows if row.level == last and np.count_nonzero(row.coefficients) > 1]
    for _ in range(_ROUNDS):
        before = lower.copy(), upper.copy()
        for row in rows:
            used = np.flatnonzero(row.coefficients)
            for sign, side in ((1, row.upper), (-1, np.where(row.lower <= -UNBOUNDED, UNBOUNDED, -row.lower))):
                _by_row(sign * row.coefficients[used], side, used, lower, upper)
        if (lower > upper).any() or all(np.array_equal(a, b) for a, b in zip(before, (lower, upper), strict=True)):
            break
    return lower, upper


def _by_row(weights: Ints, side: Ints, used: Ints, lower: Ints, upper: Ints) -> None:
    """Tighten by sum of weight x variable <= side, UNBOUNDED for none."""
    least = np.where(weights > 0, lower[:, used], upper[:, used])
    # Numbers beyond what facts state come from large coefficients. They tell nothing more, and products might wrap.
    endless = least >= _FAR
    finite = np.where(endless, 0, least)
    parts, size = finite * weights, finite.astype(np.float64) @ np.abs(weights)
    total, missing = parts.sum(axis=1), endless.sum(axis=1) + 2 * (size >= UNBOUNDED / 2)
    for place, (variable, weight) in enumerate(zip(used.tolist(), weights.tolist(), strict=True)):
        known = (side < UNBOUNDED) & (missing - endless[:, place] == 0)
        room = side - (total - parts[:, place])
        if weight > 0:
            upper[:, variable] = np.where(known, np.minimum(upper[:, variable], room // weight), upper[:, variable])
        else:
            lower[:, variable] = np.where(known, np.maximum(lower[:, variable], -(room // -weight)), lower[:, variable])
