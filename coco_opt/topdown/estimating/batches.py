"""Regions cut into consecutive batches, the items of tasks: small enough for memory, large enough to pay."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.histograms import Hierarchy

_NUMBERS = 1 << 21  # answers or cells of a batch, at most, but for a single region of more
_LEAST_NUMBERS = 1 << 14  # below which a batch is mostly glue
_A_WORKER = 4  # batches, so that none waits long for the last


def batch_size(numbers: int, workers: int) -> int:
    """Return how many of some numbers a batch holds; several workers get some batches each."""
    return _NUMBERS if workers == 1 else max(_LEAST_NUMBERS, min(_NUMBERS, numbers // (_A_WORKER * workers)))


def batches(numbers: Ints, size: int) -> Iterator[range]:
    """Yield consecutive places whose ``numbers`` int64[places] are at most ``size`` together, or one place of more."""
    work, start = np.cumsum(numbers), 0
    while start < work.size:
        most = size + (work[start - 1] if start else 0)
        stop = max(start + 1, int(np.searchsorted(work, most, side="right")))
        yield range(start, stop)
        start = stop


def at_and_below(hierarchy: Hierarchy, numbers: Ints) -> list[Ints]:
    """Return for each level how many numbers there are at and below its regions, int64[regions].

    ``numbers`` int64[levels] are those of a single region.
    """
    levels: list[Ints] = []
    for level in range(hierarchy.levels - 1, -1, -1):
        regions = hierarchy.level_range(level)
        own = np.full(len(regions), int(numbers[level]), np.int64)
        if levels:
            own += hierarchy.child_sums(levels[-1], level)
        levels.append(own)
    return levels[::-1]
