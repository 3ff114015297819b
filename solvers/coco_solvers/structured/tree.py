"""Problems on a tree by their own algorithms: two linear passes, or merging slopes where there are bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from coco_opt.array_types import Floats, Ints
from coco_opt.problems.tree import TreeLeastAbsolute, TreeLeastSquares
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


@dataclass(frozen=True)
class TreeSlopes(KernelSolver):
    """Merged slopes in integers, at most O(n height), with the problem's tie rule."""

    tolerance: float = 1e-9

    name: ClassVar[str] = "tree-slopes"
    problem = TreeLeastAbsolute

    def fit(self, problem: TreeLeastAbsolute) -> Ints:
        """Return the values (n,) as int64."""
        from coco_opt.kernels import tree_bounded_l1

        tree = problem.tree
        return tree_bounded_l1.fit(
            tree.parent,
            tree.first_child,
            problem.y,
            problem.weights,
            problem.lower,
            problem.upper,
            upper_fit=problem.ties == "upper",
        )
