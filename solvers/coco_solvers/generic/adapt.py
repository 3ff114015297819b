"""Helpers of all adapters: split two-sided constraints, build 32-bit sparse matrices, report no point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats
from coco_opt.forms import LinearProgram, ProgramDual, QuadraticProgram
from coco_opt.solution import Status
from coco_opt.solver import ProgramAnswer

if TYPE_CHECKING:
    from scipy.sparse import csc_matrix

Indices = NDArray[np.intp]


@dataclass(frozen=True, eq=False, slots=True)
class Sides:
    """Indices of the entries of ``lower <= . <= upper`` by the sides they have.

    An equality appears under ``equal`` only, a range under ``lower`` and ``upper``, a free entry nowhere.
    """

    equal: Indices
    lower: Indices
    upper: Indices


def sides(lower: Floats, upper: Floats) -> Sides:
    """Split two-sided constraints (k,) into equalities, lower sides and upper sides."""
    equal = lower == upper
    return Sides(
        equal=np.flatnonzero(equal),
        lower=np.flatnonzero(~equal & (lower > -np.inf)),
        upper=np.flatnonzero(~equal & (upper < np.inf)),
    )


@dataclass(frozen=True, eq=False, slots=True)
class StackedRows:
    """All constraints of a program as rows: its own (m,), then a unit row a bounded variable (k,)."""

    matrix: csc_matrix
    lower: Floats
    upper: Floats
    bounded: Indices
    variables: int

    def dual(self, stacked: Floats) -> ProgramDual:
        """Split duals (m + k,) in the program's sign convention into those of its rows and of its bounds."""
        m = self.lower.size - self.bounded.size
        bounds = np.zeros(self.variables)
        bounds[self.bounded] = stacked[m:]
        return ProgramDual(stacked[:m], bounds)


def stacked_rows(program: LinearProgram) -> StackedRows:
    """Write the bounds of a program as rows, for packages that know no bounds."""
    from scipy.sparse import eye_array, vstack

    n = program.variables
    bounded = np.flatnonzero((program.lower > -np.inf) | (program.upper < np.inf))
    return StackedRows(
        matrix=csc32(vstack([program.A, eye_array(n, format="csr")[bounded]])),
        lower=np.concatenate([program.row_lower, program.lower[bounded]]),
        upper=np.concatenate([program.row_upper, program.upper[bounded]]),
        bounded=bounded,
        variables=n,
    )


def csc32(matrix: Any) -> csc_matrix:
    """Return a sparse matrix as sorted csc_matrix, float64 with 32-bit indices: all packages take it."""
    from scipy.sparse import csc_matrix

    result = csc_matrix(matrix, dtype=np.float64)
    result.sum_duplicates()
    result.indices, result.indptr = result.indices.astype(np.int32), result.indptr.astype(np.int32)
    return result


def taken(matrix: Any, rows: Indices) -> csc_matrix:
    """Return some rows, which rise, of a matrix in compressed sparse columns, as ``csc32`` does.

    Indexing with scipy takes longer than some packages take for a small program.
    """
    from scipy.sparse import csc_matrix

    number = np.full(matrix.shape[0], -1, np.int32)
    number[rows] = np.arange(rows.size, dtype=np.int32)
    index = number[matrix.indices]
    chosen = index >= 0
    starts = np.concatenate([[0], np.cumsum(chosen)])[matrix.indptr].astype(np.int32)
    result = csc_matrix((matrix.data[chosen], index[chosen], starts), shape=(rows.size, matrix.shape[1]))
    result.sum_duplicates()
    return result


def quadratic_term(program: LinearProgram) -> csc_matrix:
    """Return the full symmetric P (n, n) of a quadratic program, zero for a linear program."""
    from scipy.sparse import csc_matrix

    if isinstance(program, QuadraticProgram):
        return csc32(program.P)
    return csc32(csc_matrix((program.variables, program.variables), dtype=np.float64))


def claim(status: Status, z: Floats | None, dual: ProgramDual | None, iterations: int) -> ProgramAnswer:
    """Return the answer, without point or duals where there are none or they are not numbers."""
    if status in (Status.INFEASIBLE, Status.UNBOUNDED) or z is None or not np.isfinite(z).all():
        return ProgramAnswer(None, status, None, iterations)
    if dual is not None and not (np.isfinite(dual.rows).all() and np.isfinite(dual.bounds).all()):
        dual = None
    return ProgramAnswer(z, status, dual, iterations)
