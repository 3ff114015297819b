"""Integer tree fits: integer values of all regions nearest to noisy values, cell by cell."""

from __future__ import annotations

from coco_opt.problems.integer_tree.losses import IntegerTreeL1, IntegerTreeL2
from coco_opt.problems.integer_tree.problem import IntegerTree

__all__ = ["IntegerTree", "IntegerTreeL1", "IntegerTreeL2"]
