"""The top-down split as a sparse quadratic program for generic solvers.

Variables are y = x - b in every child and kept cell, b being the mean answer of the rows that ask for that cell alone
(0 if none does), then z = Q x - m for every other row that weighs anything: the Hessian is diagonal and every number
is as small as the noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.forms import FloatArray, Formulation, LinearProgram, ProgramDual, QuadraticProgram
from coco_opt.problems.split_rows import Floats, SparseRows

if TYPE_CHECKING:
    from coco_opt.problems.topdown_split import SplitDual, TopdownSplit


def lifted(problem: TopdownSplit) -> Formulation[FloatArray, SplitDual]:
    """Return the program, with the way back from its variables and duals."""
    from scipy.sparse import block_array, csc_array, diags_array, eye_array, kron

    n, children = problem.kept.size, problem.shape[0]
    weight, base = problem.single
    matrix, shift = _matrix(problem.queries), problem.queries.apply(base)
    wide = np.diff(problem.queries.start) > 1
    child, row = np.nonzero((problem.weights > 0.0).T & wide)
    lift = kron(eye_array(children, format="csr"), matrix, format="csr")[child * wide.size + row]
    target = (problem.answers - shift)[row, child]
    blocks: list[list[Any]] = [[lift, -eye_array(row.size, format="csr")]]
    low, high = [target], [target]
    if problem.sums is not None:
        blocks.append([kron(np.ones((1, children)), eye_array(n), format="csr"), None])
        low.append(problem.sums - base.sum(axis=1))
        high.append(low[-1])
    if problem.constraints is not None:
        blocks.append([kron(eye_array(children), _matrix(problem.rows), format="csr"), None])
        of_base = problem.rows.apply(base)
        low.append((problem.sides[0] - of_base).T.ravel())
        high.append((problem.sides[1] - of_base).T.ravel())
    diagonal = 2.0 * np.concatenate([weight.T.ravel(), problem.weights[row, child]])
    free = np.full(row.size, np.inf)
    program = QuadraticProgram(
        P=diags_array([diagonal], offsets=[0], shape=(diagonal.size, diagonal.size), format="csc"),
        c=np.zeros(diagonal.size),
        A=csc_array(block_array(blocks, format="csc")),
        row_lower=np.concatenate(low),
        row_upper=np.concatenate(high),
        lower=np.concatenate([-base.T.ravel(), -free]),
        upper=np.full(diagonal.size, np.inf),
        offset=_offset(problem, base, wide),
    )

    def recover(z: FloatArray) -> Floats:
        return problem.expand(base + z[: n * children].reshape(children, n).T)

    return Formulation(program, recover, lambda dual: _read_dual(problem, dual, row.size))


def least_violation(problem: TopdownSplit) -> LinearProgram:
    """Return the linear program of the constraints' least total violation, over x and what each row lacks or exceeds.

    Its rows are the parent sums, then the rows of C child by child, whose duals tell whether they can be met at all.
    """
    from scipy.sparse import csc_array, eye_array, hstack, kron, vstack

    n, children = problem.kept.size, problem.shape[0]
    of_child = kron(eye_array(children), _matrix(problem.rows), format="csc")
    slack = eye_array(of_child.shape[0])
    low, high = (side.T.ravel() for side in problem.sides)
    matrix = hstack([of_child, slack, -slack], format="csc")
    if problem.sums is not None:
        sums = kron(np.ones((1, children)), eye_array(n), format="csc")
        matrix = vstack([hstack([sums, csc_array((n, 2 * low.size))]), matrix], format="csc")
        low, high = np.concatenate([problem.sums, low]), np.concatenate([problem.sums, high])
    cost = np.ones(matrix.shape[1])
    cost[: n * children] = 0.0
    return LinearProgram(
        c=cost,
        A=csc_array(matrix),
        row_lower=low,
        row_upper=high,
        lower=np.zeros(cost.size),
        upper=np.full(cost.size, np.inf),
    )


def _matrix(rows: SparseRows) -> Any:
    from scipy.sparse import csr_array

    return csr_array((rows.value, rows.cell, rows.start), shape=rows.shape)


def _offset(problem: TopdownSplit, base: Floats, wide: NDArray[np.bool_]) -> float:
    """Return the objective at y = 0 and z = 0: what the single cells' answers differ among themselves."""
    residual = (problem.queries.apply(base) - problem.answers)[~wide]
    return float(np.einsum("ij,ij,ij->", problem.weights[~wide], residual, residual))


def _read_dual(problem: TopdownSplit, dual: ProgramDual, lifted_rows: int) -> SplitDual:
    from coco_opt.problems.topdown_split import SplitDual

    parent, at = np.zeros(problem.shape[1]), lifted_rows
    if problem.sums is not None:
        parent[problem.kept] = dual.rows[at : at + problem.kept.size]
        at += problem.kept.size
    return SplitDual(parent, dual.rows[at:].reshape(problem.shape[0], -1).copy())
