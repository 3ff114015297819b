"""Least squares over a simplex by an active-set method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coco_opt.array_types import Flags, Floats
from coco_opt.problems import SimplexLeastSquares
from coco_solvers.structured.kernel_solver import KernelSolver


@dataclass(frozen=True)
class SimplexActiveSet(KernelSolver):
    """Let one coefficient after the other become positive, and solve for the positive ones.

    The nonnegative least squares of Lawson and Hanson (1974, chapter 23) with one equality more. Each round adds the
    coefficient whose gradient is smallest, solves the equality-constrained problem of the positive ones, and steps
    back to the boundary while that solution is negative. The objective falls in every round, so no set of positive
    coefficients occurs twice. O(m k^2) a round for k positive coefficients.
    """

    tolerance: float = 1e-9
    max_iter: int = 100_000

    name: ClassVar[str] = "simplex-active-set"
    problem = SimplexLeastSquares

    def fit(self, problem: SimplexLeastSquares) -> Floats:
        """Return an optimal vector of coefficients (n,)."""
        x = _best_vertex(problem)
        positive = x > 0
        for _ in range(self.max_iter if problem.total > 0 else 0):
            slope = problem.gradient(x)
            entering = int(np.argmin(np.where(positive, np.inf, slope)))
            if positive.all() or slope[entering] >= slope[positive].min() - self._noise(problem, x):
                return x
            positive[entering] = True
            better = _solve_positive(problem, x, positive)
            if not problem.objective(better) < problem.objective(x):
                return x
            x, positive = better, better > 0
        return x

    @staticmethod
    def _noise(problem: SimplexLeastSquares, x: Floats) -> float:
        """Return what rounding can add to a difference of two entries of the gradient."""
        magnitude = np.abs(problem.A).T @ (np.abs(problem.A) @ x + np.abs(problem.y))
        return 16.0 * float(np.finfo(np.float64).eps) * float(magnitude.max(initial=0.0))


def _best_vertex(problem: SimplexLeastSquares) -> Floats:
    """Return the best vector with a single positive coefficient."""
    misfits = np.sum((problem.total * problem.A - problem.y[:, None]) ** 2, axis=0)
    x = np.zeros(problem.variables)
    x[int(np.argmin(misfits))] = problem.total
    return x


def _solve_positive(problem: SimplexLeastSquares, x: Floats, positive: Flags) -> Floats:
    """Return the best point whose support lies in ``positive``, or the last one before the objective's minimum.

    Invariant: x is feasible and zero outside ``positive``; each pass removes at least one index from it.
    """
    positive = positive.copy()
    while True:
        target = np.zeros_like(x)
        target[positive] = _with_fixed_sum(problem.A[:, positive], problem.y, problem.total)
        negative = positive & (target <= 0)
        if not negative.any():
            return target
        # The longest step towards the target that keeps every coefficient nonnegative.
        steps = np.where(negative, x / np.where(negative, np.maximum(x - target, np.finfo(float).tiny), 1.0), np.inf)
        step = float(steps.min())
        x = np.where(positive, np.maximum(x + step * (target - x), 0.0), 0.0)
        blocking = negative & (steps <= step)
        x[blocking] = 0.0
        positive &= ~blocking
        x *= problem.total / x.sum()


def _with_fixed_sum(A: Floats, y: Floats, total: float) -> Floats:
    """Return the least-squares solution with a fixed sum: deviations from the mean solve a free problem."""
    columns = A.shape[1]
    start = np.full(columns, total / columns)
    if columns == 1:
        return start
    # z = start + d with sum(d) = 0: the last deviation is minus the sum of the others.
    reduced = A[:, :-1] - A[:, -1:]
    deviation = np.linalg.lstsq(reduced, y - A @ start, rcond=None)[0]
    solution: Floats = start + np.append(deviation, -deviation.sum())
    return solution
