"""Problems on trees: consistent values of all nodes nearest to noisy values, and how sure they are."""

from __future__ import annotations

from coco_opt.array_types import Ints
from coco_opt.problems.tree.data import Tree
from coco_opt.problems.tree.least_squares import TreeLeastSquares
from coco_opt.problems.tree.posterior import TreePosterior

__all__ = ["Ints", "Tree", "TreeLeastSquares", "TreePosterior"]
