"""Problems on trees: consistent values of all nodes nearest to noisy values, and how sure they are."""

from __future__ import annotations

from coco_opt.array_types import Ints
from coco_opt.problems.tree.data import Tree
from coco_opt.problems.tree.least_absolute import TreeLeastAbsolute
from coco_opt.problems.tree.least_squares import TreeLeastSquares
from coco_opt.problems.tree.posterior import TreePosterior
from coco_opt.problems.tree.problem import TreeProblem

__all__ = ["Ints", "Tree", "TreeLeastAbsolute", "TreeLeastSquares", "TreePosterior", "TreeProblem"]
