"""A heap of breakpoints, the largest first: the slope trick's cost of the beginning of a row.

The problem: while breakpoints (a place, and the amount by which a slope changes there) arrive in any order, the one of
the largest place is wanted at any time. Both arrays are integers or both are floats; the caller stores their number.

1. ``push``: a new breakpoint starts at the end and rises past every parent that has a smaller place.
2. The largest breakpoint is the first entry.
3. ``pop``: the last breakpoint takes the place of the first and sinks below every child that has a larger place.

Invariant: places[k] <= places[(k - 1) // 2]. Cost: O(log size) a call.
Source: Williams 1964 (Algorithm 232, Heapsort).
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

NumberT = TypeVar("NumberT", np.int64, np.float64)


@compiled
def push(places: NDArray[NumberT], jump: NDArray[NumberT], size: int, value: float, amount: float) -> None:
    """Add a breakpoint to the heap of ``size`` breakpoints."""
    k = size
    # Parents with a smaller place move down until the new breakpoint fits.
    while k > 0 and places[(k - 1) // 2] < value:
        places[k], jump[k] = places[(k - 1) // 2], jump[(k - 1) // 2]
        k = (k - 1) // 2
    places[k], jump[k] = value, amount


@compiled
def pop(places: NDArray[NumberT], jump: NDArray[NumberT], size: int) -> None:
    """Remove the first breakpoint of ``size``; the last one takes its place and sinks."""
    value, amount = places[size - 1], jump[size - 1]
    k = 0
    # Follow the larger child down; it moves up as long as its place exceeds that of the breakpoint which sinks.
    while True:
        below = 2 * k + 1
        if below >= size - 1:
            break
        if below + 1 < size - 1 and places[below + 1] > places[below]:
            below += 1
        if places[below] <= value:
            break
        places[k], jump[k] = places[below], jump[below]
        k = below
    places[k], jump[k] = value, amount
