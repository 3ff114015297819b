"""Add up the people of occupied cells by region and by group of cells.

The problem: for regions whose cells follow each other, find sums[r, g] = people of region r in the cells of group g.

1. Take one region after the other, and one of its cells after the other.
2. Add the cell's people to the sum of its group, if it counts in one.

Invariant: the sums of earlier regions are complete. Cost: O(cells).
Source: bucket sums are folklore.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Ints = NDArray[np.int64]


@compiled
def add_runs(bounds: Ints, cells: Ints, people: Ints, labels: Ints, sums: Ints) -> None:
    """Add to ``sums`` [regions, groups] the people of each region's cells ``bounds[r]`` .. ``bounds[r + 1]`` - 1.

    ``labels`` are the groups of cells, -1 for a cell that counts in none. O(cells).
    """
    # Integers of 64 bits: neither rounding nor an array as large as the answers in between.
    for region in range(bounds.size - 1):
        for run in range(bounds[region], bounds[region + 1]):
            group = labels[cells[run]]
            if group >= 0:
                sums[region, group] += people[run]
