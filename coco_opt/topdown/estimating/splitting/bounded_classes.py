"""Classes of cells whose persons are bounded in every region of a level, and the cells that these bounds decide.

Facilities by type bound classes: where a block has no facility of a type, nobody lives in one. Where one child alone
may hold a class, the parent's persons of that class are all in this child, and only sums bind what is left. Where
several may hold one, its cells are closed in the others, and lower bounds mostly hold by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.operators import Operator
from coco_opt.topdown.estimating.sparse_tables import SparseTables
from coco_opt.topdown.invariants import Constraints

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

    def hold(self, cells: Ints, children: Ints, persons: Floats | Ints, regions: Ints, slack: float = 0.0) -> Flags:
        """Return in which ``regions`` the bounds hold, up to ``slack`` persons.

        Region regions[children[k]] has persons[k] in cells[k]; cells left out are empty.
        """
        classes, label = self.lower.shape[1], self.labels[cells]
        place, used = children * classes + label, label >= 0
        sums = np.bincount(place[used], persons[used], regions.size * classes).reshape(-1, classes)
        within = (self.lower[regions] <= sums + slack) & (self.upper[regions] >= sums - slack)
        return np.asarray(within.all(axis=1))

    def decided(self, above: SparseTables, bounds: Ints) -> tuple[Flags, Ints]:
        """Return which parents are left with sums alone, and the child of each entry of their tables, ``FREE`` for any.

        Parents' children lie between consecutive ``bounds`` in their level; a child is its place in this level.
        """
        classes = self.lower.shape[1]
        children = np.arange(bounds[0], bounds[-1])
        first = bounds[:-1] - bounds[0]
        may = self.upper[children] > 0
        least = np.maximum(self.lower[children], 0)
        holders, needed = (np.add.reduceat(each, first, axis=0) for each in (may.astype(np.int64), least))
        holder = np.add.reduceat(np.where(may, children[:, None], 0), first, axis=0)  # where there is one alone
        holder = np.where(holders == 1, holder, bounds[0])
        column = np.arange(classes)
        parent, label = self._entries(above)
        persons = self._persons(above)
        alone = (holders == 1) & (self.lower[holder, column] <= persons) & (persons <= self.upper[holder, column])
        # A class that nobody is in, and nobody needs to be in, binds nothing.
        settled = np.where(persons > 0, alone, needed == 0).all(axis=1)
        return settled, np.where(label >= 0, holder[parent, label], FREE)

    def closable(self, above: SparseTables, bounds: Ints) -> Flags:
        """Return for which parents no upper bound but 0 binds a child, and some child may hold each of their classes.

        Lower bounds are left to be seen. Parents' children lie between consecutive ``bounds``.
        """
        first, persons = bounds[:-1] - bounds[0], self._persons(above)
        upper = self.upper[bounds[0] : bounds[-1]]
        plain = ((upper <= 0) | (upper >= np.repeat(persons, np.diff(bounds), axis=0))).all(axis=1)
        held = np.logical_or.reduceat(upper > 0, first, axis=0) | (persons == 0)
        return np.asarray(np.logical_and.reduceat(plain, first) & held.all(axis=1))

    def closed(self, cells: Ints, regions: Ints) -> Flags:
        """Return for pairs of cells and regions of the level whether nobody may be there."""
        label = self.labels[cells]
        return np.asarray((label >= 0) & (self.upper[regions, label] <= 0))

    def _entries(self, above: SparseTables) -> tuple[Ints, Ints]:
        """Return the parent and the class of each entry of some parents' tables."""
        return np.repeat(np.arange(above.regions), np.diff(above.offsets)), self.labels[above.cells]

    def _persons(self, above: SparseTables) -> Ints:
        """Return the persons of each class in some parents' tables, int64[parents, classes]."""
        parent, label = self._entries(above)
        persons = np.zeros((above.regions, self.lower.shape[1]), np.int64)
        np.add.at(persons, (parent[label >= 0], label[label >= 0]), above.counts[label >= 0])
        return persons
