"""Integer tree fits as linear programs, integer or not: a base, and unit steps up and down from it at rising costs.

Between integers the costs are lines, and every vertex is integer: the linear program is the problem itself for
p = 1, and for p = 2 as far as the steps reach.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.forms import Formulation, LinearProgram, MixedIntegerProgram, ProgramDual
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
    chosen: LinearProgram = linear
    if form is MixedIntegerProgram:
        chosen = MixedIntegerProgram(**vars(linear), integer=np.ones(2 * steps * n, dtype=np.bool_))

    def recover(z: Floats) -> NDArray[Any]:
        moves = z.reshape(2, steps, *base.shape).sum(axis=1)
        return np.asarray(base + moves[0] - moves[1])

    return Formulation(chosen, recover, multipliers=lambda dual: _prices(data, dual))


def _rows(data: IntegerTreeData, base: Ints) -> tuple[Any, Floats, Floats]:
    """Return the rows on x - base (all cells) and their sides: sums, then all bounds."""
    from scipy.sparse import csc_array, eye_array, kron, vstack

    regions, cells = data.y.shape
    inner = np.flatnonzero(~data.tree.is_leaf)
    up = data.tree.parent[1:]
    below = csc_array((np.ones(up.size), (up, np.arange(1, regions))), shape=(regions, regions)).tocsr()
    sums = (eye_array(regions, format="csr") - below)[inner]
    off = (below @ base - base)[inner].astype(np.float64)
    free = np.inf if data.groups is None else 0.0
    least = np.repeat(data.least[:, None] - free, cells, axis=1)
    most = np.repeat(data.most[:, None] + free, cells, axis=1)
    rows = vstack([kron(sums, eye_array(cells)), eye_array(regions * cells)])
    sides = [np.concatenate([off.ravel(), (bound - base).ravel()]) for bound in (least, most)]
    return csc_array(rows), sides[0], sides[1]


def _prices(data: IntegerTreeData, dual: ProgramDual) -> Floats:
    inner, cells = np.flatnonzero(~data.tree.is_leaf), data.y.shape[1]
    prices = np.zeros(data.y.shape)
    prices[inner] = -dual.rows[: inner.size * cells].reshape(inner.size, cells) / data.unit
    return prices
