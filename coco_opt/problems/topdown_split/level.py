"""Many splits in one call, in the arrays kernels read: all parents of a level whose children only sums constrain.

Those sums are the parents' cells and, if there are any, the children's exact counts of classes of cells.
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


class Prices(NamedTuple):
    """Prices of the parents' sums, one for each occupied cell in order, and of exact counts [children, classes]."""

    cells: Floats
    classes: Floats

    @classmethod
    def none(cls, level: SplitLevel) -> Prices:
        """Return prices that are all 0."""
        assert level.exact is not None
        return cls(np.zeros(level.cells.size), np.zeros(level.exact.shape))


@dataclass(frozen=True, eq=False)
class SplitLevel:
    """The splits of several parents: ``rows`` are the queries' on all cells, ``query_of`` each row's query.

    Parent p holds ``counts[starts[p]:starts[p + 1]]`` people in ``cells``, all above 0, and has the children
    ``children[p]:children[p + 1]`` of ``answers`` float64[children, rows] and ``weights`` float64[children, queries].
    Its tables lie in ``places[p]:places[p + 1]`` of a vector, [occupied cells, children]. ``classes`` int64[all cells]
    gives each cell's class (-1: none), ``exact`` float64[children, classes] each child's count of each class.
    ``closed`` bool[places] says which numbers of the tables must be 0, None for none of them.
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
    exact: Floats | None = None
    closed: Flags | None = None

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

    def judge(self, tables: Floats, prices: Prices | None = None) -> Judged:
        """Judge any solver's tables of all parents by their queries, under ``prices`` where classes constrain them."""
        from coco_opt.kernels import split_exact, split_level

        if self.classes is not None:
            assert self.exact is not None
            priced = Prices.none(self) if prices is None else prices
            arguments = self.columns, self.arrays, self.places, read_only(self.classes), self.exact
            return Judged(*split_exact.judge(*arguments, tables, priced.cells, priced.classes))
        return Judged(*split_level.judge(self.columns, self.arrays, self.places, self.shut, tables))

    @property
    def shut(self) -> Flags:
        """Return what is ``closed`` for kernels: empty where nothing is."""
        return read_only(np.zeros(0, np.bool_) if self.closed is None else self.closed)

    @cached_property
    def parent(self) -> Ints:
        """Return the parent of each of ``cells``."""
        return np.repeat(np.arange(self.starts.size - 1), np.diff(self.starts))

    @property
    def shut_pairs(self) -> Flags:
        """Return which numbers of the tables must be 0, bool[places]."""
        return np.zeros(int(self.places[-1]), np.bool_) if self.closed is None else self.closed

    def some(self, parents: Ints) -> SplitLevel:
        """Return the splits of some parents, which rise; without exact counts."""
        cells, children, places = (
            runs_from(bounds[parents], np.diff(bounds)[parents]) for bounds in (self.starts, self.children, self.places)
        )
        starts, ends = (
            np.concatenate([[0], np.cumsum(np.diff(bounds)[parents])]).astype(np.int64)
            for bounds in (self.starts, self.children)
        )
        return replace(
            self,
            starts=starts,
            cells=self.cells[cells],
            counts=self.counts[cells],
            children=ends,
            answers=self.answers[children],
            weights=self.weights[children],
            closed=None if self.closed is None else self.closed[places],
        )

    @property
    def pairs(self) -> tuple[Ints, Ints]:
        """Return the cell and the child of each number in the vector of tables."""
        sizes = np.diff(self.children)[self.parent]
        return np.repeat(self.cells, sizes), runs_from(self.children[self.parent], sizes)

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
        """Return tables of all parents, closed cells 0, and which are worth judging; others are left to ``solve``."""
        ...

    def split_exact(self, level: SplitLevel) -> tuple[Floats, Flags, Prices]:
        """Return the same, with prices, for a level whose children have exact counts of classes."""
        ...
