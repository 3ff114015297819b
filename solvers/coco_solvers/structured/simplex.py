"""Projection onto a scaled simplex by pivoting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from coco_opt.array_types import Floats
from coco_opt.problems import SimplexProjection
from coco_solvers.structured.kernel_solver import KernelSolver


@dataclass(frozen=True)
class SimplexPivot(KernelSolver):
    """Find the threshold by pivoting on the data, expected O(n)."""

    tolerance: float = 1e-9

    name: ClassVar[str] = "pivot"
    problem = SimplexProjection

    def fit(self, problem: SimplexProjection) -> Floats:
        """Return the projection (n,)."""
        from coco_opt.kernels import simplex

        return simplex.project(problem.y, problem.total)[0]
