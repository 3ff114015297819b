"""The nearest nondecreasing rows to a table whose cells stand for several sizes each.

    minimise  sum_c widths_c (near_vc - table_vc)^2   subject to   0 <= near_v0 <= ... <= near_v,n-1 <= top_v

1. Push the cells of a row on a stack of blocks, each with its weighted sum and its width.
2. As long as the mean below is not smaller, pool the two blocks.
3. Write every block's mean, clipped to the bounds, over its cells.

Invariant: the blocks' means rise strictly. Cost: O(cells) a row.
Source: Barlow et al. 1972, chapter 1 (pool adjacent violators).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Floats = NDArray[np.float64]


@compiled
def monotone(table: Floats, widths: Floats, top: Floats, near: Floats) -> None:
    """Write into ``near`` the nondecreasing rows within [0, top_v] nearest in sum_c widths_c (near - table)^2.

    Pool adjacent violators: blocks of cells hold their weighted sum and their width, and rise strictly.
    """
    regions, cells = table.shape
    sums, spans, ends = np.empty(cells), np.empty(cells), np.empty(cells, np.int64)
    for v in range(regions):
        block = -1
        # Pool backward until the mean below is smaller; means are compared as products of sums and widths.
        for c in range(cells):
            total, span = widths[c] * table[v, c], widths[c]
            while block >= 0 and sums[block] * span >= total * spans[block]:
                total += sums[block]
                span += spans[block]
                block -= 1
            block += 1
            sums[block], spans[block], ends[block] = total, span, c + 1
        position = 0
        value = 0.0
        # Write each block's clipped mean over its cells.
        for k in range(block + 1):
            value = min(max(sums[k] / spans[k], value), top[v])  # never below the block before, whatever is rounded
            for c in range(position, ends[k]):
                near[v, c] = value
            position = ends[k]
