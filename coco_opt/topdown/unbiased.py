"""Unbiased rounding of a split: each child's cell goes up with the probability of its fraction, sums stay whole."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_APART = 1e-3  # people by which a cell's numbers may miss the parent: a solver's error, not another table


def unbiased_rounding(x: Floats, parent: Ints | None, rng: np.random.Generator) -> Ints:
    """Return whole tables int64[children, cells] of mean x that add up to ``parent`` int64[cells], if given.

    Every cell is rounded by systematic sampling over its children in random order: with one uniform u, child j goes up
    where a whole number plus u lies in its stretch of the running sum of fractions. So it goes up with the probability
    of its fraction and the number of those that do is exactly the sum of fractions. Raises ProblemError where x does
    not add up to the parent. O(children x cells log children).
    """
    floor = np.floor(x)
    fraction = x - floor
    if parent is None:
        return (floor + (rng.random(x.shape) < fraction)).astype(np.int64)
    needed = parent - floor.sum(axis=0)
    if (np.abs(fraction.sum(axis=0) - needed) > _APART).any():
        raise ProblemError("tables to be rounded without bias must add up to their parent's")
    order = rng.permuted(np.tile(np.arange(len(x)), (x.shape[1], 1)), axis=1).T
    running = np.cumsum(np.take_along_axis(fraction, order, axis=0), axis=0)
    running[-1] = needed
    # No stretch may end beyond the whole sum: it would take a place that is not there.
    ends = np.floor(np.minimum(running, needed) - rng.random(x.shape[1])).astype(np.int64) + 1
    ups = np.diff(ends, axis=0, prepend=0)
    out = floor.astype(np.int64)
    np.put_along_axis(out, order, np.take_along_axis(out, order, axis=0) + ups, axis=0)
    return out
