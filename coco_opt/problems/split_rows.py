"""What a top-down split is made of: weighted answers, constraints, and both as sparse rows on the cells that matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.operators import Grouping, Operator, Stacked
from coco_opt.problem import MAX_INTEGER

MAX_WEIGHT = 1e60  # with answers up to 2^53 a square times a weight stays finite

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SplitTerm:
    """One query's noisy answers in every child: ``sum_j w_j ||Q x_j - answers_j||^2``.

    operator: Q; answers float64[children, answers], finite; weights float64[children] or [children, answers] (or one
    number), from 0 to 1e60, usually 1 / variance: 0 where a child was not asked. Raises ProblemError otherwise.
    """

    operator: Operator
    answers: Floats
    weights: Floats

    def __post_init__(self) -> None:
        answers = _table(self.answers, self.operator.answers, "the answers of a term")
        if answers.size and not -MAX_INTEGER <= answers.min() <= answers.max() <= MAX_INTEGER:
            raise ProblemError("the answers of a term must be finite and not exceed 2^53 in magnitude")
        weights = np.asarray(self.weights, dtype=np.float64)
        if weights.ndim == 1:
            weights = weights[:, None]
        if weights.ndim > 2 or any(
            have not in (1, need) for have, need in zip(weights.shape, answers.shape, strict=False)
        ):
            raise ProblemError(f"weights must be one number a child, or one an answer, for {answers.shape} answers")
        if weights.size and not 0.0 <= weights.min() <= weights.max() <= MAX_WEIGHT:
            raise ProblemError("weights must be finite, nonnegative and at most 1e60")
        each = np.empty(answers.shape)
        each[...] = weights
        object.__setattr__(self, "answers", _frozen(answers))
        object.__setattr__(self, "weights", _frozen(each))


@dataclass(frozen=True, eq=False)
class LinearRows:
    """Constraints on every child's table: ``lower_j <= C x_j <= upper_j``.

    operator: C; lower, upper float64[children, rows]: infinite where there is no side, equal for an equality. Raises
    ProblemError for another shape or a lower side above the upper one.
    """

    operator: Operator
    lower: Floats
    upper: Floats

    def __post_init__(self) -> None:
        lower = _table(self.lower, self.operator.answers, "the lower sides")
        upper = _table(self.upper, self.operator.answers, "the upper sides")
        if lower.shape != upper.shape or np.isnan(lower).any() or np.isnan(upper).any():
            raise ProblemError("lower and upper sides must be numbers and of one shape")
        empty = (lower > upper) | (lower > MAX_INTEGER) | (upper < -MAX_INTEGER)
        if empty.any():
            child, row = np.argwhere(empty)[0]
            raise ProblemError(
                f"constraint {row} of child {child} is empty: its lower side is above its upper side, or beyond 2^53"
            )
        lower[lower < -MAX_INTEGER], upper[upper > MAX_INTEGER] = -np.inf, np.inf
        object.__setattr__(self, "lower", _frozen(lower))
        object.__setattr__(self, "upper", _frozen(upper))


@dataclass(frozen=True, eq=False, slots=True)
class SparseRows:
    """A matrix (rows, cells) held by rows and by columns: row a has ``cell[start[a]:start[a + 1]]``, and so on."""

    start: Ints
    cell: Ints
    value: Floats
    column_start: Ints
    row: Ints
    column_value: Floats

    @property
    def shape(self) -> tuple[int, int]:
        """Return (rows, cells)."""
        return self.start.size - 1, self.column_start.size - 1

    @property
    def owner(self) -> Ints:
        """Return each entry's row, in the order held by rows."""
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


def _table(values: Floats, columns: int, name: str) -> Floats:
    table = np.array(values, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] == 0 or table.shape[1] != columns:
        raise ProblemError(f"{name} must be a table, one row a child and {columns} columns, not {table.shape}")
    return table


def _frozen(values: Floats) -> Floats:
    values.setflags(write=False)
    return values
