"""Many splits in one call, in the arrays kernels read: all parents of a level, whose children only sums constrain.

Those sums are the parents' cells and, if there are any, bounds on the children's persons in classes of cells.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol, Self, runtime_checkable

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.kernels.arrays import read_only
from coco_opt.problems.sparse_rows import SparseRows, runs_from


class Judged(NamedTuple):
    """Every parent's objective, certified gap and violation, as ``TopdownSplit`` computes them, float64[parents]."""

    objective: Floats
    gap: Floats
    violation: Floats


@dataclass(frozen=True, eq=False)
class SplitLevel:
    """The splits of several parents: ``rows`` are the queries' on all cells, ``query_of`` each row's query.

    Parent p holds ``counts[starts[p]:starts[p + 1]]`` people in ``cells``, all above 0, and has the children
    ``children[p]:children[p + 1]`` of ``answers`` float64[children, rows] and ``weights`` float64[children, queries].
    Its tables lie in ``places[p]:places[p + 1]`` of a vector, [occupied cells, children]. ``classes`` int64[all cells]
    gives each cell's class (-1: none), ``lower`` and ``upper`` float64[children, classes] bound each child's persons of
    each class.
    """

    rows: SparseRows
    query_of: Ints
    starts: Ints
    cells: Ints
    counts: Floats
    children: Ints
    answers: Floats
    weights: Floats
    classes: Ints | None = None
    lower: Floats | None = None
    upper: Floats | None = None

    @classmethod
    def example(cls) -> Self:
        """Return two parents with two children each, with queries for the two cells and for their sum."""
        cells, four = np.array([0, 1]), np.array([0, 2, 4])
        starts, row, column_starts = np.array([0, 2, 3, 4]), np.array([0, 1, 0, 2]), four
        return cls(
            rows=SparseRows(starts, np.array([0, 1, 0, 1]), np.ones(4), column_starts, row, np.ones(4)),
            query_of=np.array([0, 1, 1]),
            starts=four,
            cells=np.concatenate([cells, cells]),
            counts=np.array([3.0, 2.0, 1.0, 4.0]),
            children=four,
            answers=np.array([[2.1, 0.8, 1.4], [3.3, 2.5, 0.2], [1.0, 0.1, 0.3], [4.2, 1.1, 3.6]]),
            weights=np.ones((4, 2)),
        )

    @cached_property
    def places(self) -> Ints:
        """Return where each parent's tables begin, and one end more."""
        return np.concatenate([[0], np.cumsum(np.diff(self.starts) * np.diff(self.children))]).astype(np.int64)

    def judge(self, tables: Floats, prices: Floats | None = None) -> Judged:
        """Judge any solver's tables by their queries, with bounds under ``prices`` of these [children, classes].

        A positive price belongs to the lower side. Parents' prices are the best for the gradient.
        """
        from coco_opt.kernels import split_level

        if self.lower is None or self.upper is None:
            none = read_only(np.zeros(0, np.bool_)), read_only(np.zeros(0))
            return Judged(*split_level.judge(self.columns, self.arrays, self.places, *none, tables))
        priced = np.zeros(self.lower.shape) if prices is None else prices
        _, child, label = self.pairs_with_classes
        charge = np.where(label >= 0, priced[child, label], 0.0)
        judged = Judged(*split_level.judge(self.columns, self.arrays, self.places, self.closed, charge, tables))
        sums = self.class_sums(tables)
        side = np.where(priced > 0.0, self.lower, self.upper)
        paid = np.abs(priced) * np.abs(np.where(priced == 0.0, 0.0, sums - side))
        missed = np.maximum(self.lower - sums, sums - self.upper).max(axis=1, initial=0.0)
        first = self.children[:-1]
        return Judged(
            judged.objective,
            judged.gap + np.add.reduceat(paid.sum(axis=1), first),
            np.maximum(judged.violation, np.maximum.reduceat(missed, first)),
        )

    def class_sums(self, tables: Floats) -> Floats:
        """Return the persons of every class in every child, float64[children, classes]."""
        assert self.lower is not None
        _, child, label = self.pairs_with_classes
        used, shape = label >= 0, self.lower.shape
        sums = np.bincount(child[used] * shape[1] + label[used], tables[used], shape[0] * shape[1])
        return np.asarray(sums, np.float64).reshape(shape)

    @cached_property
    def closed(self) -> Flags:
        """Return which numbers of the tables must be 0, bool[places]: those of classes that a child must not have."""
        assert self.upper is not None
        _, child, label = self.pairs_with_classes
        return (label >= 0) & (self.upper[child, label] <= 0.0)

    @cached_property
    def parent(self) -> Ints:
        """Return the parent of each of ``cells``."""
        return np.repeat(np.arange(self.starts.size - 1), np.diff(self.starts))

    @property
    def pairs(self) -> tuple[Ints, Ints]:
        """Return the cell and the child of each number in the vector of tables."""
        sizes = np.diff(self.children)[self.parent]
        return np.repeat(self.cells, sizes), runs_from(self.children[self.parent], sizes)

    @cached_property
    def pairs_with_classes(self) -> tuple[Ints, Ints, Ints]:
        """Return the cell, the child and the cell's class (-1: none) of each number in the vector of tables."""
        cells, child = self.pairs
        return cells, child, np.full(cells.size, -1) if self.classes is None else self.classes[cells]

    @property
    def table_rows(self) -> Ints:
        """Return where the children's numbers of each of ``cells`` begin in the vector of tables."""
        place = np.arange(self.cells.size) - self.starts[self.parent]
        return np.asarray(self.places[self.parent] + place * np.diff(self.children)[self.parent], np.int64)

    def rest(self, child: Ints) -> tuple[SplitLevel, Ints]:
        """Return what is left once the persons of some ``cells`` are in a ``child`` (-1: in any), and its parents.

        Parents of which nothing is left are left out. Answers are less what the placed cells have of them.
        """
        answers, placed, free = self.answers.copy(), np.flatnonzero(child >= 0), np.flatnonzero(child < 0)
        start = self.rows.column_start
        widths = (start[1:] - start[:-1])[self.cells[placed]]
        entries = runs_from(start[self.cells[placed]], widths)
        values = self.rows.column_value[entries] * np.repeat(self.counts[placed], widths)
        np.subtract.at(answers, (np.repeat(child[placed], widths), self.rows.row[entries]), values)
        parents, first = np.unique(self.parent[free], return_index=True)
        sizes = np.diff(self.children)[parents]
        children = runs_from(self.children[parents], sizes)
        rest = replace(
            self,
            starts=np.append(first, free.size).astype(np.int64),
            cells=self.cells[free],
            counts=self.counts[free],
            children=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            answers=answers[children],
            weights=self.weights[children],
        )
        return rest, parents

    @property
    def columns(self) -> tuple[Ints, Ints, Floats, Ints]:
        """Return the rows by columns and each row's query, for kernels."""
        rows = self.rows
        starts, row, values = rows.column_start, rows.row, rows.column_value
        return read_only(starts), read_only(row), read_only(values), read_only(self.query_of)

    @property
    def arrays(self) -> tuple[Ints, Ints, Floats, Ints, Floats, Floats]:
        """Return parents, children, answers and weights, for kernels."""
        return self.starts, self.cells, self.counts, self.children, self.answers, self.weights


@runtime_checkable
class LevelSplitter(Protocol):
    """A solver of ``topdown_split`` that takes many problems in one call."""

    tolerance: float

    def split_level(self, level: SplitLevel) -> tuple[Floats, Flags]:
        """Return tables of all parents and which are worth judging; others are left to ``solve``."""
        ...

    def split_bounded(self, level: SplitLevel) -> tuple[Floats, Flags, Floats]:
        """Return the same for a level with bounds on classes, and their prices float64[children, classes]."""
        ...
