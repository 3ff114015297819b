"""Expected distance as a linear program, integer or not: every count is the sum of its segments between atoms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.forms import Formulation, LinearProgram, MixedIntegerProgram, ProgramDual, first_differences
from coco_opt.problems.expected_distance.data import DistanceData


def program(data: DistanceData, form: type[LinearProgram]) -> Formulation[NDArray[Any], Floats]:
    """Return the program in one of the problem's forms, with the way back from its variables and duals.

    Slopes rise along a count's segments, so an optimum fills them in order; the last segment ends at the region's
    groups, which are the bounds. Only the leaves' order is required: sums of ordered rows are in order.
    """
    from scipy.sparse import csc_array

    costs, (regions, cells) = data.costs, data.marginals.shape
    top = np.repeat(data.groups, cells)
    cell, lengths, slopes = _segments(costs.offsets, costs.atoms, costs.slopes, costs.first, top)
    n = cell.size
    counts = csc_array((np.ones(n), (cell, np.arange(n))), shape=(regions * cells, n))
    rows, high = _rows(data)
    linear = LinearProgram(
        c=slopes / data.grain,
        A=csc_array(rows @ counts),
        row_lower=np.zeros(high.size),
        row_upper=high,
        lower=np.zeros(n),
        upper=lengths.astype(np.float64),
        offset=data.at_zero / data.grain,
    )
    chosen: LinearProgram = linear
    if form is MixedIntegerProgram:
        chosen = MixedIntegerProgram(**vars(linear), integer=np.ones(n, dtype=np.bool_))

    def recover(z: Floats) -> NDArray[Any]:
        return np.asarray(counts @ z).reshape(regions, cells)

    return Formulation(chosen, recover, multipliers=lambda dual: _prices(data, dual))


def _segments(
    offsets: Ints,
    atoms: Ints,
    slopes: Ints,
    first: Ints,
    top: Ints,
) -> tuple[Ints, Ints, Ints]:
    """Return each segment's cell, length and slope: one more a cell than it has atoms."""
    sizes = np.diff(offsets) + 1
    cell = np.repeat(np.arange(first.size), sizes)
    starts = offsets[:-1] + np.arange(first.size)
    begins = np.ones(cell.size, dtype=np.bool_)
    begins[starts] = False  # the other segments begin at an atom
    left, slope = np.zeros(cell.size, np.int64), np.empty(cell.size, np.int64)
    left[begins], slope[begins], slope[starts] = atoms, slopes, first
    right = np.append(left[1:], 0)
    right[starts + sizes - 1] = top
    return cell, right - left, slope


def _rows(data: DistanceData) -> tuple[Any, Floats]:
    """Return the rows on all counts and their upper sides, the lower sides being 0: sums, then the leaves' order."""
    from scipy.sparse import csc_array, eye_array, kron, vstack

    regions, cells = data.marginals.shape
    leaf = data.tree.is_leaf
    inner, leaves = np.flatnonzero(~leaf), np.flatnonzero(leaf)
    up = data.tree.parent[1:]
    below = csc_array((np.ones(up.size), (up, np.arange(1, regions))), shape=(regions, regions)).tocsr()
    sums = (eye_array(regions, format="csr") - below)[inner]
    pick = eye_array(regions, format="csr")[leaves]
    rows = vstack([kron(sums, eye_array(cells)), kron(pick, first_differences(cells))])
    high = np.concatenate([np.zeros(inner.size * cells), np.full(leaves.size * (cells - 1), np.inf)])
    return csc_array(rows), high


def _prices(data: DistanceData, dual: ProgramDual) -> Floats:
    """Return prices from the duals of the sums: a group more in v than in its children costs what its row is worth."""
    inner, cells = np.flatnonzero(~data.tree.is_leaf), data.marginals.shape[1]
    prices = np.zeros(data.marginals.shape)
    prices[inner] = -dual.rows[: inner.size * cells].reshape(inner.size, cells)
    return prices
