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
from coco_opt.topdown.estimating.posterior.correction import Correction
from coco_opt.topdown.estimating.posterior.drawn_tables import Counting, DrawnTables

if TYPE_CHECKING:
    from coco_opt.kernels.posterior_table_summaries import Sums


_MOST = 100_000_000  # numbers of a region's children that are sorted together; more children use fewer draws


@dataclass(frozen=True, eq=False, slots=True)
class Targets:
    """Fractional tables of least expected error: what the released tables are rounded from.

    ``passes`` [levels] are the groups of cells of each pass of a level, every one finer than the last: a region's total
    first, then the answers of nested queries, then the cells. A pass keeps the sums of the pass before in every region,
    and adds up to the parent's table, as the rounding does; so it lies around its own medians, which cells' medians do
    not add up to. The ``correction`` has these groups for queries.
    """

    drawn: DrawnTables
    correction: Correction
    passes: tuple[tuple[Grouping, ...], ...]

    @classmethod
    def of(cls, drawn: DrawnTables, linear: LinearEstimates, rounded: Sequence[Sequence[Operator]]) -> Targets:
        """Return the targets for the queries that are rounded at each level, in order."""
        passes = tuple(_finer_groups(queries, drawn.cells) for queries in rounded)
        return cls(drawn, Correction.of(drawn, linear, passes), passes)

    def __call__(self, regions: range, parent: Ints | None) -> Floats:
        """Return the tables [regions, cells] of a region's children, or of the root alone without a ``parent``."""
        cells = np.arange(self.drawn.cells) if parent is None else np.flatnonzero(parent)
        tables = np.zeros((len(regions), self.drawn.cells))
        if not cells.size:
            return tables
        level = int(self.drawn.hierarchy.level[regions.start])
        within = np.zeros(cells.size, np.int64)
        sums: Floats | None = None
        for number, grouping in enumerate(self.passes[level]):
            kept, groups = np.unique(grouping.labels[cells], return_inverse=True)
            values = self._values(level, regions, number, cells, kept)
            total = None if parent is None else np.bincount(groups, parent[cells], kept.size).astype(np.float64)
            coarse = np.zeros(kept.size, np.int64)
            coarse[groups] = within
            sums = _fitted(values, len(regions), coarse, sums, total)
            within = groups
        assert sums is not None
        tables[:, cells] = sums
        return tables

    def _values(self, level: int, regions: range, number: int, cells: Ints, kept: Ints) -> NDArray[np.int32]:
        """Return the draws of the ``kept`` groups of a pass, rising, of these ``cells`` alone unless corrected."""
        grouping = self.passes[level][number]
        corrected = self.correction.sorted_answers(level, regions, number)
        if corrected is not None:
            rows = np.arange(len(regions))[:, None] * grouping.answers + kept
            return np.ascontiguousarray(corrected[rows.reshape(-1)])
        size = int(self.drawn.draws.offset.shape[0])
        every = max(1, -(-len(regions) * cells.size * size // _MOST))
        own = np.full(self.drawn.cells, -1, np.int64)
        own[cells] = np.searchsorted(kept, grouping.labels[cells])
        return self.drawn.sorted_answers(regions, Counting.of_labels(own, kept.size), every)


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


def _fitted(values: NDArray[np.int32], regions: int, coarse: Ints, sums: Floats | None, total: Floats | None) -> Floats:
    """Return the answers [regions, answers] of least expected error that keep sums.

    Their sums over answers of one ``coarse`` group are ``sums`` [regions, groups], over regions ``total`` [answers];
    None for no such sums.
    """
    from coco_opt.kernels import posterior_table_summaries as summaries

    answers = coarse.size
    rows = np.arange(regions * answers).reshape(regions, answers)
    nothing = np.zeros(0, np.int64)
    across = down = _sums(nothing, nothing, np.zeros(0))
    if sums is not None:
        order = np.argsort(coarse, kind="stable")
        sizes = np.tile(np.bincount(coarse, minlength=sums.shape[1]), regions)
        across = _sums(rows[:, order].reshape(-1), sizes, sums.reshape(-1))
    if total is not None:
        down = _sums(rows.T.reshape(-1), np.full(answers, regions), total)
    x, own, levels = np.zeros((3, rows.size))
    summaries.fit(values, across, down, own, levels, x)
    return x.reshape(regions, answers)


def _sums(members: Ints, sizes: Ints, totals: Floats) -> Sums:
    from coco_opt.kernels import posterior_table_summaries as summaries

    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return summaries.Sums(np.ascontiguousarray(members, np.int64), starts, np.ascontiguousarray(totals, np.float64))
