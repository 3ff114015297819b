"""Unpack noisy measurements to integers in one pass.

The problem: values are stored as running sums of differences, most of which are narrow; a marker stands for each other
one, which is read from a list of wide ones.

1. Read a narrow difference; if it is the marker, take the next wide one instead.
2. Add it to the running sum, which is the next value.

Invariant: the running sum is the value last written. Cost: O(values).
Source: delta coding with escapes is folklore.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Ints = NDArray[np.int64]


@compiled
def unpack(narrow: NDArray[Any], aside: int, wide: Ints, values: Ints) -> int:
    """Write the running sums of differences into ``values`` and return how many were taken from ``wide``; O(values).

    ``aside`` in ``narrow`` stands for the next of ``wide``; returns -1 where there are too few of these.
    """
    total, taken = np.int64(0), 0
    # The marker stands for the next wide difference, also for one that happens to equal the marker.
    for k in range(narrow.size):
        difference = np.int64(narrow[k])
        if difference == aside:
            if taken == wide.size:
                return -1
            difference = wide[taken]
            taken += 1
        total += difference
        values[k] = total
    return taken
