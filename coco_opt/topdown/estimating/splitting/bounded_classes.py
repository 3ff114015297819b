"""Classes of cells whose persons are bounded in every region of a level, and the cells that these bounds decide.

Facilities by type bound classes: where a block has no facility of a type, nobody lives in one. Where one child alone
may hold a class, the parent's persons of that class are all in this child, and only sums bind what is left. Where
several may hold one, its cells are closed in the others, and lower bounds mostly hold by themselves.

Many splits under lower bounds on classes of cells, by prices on the few bounds that bind.

With the classes' counts A x and their lower bounds l, the split that minimises f(x) has the dual

    maximise over prices p >= 0    min over x of  f(x) - p' (A x - l),

and a price is a linear term for the cells of a class in a child: what a shift of the answers to single cells by
p / (2 weight) adds to f. So a priced split is a split of the same kind, and many go to one compiled call. Each price is
moved by the secant method until its class has its bound; f(x) - min + p' (A x - l) bounds the distance to the optimum.
Where most bounds of a few children bind, prices disturb each other and may not settle: such parents are not certified.

Cells that no query determines: one guess, whichever solver has found the fit.

Where only marginals are measured many tables fit equally well, and each solver ends at another of them: an active-set
method at a vertex with many zeros, an interior-point method in the middle. All of them agree on the measured answers.
So these answers are kept, and what they leave open is shared out in proportion to the margins: of all tables with the
same answers, parent and constraints that is the one nearest, in relative entropy, to equal parts of the parent's cells
(at the root: to equal cells). Without a parent and with single attributes measured it is the product of the margins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.operators import Operator
from coco_opt.problems.topdown_split import TopdownSplit
from coco_opt.problems.topdown_split.level import Judged, LevelSplitter, SplitLevel
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


_ROUNDS = 16
_NEAR = 1e-5  # persons that a class may be off its bound while prices are sought
_MORE = 1e-9  # persons beyond the bound that mending moves


class Priced(NamedTuple):
    """The tables of all parents, how they are judged with the prices, and which of them are worth it."""

    tables: Floats
    judged: Judged
    rested: Flags


@dataclass(frozen=True, eq=False)
class PricedBounds:
    """Splits ``problem`` with ``lower`` bounds float64[children, classes]; ``labels`` int64[all cells] are the classes.

    Every cell of a class must be measured by itself, or nothing is found.
    """

    problem: SplitLevel
    labels: Ints
    lower: Floats

    def solve(self, splitter: LevelSplitter) -> Priced:
        """Return tables that keep the bounds; each round splits all parents once."""
        slope, price = self._slope(), np.zeros(self.lower.shape)
        before, excess_before = price, np.zeros(self.lower.shape)
        tables, rested = splitter.split_level(self.problem)
        for _ in range(_ROUNDS):
            excess = self._sums(tables) - self.lower
            off = np.where(price > 0.0, np.abs(excess), -excess) > _NEAR
            if not off.any() or not (slope[off] > 0.0).all():
                break
            step = -excess / np.where(slope > 0.0, slope, 1.0)
            moved, rise = price - before, excess - excess_before
            secant = np.divide(-excess * moved, rise, out=step, where=(moved != 0.0) & (rise * moved > 0.0))
            before, excess_before = price, excess
            price = np.where(off, np.maximum(0.0, price + secant), price)
            tables, rested = splitter.split_level(self._with(price))
        self._mend(tables, price)
        return Priced(tables, self._judged(tables, price), rested)

    def _judged(self, tables: Floats, price: Floats) -> Judged:
        """Return the objectives and violations without prices, and the gaps that the prices certify."""
        plain, priced = self.problem.judge(tables), self._with(price).judge(tables)
        paid = (price * np.maximum(0.0, self._sums(tables) - self.lower)).sum(axis=1)
        gap = priced.gap + np.add.reduceat(paid, self.problem.children[:-1])
        return Judged(plain.objective, gap, plain.violation)

    def _sums(self, tables: Floats) -> Floats:
        """Return the persons of every class in every child."""
        cells, child = self.problem.pairs
        label = self.labels[cells]
        used, shape = label >= 0, self.lower.shape
        sums = np.bincount(child[used] * shape[1] + label[used], tables[used], shape[0] * shape[1])
        return np.asarray(sums, np.float64).reshape(shape)

    def _curvature(self, cells: Ints, child: Ints) -> tuple[Ints, Floats, Floats]:
        """Return for pairs of cells and children a row that measures the cell alone, its value there and its weight.

        The weight is 0 where there is none.
        """
        rows = self.problem.rows
        alone = np.flatnonzero(np.diff(rows.start) == 1)
        row_of = np.full(rows.shape[1], -1, np.int64)
        row_of[rows.cell[rows.start[alone]]] = alone
        row = row_of[cells]
        weight = self.problem.weights[child, self.problem.query_of[row]]
        return row, rows.value[rows.start[row]], np.where(row >= 0, weight, 0.0)

    def _slope(self) -> Floats:
        """Return about how many persons a class in a child gains for a price of 1, 0 where no price can be paid."""
        cells, child = self.problem.pairs
        label = self.labels[cells]
        used = np.flatnonzero((label >= 0) & ~self.problem.shut_pairs)
        _, value, weight = self._curvature(cells[used], child[used])
        gains = np.divide(0.5, weight * value**2, out=np.zeros(used.size), where=weight > 0.0)
        place, size = child[used] * self.lower.shape[1] + label[used], self.lower.size
        slope = np.asarray(np.bincount(place, gains, size), np.float64)
        slope[np.unique(place[weight <= 0.0])] = 0.0
        return slope.reshape(self.lower.shape)

    def _with(self, price: Floats) -> SplitLevel:
        """Return the problem with answers to single cells shifted by the prices."""
        cells, child = self.problem.pairs
        label = self.labels[cells]
        used = np.flatnonzero((label >= 0) & (price[child, label] > 0.0))
        row, value, weight = self._curvature(cells[used], child[used])
        answers = self.problem.answers.copy()
        answers[child[used], row] += price[child[used], label[used]] / (2.0 * weight * value)
        return replace(self.problem, answers=answers)

    def _mend(self, tables: Floats, price: Floats) -> None:
        """Move what classes are short of their bounds, which is little, from the child that has most of a cell."""
        problem, short = self.problem, self.lower - self._sums(tables)
        for child, of_class in np.argwhere(short > 0.0).tolist():
            parent = int(np.searchsorted(problem.children, child, side="right")) - 1
            own = child - int(problem.children[parent])
            cells = problem.cells[problem.starts[parent] : problem.starts[parent + 1]]
            table = tables[problem.places[parent] : problem.places[parent + 1]].reshape(cells.size, -1)
            rows = np.flatnonzero(self.labels[cells] == of_class)
            others = price[problem.children[parent] : problem.children[parent + 1], of_class] == 0.0
            others[own] = False
            givers = np.where(others, table[rows], -np.inf)
            cell, giver = np.unravel_index(int(givers.argmax()), givers.shape) if givers.size else (0, own)
            moved = short[child, of_class] + _MORE
            if givers.size and givers[cell, giver] >= moved and moved <= 1.0:
                table[rows[cell], giver] -= moved
                table[rows[cell], own] += moved


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
