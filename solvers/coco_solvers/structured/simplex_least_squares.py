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
    """Let one coefficient after the other become positive, and solve for the positive coefficients.

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
        for _ in range(self.max_iter if problem.total > 0 else 0):
            entering = _entering(problem, x)
            if entering is None:
                return x
            positive = x > 0
            positive[entering] = True
            better = _solve_positive(problem, x, positive)
            if not problem.objective(better) < problem.objective(x):
                return x
            x = better
        return x


def _entering(problem: SimplexLeastSquares, x: Floats) -> int | None:
    """Return the coefficient at 0 whose increase lowers the objective most for the length of its column.

    None if no slope lies below the common slope of the positive coefficients by more than rounding can account for.
    """
    positive = x > 0
    slope, noise = problem.gradient(x), _noise(problem, x)
    # The positive coefficient whose slope is the most exact stands for all.
    exact = int(np.argmin(np.where(positive, noise, np.inf)))
    excess = np.where(positive, 0.0, slope - slope[exact] + noise + noise[exact])
    entering = int(np.argmin(excess / np.where(problem.lengths > 0.0, problem.lengths, 1.0)))
    return entering if excess[entering] < 0.0 else None


def _noise(problem: SimplexLeastSquares, x: Floats) -> Floats:
    """Return what rounding can add to every entry of the gradient (n,)."""
    magnitude = np.abs(problem.A).T @ (np.abs(problem.A) @ x + np.abs(problem.y))
    noise: Floats = 8.0 * float(np.finfo(np.float64).eps) * magnitude
    return noise


def _best_vertex(problem: SimplexLeastSquares) -> Floats:
    """Return the best vector with a single positive coefficient."""
    misfits = np.sum((problem.total * problem.A - problem.y[:, None]) ** 2, axis=0)
    x = np.zeros(problem.variables)
    x[int(np.argmin(misfits))] = problem.total
    return x


def _solve_positive(problem: SimplexLeastSquares, x: Floats, positive: Flags) -> Floats:
    """Return the best point whose support lies in ``positive``, or the last before the objective's minimum.

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
    """Return the least-squares solution with a fixed sum: deviations from a vertex solve a free problem.

    The vertex is the shortest column's, and the others are scaled to one length, so that long columns cost no digits.
    """
    short = int(np.argmin(np.linalg.norm(A, axis=0)))
    solution = np.zeros(A.shape[1])
    solution[short] = total
    others = np.arange(A.shape[1]) != short
    reduced = A[:, others] - A[:, [short]]
    lengths = np.linalg.norm(reduced, axis=0)
    lengths[lengths == 0.0] = 1.0
    # A second pass corrects the rounding of the first.
    for _ in range(2 if others.any() else 0):
        step = np.linalg.lstsq(reduced / lengths, y - A @ solution, rcond=None)[0] / lengths
        solution[others] += step
        solution[short] = total - solution[others].sum()
    return solution
