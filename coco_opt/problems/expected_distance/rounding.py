"""Rounding of fractional tables from the root down, which turns a point of the relaxation into integers."""

from __future__ import annotations

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.kernels.arrays import read_only
from coco_opt.problems.tree import Tree

_NEAR = 1e-6  # of an integer: what a linear program's solver leaves


def rounded(tree: Tree, x: Floats, groups: Ints) -> Ints:
    """Return a consistent integer table near x (regions, cells), integer where x is.

    The leaves' rows are put in order and within bounds first; the root is rounded half up, and every family of children
    by earliest deadlines (``joint_rounding.schedule``).
    """
    from coco_opt.kernels import joint_rounding

    rows = np.clip(np.maximum.accumulate(x, axis=1), 0.0, groups[:, None])
    near = np.rint(rows)
    rows = np.where(np.abs(rows - near) < _NEAR, near, rows)
    rows = tree.sums(rows)
    integer_table = np.empty(x.shape, np.int64)
    integer_table[0] = np.minimum(np.floor(rows[0] + 0.5), groups[0])
    for v in np.flatnonzero(~tree.is_leaf):
        below = slice(tree.first_child[v], tree.first_child[v + 1])
        family = np.minimum(rows[below], groups[below, None])
        integer_table[below] = joint_rounding.schedule(
            read_only(family), read_only(integer_table[v]), read_only(groups[below]), 1.0, wait=True
        )
    return integer_table
