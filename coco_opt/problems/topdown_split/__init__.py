"""The top-down split: tables of all children of a region together, nearest to their noisy answers."""

from __future__ import annotations

from coco_opt.problems.linear_rows import LinearRows
from coco_opt.problems.topdown_split.data import SplitData, SplitDual, SplitTerm
from coco_opt.problems.topdown_split.problem import TopdownSplit

__all__ = ["LinearRows", "SplitData", "SplitDual", "SplitTerm", "TopdownSplit"]
