"""Packed answers back to whole numbers in one pass: a sum of differences, most of them narrow, the others aside."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Ints = NDArray[np.int64]


@compiled
def unpack(narrow: NDArray[Any], aside: int, wide: Ints, values: Ints) -> int:
    """Write the running sums of differences into ``values`` and return how many were taken from ``wide``; O(values).

    ``aside`` in ``narrow`` stands for the next of ``wide``; -1 is returned where these do not suffice.
    """
    total, taken = np.int64(0), 0
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
