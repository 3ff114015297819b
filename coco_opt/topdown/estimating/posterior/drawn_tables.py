"""Draws of the leaves' tables, read for any region and query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Ints
from coco_opt.histograms import Hierarchy
from coco_opt.operators import Operator
from coco_opt.posterior.diagnostics import central_ranks

if TYPE_CHECKING:
    from coco_opt.kernels.posterior_table_summaries import Draws


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


def central(values: NDArray[np.int32], coverage: float) -> tuple[Ints, Ints]:
    """Return the ends, both included, of the central intervals int64[rows] of sorted draws [rows, draws]."""
    first, last = central_ranks(values.shape[1], coverage)
    return values[:, first].astype(np.int64), values[:, last].astype(np.int64)
