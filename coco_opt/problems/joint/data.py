"""The data of joint estimation, checked: each function raises ProblemError for what it cannot read."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.problem import MAX_INTEGER, MAX_MAGNITUDE, as_array
from coco_opt.problems.tree.data import Tree


def checked_table(y: ArrayLike, tree: Tree) -> Floats:
    """Return noisy counts as float64 (regions, cells), a copy."""
    table = as_array(y, "y")
    if table.ndim != 2 or table.shape[0] != tree.nodes or table.shape[1] == 0 or table.dtype.kind not in "iuf":
        raise ProblemError(f"y must be a table of numbers, one row for each of the {tree.nodes} regions, with a cell")
    table = np.array(table, dtype=np.float64)
    if not (np.abs(table) <= MAX_INTEGER).all():
        raise ProblemError("y must be finite and not exceed 2^53 in magnitude")
    return table


def checked_groups(groups: ArrayLike, tree: Tree) -> Ints:
    """Return the regions' numbers of groups as int64 (regions,), a copy."""
    counts = as_array(groups, "groups")
    if counts.shape != (tree.nodes,) or counts.dtype.kind not in "iu" or (counts < 0).any():
        raise ProblemError(f"groups must be one nonnegative integer for each of the {tree.nodes} regions")
    counts = np.array(counts, dtype=np.int64)
    if counts.max() > MAX_INTEGER or not np.array_equal(counts, tree.sums(counts)):
        raise ProblemError("a region's groups must be the sum of its children's, and at most 2^53")
    return counts


def checked_weights(weights: ArrayLike, count: int, what: str = "regions") -> Floats:
    """Return one weight for each region, or what else is counted, as float64 (count,), a copy."""
    values = as_array(weights, "weights")
    if values.shape not in ((), (count,)) or values.dtype.kind not in "iuf":
        raise ProblemError(f"weights must be one number, or one for each of the {count} {what}")
    full = np.array(np.broadcast_to(values, (count,)), dtype=np.float64)
    if not np.isfinite(full).all() or (full < 0).any() or not (full > 0).any():
        raise ProblemError("weights must be finite and nonnegative, and not all zero")
    if not ((full == 0) | ((full >= 1.0 / MAX_MAGNITUDE) & (full <= MAX_MAGNITUDE))).all():
        raise ProblemError(
            f"weights that are not zero must be between {1.0 / MAX_MAGNITUDE:g} and {MAX_MAGNITUDE:g}: rescale"
        )
    return full


def checked_cell_weights(weights: ArrayLike, cells: int) -> Floats:
    """Return one positive weight a cell as float64 (cells,), a copy."""
    full = checked_weights(weights, cells, "cells")
    if not full.all():
        raise ProblemError("weights of cells must be positive: leave out the cells that do not count")
    return full
