"""The programs over many regions that a consistency method solves, taken of the root and its children."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.choices import SolverChoices
from coco_opt.groups.estimators import noise_variance
from coco_opt.groups.joint import on_grid
from coco_opt.groups.release import Consistency
from coco_opt.problems import CumulativeRounding, IntegerTreeL1, IntegerTreeL2, JointL1, JointL2, Tree
from coco_opt.runs.instances import Instance, RootMeasurements

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def program_instances(root: RootMeasurements, consistency: Consistency) -> list[Instance]:
    """Return the programs of "joint" or "convex", in both losses; none for another method, or without children.

    Only cumulative answers are taken: a method that reads others is not compared here.
    """
    answers = (root.vector, *root.children)
    if consistency not in ("joint", "convex") or len(answers) < 2 or any(one.query != "cumulative" for one in answers):
        return []
    tree = Tree(np.array([-1] + [0] * (len(answers) - 1)))
    table = np.array([one.values for one in answers], np.int64)
    groups = np.array([one.groups for one in answers], np.int64)
    variance = np.array([noise_variance(one) for one in answers])
    weights = np.sqrt(2.0 / variance)

    def cut(unknowns: int) -> Ints:
        return table[:, : max(1, min(table.shape[1], unknowns // len(answers)))]

    if consistency == "convex":
        return [
            Instance("integer_tree_l1", table.size, lambda n: IntegerTreeL1(tree, cut(n), weights)),
            Instance("integer_tree_l2", table.size, lambda n: IntegerTreeL2(tree, cut(n), 1.0 / variance)),
        ]
    return [
        Instance("joint_l1", table.size, lambda n: JointL1(tree, cut(n), groups, weights)),
        Instance("joint_l2", table.size, lambda n: JointL2(tree, cut(n), groups, 1.0 / variance)),
        Instance("cumulative_rounding", table.size, lambda n: _rounding(tree, cut(n), groups, 1.0 / variance)),
    ]


def _rounding(tree: Tree, table: Ints, groups: Ints, weights: Floats) -> CumulativeRounding:
    """Return the rounding of the joint fit in squares, whose values are hardly ever whole."""
    fitted = np.asarray(SolverChoices().solve(JointL2(tree, table, groups, weights)), np.float64)
    exact = on_grid(tree, fitted, groups)
    return CumulativeRounding(exact[1:], np.floor(exact[0] + 0.5).astype(np.int64), groups[1:])
