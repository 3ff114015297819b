"""The ways in which Hay et al. 2010 make estimates nonnegative and whole, beside the exact solution.

They are plain functions on arrays; trees are breadth-first arrays (``coco_opt.problems.tree.Tree``).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.problems.tree import Tree


def zero_subtrees(tree: Tree, estimate: ArrayLike) -> NDArray[np.float64]:
    """Return estimates (n,) with every subtree whose root is at most 0 set to 0 (section 4.2); O(n).

    Parents no longer equal their children's sums: answer ranges from the leaves.
    """
    values = np.array(estimate, dtype=np.float64)
    starts = [0, 1]
    while starts[-1] < tree.nodes:
        starts.append(int(tree.first_child[starts[-1]]))
    zero = values <= 0
    for begin, end in pairwise(starts[1:]):
        zero[begin:end] |= zero[tree.parent[begin:end]]
    values[zero] = 0.0
    return values


def round_nonnegative(estimate: ArrayLike) -> NDArray[np.int64]:
    """Return each number rounded to the nearest nonnegative integer, halves upward (section 5)."""
    values = np.asarray(estimate, dtype=np.float64)
    return np.floor(np.maximum(values, 0.0) + 0.5).astype(np.int64)
