"""Count entities by group where both have integer ids.

The problem: for rows (entity, group), find sizes[g] = number of rows of group g, and the first row that repeats an
entity.

1. Take one row after the other; skip an entity outside the range and note the first.
2. Look at the entity's bit in a table of bits: if it is set already, the row repeats an entity.
3. Set the bit, and count the row in its group if there is such a group.

Invariant: the marked bits are exactly the entities of earlier rows. Cost: O(rows) time, one bit an entity.
Source: a bit table is folklore.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled


@compiled
def _count(
    entities: Any, groups: Any, first: int, group_first: int, seen: Any, leaf: Any, sizes: Any
) -> tuple[int, int, int]:
    """Add a batch; return its first rows that repeat an entity, that name no group, and that lie outside ``seen``.

    -1 stands for none. Invariant: bit e of ``seen`` is set where an earlier row is of entity ``first`` + e, and
    sizes[g] is the number of earlier rows of group ``group_first`` + g.
    """
    repeated = unknown = outside = -1
    # Entity e has bit e & 7 of byte e >> 3.
    for row in range(entities.size):
        entity, group = entities[row] - first, groups[row] - group_first
        if entity < 0 or entity >= 8 * seen.size:
            outside = row if outside < 0 else outside
            continue
        place, bit = entity >> 3, np.uint8(1 << (entity & 7))
        if seen[place] & bit and repeated < 0:
            repeated = row
        seen[place] |= bit
        # Only groups that lie in some leaf are counted.
        if 0 <= group < leaf.size and leaf[group] >= 0:
            sizes[group] += 1
        elif unknown < 0:
            unknown = row
    return repeated, unknown, outside


def count(
    entities: NDArray[np.int64],
    groups: NDArray[np.int64],
    first: int,
    group_first: int,
    seen: NDArray[np.uint8],
    leaf: NDArray[np.int32],
    sizes: NDArray[np.int32],
) -> tuple[int, int, int]:
    """Count a batch of rows into ``seen`` and ``sizes`` in place.

    ``entities`` and ``groups`` int64[rows] are ids; ``seen`` has a bit for each entity id from ``first`` on, ``leaf``
    and ``sizes`` an entry for each group id from ``group_first`` on, ``leaf`` -1 where there is no such group. Returns
    the first row that repeats an entity, that names an unknown group, and whose entity lies outside ``seen``; -1 for
    none. O(rows).
    """
    return _count(entities, groups, first, group_first, seen, leaf, sizes)
