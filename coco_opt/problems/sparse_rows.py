"""Sparse rows on a choice of cells, stored by rows and by columns, for splits and roundings of tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.operators import Grouping, Operator, Stacked

if TYPE_CHECKING:
    from coco_opt.kernels.split_certificate import Matrix


@dataclass(frozen=True, eq=False, slots=True)
class SparseRows:
    """A matrix (rows, cells) stored by rows and by columns: row a has ``cell[start[a]:start[a + 1]]``, and so on."""

    start: Ints
    cell: Ints
    value: Floats
    column_start: Ints
    row: Ints
    column_value: Floats

    @property
    def matrix(self) -> Matrix:
        """Return the arrays as kernels take them."""
        from coco_opt.kernels.split_certificate import Matrix

        return Matrix(self.start, self.cell, self.value, self.column_start, self.row, self.column_value)

    @property
    def shape(self) -> tuple[int, int]:
        """Return (rows, cells)."""
        return self.start.size - 1, self.column_start.size - 1

    @property
    def owner(self) -> Ints:
        """Return each entry's row, in row order."""
        return np.repeat(np.arange(self.shape[0]), self.start[1:] - self.start[:-1])

    def apply(self, x: Floats) -> Floats:
        """Return the rows' values [rows, children] of tables [cells, children]."""
        from coco_opt.kernels import split_certificate

        return split_certificate.products(self.start, self.cell, self.value, np.ascontiguousarray(x))

    def adjoint(self, y: Floats) -> Floats:
        """Return the transposed product [cells, children] of [rows, children]."""
        from coco_opt.kernels import split_certificate

        return split_certificate.products(self.column_start, self.row, self.column_value, np.ascontiguousarray(y))

    def take(self, rows: Ints) -> SparseRows:
        """Return some rows, in this order."""
        number = np.full(self.shape[0], -1)
        number[rows] = np.arange(rows.size)
        of = number[self.owner]
        chosen = of >= 0
        return _from_entries(of[chosen], self.cell[chosen], self.value[chosen], (rows.size, self.shape[1]))

    def above(self, below: SparseRows) -> SparseRows:
        """Return these rows with others below them."""
        if below.shape[0] == 0:
            return self
        return _from_entries(
            np.concatenate([self.owner, below.owner + self.shape[0]]),
            np.concatenate([self.cell, below.cell]),
            np.concatenate([self.value, below.value]),
            (self.shape[0] + below.shape[0], self.shape[1]),
        )


def stacked(operators: Sequence[Operator], cells: Ints) -> SparseRows:
    """Return the operators' rows on these cells, one operator below the other."""
    rows, columns, values, offset = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0)], 0
    for operator in operators:
        row, column, value = _entries(operator, cells)
        rows, columns, values = [*rows, row + offset], [*columns, column], [*values, value]
        offset += operator.answers
    return _from_entries(np.concatenate(rows), np.concatenate(columns), np.concatenate(values), (offset, cells.size))


def runs_from(starts: Ints, sizes: Ints) -> Ints:
    """Return the integers ``starts[k] .. starts[k] + sizes[k] - 1`` of every k, one run after the other."""
    before = np.cumsum(sizes) - sizes
    return np.asarray(np.arange(int(sizes.sum())) + np.repeat(starts - before, sizes), np.int64)


def _from_entries(row: Ints, cell: Ints, value: Floats, shape: tuple[int, int]) -> SparseRows:
    from coco_opt.kernels import split_certificate

    return SparseRows(*split_certificate.by_rows_and_columns(row, cell, value, *shape))


def _entries(operator: Operator, cells: Ints) -> tuple[Ints, Ints, Floats]:
    """Return rows, places among the cells and values of the entries that are not zero."""
    if isinstance(operator, Grouping):
        labels = operator.labels[cells]
        counted = np.flatnonzero(labels >= 0)
        return labels[counted], counted, np.ones(counted.size)
    if isinstance(operator, Stacked):
        offsets = np.cumsum([0, *(part.answers for part in operator.parts)])
        parts = [_entries(part, cells) for part in operator.parts]
        rows = [row + offset for (row, _, _), offset in zip(parts, offsets, strict=False)]
        return np.concatenate(rows), np.concatenate([part[1] for part in parts]), np.concatenate([p[2] for p in parts])
    matrix = operator.restrict(cells).to_sparse().tocoo()
    present = matrix.data != 0.0
    row, cell = (np.asarray(part, dtype=np.int64)[present] for part in (matrix.row, matrix.col))
    return row, cell, np.asarray(matrix.data, dtype=np.float64)[present]
