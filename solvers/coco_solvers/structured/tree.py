"""Problems on a tree by their own algorithms: two linear passes, or merging slopes where there are bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import UnknownSolverError
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


@dataclass(frozen=True)
class SparseEquations(KernelSolver):
    """SciPy's sparse LU on the stationarity equations of tree least squares; no bounds."""

    tolerance: float = 1e-7

    name: ClassVar[str] = "scipy-sparse"
    problem = TreeLeastSquares

    def fit(self, problem: TreeLeastSquares) -> Floats:
        """Return the values (n,); UnknownSolverError for bounds or answers that do not determine every node."""
        if problem.bounded:
            raise UnknownSolverError(f"{self.name} solves equations only; a problem with bounds needs a QP solver")
        from scipy.sparse import block_array, csc_array
        from scipy.sparse.linalg import splu

        written = problem.formulate(problem.forms[0])
        program: Any = written.program
        free = np.flatnonzero(problem.lower < problem.upper)
        fixed = np.where(problem.lower < problem.upper, 0.0, program.lower)
        rows = csc_array(program.A[:, free])
        used = np.flatnonzero(np.diff(rows.tocsr().indptr))
        matrix = block_array([[program.P[:, free][free], rows[used].T], [rows[used], None]], format="csc")
        right = np.concatenate([-program.c[free], (program.row_lower - program.A @ fixed)[used]])
        try:
            solved = splu(matrix).solve(right)
        except RuntimeError:
            raise UnknownSolverError(f"{self.name}: the answers do not determine every node; use 'auto'") from None
        value = fixed
        value[free] = solved[: free.size]
        return np.asarray(written.recover(value), dtype=np.float64)
