"""The posterior of a release of tables: its draws and intervals, or that it has none.

Targets of the released tables: the tables of least expected error, by draws of the leaves' tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.operators import Grouping, Operator
from coco_opt.topdown.estimating.linear.best_linear import LinearEstimates
from coco_opt.topdown.estimating.posterior.correction import Correction, Counting, DrawnTables, blocks_of, central
from coco_opt.topdown.estimating.posterior.sampler import Sampled
from coco_opt.topdown.estimating.sparse_tables import SparseTables
from coco_opt.topdown.queries import Query

if TYPE_CHECKING:
    from coco_opt.kernels.posterior_table_summaries import Sums


NO_INTERVALS = 'has no intervals: estimate the measurement with estimation = "posterior"'
NOT_CONNECTED = (
    "The constraints do not nest, so moves of persons may not connect all tables that meet them: the tables are those "
    'of estimation "full", and there are no intervals'
)


@dataclass(frozen=True, eq=False, slots=True)
class TableIntervals:
    """The intervals of one region's cells, and of its answers to the workload by the text of the query.

    Ends are int64 and both included; every interval holds the released count. ``coverage`` is a lower bound on the
    posterior probability that one interval holds the true count.
    """

    coverage: float
    lower: Ints
    upper: Ints
    queries: Mapping[str, tuple[Ints, Ints]]


@dataclass(frozen=True, eq=False, slots=True)
class TablesPosterior:
    """Draws of all tables, None where moves may not connect all tables that meet the constraints.

    ``queries`` are those with intervals: the cells' first, then the workload's; the ``correction`` is of their answers.
    ``coverage`` is 0 for no intervals.
    """

    drawn: DrawnTables | None
    sampled: Sampled | None
    queries: tuple[Query, ...]
    coverage: float
    correction: Correction | None = None

    @property
    def has_intervals(self) -> bool:
        """Return whether there are any intervals."""
        return self.drawn is not None and self.coverage > 0.0

    @property
    def corrected(self) -> list[tuple[int, Query, float]]:
        """Return the levels and queries whose answers were moved towards the linear estimates, and how far: 0 to 1."""
        if self.correction is None:
            return []
        of_level = enumerate(self.correction.weights)
        every = [(level, *pair) for level, own in of_level for pair in zip(self.queries, own, strict=True)]
        return [each for each in every if each[2] > 0.0]

    @property
    def widened(self) -> list[tuple[int, Query, float]]:
        """Return the leaves' level and the queries whose intervals there are wider, and their largest factor."""
        if self.correction is None:
            return []
        level = len(self.correction.queries) - 1
        largest = [(query, float(own.max())) for query, own in zip(self.queries, self.correction.factors, strict=True)]
        return [(level, query, factor) for query, factor in largest if factor > 1.0]

    @property
    def moved(self) -> list[tuple[int, Query, int]]:
        """Return the leaves' level and the queries whose answers there moved, and how many."""
        if self.correction is None:
            return []
        level, sizes = len(self.correction.queries) - 1, [rows.size for rows in self.correction.moved]
        return [(level, query, size) for query, size in zip(self.queries, sizes, strict=True) if size]

    def sorted_answers(self, query: Query, level: int, regions: range) -> NDArray[np.int32]:
        """Return the draws of answers of consecutive regions of a level, corrected, int32[regions x answers, draws]."""
        assert self.drawn is not None
        texts, corrected = [each.text for each in self.queries], None
        # The workload can name the cells in other ways; other queries have no intervals of their own to be corrected.
        names_cells = query.operator.answers == query.operator.cells
        if self.correction is not None and (query.text in texts or names_cells):
            place = texts.index(query.text) if query.text in texts else 0
            corrected = self.correction.sorted_answers(level, regions, place)
        return self.drawn.sorted_answers(regions, Counting.of(query.operator)) if corrected is None else corrected

    def interval(self, query: Query, level: int, regions: slice, tables: SparseTables) -> tuple[Ints, Ints]:
        """Return the ends, both included, of intervals [regions, answers] of consecutive regions of a level.

        They are the central intervals of the draws, widened to hold the answers of the level's released ``tables``.
        """
        assert self.drawn is not None
        chosen = self.drawn.hierarchy.level_range(level)[regions]
        lower, upper = central(self.sorted_answers(query, level, chosen), self.coverage)
        first = self.drawn.hierarchy.level_range(level).start
        released = query.operator.apply(tables.dense(chosen.start - first, chosen.stop - first))
        shape = released.shape
        return np.minimum(lower.reshape(shape), released), np.maximum(upper.reshape(shape), released)

    def of(self, region: int, level: int, tables: SparseTables) -> TableIntervals:
        """Return the intervals of a region, counted in its ``level``."""
        here = slice(region, region + 1)
        ends = [self.interval(query, level, here, tables) for query in self.queries]
        rows = {query.text: (lower[0], upper[0]) for query, (lower, upper) in zip(self.queries, ends, strict=True)}
        lower, upper = rows.pop(self.queries[0].text)
        return TableIntervals(self.coverage, lower, upper, rows)


def interval_queries(cells: Query, workload: tuple[Query, ...]) -> tuple[Query, ...]:
    """Return the queries that have intervals: the cells', then those of the workload that count more, each once."""
    texts = {query.text: query for query in workload if query.text not in (cells.text, "identity")}
    return (cells, *texts.values())


_OF_LEAVES = 0.2  # weight of an error of a leaf's sum; that of a cell is 1
_MOST = 100_000_000  # numbers of a region's children that are sorted together; more children use fewer draws


@dataclass(frozen=True, eq=False, slots=True)
class Targets:
    """Fractional tables of least expected error: what the released tables are rounded from.

    ``groups`` [levels] are those of the cells whose sums count as the cells do, every one finer than the last: a
    region's total, then the answers of nested queries, then the cells. Medians of cells do not add up to the median of
    their sum, so the expected errors of all of them together are least. At the leaves, where most cells are near 0,
    medians of cells and of sums pull in opposite ways, and sums count less: so persons are where cells have the least
    expected error, and where cells tell little, sums decide. The ``correction`` is of these groups.
    """

    drawn: DrawnTables
    correction: Correction
    groups: tuple[tuple[Grouping, ...], ...]

    @classmethod
    def of(cls, drawn: DrawnTables, linear: LinearEstimates, rounded: Sequence[Sequence[Operator]]) -> Targets:
        """Return the targets for the queries that are rounded at each level, in order."""
        groups = tuple(_finer_groups(queries, drawn.cells) for queries in rounded)
        return cls(drawn, Correction.of(drawn, linear, groups), groups)

    def __call__(self, regions: range, parent: Ints | None) -> Floats:
        """Return the tables [regions, cells] of a region's children, or of the root alone without a ``parent``."""
        cells = np.arange(self.drawn.cells) if parent is None else np.flatnonzero(parent)
        tables = np.zeros((len(regions), self.drawn.cells))
        if not cells.size:
            return tables
        level = int(self.drawn.hierarchy.level[regions.start])
        coarse, labels = [], []
        for number, grouping in enumerate(self.groups[level][:-1]):
            kept, own = np.unique(grouping.labels[cells], return_inverse=True)
            coarse.append(self._values(level, regions, number, cells, kept))
            labels.append(own)
        values = self._values(level, regions, len(coarse), cells, cells)
        total = None if parent is None else parent[cells].astype(np.float64)
        weight = _OF_LEAVES if level == len(self.groups) - 1 else 1.0
        tables[:, cells] = _fitted(values, len(regions), labels, coarse, weight, total)
        return tables

    def _values(self, level: int, regions: range, number: int, cells: Ints, kept: Ints) -> NDArray[np.int32]:
        """Return the draws of the ``kept`` groups, rising, of these ``cells`` alone unless corrected."""
        grouping, size = self.groups[level][number], int(self.drawn.draws.offset.shape[0])
        every = max(1, -(-len(regions) * cells.size * size // _MOST))
        if self.correction.weights[level][number] == 0.0:
            own = np.full(self.drawn.cells, -1, np.int64)
            own[cells] = np.searchsorted(kept, grouping.labels[cells])
            return self.drawn.sorted_answers(regions, Counting.of_labels(own, kept.size), every)
        values = np.empty((len(regions), kept.size, -(-size // every)), np.int32)
        for some in blocks_of(self.drawn, grouping, regions):
            corrected = self.correction.sorted_answers(level, some, number)
            assert corrected is not None
            begin = some.start - regions.start
            values[begin : begin + len(some)] = corrected.reshape(len(some), -1, size)[:, kept, ::every]
        return values.reshape(-1, values.shape[2])


def _finer_groups(queries: Sequence[Operator], cells: int) -> tuple[Grouping, ...]:
    """Return groups of cells that refine one another: everybody, the answers of each query within them, the cells."""
    labels = np.zeros(cells, np.int64)
    groups = [Grouping(labels, 1)]
    for query in queries:
        if isinstance(query, Grouping):
            _, labels = np.unique(labels * (query.answers + 1) + query.labels + 1, return_inverse=True)
            answers = int(labels.max()) + 1
            if answers > groups[-1].answers:
                groups.append(Grouping(labels.astype(np.int64), answers))
    return (*groups, Grouping(np.arange(cells), cells))


def _fitted(
    values: NDArray[np.int32],
    regions: int,
    labels: Sequence[Ints],
    coarse: Sequence[NDArray[np.int32]],
    weight: float,
    total: Floats | None,
) -> Floats:
    """Return the answers [regions, answers] of least expected error, with that of their sums in groups.

    The groups are ``labels`` [answers], with ``coarse`` draws [regions x groups, draws] and a ``weight`` of their
    errors. The answers' sums over regions are ``total`` [answers], None for no such sums.
    """
    from coco_opt.kernels import posterior_table_summaries as summaries

    rows = np.arange(len(values)).reshape(regions, -1)
    members, sizes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for own in labels:
        members.append(rows[:, np.argsort(own, kind="stable")].reshape(-1))
        sizes.append(np.tile(np.bincount(own), regions))
    across = _sums(np.concatenate(members), np.concatenate(sizes), np.zeros(0))
    of_sums = np.concatenate([np.zeros((0, values.shape[1]), np.int32), *coarse])
    down = _sums(rows[:, :0].reshape(-1), np.zeros(0, np.int64), np.zeros(0))
    if total is not None:
        down = _sums(rows.T.reshape(-1), np.full(rows.shape[1], regions), total)
    added, (x, levels) = np.zeros(len(of_sums) + down.total.size), np.zeros((2, rows.size))
    summaries.fit(values, across, of_sums, weight, down, added, levels, x)
    return x.reshape(regions, -1)


def _sums(members: Ints, sizes: Ints, totals: Floats) -> Sums:
    from coco_opt.kernels import posterior_table_summaries as summaries

    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return summaries.Sums(np.ascontiguousarray(members, np.int64), starts, np.ascontiguousarray(totals, np.float64))
