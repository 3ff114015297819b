"""Two vectors of counts that differ by one entity, chosen to be the easiest to tell apart by a measurement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError
from coco_opt.privacy import Neighbours


@dataclass(frozen=True, eq=False, slots=True)
class CellPair:
    """D and D', counts of the same cells, int64[cells] (entities), which differ by one entity; ``what`` says how."""

    first: Ints
    second: Ints
    what: str


def cell_pair(counts: ArrayLike, neighbours: Neighbours = "add_remove") -> CellPair:
    """Return a pair that isolates one entity: the largest count grows by one.

    A large count stands alone among the sorted counts, and making counts nonnegative rarely touches it. "replace" takes
    the entity from the farthest other cell that has one, whose path in a tree shares least. Raises ProblemError
    where there is no cell to grow or none to give.
    """
    first = np.array(counts, dtype=np.int64)
    if first.ndim != 1 or first.size == 0:
        raise ProblemError("counts must be a vector of at least one cell")
    grown = int(np.argmax(first))
    second = first.copy()
    second[grown] += 1
    what = f"one entity added to a cell of {int(first[grown]):,}"
    if neighbours == "replace":
        givers = np.flatnonzero((first > 0) & (np.arange(first.size) != grown))
        if givers.size == 0:
            raise ProblemError("no other cell has an entity to give: there is no neighbour to audit with")
        giver = int(givers[np.argmax(np.abs(givers - grown))])
        second[giver] -= 1
        what += f", taken from a cell of {int(first[giver]):,}"
    return CellPair(first, second, what)
