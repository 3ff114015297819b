"""The named optimisation problems, one a file or package; ``PROBLEMS`` lists them by the name used in config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from coco_opt.lazy_names import lazy_names
from coco_opt.problem import Problem

if TYPE_CHECKING:
    from coco_opt.problems.controlled_rounding import ControlledRounding as ControlledRounding
    from coco_opt.problems.expected_distance import ExpectedDistance as ExpectedDistance
    from coco_opt.problems.expected_distance import Marginals as Marginals
    from coco_opt.problems.group_matching import Flow as Flow
    from coco_opt.problems.group_matching import GroupMatching as GroupMatching
    from coco_opt.problems.integer_tree import IntegerTreeL1 as IntegerTreeL1
    from coco_opt.problems.integer_tree import IntegerTreeL2 as IntegerTreeL2
    from coco_opt.problems.isotonic import IsotonicL1 as IsotonicL1
    from coco_opt.problems.isotonic import IsotonicL2 as IsotonicL2
    from coco_opt.problems.joint import JointL1 as JointL1
    from coco_opt.problems.joint import JointL2 as JointL2
    from coco_opt.problems.simplex_projection import SimplexProjection as SimplexProjection
    from coco_opt.problems.table_rounding import TableRounding as TableRounding
    from coco_opt.problems.topdown_split import LinearRows as LinearRows
    from coco_opt.problems.topdown_split import SplitTerm as SplitTerm
    from coco_opt.problems.topdown_split import TopdownSplit as TopdownSplit
    from coco_opt.problems.tree import Tree as Tree
    from coco_opt.problems.tree import TreeLeastSquares as TreeLeastSquares

_NAMES = {
    "controlled_rounding": ("ControlledRounding",),
    "expected_distance": ("ExpectedDistance", "Marginals"),
    "group_matching": ("Flow", "GroupMatching"),
    "integer_tree": ("IntegerTreeL1", "IntegerTreeL2"),
    "isotonic": ("IsotonicL1", "IsotonicL2"),
    "joint": ("JointL1", "JointL2"),
    "simplex_projection": ("SimplexProjection",),
    "table_rounding": ("TableRounding",),
    "topdown_split": ("LinearRows", "SplitTerm", "TopdownSplit"),
    "tree": ("Tree", "TreeLeastSquares"),
}
_KINDS = {
    "simplex_projection": "SimplexProjection",
    "isotonic_l2": "IsotonicL2",
    "isotonic_l1": "IsotonicL1",
    "controlled_rounding": "ControlledRounding",
    "group_matching": "GroupMatching",
    "tree_l2": "TreeLeastSquares",
    "joint_l1": "JointL1",
    "joint_l2": "JointL2",
    "expected_distance": "ExpectedDistance",
    "integer_tree_l1": "IntegerTreeL1",
    "integer_tree_l2": "IntegerTreeL2",
    "topdown_split": "TopdownSplit",
    "table_rounding": "TableRounding",
}
SUCCESSORS = {
    "cumulative_rounding": "expected_distance",
    "joint_sums_l1": "joint_l1",
    "joint_sums_l2": "joint_l2",
    "tree_l1": "integer_tree_l1",
}
"""The problems that were removed, each with the one that answers in its place."""
__all__ = ["PROBLEMS", "SUCCESSORS", *chain(*_NAMES.values())]
__getattr__ = lazy_names("coco_opt.problems", _NAMES)


class _Problems(Mapping[str, type[Problem[Any, Any]]]):
    """The types of problems by the names used in config, each imported when it is first used."""

    def __getitem__(self, kind: str) -> type[Problem[Any, Any]]:
        problem: type[Problem[Any, Any]] = __getattr__(_KINDS[kind])
        return problem

    def __iter__(self) -> Iterator[str]:
        return iter(_KINDS)

    def __len__(self) -> int:
        return len(_KINDS)


PROBLEMS: Mapping[str, type[Problem[Any, Any]]] = _Problems()
