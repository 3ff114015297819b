"""What draws of the leaves' tables say about any region: intervals of answers, and targets of the released tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.histograms import Hierarchy
from coco_opt.operators import Grouping, Operator

if TYPE_CHECKING:
    from coco_opt.kernels.posterior_table_summaries import Draws, Sums

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_ROUNDED = 1e-9  # more than the rounding of floating point takes off a number of draws
_MOST = 100_000_000  # numbers of a region's children that are sorted together; more children use fewer draws


@dataclass(frozen=True, eq=False, slots=True)
class Counting:
    """Which answers a cell counts in, by cell: ``column`` int64[cells + 1] into ``answer`` and ``coefficient``."""

    column: Ints
    answer: Ints
    coefficient: Ints
    answers: int

    @classmethod
    def of(cls, operator: Operator) -> Counting:
        """Return that of a query."""
        matrix: Any = operator.to_sparse().tocsc()
        entries = matrix.indices.astype(np.int64), np.rint(matrix.data).astype(np.int64)
        return cls(matrix.indptr.astype(np.int64), *entries, operator.answers)

    @classmethod
    def of_labels(cls, labels: Ints, answers: int) -> Counting:
        """Return that of groups of cells; -1 is in none."""
        used = labels >= 0
        column = np.concatenate([[0], np.cumsum(used)]).astype(np.int64)
        return cls(column, labels[used], np.ones(int(used.sum()), np.int64), answers)


@dataclass(frozen=True, eq=False, slots=True)
class DrawnTables:
    """Draws of the leaves of a hierarchy, read for any region."""

    hierarchy: Hierarchy
    draws: Draws
    cells: int

    def sorted_answers(self, regions: Sequence[int] | range, counting: Counting, every: int = 1) -> NDArray[np.int32]:
        """Return the answers of some regions, draws in rising order, int32[regions x answers, draws]."""
        from coco_opt.kernels import posterior_table_summaries as summaries

        draws = self.draws._replace(offset=np.ascontiguousarray(self.draws.offset[::every]))
        values = np.empty((len(regions) * counting.answers, draws.offset.shape[0]), np.int32)
        first = self.hierarchy.leaves.start
        for place, region in enumerate(regions):
            below = self.hierarchy.leaf_range(region)
            own = values[place * counting.answers : (place + 1) * counting.answers]
            begin, end = below.start - first, below.stop - first
            summaries.gather(draws, begin, end, counting.column, counting.answer, counting.coefficient, own)
        summaries.sort_rows(values)
        return values

    def interval(self, operator: Operator, regions: range, coverage: float) -> tuple[Ints, Ints]:
        """Return the ends, both included, of the draws' central intervals int64[regions, answers]."""
        size = int(self.draws.offset.shape[0])
        # As likely as one more draw, the true answer has any rank among the draws, from 0 to their number.
        outside = max(int(np.floor(0.5 * (1.0 - coverage) * (size + 1) + _ROUNDED)) - 1, 0)
        values = self.sorted_answers(regions, Counting.of(operator))
        shape = (len(regions), operator.answers)
        lower, upper = values[:, outside].reshape(shape), values[:, size - 1 - outside].reshape(shape)
        return lower.astype(np.int64), upper.astype(np.int64)


@dataclass(frozen=True, eq=False, slots=True)
class Targets:
    """Fractional tables of least expected error: what the released tables are rounded from.

    ``passes`` [levels] are the groups of cells of each pass of a level, int64[cells], every one finer than the last: a
    region's total first, then the answers of nested queries. A pass keeps the sums of the pass before in every
    region, and adds up to the parent's table, as the rounding does; so it lies around its own medians, which cells'
    medians do not add up to.
    """

    drawn: DrawnTables
    passes: tuple[tuple[Ints, ...], ...]

    @classmethod
    def of(cls, drawn: DrawnTables, rounded: Sequence[Sequence[Operator]]) -> Targets:
        """Return the targets for the queries that are rounded at each level, in order."""
        return cls(drawn, tuple(_finer_groups(queries, drawn.cells) for queries in rounded))

    def __call__(self, regions: range, parent: Ints | None) -> Floats:
        """Return the tables [regions, cells] of a region's children, or of the root alone without a ``parent``."""
        cells = np.arange(self.drawn.cells) if parent is None else np.flatnonzero(parent)
        tables = np.zeros((len(regions), self.drawn.cells))
        if not cells.size:
            return tables
        size = int(self.drawn.draws.offset.shape[0])
        every = max(1, -(-len(regions) * cells.size * size // _MOST))
        within = np.zeros(cells.size, np.int64)
        sums: Floats | None = None
        for labels in (*self.passes[int(self.drawn.hierarchy.level[regions.start])], np.arange(self.drawn.cells)):
            _, groups = np.unique(labels[cells], return_inverse=True)
            answers = int(groups.max()) + 1
            own = np.full(self.drawn.cells, -1, np.int64)
            own[cells] = groups
            values = self.drawn.sorted_answers(regions, Counting.of_labels(own, answers), every)
            total = None if parent is None else np.bincount(groups, parent[cells], answers).astype(np.float64)
            coarse = np.zeros(answers, np.int64)
            coarse[groups] = within
            sums = _fitted(values, len(regions), coarse, sums, total)
            within = groups
        assert sums is not None
        tables[:, cells] = sums
        return tables


def _finer_groups(queries: Sequence[Operator], cells: int) -> tuple[Ints, ...]:
    """Return groups of cells that refine one another: everybody, then the answers of each query within them."""
    labels = np.zeros(cells, np.int64)
    groups = [labels]
    for query in queries:
        if isinstance(query, Grouping):
            _, labels = np.unique(labels * (query.answers + 1) + query.labels + 1, return_inverse=True)
            if int(labels.max()) > int(groups[-1].max()):
                groups.append(labels.astype(np.int64))
    return tuple(groups)


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
