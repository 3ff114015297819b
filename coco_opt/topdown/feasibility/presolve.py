"""What constraints about single leaves leave each variable: boxes tightened until nothing changes, in integers."""

from __future__ import annotations

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.topdown.bounds import UNBOUNDED
from coco_opt.topdown.feasibility.system import ConstraintSystem

_ROUNDS = 8
_LEAVES = 1 << 16  # whose sides are in memory at a time
_FAR = 2**40


def open_classes(system: ConstraintSystem) -> Ints:
    """Return how many classes the constraints leave open in each leaf, int64[leaves]; some leaves at a time."""
    counts = np.empty(system.leaves, np.int64)
    for start in range(0, system.leaves, _LEAVES):
        leaves = range(start, min(start + _LEAVES, system.leaves))
        lower, upper = tightened(system, leaves)
        counts[leaves.start : leaves.stop] = np.count_nonzero(upper != lower, axis=1)
    return counts


def tightened(system: ConstraintSystem, leaves: range | None = None) -> tuple[Ints, Ints]:
    """Return lower and upper sides int64[leaves, classes] that every integer table keeps; lower > upper proves none.

    ``leaves`` are consecutive, and all if they are left out.

    Rows of single leaves are used, with coefficients of any sign; rows of larger regions bound from above only, as in
    ``ConstraintSystem.box``. O(rounds x rows x leaves x classes).
    """
    lower, upper = (side.copy() for side in system.box) if leaves is None else system.box_of(leaves)
    last, chosen = system.hierarchy.levels - 1, slice(None) if leaves is None else slice(leaves.start, leaves.stop)
    rows = [row for row in system.rows if row.level == last and np.count_nonzero(row.coefficients) > 1]
    for _ in range(_ROUNDS):
        before = lower.copy(), upper.copy()
        for row in rows:
            used = np.flatnonzero(row.coefficients)
            low, high = row.lower[chosen], row.upper[chosen]
            for sign, side in ((1, high), (-1, np.where(low <= -UNBOUNDED, UNBOUNDED, -low))):
                _by_row(sign * row.coefficients[used], side, used, lower, upper)
        if (lower > upper).any() or all(np.array_equal(a, b) for a, b in zip(before, (lower, upper), strict=True)):
            break
    return lower, upper


def _by_row(weights: Ints, side: Ints, used: Ints, lower: Ints, upper: Ints) -> None:
    """Tighten by sum of weight x variable <= side, UNBOUNDED for none."""
    least = np.where(weights > 0, lower[:, used], upper[:, used])
    # Numbers beyond the stated constraints come from large coefficients. They imply nothing, and products may overflow.
    endless = least >= _FAR
    finite = np.where(endless, 0, least)
    parts, size = finite * weights, finite.astype(np.float64) @ np.abs(weights)
    total, missing = parts.sum(axis=1), endless.sum(axis=1) + 2 * (size >= UNBOUNDED / 2)
    for place, (variable, weight) in enumerate(zip(used.tolist(), weights.tolist(), strict=True)):
        bounded = (side < UNBOUNDED) & (missing - endless[:, place] == 0)
        slack = side - (total - parts[:, place])
        if weight > 0:
            upper[:, variable] = np.where(bounded, np.minimum(upper[:, variable], slack // weight), upper[:, variable])
        else:
            lower[:, variable] = np.where(
                bounded, np.maximum(lower[:, variable], -(slack // -weight)), lower[:, variable]
            )
