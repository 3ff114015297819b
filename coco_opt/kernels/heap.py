"""A heap of breakpoints, the largest first: the slope trick's cost of the beginning of a row.

A breakpoint has a place and an amount by which the slope changes there; both arrays are integers or both are floats.
The caller stores the number of breakpoints. Invariant: places[k] <= places[(k - 1) // 2]. Cost: O(log size) a call.
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
    while k > 0 and places[(k - 1) // 2] < value:
        places[k], jump[k] = places[(k - 1) // 2], jump[(k - 1) // 2]
        k = (k - 1) // 2
    places[k], jump[k] = value, amount


@compiled
def pop(places: NDArray[NumberT], jump: NDArray[NumberT], size: int) -> None:
    """Remove the first breakpoint of ``size``; the last one takes its place and sinks."""
    value, amount = places[size - 1], jump[size - 1]
    k = 0
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
