"""Joint estimation from sums written as a linear and as a quadratic program.

Cells count from the means that their buckets' answers alone tell, so that what is solved for is as small as the noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, diags_array, eye_array, hstack, kron, vstack

from coco_opt.forms import (
    FloatArray,
    Formulation,
    LinearProgram,
    ProgramDual,
    QuadraticProgram,
    first_differences,
)

if TYPE_CHECKING:
    from coco_opt.problems.joint_sums.problem import JointSums


_HEAVY = 30.0  # weight of the best known answers: solvers that add to the Hessian of what is open then add little


def linear(problem: JointSums) -> Formulation[NDArray[Any], FloatArray]:
    """Write p = 1 in cells, and the parts of the residuals q - r, q and r >= 0, at cost w (q + r)."""
    base, rows, low, high, unit = _rows(problem)
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
    return Formulation(program, recover=_table(base, unit), multipliers=_prices(answers, 1.0))


def quadratic(problem: JointSums) -> Formulation[NDArray[Any], FloatArray]:
    """Write p = 2 in cells and residuals."""
    base, rows, low, high, unit = _rows(problem)
    n, answers = base.size, problem.starts.size
    size = n + answers
    weigh = _HEAVY / float(problem.weights.max())
    cost = np.concatenate([np.zeros(n), 2.0 * weigh * problem.answer_weights])
    program = QuadraticProgram(
        P=diags_array([cost], offsets=[0], shape=(size, size), format="csc"),
        c=np.zeros(size),
        A=csc_array(hstack([rows, _residual_columns(answers, rows.shape[0])])),
        row_lower=low,
        row_upper=high,
        lower=np.full(size, -np.inf),
        upper=np.full(size, np.inf),
    )
    return Formulation(program, recover=_table(base, unit), multipliers=_prices(answers, unit / weigh))


def _residual_columns(answers: int, rows: int) -> csc_array:
    """Return the columns of the residuals in the first rows, which say that a sum less its residual is its answer."""
    return csc_array(vstack([-eye_array(answers), csc_array((rows - answers, answers))]))


def _table(base: FloatArray, unit: float) -> Callable[[FloatArray], NDArray[Any]]:
    return lambda z: base + unit * z[: base.size].reshape(base.shape)


def _rows(problem: JointSums) -> tuple[FloatArray, csc_array, FloatArray, FloatArray, float]:
    """Return the table that cells count from, rows on all cells, their sides, and the unit that these are counted in.

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
    inner, leaves = np.flatnonzero(~tree.is_leaf), np.flatnonzero(tree.is_leaf)
    up = tree.parent[1:]
    child_sums = csc_array((np.ones(up.size), (up, np.arange(1, regions))), shape=(regions, regions))
    sums = (eye_array(regions, format="csr") - child_sums.tocsr())[inner]
    pick = eye_array(regions, format="csr")[leaves]
    ends = csc_array((np.ones(2), ([0, 1], [0, cells - 1])), shape=(2, cells))
    blocks = [ask, kron(sums, eye_array(cells)), kron(pick, first_differences(cells)), kron(pick, ends)]
    met, below = np.zeros(starts.size), (child_sums @ base - base)[inner]
    falls, infinite = base[leaves][:, :-1] - base[leaves][:, 1:], np.full((leaves.size, 1), np.inf)
    first, last = -base[leaves][:, :1], problem.groups[leaves, None] - base[leaves][:, -1:]
    low = _flat([met, below, falls, np.hstack([first, -infinite])])
    high = _flat([met, below, np.full(falls.shape, np.inf), np.hstack([infinite, last])])
    broken = np.maximum(low, -high)
    unit = float(broken.max(initial=0.0, where=np.isfinite(broken))) or 1.0
    return base, csc_array(vstack(blocks)), low / unit, high / unit, unit


def _flat(parts: list[FloatArray]) -> FloatArray:
    return np.concatenate([part.ravel() for part in parts]).astype(np.float64)


def _prices(answers: int, unit: float) -> Callable[[ProgramDual], FloatArray]:
    """Return how to read prices: what a sum must be worth for its residual not to pay, the rows' duals reversed."""
    return lambda dual: -unit * dual.rows[:answers]
