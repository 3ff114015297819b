"""Pack integers as differences, most of which are narrow, and unpack them: one pass each.

The problem: values are stored as differences to the value before; a marker stands for each difference that does not fit
a narrow integer, and a list of wide ones holds these in order.

1. Pack: take the difference to the value before, the first to 0; write it, or the marker and a wide difference.
2. Unpack: read a narrow difference; if it is the marker, take the next wide one instead.
3. Add it to the running sum, which is the next value.

Invariant: the running sum is the value last written or read. Cost: O(values).
Source: delta coding with escapes is folklore.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Ints = NDArray[np.int64]


@compiled
def pack(values: Ints, aside: int, narrow: NDArray[Any], wide: Ints) -> int:
    """Write the differences of values into ``narrow`` and return how many went to ``wide``, -1 if it is too short.

    ``aside`` is the least integer of the narrow type, which stands for a difference that does not fit. O(values).
    """
    last, taken = np.int64(0), 0
    # The least integer itself does not fit: it is the marker.
    for k in range(values.size):
        difference = values[k] - last
        last = values[k]
        if aside < difference < -aside:
            narrow[k] = difference
            continue
        if taken == wide.size:
            return -1
        narrow[k] = aside
        wide[taken] = difference
        taken += 1
    return taken


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
