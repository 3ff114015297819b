"""A heap of breakpoints, the largest first: the slope trick's cost of the beginning of a row.

A breakpoint has a place and an amount by which the slope changes there; both arrays are whole numbers or both floats.
The caller keeps the number of breakpoints. Invariant: at[k] <= at[(k - 1) // 2].
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

NumberT = TypeVar("NumberT", np.int64, np.float64)


@compiled
def push(at: NDArray[NumberT], jump: NDArray[NumberT], size: int, value: float, amount: float) -> None:
    """Add a breakpoint to the heap of ``size`` breakpoints."""
    k = size
    while k > 0 and at[(k - 1) // 2] < value:
        at[k], jump[k] = at[(k - 1) // 2], jump[(k - 1) // 2]
        k = (k - 1) // 2
    at[k], jump[k] = value, amount


@compiled
def pop(at: NDArray[NumberT], jump: NDArray[NumberT], size: int) -> None:
    """Remove the first breakpoint of ``size``; the last one takes its place and sinks."""
    value, amount = at[size - 1], jump[size - 1]
    k = 0
    while True:
        below = 2 * k + 1
        if below >= size - 1:
            break
        if below + 1 < size - 1 and at[below + 1] > at[below]:
            below += 1
        if at[below] <= value:
            break
        at[k], jump[k] = at[below], jump[below]
        k = below
    at[k], jump[k] = value, amount
