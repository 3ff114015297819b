"""Top-down splits by Newton's method on the answers' side, in proximal steps.

A step from tables x looks for feasible tables y that minimise the objective and ``sum (y - x)^2 / (2 sigma p)``, where
p are the parent's counts. Its dual has one unknown u for each answer m, with R^2 = 2 W::

    y(u) = projection of x - sigma p Q' R u,    u + R (m - Q y(u)) = 0,

where the projection takes each cell's counts in all children to the simplex of its parent's count, or without a parent
to numbers that are not negative. Its derivative is not zero for cells in use alone, so a Newton step costs what these
cost, however many cells are open, and R u are prices that certify y. Larger and larger sigma make the steps exact;
where Newton's method does not end, a shorter step is taken from the same tables.

Source: Li, Sun and Toh 2018, A highly efficient semismooth Newton augmented Lagrangian method for solving Lasso
problems.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.errors import UnknownSolverError
from coco_opt.problem import Problem
from coco_opt.problems.sparse_rows import runs_from
from coco_opt.problems.topdown_split import SplitDual, TopdownSplit
from coco_opt.solution import Answer, Status

_LONGER = 2.0  # what sigma grows by a step
_SHORTER = 9.0  # what sigma falls by where Newton's method does not end
_NEAR = 0.1  # what the residual of a step must fall to
_INEXACT = 0.05  # the residual of conjugate gradients, over that of Newton's equation
_MOST_CONJUGATE = 1_000
_AIM = 1e-4  # the gap that is aimed at, over the gap allowed: other solvers' tables are then the same when rounded
_LEAST_LENGTH = 1e-4
_ENOUGH = 1e-4  # the share of the predicted fall of the dual that a step must keep


@dataclass(frozen=True)
class SplitDualNewton:
    """Semismooth Newton steps on the dual, for splits that nothing but the parent's sums binds.

    Stops at the certified relative gap ``tolerance``, or after ``max_iter`` proximal steps; a step is shortened after
    ``max_newton`` of Newton's. Ten marginals of 2,240 cells in 42 children, which leave 94,080 unknowns open, take 3
    CPU seconds; no general solver certifies them in a minute.
    """

    tolerance: float = 1e-6
    max_iter: int = 80
    max_newton: int = 40

    name: ClassVar[str] = "split-dual-newton"

    def solve(self, problem: Problem[Any, Any]) -> Answer[Any, Any]:
        """Solve one problem; UnknownSolverError for another type, or a split with further constraints."""
        if not isinstance(problem, TopdownSplit) or problem.constraints is not None:
            raise UnknownSolverError(
                f"solver {self.name!r} answers topdown_split without constraints, not this {problem.kind}"
            )
        if problem.variables == 0:
            return Answer(problem.expand(np.zeros((0, problem.shape[0]))), Status.OPTIMAL)
        return _ProximalSteps(problem, self).run()


class _ProximalSteps:
    """The present tables x and centre [occupied cells, children], and the dual u [answers, children]."""

    def __init__(self, problem: TopdownSplit, options: SplitDualNewton) -> None:
        self.problem, self.options = problem, options
        self.queries, self.answers, self.sums = problem.queries, problem.answers, problem.sums
        self.root = np.sqrt(2.0 * problem.weights)
        self.x = self._start()
        self.u: Floats = np.zeros_like(self.answers)
        self.measure = np.ones((self.x.shape[0], 1))
        if self.sums is not None:
            self.measure = (self.sums / self.sums.mean())[:, None]
        squares = np.bincount(self.queries.owner, self.queries.value**2, self.queries.shape[0])
        curvature = float((self.root**2 * squares[:, None]).sum()) / self.x.size
        self.sigma = 1.0 / curvature if curvature > 0.0 else 1.0

    def _start(self) -> Floats:
        """Return the parent's counts shared by what the answers say of the children's sizes, or equal cells."""
        if self.sums is None:
            largest = float(np.abs(self.answers).max(initial=1.0))
            return np.full((self.problem.occupied_cells.size, self.problem.shape[0]), largest / self.queries.shape[1])
        above = self.queries.apply(self.sums[:, None])
        sizes = (self.root**2 * above * self.answers).sum(axis=0)
        sizes = np.maximum(sizes, 1e-3 * max(float(sizes.max(initial=0.0)), 1.0) / sizes.size)
        return np.ascontiguousarray(self.sums[:, None] * (sizes / sizes.sum()))

    def run(self) -> Answer[Any, Any]:
        """Take proximal steps until the point is certified and the gap, which falls fast, is below ``_AIM`` of it."""
        problem, best, steps = self.problem, np.inf, 0
        answer: Answer[Any, Any] = Answer(problem.expand(self.x), Status.NUMERICAL_TROUBLE)
        for _ in range(self.options.max_iter):
            start, taken = (self.x, self.u), self._step()
            steps += taken
            if taken == self.options.max_newton:
                (self.x, self.u), self.sigma = start, self.sigma / _SHORTER
                continue
            value = problem.expand(self.x)
            prices = SplitDual(np.zeros(problem.shape[1]), np.zeros(problem.sides[0].T.shape), (self.root * self.u).T)
            gap, before = problem.gap(value, prices), best
            allowed = self.options.tolerance * max(1.0, problem.objective(value))
            if gap < best:
                status = Status.OPTIMAL if gap <= 0.5 * allowed else Status.ITERATION_LIMIT
                best, answer = gap, Answer(value, status, prices, steps)
            if best <= _AIM * allowed or (answer.status is Status.OPTIMAL and gap > 0.5 * before):
                break
            self.sigma *= _LONGER
        return answer

    def _step(self) -> int:
        """Move x to the tables nearest to the optimum of one proximal step; return the Newton steps."""
        centre, goal = self.x, 0.0
        value, self.x = self._dual(self.u, centre)
        for steps in range(self.options.max_newton):
            residual = self.u + self.root * (self.answers - self.queries.apply(self.x))
            size = float(np.sqrt(_dot(residual, residual)))
            if size <= goal:
                return steps
            goal = goal or max(_NEAR * size, 1e-12)
            change, length = self._newton(residual, size), 1.0
            slope = _dot(residual, change)
            while True:
                trial, x = self._dual(self.u + length * change, centre)
                if trial <= value + _ENOUGH * length * slope + 1e-10 * abs(value) or length < _LEAST_LENGTH:
                    break
                length *= 0.5
            self.u, self.x, value = self.u + length * change, x, trial
        return self.options.max_newton

    def _dual(self, u: Floats, centre: Floats) -> tuple[float, Floats]:
        """Return the dual's value, to be minimised, and the tables at its unknowns."""
        slopes = self.queries.adjoint(self.root * u)
        moved = centre - self.sigma * self.measure * slopes
        x = np.maximum(moved, 0.0) if self.sums is None else _onto_simplices(moved, self.sums)
        change = x - centre
        penalty = _dot(change / self.measure, change) / (2.0 * self.sigma)
        return _dot(u, 0.5 * u + self.root * self.answers) - penalty - _dot(slopes, x), x

    def _newton(self, residual: Floats, size: float) -> Floats:
        """Return the Newton step by conjugate gradients over the diagonal, in the cells in use alone."""
        from scipy.sparse import csc_array

        used = self.x > 0.0
        if self.sums is not None:
            used &= (used.sum(axis=1) > 1)[:, None]  # the only child with a cell cannot change it
        cell, child = np.nonzero(used)
        begin = self.queries.column_start
        lengths = (begin[1:] - begin[:-1])[cell]
        entries, row_child = runs_from(begin[cell], lengths), np.repeat(child, lengths)
        row, stretch = self.queries.row[entries], np.sqrt(self.sigma * self.measure[cell, 0])
        values = self.queries.column_value[entries] * self.root[row, row_child] * np.repeat(stretch, lengths)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        image = csc_array((values, row * used.shape[1] + row_child, starts), shape=(residual.size, cell.size))
        transposed = image.T
        first = np.flatnonzero(np.diff(cell, prepend=-1))
        share = 1.0 / np.diff(first, append=cell.size)
        of_cell = np.repeat(np.arange(first.size), np.diff(first, append=cell.size))
        summed = self.sums is not None and cell.size > 0

        def product(d: Floats) -> Floats:
            moved = transposed @ d
            if summed:
                moved -= (np.add.reduceat(moved, first) * share)[of_cell]
            out: Floats = d + image @ moved
            return out

        diagonal = 1.0 + image.power(2) @ (1.0 - share[of_cell] if summed else np.ones(cell.size))
        exact = _INEXACT * min(1.0, size**0.1) * size
        return _conjugate_gradients(product, diagonal, -residual.ravel(), exact).reshape(residual.shape)


def _conjugate_gradients(product: Any, diagonal: Floats, right: Floats, exact: float) -> Floats:
    """Solve a positive definite system to a residual of ``exact``."""
    solution, left = np.zeros_like(right), right.copy()
    direction = scaled = left / diagonal
    power = _dot(left, scaled)
    for _ in range(_MOST_CONJUGATE):
        if _dot(left, left) <= exact**2:
            break
        image = product(direction)
        length = power / _dot(direction, image)
        solution, left = solution + length * direction, left - length * image
        scaled, before = left / diagonal, power
        power = _dot(left, scaled)
        direction = scaled + power / before * direction
    return solution


def _dot(first: Floats, second: Floats) -> float:
    """Return the sum of products; the linear algebra library's threads cost more than they bring at these sizes."""
    return float(np.einsum("i,i->", first.ravel(), second.ravel()))


def _onto_simplices(values: Floats, totals: Floats) -> Floats:
    """Project each row of values (n, k) onto the nonnegative vectors with its total."""
    falling = -np.sort(-values, axis=1)
    excess = (np.cumsum(falling, axis=1) - totals[:, None]) / np.arange(1, values.shape[1] + 1)
    last = np.maximum((falling > excess).sum(axis=1) - 1, 0)
    projected: Floats = np.maximum(values - np.take_along_axis(excess, last[:, None], axis=1), 0.0)
    return projected
