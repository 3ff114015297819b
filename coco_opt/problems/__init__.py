"""The named optimisation problems, one a file or package; ``PROBLEMS`` lists them by the name used in config."""

from __future__ import annotations

from typing import Any

from coco_opt.problem import Problem
from coco_opt.problems.controlled_rounding import ControlledRounding
from coco_opt.problems.cumulative_rounding import CumulativeRounding
from coco_opt.problems.expected_distance import ExpectedDistance, Marginals
from coco_opt.problems.group_matching import Flow, GroupMatching
from coco_opt.problems.integer_tree import IntegerTreeL1, IntegerTreeL2
from coco_opt.problems.isotonic import IsotonicL1, IsotonicL2
from coco_opt.problems.joint import JointL1, JointL2
from coco_opt.problems.joint_sums import JointSumsL1, JointSumsL2
from coco_opt.problems.simplex_least_squares import SimplexLeastSquares
from coco_opt.problems.simplex_projection import SimplexProjection
from coco_opt.problems.table_rounding import IntegerRows, TableRounding
from coco_opt.problems.topdown_split import LinearRows, SplitTerm, TopdownSplit
from coco_opt.problems.tree import Tree, TreeLeastAbsolute, TreeLeastSquares

PROBLEMS: dict[str, type[Problem[Any, Any]]] = {
    problem.kind: problem
    for problem in (
        SimplexProjection,
        SimplexLeastSquares,
        IsotonicL2,
        IsotonicL1,
        ControlledRounding,
        GroupMatching,
        TreeLeastSquares,
        TreeLeastAbsolute,
        JointL1,
        JointL2,
        JointSumsL1,
        JointSumsL2,
        CumulativeRounding,
        ExpectedDistance,
        IntegerTreeL1,
        IntegerTreeL2,
        TopdownSplit,
        TableRounding,
    )
}

__all__ = [
    "PROBLEMS",
    "ControlledRounding",
    "CumulativeRounding",
    "ExpectedDistance",
    "Flow",
    "GroupMatching",
    "IntegerRows",
    "IntegerTreeL1",
    "IntegerTreeL2",
    "IsotonicL1",
    "IsotonicL2",
    "JointL1",
    "JointL2",
    "JointSumsL1",
    "JointSumsL2",
    "LinearRows",
    "Marginals",
    "SimplexLeastSquares",
    "SimplexProjection",
    "SplitTerm",
    "TableRounding",
    "TopdownSplit",
    "Tree",
    "TreeLeastAbsolute",
    "TreeLeastSquares",
]
