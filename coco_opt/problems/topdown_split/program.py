"""The top-down split as a sparse quadratic program for generic solvers.

Variables are y = x - b in every child and occupied cell, b being the mean answer of the rows with that cell alone
(0 if there is none), then z = Q x - m for every other row that weighs anything: the Hessian is diagonal and every
number is as small as the noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.forms import Formulation, LinearProgram, ProgramDual, QuadraticProgram
from coco_opt.problems.sparse_rows import SparseRows
from coco_opt.problems.topdown_split.data import SplitData, SplitDual


def lifted(data: SplitData) -> Formulation[Floats, SplitDual]:
    """Return the program, with the way back from its variables and duals."""
    from scipy.sparse import block_array, csc_array, diags_array, eye_array, kron

    n, children = data.occupied_cells.size, data.shape[0]
    weight, base = data.single
    matrix, shift = _matrix(data.queries), data.queries.apply(base)
    wide = np.diff(data.queries.start) > 1
    child, row = np.nonzero((data.weights > 0.0).T & wide)
    lift = kron(eye_array(children, format="csr"), matrix, format="csr")[child * wide.size + row]
    target = (data.answers - shift)[row, child]
    blocks: list[list[Any]] = [[lift, -eye_array(row.size, format="csr")]]
    low, high = [target], [target]
    if data.sums is not None:
        blocks.append([kron(np.ones((1, children)), eye_array(n), format="csr"), None])
        low.append(data.sums - base.sum(axis=1))
        high.append(low[-1])
    if data.constraints is not None:
        blocks.append([kron(eye_array(children), _matrix(data.rows), format="csr"), None])
        of_base = data.rows.apply(base)
        low.append((data.sides[0] - of_base).T.ravel())
        high.append((data.sides[1] - of_base).T.ravel())
    diagonal = 2.0 * np.concatenate([weight.T.ravel(), data.weights[row, child]])
    program = QuadraticProgram(
        P=diags_array([diagonal], offsets=[0], shape=(diagonal.size, diagonal.size), format="csc"),
        c=np.zeros(diagonal.size),
        A=csc_array(block_array(blocks, format="csc")),
        row_lower=np.concatenate(low),
        row_upper=np.concatenate(high),
        lower=np.concatenate([-base.T.ravel(), np.full(row.size, -np.inf)]),
        upper=np.full(diagonal.size, np.inf),
        offset=_offset(data, base, wide),
    )

    def recover(z: Floats) -> Floats:
        return data.expand(base + z[: n * children].reshape(children, n).T)

    return Formulation(program, recover, lambda dual: _read_dual(data, dual, child, row), in_residuals=True)


def least_violation(data: SplitData) -> LinearProgram:
    """Return the linear program of the constraints' least total violation, over x and what each row lacks or exceeds.

    Its rows are the parent sums, then the rows of C child by child, whose duals show whether the constraints can be met
    at all.
    """
    from scipy.sparse import csc_array, eye_array, hstack, kron, vstack

    n, children = data.occupied_cells.size, data.shape[0]
    of_child = kron(eye_array(children), _matrix(data.rows), format="csc")
    slack = eye_array(of_child.shape[0])
    low, high = (side.T.ravel() for side in data.sides)
    matrix = hstack([of_child, slack, -slack], format="csc")
    if data.sums is not None:
        sums = kron(np.ones((1, children)), eye_array(n), format="csc")
        matrix = vstack([hstack([sums, csc_array((n, 2 * low.size))]), matrix], format="csc")
        low, high = np.concatenate([data.sums, low]), np.concatenate([data.sums, high])
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


def _offset(data: SplitData, base: Floats, wide: Flags) -> float:
    """Return the objective at y = 0 and z = 0: how much the single cells' answers differ among themselves."""
    residual = (data.queries.apply(base) - data.answers)[~wide]
    return float(np.einsum("ij,ij,ij->", data.weights[~wide], residual, residual))


def _read_dual(data: SplitData, dual: ProgramDual, child: Ints, row: Ints) -> SplitDual:
    parent, position = np.zeros(data.shape[1]), row.size
    answers = np.zeros(data.answers.T.shape)
    answers[child, row] = -dual.rows[:position]
    if data.sums is not None:
        parent[data.occupied_cells] = dual.rows[position : position + data.occupied_cells.size]
        position += data.occupied_cells.size
    return SplitDual(parent, dual.rows[position:].reshape(data.shape[0], -1).copy(), answers)
