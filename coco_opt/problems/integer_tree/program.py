"""Integer tree fits as linear programs, integer or not: a base, and unit steps up and down from it at rising costs.

Between integers the costs are lines, and every vertex is integer: the linear program is the problem itself for
p = 1, and for p = 2 as far as the steps reach.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.forms import Formulation, LinearProgram, ProgramDual, in_form
from coco_opt.problems.integer_tree.data import IntegerTreeData, Pieces


def program(
    data: IntegerTreeData, pieces: Pieces, offset: float, form: type[LinearProgram]
) -> Formulation[NDArray[Any], Floats]:
    """Return the program in one of the two forms, with the way back; ``offset`` is the objective at the base."""
    from scipy.sparse import csc_array, hstack

    base, up, down = pieces
    rows, low, high = _rows(data, base)
    steps, n = len(up), base.size
    ends = np.ones((2, steps, n))
    ends[:, -1] = np.inf
    linear = LinearProgram(
        c=data.unit * np.concatenate([up.ravel(), down.ravel()]),
        A=csc_array(hstack([rows] * steps + [-rows] * steps)),
        row_lower=low,
        row_upper=high,
        lower=np.zeros(2 * steps * n),
        upper=ends.ravel(),
        offset=offset,
    )

    def recover(z: Floats) -> NDArray[Any]:
        moves = z.reshape(2, steps, *base.shape).sum(axis=1)
        return np.asarray(base + moves[0] - moves[1])

    def read_dual(dual: ProgramDual) -> Floats:
        return -data.tree.sum_duals(dual.rows, data.y.shape[1]) / data.unit

    return Formulation(in_form(linear, form), recover, multipliers=read_dual)


def _rows(data: IntegerTreeData, base: Ints) -> tuple[Any, Floats, Floats]:
    """Return the rows on x - base (all cells) and their sides: sums, then all bounds."""
    from scipy.sparse import csc_array, eye_array, vstack

    regions, cells = data.y.shape
    sums = data.tree.sum_rows(cells)
    off = -(sums @ base.ravel())
    free = np.inf if data.groups is None else 0.0
    least = np.repeat(data.least[:, None] - free, cells, axis=1)
    most = np.repeat(data.most[:, None] + free, cells, axis=1)
    rows = vstack([sums, eye_array(regions * cells)])
    sides = [np.concatenate([off, (bound - base).ravel()]) for bound in (least, most)]
    return csc_array(rows), sides[0], sides[1]
