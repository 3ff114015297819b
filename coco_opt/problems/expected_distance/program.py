"""Expected distance as a linear program, integer or not: every count is the sum of its segments between atoms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.forms import Formulation, LinearProgram, first_differences, in_form
from coco_opt.problems.tree import Tree

if TYPE_CHECKING:
    from coco_opt.kernels.expected_distance_rows import Costs


def program(
    tree: Tree, groups: Ints, costs: Costs, at_zero: float, grain: int, form: type[LinearProgram]
) -> Formulation[NDArray[Any], Floats]:
    """Return the program in one of the problem's forms, with the way back from its variables and duals.

    ``costs`` are in parts, ``grain`` of them 1 group; ``at_zero`` is the objective where all counts are 0.

    Slopes rise along a count's segments, so an optimum fills them in order; the last segment ends at the region's
    groups, which are the bounds. Only the leaves' order is required: sums of ordered rows are in order.
    """
    from scipy.sparse import csc_array

    regions, cells = tree.nodes, costs.first.size // tree.nodes
    top = np.repeat(groups, cells)
    cell, lengths, slopes = _segments(costs.offsets, costs.atoms, costs.slopes, costs.first, top)
    n = cell.size
    counts = csc_array((np.ones(n), (cell, np.arange(n))), shape=(regions * cells, n))
    rows, high = _rows(tree, cells)
    linear = LinearProgram(
        c=slopes / grain,
        A=csc_array(rows @ counts),
        row_lower=np.zeros(high.size),
        row_upper=high,
        lower=np.zeros(n),
        upper=lengths.astype(np.float64),
        offset=at_zero,
    )

    def recover(z: Floats) -> NDArray[Any]:
        return np.asarray(counts @ z).reshape(regions, cells)

    return Formulation(in_form(linear, form), recover, multipliers=lambda dual: -tree.sum_duals(dual.rows, cells))


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


def _rows(tree: Tree, cells: int) -> tuple[Any, Floats]:
    """Return the rows on all counts and their upper sides, the lower sides being 0: sums, then the leaves' order."""
    from scipy.sparse import csc_array, eye_array, kron, vstack

    sums, pick = tree.sum_rows(cells), eye_array(tree.nodes, format="csr")[np.flatnonzero(tree.is_leaf)]
    order = kron(pick, first_differences(cells))
    return csc_array(vstack([sums, order])), np.repeat([0.0, np.inf], [sums.shape[0], order.shape[0]])
