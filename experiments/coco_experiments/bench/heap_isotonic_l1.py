"""The peer of the p = 1 kernel in benches: isotonic regression by the slope trick on a compiled binary heap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Ints = NDArray[np.int64]


@compiled
def _push(heap: Ints, size: int, value: int) -> int:
    child = size
    while child > 0:
        parent = (child - 1) // 2
        if heap[parent] >= value:
            break
        heap[child] = heap[parent]
        child = parent
    heap[child] = value
    return size + 1


@compiled
def _replace_top(heap: Ints, size: int, value: int) -> None:
    parent, child = 0, 1
    while child < size:
        if child + 1 < size and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= value:
            break
        heap[parent] = heap[child]
        parent, child = child, 2 * child + 1
    heap[parent] = value


@compiled
def _lower_fit(y: Ints, x: Ints) -> None:
    n, size = y.size, 0
    heap = np.empty(n + 1, np.int64)
    for i in range(n):
        value = y[i]
        if size > 0 and heap[0] > value:
            _replace_top(heap, size, value)
        size = _push(heap, size, value)
        x[i] = heap[0]
    for i in range(n - 2, -1, -1):
        x[i] = min(x[i], x[i + 1])


def heap_fit(y: Ints) -> Ints:
    """Return the smallest isotonic fit of n integers with absolute loss and no bounds, n int64.

    The heap holds the breakpoints left of the argmin of the partial optimum; its top is the argmin's left
    end, and a backward running minimum gives the fit. O(n log n).
    """
    x = np.empty(y.size, np.int64)
    _lower_fit(np.ascontiguousarray(y, np.int64), x)
    return x
