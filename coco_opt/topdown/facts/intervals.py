"""Bounds of nested sets closed under sums: enough to decide them, in whole numbers too."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.topdown.facts.system import FactSystem, infinite

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def empty_interval(system: FactSystem) -> tuple[int, int] | None:
    """Return a (level, region) where the bounds of nested sets leave a set no count, None where all have some.

    By sums from the smallest sets up, for systems whose facts are ``by_sums``.

    ``tops`` are the largest sets met so far, disjoint by ``by_sums``, with what the sets within leave them in every
    region of the level reached: numbers below 2^53, so floats hold them exactly.
    """
    tops: list[tuple[Ints, Floats, Floats]] = []
    for level in range(system.hierarchy.levels - 1, -1, -1):
        if level < system.hierarchy.levels - 1:
            here, below = system.hierarchy.level_range(level), system.hierarchy.level_range(level + 1)
            starts = system.hierarchy.first_child[here.start : here.stop] - below.start
            tops = [(mask, np.add.reduceat(low, starts), np.add.reduceat(high, starts)) for mask, low, high in tops]
        own = [row for row in system.rows if row.level == level]
        for row in sorted(own, key=lambda row: int(row.coefficients.sum())):
            inside = [top for top in tops if (row.coefficients >= top[0]).all()]
            rest = row.coefficients - sum((mask for mask, _, _ in inside), np.zeros_like(row.coefficients))
            low, high = infinite(np.maximum(row.lower, 0)), infinite(row.upper)
            low = np.maximum(low, sum((top[1] for top in inside), np.zeros_like(low)))
            if not rest.any():
                high = np.minimum(high, sum((top[2] for top in inside), np.zeros_like(high)))
            crossed = np.flatnonzero(low > high)
            if crossed.size:
                return level, int(crossed[0])
            kept = [top for top in tops if not (row.coefficients >= top[0]).all()]
            tops = [*kept, (row.coefficients, low, high)]
    return None
