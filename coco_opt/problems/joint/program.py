"""Joint estimation written as a linear and as a quadratic program in residuals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, diags_array, eye_array, hstack, kron, vstack

from coco_opt.array_types import Floats, Ints
from coco_opt.forms import Formulation, LinearProgram, ProgramDual, QuadraticProgram, first_differences
from coco_opt.problems.tree.data import Tree


def linear(tree: Tree, y: Floats, groups: Ints, weights: Floats) -> Formulation[NDArray[Any], Floats]:
    """Write p = 1 in the parts of the residual x - y = q - r, q and r >= 0, at cost w (q + r)."""
    rows, low, high = table_rows(tree, y, groups)
    n, cost = y.size, weights.ravel()
    program = LinearProgram(
        c=np.concatenate([cost, cost]),
        A=csc_array(hstack([rows, -rows])),
        row_lower=low,
        row_upper=high,
        lower=np.zeros(2 * n),
        upper=np.full(2 * n, np.inf),
    )
    prices = _prices(tree, y.shape[1])
    return Formulation(program, lambda z: y + (z[:n] - z[n:]).reshape(y.shape), prices, in_residuals=True)


def quadratic(tree: Tree, y: Floats, groups: Ints, weights: Floats) -> Formulation[NDArray[Any], Floats]:
    """Write p = 2 in the residuals x - y of all cells."""
    rows, low, high = table_rows(tree, y, groups)
    n, cost = y.size, weights.ravel()
    program = QuadraticProgram(
        P=diags_array([2.0 * cost], offsets=[0], shape=(n, n), format="csc"),
        c=np.zeros(n),
        A=rows,
        row_lower=low,
        row_upper=high,
        lower=np.full(n, -np.inf),
        upper=np.full(n, np.inf),
    )
    return Formulation(program, lambda z: y + z.reshape(y.shape), _prices(tree, y.shape[1]), in_residuals=True)


def table_rows(tree: Tree, y: Floats, groups: Ints) -> tuple[csc_array, Floats, Floats]:
    """Return the rows on what cells are above y, and their sides: sums, then the leaves' order and ends."""
    regions, cells = y.shape
    leaves, sums = np.flatnonzero(tree.is_leaf), tree.sum_rows(cells)
    pick = eye_array(regions, format="csr")[leaves]
    ends = csc_array((np.ones(2), ([0, 1], [0, cells - 1])), shape=(2, cells))
    blocks = [sums, kron(pick, first_differences(cells)), kron(pick, ends)]
    below = -np.asarray(sums @ y.ravel())
    falls, infinite = y[leaves][:, :-1] - y[leaves][:, 1:], np.full((leaves.size, 1), np.inf)
    first, last = -y[leaves][:, :1], groups[leaves, None] - y[leaves][:, -1:]
    low = [below, falls, np.hstack([first, -infinite])]
    high = [below, np.full(falls.shape, np.inf), np.hstack([infinite, last])]
    return csc_array(vstack(blocks)), _flat(low), _flat(high)


def _flat(parts: list[Floats]) -> Floats:
    return np.concatenate([part.ravel() for part in parts]).astype(np.float64)


def _prices(tree: Tree, cells: int) -> Callable[[ProgramDual], Floats]:
    """Return how to read prices from the duals of the sums: a region's own less its parent's."""

    def read(dual: ProgramDual) -> Floats:
        own = tree.sum_duals(dual.rows, cells)
        prices = own.copy()
        prices[1:] -= own[tree.parent[1:]]
        return prices

    return read
