"""Top-down splits by a semismooth Newton method on faces, with prices of the constraints raised in rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from coco_opt.array_types import Flags, Floats
from coco_opt.errors import UnknownSolverError
from coco_opt.forms import ProgramDual
from coco_opt.problem import Problem
from coco_opt.problems.topdown_split import SplitDual, TopdownSplit
from coco_opt.problems.topdown_split.level import SplitLevel
from coco_opt.problems.topdown_split.level_program import BoundedSplits
from coco_opt.problems.topdown_split.prices import best_parent, caps, gradient, impossible, mended
from coco_opt.solution import Answer, Status
from coco_opt.solver import relative_gap
from coco_solvers.structured.split_dual import SplitDualNewton

_STIFF, _GENTLE = 1e3, 30.0  # penalty over the objective's own curvature along an equality, and a range, which may bind
_STIFFER, _STIFFEST = 2.0, 1e4  # what a slow round multiplies the penalties by, and at most over the first ones
_FLAT = 1e-4  # a cell whose own answers weigh less than this share of any other counts as not measured by itself
_DAMPING = 1e-2  # curvature added to such problems, over the diagonal's, at first
_MOST_DAMPING, _LEAST_DAMPING = 1e3, 1e-6
_CALMER = 0.3  # what a round's damping is of the round's before
_LEAST = 1e-12  # the smallest wrong sign, over the problem's scale
_ENERGY = 1e-3  # the last face's energy over the gap allowed
_FINER = 1e-2  # what the energy is of the round's before when the point is feasible but its gap too large
# Unknowns up to which PIQP's factors are faster than Newton's method on the answers' side, without a parent and below.
_FACTORISED = 6_000, 1_000
_BOUNDED = 4_000  # unknowns of a parent up to which it is split in a batch: prices are faster beyond
_OVERLAPPING = 2_000  # unknowns up to which they are faster where constraints share cells, whatever else is measured
_STALLED = 4  # rounds without progress after which constraints are suspected to contradict each other


@dataclass(frozen=True)
class SplitNewton:
    """Faces by predicted signs, conjugate gradients on them, an augmented Lagrangian for the constraints.

    Where not every cell is measured by itself the steps are damped (proximal point method). O(entries x children) a
    step of conjugate gradients; no factorisation. Stops at the certified relative gap ``tolerance``. A split with such
    cells and without further constraints goes to PIQP or, if it is large, to ``split_dual``. So does what takes more
    than ``few_steps``, or with constraints ``max_steps`` (weights many orders apart). Few unknowns under constraints
    that share cells go to PIQP: 7 CPU ms for 24 children of 24 cells and two exact marginals, where prices take 285. A
    problem is called infeasible only with prices that prove it. 20 children of 781 measured cells take .022 CPU
    seconds, PIQP .74; 160 of 224 under ranges of disjoint sums .026, PIQP .29; 20 of 1,873 with their totals .19,
    PIQP 5.
    """

    tolerance: float = 1e-6
    max_rounds: int = 100
    max_faces: int = 60
    max_steps: int = 10_000
    few_steps: int = 1_000

    name: ClassVar[str] = "split-newton"

    def solve(self, problem: Problem[Any, Any]) -> Answer[Any, Any]:
        """Solve one problem; UnknownSolverError for another type."""
        if not isinstance(problem, TopdownSplit):
            raise UnknownSolverError(f"solver {self.name!r} answers topdown_split, not {problem.kind}")
        start = perf_counter()
        search = _Search(problem, self)
        built = perf_counter()
        unbound = problem.constraints is None
        answer = None
        if search.flat and unbound:
            answer = self._without_constraints(problem)
        elif np.diff(problem.rows.column_start).max(initial=0) > 1 and problem.variables <= _OVERLAPPING:
            answer = self._factorised(problem)
        if answer is None:
            answer = search.answer(search.run())
            if answer.status is Status.ITERATION_LIMIT and unbound:
                answer = self._without_constraints(problem) or answer
            elif answer.status is Status.ITERATION_LIMIT:
                answer = _by_others(problem, answer, search.contradicted)
        return replace(answer, seconds=perf_counter() - built, build_seconds=built - start)

    def _factorised(self, problem: TopdownSplit) -> Answer[Floats, SplitDual] | None:
        """Return PIQP's answer, if it is certified."""
        if find_spec("piqp") is None:
            return None
        from coco_solvers.generic.piqp import PIQP

        answer = PIQP().solve(problem)
        return answer if relative_gap(problem, answer) <= self.tolerance else None

    def _without_constraints(self, problem: TopdownSplit) -> Answer[Floats, SplitDual] | None:
        """Return a certified answer of PIQP and of ``split_dual``, the faster first."""
        few = problem.variables <= _FACTORISED[problem.sums is not None]
        answer = self._factorised(problem) if few else None
        if answer is None:
            answer = SplitDualNewton(tolerance=self.tolerance).solve(problem)
            if relative_gap(problem, answer) > self.tolerance:
                return None if few else self._factorised(problem)
        return answer

    def split_level(self, level: SplitLevel) -> tuple[Floats, Flags]:
        """Return one descent of every parent's split, and which converged."""
        from coco_opt.kernels import split_level

        tables, limits = np.empty(int(level.places[-1])), np.array([self.max_faces, self.max_steps])
        options = self.tolerance, _ENERGY, _LEAST, limits
        rested, _ = split_level.solve(level.columns, level.arrays, level.places, *options, tables)
        return tables, rested

    def split_bounded(self, level: SplitLevel) -> tuple[Floats, Flags, Floats]:
        """Return every parent's split under bounds on classes, by PIQP, which are optimal, and the bounds' prices."""
        splits = BoundedSplits.of(level)
        program, rested = splits.together.program, np.zeros(level.starts.size - 1, np.bool_)
        z, dual = np.zeros(program.variables), np.zeros(program.rows)
        if find_spec("piqp") is not None:
            from coco_solvers.generic.piqp import PIQP

            for parent, (columns, rows, part) in enumerate(splits):
                if columns.size > _BOUNDED:
                    continue
                answer = PIQP().solve_formulation(part)
                if answer.status is Status.OPTIMAL and answer.value is not None and answer.multipliers is not None:
                    rested[parent], z[columns], dual[rows] = True, answer.value, answer.multipliers.rows
        assert splits.together.multipliers is not None
        return splits.together.recover(z), rested, splits.together.multipliers(ProgramDual(dual, z))


def _by_others(problem: TopdownSplit, reached: Answer[Floats, SplitDual], suspect: bool) -> Answer[Floats, SplitDual]:
    """Return a proof of infeasibility where that is suspected, an interior-point method's point, or that reached."""
    if suspect and _contradiction(problem):
        return Answer(None, Status.INFEASIBLE, None, reached.iterations)
    if find_spec("piqp") is None:
        return reached
    from coco_solvers.generic.piqp import PIQP

    answer = PIQP().solve(problem)
    if answer.value is not None:
        return answer
    # Interior-point methods call hard problems infeasible: only prices that prove it count.
    if answer.status is Status.INFEASIBLE and not suspect and _contradiction(problem):
        return Answer(None, Status.INFEASIBLE, None, reached.iterations)
    return reached


def _contradiction(problem: TopdownSplit) -> bool:
    """Return whether the duals of the least violation prove that no table meets the constraints."""
    from coco_opt.problems.topdown_split.program import least_violation
    from coco_solvers.generic.scipy import SciPyLinprog

    (rows, children), least = problem.sides[0].shape, SciPyLinprog().solve_program(least_violation(problem))
    if least.dual is None or not rows:
        return False
    return impossible(problem, least.dual.rows[-rows * children :].reshape(children, rows).T)


class _Search:
    """The state between rounds; tables are [occupied cells, children]."""

    def __init__(self, problem: TopdownSplit, options: SplitNewton) -> None:
        self.problem, self.options, self.steps = problem, options, 0
        self.max_steps = options.max_steps
        if problem.constraints is None:
            self.max_steps = min(options.few_steps, options.max_steps)
        queries, (single, self.base) = problem.queries, problem.single
        self.wide = np.flatnonzero(np.diff(queries.start) > 1)
        self.rows = queries.take(self.wide).above(problem.rows)
        self.weight, self.target = problem.weights[self.wide], problem.answers[self.wide]
        self.single = single
        n, children = problem.occupied_cells.size, problem.shape[0]
        self.diagonal, self.flat = self._diagonal()
        self.damping = _DAMPING if self.flat else 0.0
        self.sums = np.zeros(0) if problem.sums is None else np.array(problem.sums, dtype=np.float64)
        self.x: Floats = self._start()
        self.point = self.x.copy()
        self.free = np.ones((n, children), dtype=np.bool_)
        self.nu: Floats = np.zeros(problem.sides[0].shape)
        self.stiff, self.stretch = self._stiffness(), 1.0
        self.prices: SplitDual | None = None
        self.energy, self.allowed, self.worst, self.stalled = np.inf, np.inf, np.inf, 0
        self.met = self.contradicted = False

    def _start(self) -> Floats:
        """Return the point to begin from: the cells' own answers without negative numbers, in proportion to the sums.

        Cells that no answer measures by itself begin with equal parts. An even start where children differ much in
        size is so far from the optimum that the method can cycle.
        """
        own: Floats = np.maximum(np.broadcast_to(self.base, self.diagonal.shape), 0.0)
        if self.problem.sums is None:
            return own.copy()
        total = own.sum(axis=1, keepdims=True)
        even = np.full_like(own, 1.0 / own.shape[1])
        shares = even if self.flat else np.divide(own, total, out=even, where=total > 0.0)
        return np.ascontiguousarray(self.sums[:, None] * shares)

    def _diagonal(self) -> tuple[Floats, bool]:
        """Return the Hessian's halved diagonal and whether some cell is as good as not measured by itself."""
        from coco_opt.kernels import split_certificate

        rows, single = self.rows, self.single
        wide, least = split_certificate.wide_cells(rows.column_start, rows.row, rows.column_value, self.weight)
        return single + wide, bool((single < _FLAT * least).any()) or not single.all()

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
        own = np.divide(along, squares**2, out=np.ones_like(along), where=squares > 0.0)
        lower, upper = problem.sides
        return np.ascontiguousarray(2.0 * own * np.where(lower == upper, _STIFF, _GENTLE))

    def run(self) -> Status:
        """Take rounds until the point is certified, proved impossible, or rounds run out."""
        if not self.x.size:
            return Status.OPTIMAL if self.problem.broken(self.x) <= self._leave else Status.INFEASIBLE
        self.allowed = self._allowed_gap()
        for _ in range(self.options.max_rounds):
            self.energy = min(self.energy, _ENERGY * self.allowed)
            if self._descend() > 0:
                self._calm()
            else:
                change = self._raise_prices()
                self.point = self._nearest()
                if self._is_certified():
                    return Status.OPTIMAL
                if self._stuck() and (impossible(self.problem, change) or impossible(self.problem, self.nu)):
                    return Status.INFEASIBLE
                self.damping = max(_LEAST_DAMPING if self.flat else 0.0, _CALMER * self.damping)
            if self.steps >= self.max_steps:
                break
        return Status.ITERATION_LIMIT

    def answer(self, status: Status) -> Answer[Floats, SplitDual]:
        """Return the point reached, if there may be one."""
        value = None if status is Status.INFEASIBLE else self.problem.expand(self.point)
        return Answer(value, status, self.prices, self.steps)

    @property
    def _leave(self) -> float:
        """Return the error of a constraint that counts as none."""
        return self.problem.feasibility_tolerance * self.problem.scale

    def _allowed_gap(self) -> float:
        """Return the gap that the point may have."""
        residual = self.problem.queries.apply(self.point) - self.problem.answers
        return self.options.tolerance * max(
            1.0, float(np.einsum("ij,ij,ij->", self.problem.weights, residual, residual))
        )

    def _is_certified(self) -> bool:
        """Return whether the point is feasible and its gap small; if only feasible, tighten the next round."""
        self.met, self.allowed = self.problem.broken(self.point) <= self._leave, self._allowed_gap()
        if self.met and self._gap() <= 0.5 * self.allowed:
            return True
        self.energy *= _FINER if self.met else 1.0
        return False

    def _stuck(self) -> bool:
        """Return whether the constraints' errors have stopped falling; slow rounds make the penalties larger."""
        now = self.problem.broken(self.x)
        slow = now > 0.5 * self.worst
        if slow and self.stretch < _STIFFEST:
            self.stiff, self.stretch = _STIFFER * self.stiff, _STIFFER * self.stretch
        self.stalled = self.stalled + 1 if slow else 0
        self.worst = min(self.worst, now)
        if self.met or self.stalled <= _STALLED:
            return False
        self.stalled, self.contradicted = 0, True
        return True

    def _calm(self) -> None:
        """Start again with softer constraints if they are stiff, else with damping: the descent cycled."""
        if self.stretch > 1.0:
            self.stiff, self.stretch = self.stiff / _STIFFER, self.stretch / _STIFFER
        else:
            self.damping = min(_MOST_DAMPING, max(10.0 * self.damping, _DAMPING))
        self.x, self.free = self.point.copy(), self.point > 0.0

    def _descend(self) -> int:
        """Move x to the damped optimum under the present prices; return how many signs are wrong (if it cycled)."""
        from coco_opt.kernels import split_faces

        extra = self.damping * self.diagonal
        curvature = self.single + extra
        moment = self.single * self.base + extra * self.point
        centre = np.divide(moment, curvature, out=np.zeros_like(moment), where=curvature > 0.0)
        low, high = self._shifted_sides()
        limits = self.energy, self.options.max_faces, self.max_steps - self.steps
        wrong, _, steps = split_faces.descend(
            self.rows.matrix,
            split_faces.Measured(self.weight, self.target),
            split_faces.Sides(self.stiff, low, high),
            split_faces.Own(curvature, centre),
            self.sums,
            self.x,
            self.free,
            _LEAST * self.problem.magnitude,
            *limits,
        )
        self.steps += int(steps)
        return int(wrong)

    def _shifted_sides(self) -> tuple[Floats, Floats]:
        """Return the constraints' sides moved by their prices: at the optimum x lies that far inside."""
        move = self.nu / self.stiff
        return self.problem.sides[0] + move, self.problem.sides[1] + move

    def _raise_prices(self) -> Floats:
        """Let the prices of the constraints follow their errors; return by how much they changed."""
        values, (low, high) = self.problem.rows.apply(self.x), self._shifted_sides()
        before, self.nu = self.nu, self.stiff * (np.clip(values, low, high) - values)
        return self.nu - before

    def _nearest(self) -> Floats:
        """Return x without negative cells, its sums and, where nearly met, its constraints mended."""
        if self.problem.broken(self.x) <= self.problem.repair_limit * self.problem.scale:
            return mended(self.problem, self.x)
        near = np.maximum(self.x, 0.0)
        return near if not self.sums.size else near * (self.sums / near.sum(axis=1))[:, None]

    def _gap(self) -> float:
        """Return the gap of the point under the present prices, and keep these."""
        problem, slopes = self.problem, gradient(self.problem, self.point)
        parent, _, gap = best_parent(problem, self.point, slopes, caps(problem, self.point), self.nu)
        all_cells = np.zeros(problem.shape[1])
        all_cells[problem.occupied_cells] = parent
        self.prices = SplitDual(all_cells, self.nu.T.copy())
        return gap
