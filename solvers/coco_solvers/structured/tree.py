"""Least squares on a tree: two linear passes, or merging derivatives where there are bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from coco_opt.array_types import Floats
from coco_opt.problems.tree import TreeLeastSquares
from coco_solvers.structured.kernel_solver import KernelSolver


@dataclass(frozen=True)
class TreePasses(KernelSolver):
    """Two passes, O(n), without bounds; with bounds merged derivatives, at most O(n height)."""

    tolerance: float = 1e-9

    name: ClassVar[str] = "tree-passes"
    problem = TreeLeastSquares

    def fit(self, problem: TreeLeastSquares) -> Floats:
        """Return the values (n,); a node fixed at a bound has exactly its value."""
        from coco_opt.kernels import tree_bounded_l2, tree_passes

        tree = problem.tree
        if not problem.bounded:
            return tree_passes.fit(tree.first_child, problem.y, problem.variance)
        value, _ = tree_bounded_l2.fit(
            tree.parent, tree.first_child, problem.y, problem.weights, problem.lower, problem.upper
        )
        return value
