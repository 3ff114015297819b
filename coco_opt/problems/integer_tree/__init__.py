"""Integer tree fits: integer values of all regions nearest to noisy values, cell by cell."""

from __future__ import annotations

from coco_opt.problems.integer_tree.problem import IntegerTree, IntegerTreeL1, IntegerTreeL2

__all__ = ["IntegerTree", "IntegerTreeL1", "IntegerTreeL2"]
