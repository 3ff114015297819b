"""Classes of cells whose persons are bounded in every region of a level, and the cells that these bounds decide.

Facilities by type bound classes: where a block has no facility of a type, nobody lives in one. Where one child alone
may hold a class, the parent's persons of that class are all in this child, and only sums bind what is left.

Cells that no query determines: one guess, whichever solver has found the fit.

Where only marginals are measured many tables fit equally well, and each solver ends at another of them: an active-set
method at a vertex with many zeros, an interior-point method in the middle. All of them agree on the measured answers.
So these answers are kept, and what they leave open is shared out in proportion to the margins: of all tables with the
same answers, parent and constraints that is the one nearest, in relative entropy, to equal parts of the parent's cells
(at the root: to equal cells). Without a parent and with single attributes measured it is the product of the margins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.operators import Operator
from coco_opt.problems.topdown_split import TopdownSplit
from coco_opt.topdown.estimating.sparse_tables import SparseTables
from coco_opt.topdown.rows import Constraints

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

    def hold(self, cells: Ints, children: Ints, persons: Floats | Ints, regions: Ints) -> Flags:
        """Return in which ``regions`` the bounds hold.

        Region regions[children[k]] has persons[k] in cells[k]; cells left out are empty.
        """
        classes, label = self.lower.shape[1], self.labels[cells]
        place, used = children * classes + label, label >= 0
        sums = np.bincount(place[used], persons[used], regions.size * classes).reshape(-1, classes)
        within = (self.lower[regions] <= sums) & (self.upper[regions] >= sums)
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

    def _entries(self, above: SparseTables) -> tuple[Ints, Ints]:
        """Return the parent and the class of each entry of some parents' tables."""
        return above.owners, self.labels[above.cells]

    def _persons(self, above: SparseTables) -> Ints:
        """Return the persons of each class in some parents' tables, int64[parents, classes]."""
        parent, label = self._entries(above)
        persons = np.zeros((above.regions, self.lower.shape[1]), np.int64)
        np.add.at(persons, (parent[label >= 0], label[label >= 0]), above.counts[label >= 0])
        return persons


_ENOUGH = 1e-4  # people by which an answer may be off: the tables are rounded to whole persons afterwards
_FIT_ROUNDS = 300


def leaves_cells_open(problem: TopdownSplit) -> bool:
    """Return whether some cell is not measured by itself, so that the fit may leave it open."""
    return bool((problem.single[0] <= 0.0).any())


def shared_in_proportion(problem: TopdownSplit, tables: Floats) -> Floats:
    """Return the tables [children, cells] with the same answers whose open cells follow the margins.

    A problem all of whose cells are measured, or with rows that weigh cells differently, keeps its tables.
    """
    rows = problem.queries.above(problem.rows)
    if not leaves_cells_open(problem) or not (rows.value == 1.0).all():
        return tables
    from coco_opt.kernels.arrays import as_floats, read_only
    from coco_opt.kernels.proportional_fitting import fit

    table = np.maximum(problem.table(tables), 0.0)
    answers, (lower, upper) = problem.queries.apply(table), problem.sides
    measured = problem.weights > 0.0
    sums = np.zeros(0) if problem.sums is None else problem.sums
    x = np.ones(table.shape) if problem.sums is None else np.repeat(sums[:, None], table.shape[1], axis=1)
    fit(
        read_only(rows.start),
        read_only(rows.cell),
        as_floats(np.concatenate([np.where(measured, answers, 0.0), lower])),
        as_floats(np.concatenate([np.where(measured, answers, np.inf), upper])),
        as_floats(sums),
        x,
        _FIT_ROUNDS,
        _ENOUGH,
    )
    return problem.expand(x)
