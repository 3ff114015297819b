"""Operators as sparse matrices: any matrix, and one operator on each of several tables laid end to end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.operators import Operator

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
