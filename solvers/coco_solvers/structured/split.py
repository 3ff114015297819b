"""Top-down splits by a semismooth Newton method on faces, with prices of the constraints raised in rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from coco_opt.errors import UnknownSolverError
from coco_opt.problem import Problem
from coco_opt.problems.split_prices import gap, gradient, mended
from coco_opt.problems.split_rows import Floats
from coco_opt.problems.topdown_split import SplitDual, TopdownSplit
from coco_opt.solution import Answer, Status

_STIFF = 1e3  # penalty of a constraint over the objective's own curvature along it: a round's error falls as much
_FLAT = 1e-4  # a cell whose own answers weigh less than this part of any other counts as not measured by itself
_DAMPING = 1e-2  # curvature added to such problems, over the diagonal's, at first
_MOST_DAMPING, _LEAST_DAMPING = 1e3, 1e-6
_CALMER = 0.3  # what a round's damping is of the round's before
_LEAST = 1e-12  # the smallest wrong sign, over the problem's scale
_ENERGY = 1e-3  # the last face's energy over the gap allowed
_STALLED = 4  # rounds without progress after which constraints are suspected to contradict each other


@dataclass(frozen=True)
class SplitNewton:
    """Faces by predicted signs, conjugate gradients on them, an augmented Lagrangian for the constraints.

    Where not every cell is measured by itself the steps are damped (proximal point method). O(entries x children) a
    step of conjugate gradients; no factorisation. Stops at the certified relative gap ``tolerance``. What takes more
    than ``max_steps`` of them (marginals alone, weights many orders apart) goes to PIQP if that is installed.
    """

    tolerance: float = 1e-6
    max_rounds: int = 100
    max_faces: int = 60
    max_steps: int = 5_000

    name: ClassVar[str] = "split-newton"

    def solve(self, problem: Problem[Any, Any]) -> Answer[Any, Any]:
        """Solve one problem; UnknownSolverError for another type."""
        if not isinstance(problem, TopdownSplit):
            raise UnknownSolverError(f"solver {self.name!r} answers topdown_split, not {problem.kind}")
        start = perf_counter()
        search = _Search(problem, self)
        built = perf_counter()
        status = search.run()
        if status is Status.ITERATION_LIMIT and find_spec("piqp") is not None:
            from coco_solvers.generic.piqp import PIQP

            answer = PIQP().solve(problem)
            if answer.status is not Status.INFEASIBLE or search.contradicted:
                return replace(answer, seconds=perf_counter() - built, build_seconds=built - start)
        value = None if status is Status.INFEASIBLE else problem.expand(search.point)
        return Answer(value, status, search.prices, search.steps, perf_counter() - built, built - start)


class _Search:
    """The state between rounds; tables are [kept cells, children]."""

    def __init__(self, problem: TopdownSplit, options: SplitNewton) -> None:
        self.problem, self.options, self.steps = problem, options, 0
        queries, (single, self.base) = problem.queries, problem.single
        self.wide = np.flatnonzero(np.diff(queries.start) > 1)
        self.rows = queries.take(self.wide).above(problem.rows)
        self.weight = np.ascontiguousarray(problem.weights[self.wide])
        self.target = np.ascontiguousarray(problem.answers[self.wide])
        self.single = np.ascontiguousarray(single)
        n, children = problem.kept.size, problem.shape[0]
        self.diagonal = single + self._wide_diagonal()
        flat = bool((self.single < _FLAT * self._least_weight()).any()) or not single.all()
        self.flat, self.damping = flat, _DAMPING if flat else 0.0
        self.sums = np.zeros(0) if problem.sums is None else np.array(problem.sums, dtype=np.float64)
        start = np.maximum(self.base, 0.0) if problem.sums is None else self.sums[:, None] / children
        self.x: Floats = np.ascontiguousarray(np.broadcast_to(start, (n, children)), dtype=np.float64).copy()
        self.point = self.x.copy()
        self.free = np.ones((n, children), dtype=np.bool_)
        self.nu: Floats = np.zeros(problem.sides[0].shape)
        self.stiff = self._stiffness()
        self.prices: SplitDual | None = None
        self.contradicted = False

    def _wide_diagonal(self) -> Floats:
        from coco_opt.kernels import split_certificate

        rows = self.rows
        padded = np.concatenate([self.weight, np.zeros(self.problem.sides[0].shape)])
        return split_certificate.products(rows.column_start, rows.row, rows.column_value**2, padded)

    def _least_weight(self) -> Floats:
        """Return the least positive weight among the answers a cell counts in, 0 where none is."""
        rows, ends = self.rows, self.rows.column_start
        asked = np.where(self.weight > 0.0, self.weight, np.inf)
        each = np.concatenate([asked, np.full(self.problem.sides[0].shape, np.inf)])[rows.row]
        each = np.concatenate([each, np.full((1, each.shape[1]), np.inf)])
        least = np.where((np.diff(ends) > 0)[:, None], np.minimum.reduceat(each, ends[:-1], axis=0), np.inf)
        return np.where(np.isfinite(least), least, 0.0)

    def _stiffness(self) -> Floats:
        """Return the penalties [rows of C, children]."""
        rows, problem = self.problem.rows, self.problem
        if problem.constraints is None:
            return self.nu
        entries = np.zeros(rows.shape)
        entries[np.repeat(np.arange(rows.shape[0]), np.diff(rows.start)), rows.cell] = rows.value
        squares = (entries**2).sum(axis=1)[:, None]
        along = (problem.queries.apply(entries.T) ** 2).T @ problem.weights
        typical = float(self.diagonal.mean()) if self.diagonal.size else 1.0
        along = np.where(along > 0.0, along, squares * (typical or 1.0))
        return np.ascontiguousarray(
            _STIFF * 2.0 * np.divide(along, squares**2, out=np.ones_like(along), where=squares > 0)
        )

    def run(self) -> Status:
        """Take rounds until the point is certified, proved impossible, or rounds run out."""
        if not self.x.size:
            return Status.INFEASIBLE if self.problem.violation(self.problem.expand(self.x)) > 0.0 else Status.OPTIMAL
        energy, worst, stalled = np.inf, np.inf, 0
        for _ in range(self.options.max_rounds):
            cost = self._cost(self.point)
            allowed = self.options.tolerance * max(1.0, cost)
            energy = min(energy, _ENERGY * allowed)
            if self._descend(energy) > 0:
                if self.steps >= self.options.max_steps:
                    break
                self.damping = min(_MOST_DAMPING, max(10.0 * self.damping, _DAMPING))
                self.x, self.free = self.point.copy(), self.point > 0.0
                continue
            change = self._raise_prices()
            self.point = self._nearest()
            met = self._broken(self.point) <= self.problem.feasibility_tolerance * self.problem.scale
            if met:
                if self._gap() <= 0.5 * allowed:
                    return Status.OPTIMAL
                energy *= 1e-2
            now = self._broken(self.x)
            stalled = 0 if now <= 0.5 * worst else stalled + 1
            worst = min(worst, now)
            if stalled > _STALLED and not met:
                self.contradicted = True
                if self._impossible(change) or self._impossible(self.nu):
                    return Status.INFEASIBLE
                self.stiff, stalled = 10.0 * self.stiff, 0
            if self.steps >= self.options.max_steps:
                break
            self.damping = max(_LEAST_DAMPING if self.flat else 0.0, _CALMER * self.damping)
        return Status.ITERATION_LIMIT

    def _descend(self, energy: float) -> int:
        """Move x to the damped optimum under the present prices; return how many signs are wrong (if it cycled)."""
        from coco_opt.kernels import split_faces

        extra = self.damping * self.diagonal
        curvature = self.single + extra
        moment = self.single * self.base + extra * self.point
        centre = np.divide(moment, curvature, out=np.zeros_like(moment), where=curvature > 0.0)
        low, high = self._shifted()
        rows, least = self.rows, _LEAST * self.problem.scale
        wrong, _, steps = split_faces.descend(
            rows.start, rows.cell, rows.value, rows.column_start, rows.row, rows.column_value,
            self.weight, self.target, self.stiff, low, high, curvature, centre, self.sums,
            self.x, self.free, least, energy, self.options.max_faces, self.options.max_steps - self.steps,
        )  # fmt: skip
        self.steps += int(steps)
        return int(wrong)

    def _shifted(self) -> tuple[Floats, Floats]:
        """Return the constraints' sides moved by their prices: at the optimum x lies that far inside."""
        move = self.nu / self.stiff
        return self.problem.sides[0] + move, self.problem.sides[1] + move

    def _raise_prices(self) -> Floats:
        """Let the prices of the constraints follow their errors; return by how much they changed."""
        values, (low, high) = self.problem.rows.apply(self.x), self._shifted()
        before, self.nu = self.nu, self.stiff * (np.clip(values, low, high) - values)
        return self.nu - before

    def _nearest(self) -> Floats:
        """Return x without negative cells, its sums and, where nearly met, its constraints mended."""
        if self._broken(self.x) <= self.problem.repairable * self.problem.scale:
            return mended(self.problem, self.x)
        near = np.maximum(self.x, 0.0)
        return near if not self.sums.size else near * (self.sums / near.sum(axis=1))[:, None]

    def _broken(self, x: Floats) -> float:
        values, (lower, upper) = self.problem.rows.apply(x), self.problem.sides
        return float(np.maximum(lower - values, values - upper).max(initial=0.0))

    def _cost(self, x: Floats) -> float:
        residual = self.problem.queries.apply(x) - self.problem.answers
        return float(np.einsum("ij,ij,ij->", self.problem.weights, residual, residual))

    def _gap(self) -> float:
        """Return the gap of the point under the present prices, and keep these."""
        problem, parent = self.problem, np.zeros(self.problem.kept.size)
        reduced = gradient(problem, self.point) - problem.rows.adjoint(self.nu)
        if self.sums.size:
            from coco_opt.kernels import split_certificate

            parent = split_certificate.parent_prices(reduced, self.point, self.single, self.sums)
        whole = np.zeros(problem.shape[1])
        whole[problem.kept] = parent
        self.prices = SplitDual(whole, np.ascontiguousarray(self.nu.T))
        return gap(problem, self.point, parent, self.nu)

    def _impossible(self, prices: Floats) -> bool:
        """Return whether no table can have as much at these prices as the constraints ask (Farkas)."""
        (lower, upper), priced = self.problem.sides, self.problem.rows.adjoint(prices)
        asked = float(np.where(prices > 0.0, lower, upper)[prices != 0.0] @ prices[prices != 0.0])
        noise = 1e-7 * float(np.abs(prices).max(initial=0.0))
        if self.sums.size:
            return asked > float(self.sums @ priced.max(axis=1)) + noise
        return asked > noise and float(priced.max(initial=0.0)) <= noise
