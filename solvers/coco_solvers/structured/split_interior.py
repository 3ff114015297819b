"""Top-down splits by an interior-point method whose linear systems are dense and one child each.

With H_j = 2 Q' W_j Q, b_j = 2 Q' W_j m_j and the parent's table s the optimality conditions are::

    H_j x_j - b_j - lambda - z_j = 0,   sum_j x_j = s,   x_j, z_j >= 0,   x_jc z_jc = 0.

A step of Newton's method on them, the products x z being asked to shrink, needs M_j = H_j + diag(z_j / x_j) of every
child and, for lambda, the sum of their inverses. Marginals alone leave most cells undetermined: H_j is singular, and
methods that follow its faces need many steps, while M_j stays positive definite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.errors import UnknownSolverError
from coco_opt.problem import Problem
from coco_opt.problems.topdown_split import SplitDual, TopdownSplit
from coco_opt.solution import Answer, Status

_CUBES = 2e10  # children x cells^3, beyond which dense systems take too long
_BACK = 0.995  # the share of the way to the boundary that a step takes
_ENOUGH = 0.1  # the products' sum over the gap allowed, at which the search stops
_RIDGE = 1e-13  # added to M_j, over its largest diagonal entry


def fits(problem: TopdownSplit) -> bool:
    """Return whether the dense systems of a split are small enough, and nothing but the parent binds the children."""
    cells, children = problem.occupied_cells.size, problem.shape[0]
    return problem.constraints is None and cells > 0 and children * float(cells) ** 3 <= _CUBES


@dataclass(frozen=True)
class SplitInteriorPoint:
    """Predictor and corrector steps (Mehrotra 1992), O(children x cells^3) each and some twenty in all.

    Splits with constraints other than the parent's sums, and those too large for dense systems, are refused.
    """

    tolerance: float = 1e-6
    max_iter: int = 100

    name: ClassVar[str] = "split-interior-point"

    def solve(self, problem: Problem[Any, Any]) -> Answer[Any, Any]:
        """Solve one problem; UnknownSolverError for another type, or a split that does not fit."""
        if not isinstance(problem, TopdownSplit) or not (fits(problem) or problem.variables == 0):
            raise UnknownSolverError(
                f"solver {self.name!r} answers topdown_split without constraints and of few cells, not this "
                f"{problem.kind} of {problem.variables} unknowns"
            )
        if problem.variables == 0:
            return Answer(problem.expand(np.zeros((0, problem.shape[0]))), Status.OPTIMAL)
        return _Iteration(problem, self).run()


class _Iteration:
    """The iterates; tables are [children, occupied cells], in units in which the mean cell is 1."""

    def __init__(self, problem: TopdownSplit, options: SplitInteriorPoint) -> None:
        self.problem, self.options = problem, options
        queries, cells = problem.queries, problem.occupied_cells.size
        rows = np.zeros(queries.shape)
        rows[queries.owner, queries.cell] = queries.value
        weights, answers = problem.weights.T, problem.answers.T
        self.hessian = 2.0 * np.einsum("jq,qc,qd->jcd", weights, rows, rows, optimize=True)
        self.linear: Floats = 2.0 * (weights * answers) @ rows
        self.sums = problem.sums
        children = problem.shape[0]
        typical = float(problem.sums.mean()) / children if problem.sums is not None else float(np.abs(answers).mean())
        self.unit = max(typical, 1e-6)
        curvature = float(np.einsum("jcc->jc", self.hessian).mean()) or 1.0
        self.scale = curvature * self.unit**2  # of the objective
        self.hessian /= curvature
        self.linear /= curvature * self.unit
        self.x = np.ones((children, cells))
        if self.sums is not None:
            self.x[:] = self.sums / self.unit / children
        self.z = np.ones_like(self.x)
        self.price = np.zeros(cells)

    def run(self) -> Answer[Any, Any]:
        """Step until the products' sum is below the gap allowed and the conditions hold."""
        for iteration in range(self.options.max_iter):
            dual = self.linear + self.price + self.z - self._bent()
            primal = np.zeros(self.price.size) if self.sums is None else self.sums / self.unit - self.x.sum(axis=0)
            if self._is_done(dual, primal):
                return self._answer(Status.OPTIMAL, iteration)
            try:
                inverses = self._inverses()
            except np.linalg.LinAlgError:
                return self._answer(Status.NUMERICAL_TROUBLE, iteration)
            mean = float(np.mean(self.x * self.z))
            ahead = self._direction(inverses, dual, primal, -self.x * self.z)
            steps = self._steps(*ahead[:2])
            reached = float(np.mean((self.x + steps[0] * ahead[0]) * (self.z + steps[1] * ahead[1])))
            centring = (reached / mean) ** 3
            products = centring * mean - self.x * self.z - ahead[0] * ahead[1]
            dx, dz, dprice = self._direction(inverses, dual, primal, products)
            # One length for both: in a quadratic program the dual residual falls only if they move together.
            length = _BACK * min(self._steps(dx, dz))
            self.x, self.z, self.price = self.x + length * dx, self.z + length * dz, self.price + length * dprice
        return self._answer(Status.ITERATION_LIMIT, self.options.max_iter)

    def _bent(self) -> Floats:
        bent: Floats = np.einsum("jcd,jd->jc", self.hessian, self.x)
        return bent

    def _is_done(self, dual: Floats, primal: Floats) -> bool:
        """Return whether products and residuals together are worth less than the gap allowed."""
        allowed = self.options.tolerance * max(1.0, self.problem.objective(self._expanded())) / self.scale
        worth = float(np.sum(self.x * self.z)) + float(np.sum(np.abs(dual) * self.x))
        worth += float(np.abs(self.price) @ np.abs(primal))
        return worth <= _ENOUGH * allowed

    def _inverses(self) -> Floats:
        """Return the inverses of all M_j; raises LinAlgError where a matrix is not positive definite."""
        from scipy.linalg import lapack

        inverses: Floats = np.empty_like(self.hessian)
        for child, hessian in enumerate(self.hessian):
            system = hessian + np.diag(self.z[child] / self.x[child])
            system.flat[:: system.shape[0] + 1] += _RIDGE * system.diagonal().max()
            factor, failed = lapack.dpotrf(system, lower=1)
            if failed:
                raise np.linalg.LinAlgError
            inverse, failed = lapack.dpotri(factor, lower=1)
            if failed:
                raise np.linalg.LinAlgError
            inverses[child] = np.tril(inverse) + np.tril(inverse, -1).T
        return inverses

    def _direction(
        self, inverses: Floats, dual: Floats, primal: Floats, products: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Return the steps of x, z and the prices for which products x z change by ``products``."""
        right = dual + products / self.x
        alone = np.einsum("jcd,jd->jc", inverses, right)
        dprice = np.zeros(self.price.size)
        if self.sums is not None:
            dprice = _solve(inverses.sum(axis=0), primal - alone.sum(axis=0))
            alone += inverses @ dprice
        return alone, (products - self.z * alone) / self.x, dprice

    def _steps(self, dx: Floats, dz: Floats) -> tuple[float, float]:
        """Return the longest steps, at most 1, that keep x and z nonnegative."""
        longest = []
        for values, change in ((self.x, dx), (self.z, dz)):
            falls = change < 0
            longest.append(min(1.0, float(np.min(-values[falls] / change[falls], initial=1.0))))
        return longest[0], longest[1]

    def _expanded(self) -> Floats:
        expanded: Floats = self.problem.expand(np.ascontiguousarray(self.unit * self.x.T))
        return expanded

    def _answer(self, status: Status, iterations: int) -> Answer[Any, Any]:
        """Return the point with its prices."""
        parent = np.zeros(self.problem.shape[1])
        parent[self.problem.occupied_cells] = self.price * self.scale / self.unit
        rows = np.zeros(self.problem.sides[0].T.shape)
        return Answer(self._expanded(), status, SplitDual(parent, rows), iterations)


def _solve(system: Floats, right: Floats) -> Floats:
    """Solve a positive definite system, with its diagonal scaled to 1."""
    from scipy.linalg import cho_factor, cho_solve

    scale = 1.0 / np.sqrt(system.diagonal())
    scaled = system * scale * scale[:, None]
    scaled.flat[:: scale.size + 1] += _RIDGE
    solution: Floats = scale * cho_solve(cho_factor(scaled, check_finite=False), scale * right, check_finite=False)
    return solution
