"""Rows that bind tables, lower <= operator x <= upper; operators as sparse matrices, and on classes of cells.

On the classes of cells that no operator distinguishes, operators and estimates of tables are small matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.operators import Grouping, Operator, stack
from coco_opt.problems.topdown_split import LinearRows
from coco_opt.topdown.constraint import UNBOUNDED

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True, eq=False, slots=True)
class MatrixOperator(Operator):
    """A sparse matrix (answers, cells) as an operator."""

    matrix: csr_array
    cells: int = field(init=False)
    answers: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "answers", int(self.matrix.shape[0]))
        object.__setattr__(self, "cells", int(self.matrix.shape[1]))

    def apply(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the products [..., answers]; integers stay integers, for a matrix of integers."""
        return self._times(self.matrix, x)

    def adjoint(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return the transposed products [..., cells]."""
        return self._times(self.matrix.T, y)

    def _times(self, matrix: Any, x: NDArray[Any]) -> NDArray[Any]:
        flat = x.reshape(-1, matrix.shape[1])
        out = np.asarray((matrix.astype(x.dtype) @ flat.T).T)
        return out.reshape(*x.shape[:-1], matrix.shape[0])

    def to_sparse(self) -> csr_array:
        """Return the matrix."""
        return self.matrix

    def restrict(self, cells: Ints) -> MatrixOperator:
        """Return the columns of some cells."""
        from scipy.sparse import csr_array

        return MatrixOperator(csr_array(self.matrix[:, cells]))

    @property
    def absolute_columns(self) -> Floats:
        """Return the sum of absolute entries of each column."""
        return np.asarray(abs(self.matrix).sum(axis=0), dtype=np.float64).reshape(-1)

    @property
    def squared_columns(self) -> Floats:
        """Return the sum of squared entries of each column."""
        return np.asarray(self.matrix.multiply(self.matrix).sum(axis=0)).reshape(-1)


def side_by_side(operator: Operator, tables: int, more: int) -> MatrixOperator:
    """Return the operator on each of ``tables`` tables laid end to end; ``more`` cells behind do not count."""
    from scipy.sparse import block_diag, csr_array, hstack

    blocks = block_diag([operator.to_sparse()] * tables, format="csr")
    return MatrixOperator(csr_array(hstack([blocks, csr_array((blocks.shape[0], more))], format="csr")))


def integer_matrix(rows: Ints) -> MatrixOperator:
    """Return integer coefficients int64[answers, cells] as an operator."""
    from scipy.sparse import csr_array

    return MatrixOperator(csr_array(rows.astype(np.float64)))


@dataclass(frozen=True, eq=False, slots=True)
class Constraints:
    """lower <= operator x <= upper for some regions: one operator for all, int64[regions, rows] on both sides.

    Rows are equalities where both sides are equal; ``UNBOUNDED`` is no upper bound, and its negative no lower one.
    ``labels`` [rows] say what a row counts, ``query: answer`` or a constraint's text, for messages.
    """

    operator: Operator
    lower: Ints
    upper: Ints
    labels: tuple[str, ...]

    @classmethod
    def stacked(cls, several: Sequence[Constraints]) -> Constraints:
        """Return the rows of several, at least one, of the same regions."""
        lower, upper = (np.hstack([getattr(rows, side) for rows in several]) for side in ("lower", "upper"))
        labels = tuple(label for rows in several for label in rows.labels)
        return cls(stack([rows.operator for rows in several]), lower, upper, labels)

    def at(self, some: slice) -> Constraints:
        """Return what binds some of the regions."""
        return Constraints(self.operator, self.lower[some], self.upper[some], self.labels)

    def end_to_end(self, paths: Sequence[str], more: int = 0) -> Constraints:
        """Return what binds the tables of all regions as one, laid end to end, with ``more`` free cells behind."""
        labels = tuple(f"{label!r} of {path!r}" for path in paths for label in self.labels)
        lower, upper = (side.reshape(1, -1) for side in (self.lower, self.upper))
        return Constraints(side_by_side(self.operator, len(paths), more), lower, upper, labels)

    @property
    def linear(self) -> LinearRows:
        """Return the rows as fits and roundings take them."""
        return LinearRows(self.operator, infinite(self.lower), infinite(self.upper))

    def broken_by(self, tables: Ints) -> Flags:
        """Return which rows integer tables int64[regions, cells] break, bool[regions, rows]."""
        answers = self.operator.apply(tables)
        out: Flags = (answers < self.lower) | (answers > self.upper)
        return out


def infinite(side: Ints) -> Floats:
    """Return sides as numbers, infinite where there is none; less what a table has, one beyond 2^61 is none either."""
    result = side.astype(np.float64)
    result[side >= UNBOUNDED // 2] = np.inf
    result[side <= -UNBOUNDED // 2] = -np.inf
    return result


@dataclass(frozen=True, eq=False, slots=True)
class CellClasses:
    """The coarsest partition of the cells on whose parts all rows of some operators are constant.

    Cell c lies in class ``labels[c]``; ``first`` int64[classes] is a cell of each, rising.
    """

    labels: Ints
    first: Ints

    @classmethod
    def of(cls, operators: Sequence[Operator], cells: int) -> CellClasses:
        """Return the classes that some operators distinguish; O(entries + operators x cells log cells)."""
        labels = np.zeros(cells, np.int64)
        for operator in operators:
            columns = operator.labels if isinstance(operator, Grouping) else _alike(operator)
            _, columns = np.unique(columns, return_inverse=True)
            _, labels = np.unique(labels * (int(columns.max(initial=0)) + 1) + columns, return_inverse=True)
        _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        # Classes in the order of their first cells, so that their names follow the schema's order.
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        return cls(rank[inverse].astype(np.int64).reshape(-1), first[order].astype(np.int64))

    @property
    def count(self) -> int:
        """Return the number of classes."""
        return int(self.first.size)

    @property
    def operator(self) -> Grouping:
        """Return the classes' counts as an operator."""
        return Grouping(self.labels, self.count)

    def matrix(self, operator: Operator) -> Floats:
        """Return an operator's weights on the classes, float64[answers, classes], read from their first cells."""
        return np.asarray(operator.to_sparse()[:, self.first].toarray(), np.float64)


def _alike(operator: Operator) -> Ints:
    """Return a number for every cell, the same where an operator's columns are alike."""
    columns = operator.to_sparse().tocsc()
    columns.sort_indices()
    numbers: dict[tuple[bytes, bytes], int] = {}
    return np.array(
        [
            numbers.setdefault((columns.indices[start:end].tobytes(), columns.data[start:end].tobytes()), len(numbers))
            for start, end in pairwise(columns.indptr.tolist())
        ],
        np.int64,
    )
