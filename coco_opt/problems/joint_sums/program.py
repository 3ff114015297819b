"""Joint estimation from sums written as a linear and as a quadratic program.

Cells count from the means of their buckets' measurements, so the variables are as small as the noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, diags_array, eye_array, hstack, vstack

from coco_opt.array_types import Floats
from coco_opt.forms import Formulation, LinearProgram, ProgramDual, QuadraticProgram
from coco_opt.problems.joint.program import table_rows

if TYPE_CHECKING:
    from coco_opt.problems.joint_sums.problem import JointSums


def linear(problem: JointSums) -> Formulation[NDArray[Any], Floats]:
    """Write p = 1 in cells, and the parts of the residuals q - r, q and r >= 0, at cost w (q + r)."""
    base, rows, low, high = _rows(problem)
    n, answers, cost = base.size, problem.starts.size, problem.answer_weights
    residual = _residual_columns(answers, rows.shape[0])
    program = LinearProgram(
        c=np.concatenate([np.zeros(n), cost, cost]),
        A=csc_array(hstack([rows, residual, -residual])),
        row_lower=low,
        row_upper=high,
        lower=np.concatenate([np.full(n, -np.inf), np.zeros(2 * answers)]),
        upper=np.full(n + 2 * answers, np.inf),
    )
    return Formulation(program, _table(base), _prices(answers), in_residuals=True)


def quadratic(problem: JointSums) -> Formulation[NDArray[Any], Floats]:
    """Write p = 2 in cells and residuals."""
    base, rows, low, high = _rows(problem)
    n, answers = base.size, problem.starts.size
    size = n + answers
    cost = np.concatenate([np.zeros(n), 2.0 * problem.answer_weights])
    program = QuadraticProgram(
        P=diags_array([cost], offsets=[0], shape=(size, size), format="csc"),
        c=np.zeros(size),
        A=csc_array(hstack([rows, _residual_columns(answers, rows.shape[0])])),
        row_lower=low,
        row_upper=high,
        lower=np.full(size, -np.inf),
        upper=np.full(size, np.inf),
    )
    return Formulation(program, _table(base), _prices(answers), in_residuals=True)


def _residual_columns(answers: int, rows: int) -> csc_array:
    """Return the columns of the residuals in the first rows, which say that a sum less its residual is its answer."""
    return csc_array(vstack([-eye_array(answers), csc_array((rows - answers, answers))]))


def _table(base: Floats) -> Callable[[Floats], NDArray[Any]]:
    return lambda z: base + z[: base.size].reshape(base.shape)


def _rows(problem: JointSums) -> tuple[Floats, csc_array, Floats, Floats]:
    """Return the table that cells count from, rows on all cells, and their sides.

    The rows are the answers', the tree's, the leaves' orders and their ends.
    """
    tree, starts = problem.tree, problem.starts
    regions, cells = problem.y.shape
    lengths = np.diff(starts, append=problem.y.size)
    spans = np.add.reduceat(np.tile(problem.widths, regions), starts)
    base = np.repeat(problem.answers / spans, lengths).reshape(regions, cells)
    width = np.tile(problem.widths, regions).astype(np.float64)
    bucket = np.repeat(np.arange(starts.size), lengths)
    ask = csc_array((width, (bucket, np.arange(width.size))), shape=(starts.size, width.size))
    rows, low, high = table_rows(tree, base, problem.groups)
    met = np.zeros(starts.size)
    return base, csc_array(vstack([ask, rows])), np.concatenate([met, low]), np.concatenate([met, high])


def _prices(answers: int) -> Callable[[ProgramDual], Floats]:
    """Return how to read prices: what a sum must be worth for its residual not to pay, the rows' duals reversed."""
    return lambda dual: -dual.rows[:answers]
