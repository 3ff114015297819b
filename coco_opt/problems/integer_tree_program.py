"""Integer tree fits as linear programs, whole or not: a base, and unit steps up and down from it at rising costs.

Between whole numbers the costs are lines, and every vertex is whole: the linear program is the problem itself for
p = 1, and for p = 2 as far as the steps reach.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.forms import FloatArray, Formulation, LinearProgram, MixedIntegerProgram, ProgramDual
from coco_opt.problems.tree import IntArray

if TYPE_CHECKING:
    from coco_opt.problems.integer_tree_base import IntegerTree


def program(problem: IntegerTree, form: type[LinearProgram]) -> Formulation[NDArray[Any], FloatArray]:
    """Return the program in one of the problem's forms, with the way back from its variables and duals."""
    from scipy.sparse import csc_array, hstack

    base, up, down = problem.pieces()
    rows, low, high = _rows(problem, base)
    steps, n = len(up), base.size
    ends = np.ones((2, steps, n))
    ends[:, -1] = np.inf
    linear = LinearProgram(
        c=problem.unit * np.concatenate([up.ravel(), down.ravel()]),
        A=csc_array(hstack([rows] * steps + [-rows] * steps)),
        row_lower=low,
        row_upper=high,
        lower=np.zeros(2 * steps * n),
        upper=ends.ravel(),
        offset=problem.objective(base),
    )
    chosen: LinearProgram = linear
    if form is MixedIntegerProgram:
        chosen = MixedIntegerProgram(**vars(linear), integer=np.ones(2 * steps * n, dtype=np.bool_))

    def recover(z: FloatArray) -> NDArray[Any]:
        moves = z.reshape(2, steps, *base.shape).sum(axis=1)
        return np.asarray(base + moves[0] - moves[1])

    return Formulation(chosen, recover, multipliers=lambda dual: _prices(problem, dual))


def real_optimum(problem: IntegerTree) -> FloatArray:
    """Return the least squares table (regions, cells) within bounds that need not be whole."""
    from coco_opt.kernels import tree_bounded_l2

    real = np.empty(problem.y.shape)
    least, most = problem.least.astype(np.float64), problem.most.astype(np.float64)
    shape = problem.tree.parent, problem.tree.first_child
    for cell, answers in enumerate(problem.y.T.astype(np.float64)):
        if problem.root is not None:
            least[0] = most[0] = problem.root[cell]
        real[:, cell], _ = tree_bounded_l2.fit(*shape, np.ascontiguousarray(answers), problem.weights, least, most)
    return real


def _rows(problem: IntegerTree, base: IntArray) -> tuple[Any, FloatArray, FloatArray]:
    """Return the rows on x - base (all cells) and their sides: sums, then all bounds."""
    from scipy.sparse import csc_array, eye_array, kron, vstack

    regions, cells = problem.y.shape
    inner = np.flatnonzero(~problem.tree.is_leaf)
    up = problem.tree.parent[1:]
    below = csc_array((np.ones(up.size), (up, np.arange(1, regions))), shape=(regions, regions)).tocsr()
    sums = (eye_array(regions, format="csr") - below)[inner]
    off = (below @ base - base)[inner].astype(np.float64)
    free = np.inf if problem.groups is None else 0.0
    least = np.repeat(problem.least[:, None] - free, cells, axis=1)
    most = np.repeat(problem.most[:, None] + free, cells, axis=1)
    if problem.root is not None:
        least[0] = most[0] = problem.root
    rows = vstack([kron(sums, eye_array(cells)), eye_array(regions * cells)])
    sides = [np.concatenate([off.ravel(), (bound - base).ravel()]) for bound in (least, most)]
    return csc_array(rows), sides[0], sides[1]


def _prices(problem: IntegerTree, dual: ProgramDual) -> FloatArray:
    inner, cells = np.flatnonzero(~problem.tree.is_leaf), problem.y.shape[1]
    prices = np.zeros(problem.y.shape)
    prices[inner] = -dual.rows[: inner.size * cells].reshape(inner.size, cells) / problem.unit
    return prices
