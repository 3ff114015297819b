"""A solver from a package of its own: isotonic least squares by its formula, and the table that names it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from coco_opt import IsotonicL2
from coco_opt.errors import UnknownSolverError
from coco_opt.registry import Backend
from coco_opt.solution import Answer, Status


@dataclass(frozen=True)
class MaxMin:
    """The largest, over where a run begins, of the smallest mean, over where it ends; O(n^2)."""

    tolerance: float = 1e-9

    name: ClassVar[str] = "max-min"

    def solve(self, problem: Any) -> Answer[Any, Any]:
        """Solve one problem; UnknownSolverError for another type."""
        if not isinstance(problem, IsotonicL2):
            raise UnknownSolverError(f"{self.name} answers isotonic_l2, not {problem.kind}")
        weights = np.ones(problem.variables) if problem.weights is None else problem.weights
        sums, mass = (np.concatenate([[0.0], np.cumsum(part)]) for part in (weights * problem.y, weights))
        begin, end = np.triu_indices(problem.variables)
        means = np.full((problem.variables, problem.variables), np.inf)
        means[begin, end] = (sums[end + 1] - sums[begin]) / (mass[end + 1] - mass[begin])
        least = np.minimum.accumulate(means[:, ::-1], axis=1)[:, ::-1]  # over ends at or after a column
        value = np.max(np.where(np.tri(problem.variables, dtype=bool).T, least, -np.inf), axis=0, initial=-np.inf)
        return Answer(np.clip(value, problem.lower, problem.upper), Status.OPTIMAL)


SOLVERS = (
    Backend(
        "max-min", "toy_totals.solvers:MaxMin", "isotonic least squares by its formula, O(n^2)", kinds=("isotonic_l2",)
    ),
)
