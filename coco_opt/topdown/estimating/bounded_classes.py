"""Classes of cells whose persons are bounded in every region of a level, and the cells that these bounds decide.

Facilities by type bound classes: where a block has no facility of a type, nobody lives in one. Where one child alone
may hold a class, the parent's persons of that class are all in this child, and only sums bind what is left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coco_opt.operators import Operator
from coco_opt.topdown.estimating.sparse_tables import SparseTables
from coco_opt.topdown.invariants import Constraints

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

FREE = -1
"""The child of a cell that bounds do not decide."""


@dataclass(frozen=True, eq=False, slots=True)
class BoundedClasses:
    """Bounds int64[regions, classes] on the persons of classes of cells in the regions of a level.

    ``labels`` int64[cells] is the class of each cell, -1 for none. ``exact`` bool[regions] says where all counts are
    exact.
    """

    operator: Operator
    labels: Ints
    lower: Ints
    upper: Ints
    exact: Flags

    @classmethod
    def of(cls, constraints: Constraints) -> BoundedClasses | None:
        """Return the classes of constraints that count cells with weight 1 and no cell twice, None for others."""
        matrix = constraints.operator.to_sparse().tocsc()
        if (np.diff(matrix.indptr) > 1).any() or (matrix.data != 1.0).any():
            return None
        labels = np.full(matrix.shape[1], -1, np.int64)
        labels[np.diff(matrix.indptr) > 0] = matrix.indices
        exact = (constraints.lower == constraints.upper).all(axis=1)
        return cls(constraints.operator, labels, constraints.lower, constraints.upper, exact)

    def exact_below(self, bounds: Ints) -> Flags:
        """Return which parents, whose children lie between consecutive bounds in their level, have exact children."""
        return np.asarray(np.logical_and.reduceat(self.exact[: bounds[-1]], bounds[:-1]))

    def holds(self, cells: Ints, tables: Ints, regions: Ints) -> bool:
        """Return whether integer tables int64[cells, regions] keep the bounds."""
        sums, label = np.zeros((self.lower.shape[1], regions.size), np.int64), self.labels[cells]
        np.add.at(sums, label[label >= 0], tables[label >= 0])
        return bool(((self.lower[regions] <= sums.T) & (self.upper[regions] >= sums.T)).all())

    def decided(self, above: SparseTables, bounds: Ints) -> tuple[Flags, Ints]:
        """Return which parents are left with sums alone, and the child of each entry of their tables, ``FREE`` for any.

        Parents' children lie between consecutive ``bounds`` in their level; a child is its place in this level.
        """
        parents, classes = bounds.size - 1, self.lower.shape[1]
        children = np.arange(bounds[0], bounds[-1])
        first = bounds[:-1] - bounds[0]
        may = self.upper[children] > 0
        least = np.maximum(self.lower[children], 0)
        holders, needed = (np.add.reduceat(each, first, axis=0) for each in (may.astype(np.int64), least))
        holder = np.add.reduceat(np.where(may, children[:, None], 0), first, axis=0)  # where there is one alone
        holder = np.where(holders == 1, holder, bounds[0])
        column = np.arange(classes)
        parent = np.repeat(np.arange(parents), np.diff(above.offsets))
        label = self.labels[above.cells]
        persons = np.zeros((parents, classes), np.int64)
        np.add.at(persons, (parent[label >= 0], label[label >= 0]), above.counts[label >= 0])
        alone = (holders == 1) & (self.lower[holder, column] <= persons) & (persons <= self.upper[holder, column])
        # A class that nobody is in, and nobody needs to be in, binds nothing.
        settled = np.where(persons > 0, alone, needed == 0).all(axis=1)
        return settled, np.where(label >= 0, holder[parent, label], FREE)
