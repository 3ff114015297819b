"""Heuristics of Hay et al. 2010 that make estimates nonnegative integers, as alternatives to the exact solution.

They are plain functions on arrays; trees are breadth-first arrays (``coco_opt.problems.Tree``).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.problems import Tree

_BEYOND_INT64 = 2.0**63


def zero_subtrees(tree: Tree, estimate: ArrayLike) -> Floats:
    """Return estimates (n,) with every subtree whose root is at most 0 set to 0 (section 4.2); O(n).

    Parents no longer equal their children's sums: answer ranges from the leaves.
    """
    values = np.array(estimate, dtype=np.float64)
    if values.shape != tree.parent.shape:
        raise ProblemError(f"give one estimate for each of the {tree.nodes} nodes")
    starts = [0, 1]
    while starts[-1] < tree.nodes:
        starts.append(int(tree.first_child[starts[-1]]))
    zero = values <= 0
    for begin, end in pairwise(starts[1:]):
        zero[begin:end] |= zero[tree.parent[begin:end]]
    values[zero] = 0.0
    return values


def round_nonnegative(estimate: ArrayLike) -> Ints:
    """Return each number rounded to the nearest nonnegative integer, halves upward (section 5).

    Signed integers keep all their digits. ProblemError for what is no number or beyond int64.
    """
    values = np.asarray(estimate)
    if values.dtype.kind == "i":
        clipped: Ints = np.maximum(values, 0).astype(np.int64)
        return clipped
    values = values.astype(np.float64)
    if not (values < _BEYOND_INT64).all():
        raise ProblemError("estimates to be rounded must be numbers below 2^63")
    floors = np.floor(np.maximum(values, 0.0))
    # Not floor(x + 1/2): that sum is itself rounded, to the next integer but one for large x.
    rounded: Ints = floors.astype(np.int64) + (values - floors >= 0.5)
    return rounded
