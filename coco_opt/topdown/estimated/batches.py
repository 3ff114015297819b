"""Regions cut into consecutive batches, the items of tasks: small enough for memory, large enough to pay."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_NUMBERS = 1 << 21  # answers or cells of a batch, at most, but for a single region of more
_LEAST_NUMBERS = 1 << 14  # below which a batch is mostly glue
_A_WORKER = 4  # batches, so that none waits long for the last


def batch_size(numbers: int, workers: int) -> int:
    """Return how many of some numbers a batch holds; several workers get some batches each."""
    return _NUMBERS if workers == 1 else max(_LEAST_NUMBERS, min(_NUMBERS, numbers // (_A_WORKER * workers)))


def batches(numbers: Ints, workers: int = 1) -> Iterator[range]:
    """Yield consecutive places whose ``numbers`` int64[places] fit in memory together."""
    work = np.cumsum(numbers)
    size, start = batch_size(int(work[-1]), workers), 0
    while start < work.size:
        most = size + (work[start - 1] if start else 0)
        stop = max(start + 1, int(np.searchsorted(work, most, side="right")))
        yield range(start, stop)
        start = stop
