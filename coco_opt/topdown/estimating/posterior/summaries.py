"""Targets of the released tables: the tables of least expected error, by draws of the leaves' tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.operators import Grouping, Operator
from coco_opt.topdown.estimating.linear.best_linear import LinearEstimates
from coco_opt.topdown.estimating.posterior.comparison import blocks_of
from coco_opt.topdown.estimating.posterior.correction import Correction
from coco_opt.topdown.estimating.posterior.drawn_tables import Counting, DrawnTables

if TYPE_CHECKING:
    from coco_opt.kernels.posterior_table_summaries import Sums


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
