"""The posterior of a release of tables: its draws and intervals, or that it has none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Ints
from coco_opt.topdown.estimating.posterior.correction import Correction
from coco_opt.topdown.estimating.posterior.drawn_tables import Counting, DrawnTables, central
from coco_opt.topdown.estimating.posterior.sampler import Sampled
from coco_opt.topdown.estimating.sparse_tables import SparseTables
from coco_opt.topdown.queries import Query

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
