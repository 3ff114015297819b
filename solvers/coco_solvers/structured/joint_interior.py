"""Joint estimation, from sums over buckets too, by an interior point method whose linear systems follow the tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import UnknownSolverError
from coco_opt.problem import Problem
from coco_opt.problems.joint import JointFit, JointL1, JointL2
from coco_opt.problems.joint_sums import JointSums, JointSumsL1, JointSumsL2
from coco_opt.solution import Answer, Status
from coco_solvers.structured.joint import Search
from coco_solvers.structured.joint_covariances import TreeSystem
from coco_solvers.structured.joint_sums import AlternatingSums

_STARTS = (0.1, 1.0)  # how much of the start is even: near the first answers, and far from every bound
_REFINED = 30  # rounds of conjugate gradients at most, and
_EXACT = 1e-9  # of the right side left, at which they end
_SHORT = 0.1  # step below which the corrected direction is dropped for one back to the middle
_LEAST = 1e-9  # step below which the search ends
_TOWARDS = 0.995  # of the way to the nearest bound


@dataclass(frozen=True)
class TreeInteriorPoint:
    """Mehrotra's predictor-corrector method in the leaves' increments, some tens of iterations, stopped by the gap.

    An iteration factors small dense matrices region by region (``joint_covariances``): O(c^2 b) a region of b buckets
    where it and those above it distinguish c cells. Where that takes more than ``light`` multiplications,
    ``AlternatingSums`` runs first, for ``rounds``: many regions of few groups slow the interior point down, not the
    splitting. Where it takes more than ``work``, or stores more than ``numbers`` numbers, as thousands of single sizes
    at an upper level do, only the splitting runs; elsewhere each runs where the other misses the tolerance.
    Single cells are sums over buckets of one cell: where weights differ by 10^5, so that ``AlternatingDirections``
    takes too many rounds, the interior point takes as few iterations as elsewhere.
    ``tolerance`` and ``level_tolerance`` are those of ``AlternatingDirections``. Where buckets leave a choice, the
    interior point's answer is near the middle of the optimal face: its barrier weighs cells by their widths.
    """

    tolerance: float = 1e-3
    level_tolerance: float = 0.01
    max_iter: int = 150
    rounds: int = 10_000
    light: float = 1e8
    work: float = 1e11
    numbers: float = 1.5e8

    name: ClassVar[str] = "tree-interior-point"

    def solve(self, problem: Problem[Any, Any]) -> Answer[Any, Any]:
        """Solve one problem; UnknownSolverError for another type."""
        if isinstance(problem, JointL1 | JointL2):
            sums = _as_sums(problem)
            answer, prices = self.solve(sums), np.zeros(problem.y.shape)
            prices[sums.begins] = answer.multipliers
            return replace(answer, multipliers=prices)
        if not isinstance(problem, JointSumsL1 | JointSumsL2):
            raise UnknownSolverError(f"solver {self.name!r} answers joint estimation, not {problem.kind}")
        leaves = np.flatnonzero(problem.tree.is_leaf & (problem.groups > 0))
        system = TreeSystem(problem, leaves)
        if system.work > self.work or system.numbers > self.numbers:
            return AlternatingSums(self.tolerance).solve(problem)
        splitting = AlternatingSums(self.tolerance, max_iter=self.rounds)
        if system.work <= self.light:
            first = self._own(problem, leaves, system)
            return first if first.status is Status.OPTIMAL else _better(problem, first, splitting.solve(problem))
        first = splitting.solve(problem)
        return first if first.status is Status.OPTIMAL else _better(problem, first, self._own(problem, leaves, system))

    def _own(self, problem: JointSums, leaves: Ints, system: TreeSystem) -> Answer[Any, Any]:
        start = perf_counter()
        search = Search(problem, _Iterates(problem, leaves, system, _STARTS[0]))
        status = self._search(search, self.max_iter)
        if status is not Status.OPTIMAL and self.max_iter > 1:
            search.rounds = _Iterates(problem, leaves, system, _STARTS[1], search.rounds.done)
            status = self._search(search, 2 * self.max_iter)
        return Answer(search.point, status, search.prices, search.rounds.done, perf_counter() - start)

    def _search(self, search: Search, limit: int) -> Status:
        while True:
            gap, before = search.look(), search.rounds.done
            allowed, aim = search.aims(self.tolerance, self.level_tolerance)
            if gap > aim and before < limit:
                search.rounds.take(1)
            if search.rounds.done == before:
                return Status.OPTIMAL if gap <= allowed else Status.ITERATION_LIMIT


def _as_sums(problem: JointFit) -> JointSums:
    """Return the problem whose buckets are single cells; a region that was not measured has one, of weight 0."""
    begins = np.broadcast_to((problem.weights > 0.0)[:, None], problem.y.shape).copy()
    begins[:, 0] = True
    kind = JointSumsL1 if isinstance(problem, JointL1) else JointSumsL2
    return kind(problem.tree, problem.y, begins, problem.groups, problem.weights)


@dataclass(frozen=True, eq=False, slots=True)
class _Direction:
    """A step: of the prices [answers], the leaves' levels (leaves, 1), and both sides of all pairs."""

    s: Floats
    level: Floats
    v: Floats
    u: Floats


class _Iterates:
    """An interior point: prices s [answers], and pairs v, u > 0 whose products are to vanish together.

    v holds the leaves' increments h (leaves, cells + 1), which sum to their groups, and for p = 1 the parts q, r of the
    residuals of all answers that count. u holds T - level, the suffix sums of the prices on a leaf's path less the
    least one, and w - s, w + s. ``aim`` weighs the products: a cell's by its width.
    """

    def __init__(self, problem: JointSums, leaves: Ints, system: TreeSystem, even: float, done: int = 0):
        self.done, self._problem, self._leaves, self._system = done, problem, leaves, system
        self._groups = problem.groups[leaves].astype(np.float64)[:, None]
        self._absolute = isinstance(problem, JointSumsL1)
        self._weights = problem.answer_weights
        with_groups = np.repeat(problem.groups > 0, problem.begins.sum(axis=1))
        self._live = np.flatnonzero(with_groups & (self._weights > 0.0))
        self._size = leaves.size * (problem.widths.size + 1)
        self._start(even)

    def _start(self, even: float) -> None:
        problem, weights = self._problem, self._weights[self._live]
        widths = np.append(problem.widths, 1.0)
        shares = even * widths / widths.sum() + (1.0 - even) * self._first_shares()
        increments = self._groups * shares
        # A region without groups keeps its best prices: its row is zero in any case.
        self._s = problem.limited(problem.slopes(-problem.answers))
        self._s[self._live] = 0.0
        residual = (self._bucket_sums(increments) - problem.answers)[self._live]
        far = max(float(np.abs(residual).mean()), 1e-3) if residual.size else 1.0
        parts, slack = np.zeros((2, 0)), np.zeros((2, 0))
        typical = float((weights * residual * residual).mean()) if residual.size else 1.0
        if self._absolute:
            parts, slack = np.maximum([residual, -residual], 0.0) + far, np.array([weights, weights])
            typical = float((parts * slack).mean()) if residual.size else 1.0
        even_aim = np.tile(widths / widths.mean(), self._leaves.size)
        self._aim = np.append(even_aim, np.ones(parts.size))
        self._v = np.append(increments, parts)
        self._u = np.append(max(typical, 1e-12) * even_aim / increments.ravel(), slack)
        self._level = -self._increments(self._u).mean(axis=1, keepdims=True)
        self._missed = self._settle()

    def _first_shares(self) -> Floats:
        """Return the parts of all groups in each cell, by the own fit of the first region that was measured."""
        problem = self._problem
        measured = np.flatnonzero((problem.weights > 0.0) & (problem.groups > 0))
        if not measured.size:
            return np.full(problem.widths.size + 1, 1.0 / (problem.widths.size + 1))
        first = np.flatnonzero(problem.begins[measured[0]])
        spans = np.add.reduceat(problem.widths, first)
        row = np.repeat(problem.y[measured[0], first] / spans, np.diff(first, append=problem.widths.size))
        total = float(problem.groups[measured[0]])
        rising = np.maximum.accumulate(np.clip(row, 0.0, total))
        return np.diff(rising, prepend=0.0, append=total) / total

    @property
    def m(self) -> Floats:
        """Return the table of the increments, the leaves' rows (regions, cells)."""
        rows = self._increments(self._v).cumsum(axis=1)
        table = np.zeros(self._problem.y.shape)
        table[self._leaves] = np.minimum(rows[:, :-1] * (self._groups / rows[:, -1:]), self._groups)
        return table

    def _increments(self, pairs: Floats) -> Floats:
        """Return the part of the leaves' increments among all pairs (leaves, cells + 1)."""
        return pairs[: self._size].reshape(self._leaves.size, self._problem.widths.size + 1)

    def prices(self) -> Floats:
        """Return the prices of all answers."""
        return self._problem.limited(self._s)

    def take(self, rounds: int) -> None:
        """Take some steps; fewer where none leads on."""
        for _ in range(rounds):
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                if not self._step():
                    return
            self.done += 1

    def _step(self) -> bool:
        """Take one step; False where there is nothing to move, the equations break, or a bound is too near."""
        if not self._v.size:
            return False
        try:
            direction = self._equations()
        except np.linalg.LinAlgError:
            return False
        mean = float(self._v @ self._u / self._aim.sum())
        plain = direction(-self._v * self._u)
        primal, dual = self._lengths(plain)
        left = float((self._v + primal * plain.v) @ (self._u + dual * plain.u) / self._aim.sum())
        centre = max((left / mean) ** 3, 1e-6) * mean
        step = direction(centre * self._aim - self._v * self._u - plain.v * plain.u)
        lengths = self._lengths(step)
        if not min(lengths) >= _SHORT:
            back = direction(0.5 * mean * self._aim - self._v * self._u)
            if not min(self._lengths(back)) <= min(lengths):
                step, lengths = back, self._lengths(back)
        first, second = (min(1.0, _TOWARDS * length) for length in lengths)
        moved = self._v + first * step.v, self._u + second * step.u
        if not (max(first, second) > _LEAST and min(moved[0].min(), moved[1].min()) > 0.0):
            return False
        self._v, self._u = moved
        self._s, self._level = self._s + second * step.s, self._level + second * step.level
        self._missed = self._settle()
        return True

    def _settle(self) -> Floats:
        """Return by how much residuals miss those of the increments [live]; for p = 1 add it to their parts instead.

        Otherwise the rounding errors of a step would stay while the products vanish.
        """
        residual = (self._bucket_sums(self._increments(self._v)) - self._problem.answers)[self._live]
        if not self._absolute:
            return np.asarray(0.5 * self._s[self._live] / self._weights[self._live] - residual)
        parts = self._v[self._size :].reshape(2, -1)
        off = residual - (parts[0] - parts[1])
        parts += np.maximum([off, -off], 0.0)
        return np.zeros(off.size)

    def _lengths(self, step: _Direction) -> tuple[float, float]:
        """Return how far both sides of the pairs can go; for p = 2, where residuals are prices, both equally far."""
        first, second = _length(self._v, step.v), _length(self._u, step.u)
        return (first, second) if self._absolute else (min(first, second),) * 2

    def _equations(self) -> Callable[[Floats], _Direction]:
        """Factor Newton's equations; return how to solve them for a change of the products of the pairs.

        With D = v / u, a change s of the prices moves the increments by -D (B's + level) and their answers with them;
        what is left are equations in s alone, solved by ``TreeSystem`` and refined.
        """
        live, size, weights = self._live, self._size, self._weights[self._live]
        v, u, spread = self._v, self._u, self._v / self._u
        own = np.zeros(self._s.size)
        own[live] = self._s[live]
        slack = np.concatenate([(self._suffixes(own) - self._level).ravel(), *self._slacks(weights)])
        # Slacks of the size of rounding errors count as 0: the widest spreads would turn them into large steps.
        rounding = np.finfo(np.float64).eps * self._problem.widths.size * np.abs(slack)
        rounding[:size] = rounding[:size].max(initial=0.0)
        slack = np.where(np.abs(slack - u) <= rounding, 0.0, slack - u)
        increments = self._increments(spread)
        total = increments.sum(axis=1, keepdims=True)
        short = self._groups - self._increments(v).sum(axis=1, keepdims=True)
        parts = spread[size:].reshape(2, -1)
        theta = np.ones(own.size)
        theta[live] = parts.sum(axis=0) if self._absolute else 0.5 / weights
        self._system.factor(increments, theta)

        def tied(push: Floats) -> Floats:
            """Return the change of pushed increments, with their sums unchanged."""
            return np.asarray(increments * (push - (increments * push).sum(axis=1, keepdims=True) / total))

        def answered(change: Floats) -> Floats:
            """Return the answers' change with that of the increments, zeros where none counts."""
            out = np.zeros(own.size)
            out[live] = self._bucket_sums(change)[live]
            return out

        def applied(prices: Floats) -> Floats:
            """Return the equations' left side."""
            out = answered(tied(self._suffixes(prices)))
            out[live] += theta[live] * prices[live]
            return out

        def direction(products: Floats) -> _Direction:
            push = products / v - slack
            pushed = self._increments(push)
            base = tied(pushed) + increments * (short / total)
            right = answered(base)
            right[live] -= self._missed
            if self._absolute:
                right[live] -= parts[0] * push[size:].reshape(2, -1)[0] - parts[1] * push[size:].reshape(2, -1)[1]
            s = self._refine(right, applied)
            suffixes = self._suffixes(s)
            level = (short - (increments * (pushed - suffixes)).sum(axis=1, keepdims=True)) / total
            both = np.concatenate([(level - suffixes).ravel(), *((s[live], -s[live]) if self._absolute else ())])
            change = spread * (push + both)
            return _Direction(s, level, change, (products - u * change) / v)

        return direction

    def _refine(self, right: Floats, applied: Callable[[Floats], Floats]) -> Floats:
        """Return the solution of the equations, by conjugate gradients that the factors precondition."""
        best, left = np.zeros(right.size), right
        least = size = float(np.abs(right).max(initial=0.0))
        s, along, before = best, best, 1.0
        for _ in range(_REFINED):
            near = self._system.solve(left)
            weight = float(near @ left)
            along = near + (weight / before) * along
            moved = applied(along)
            curvature = float(along @ moved)
            if not (weight > 0.0 and curvature > 0.0):
                break
            s, left, before = s + (weight / curvature) * along, left - (weight / curvature) * moved, weight
            size = float(np.abs(left).max())
            if size < least:
                least, best = size, s
            if size <= _EXACT * float(np.abs(right).max()):
                break
        return best

    def _slacks(self, weights: Floats) -> tuple[Floats, ...]:
        prices = self._s[self._live]
        return (weights - prices, weights + prices) if self._absolute else ()

    def _bucket_sums(self, increments: Floats) -> Floats:
        """Return the answers of all regions [answers] to the leaves' increments."""
        table = np.zeros(self._problem.y.shape)
        table[self._leaves] = increments.cumsum(axis=1)[:, :-1]
        return self._problem.bucket_sums(self._problem.sums(table))

    def _suffixes(self, prices: Floats) -> Floats:
        """Return for each leaf the sums of the prices on its path from each cell on, and 0 (leaves, cells + 1)."""
        from coco_opt.kernels import joint_certificate

        cells = self._problem.cell_prices(prices)
        paths = joint_certificate.path_sums(self._problem.tree.parent, self._leaves, cells) + cells[self._leaves]
        sums = np.zeros((self._leaves.size, cells.shape[1] + 1))
        sums[:, :-1] = paths[:, ::-1].cumsum(axis=1)[:, ::-1]
        return sums


def _better(problem: JointSums, first: Answer[Any, Any], second: Answer[Any, Any]) -> Answer[Any, Any]:
    """Return the second answer, or the first where neither claims its optimum and its gap is less; seconds of both."""
    better, seconds = second, first.seconds + second.seconds
    if second.status is not Status.OPTIMAL:
        first_gap, second_gap = (
            problem.gap(np.asarray(answer.value), np.asarray(answer.multipliers)) for answer in (first, second)
        )
        better = first if first_gap < second_gap else second
    return replace(better, seconds=seconds)


def _length(values: Floats, change: Floats) -> float:
    """Return the part of a change, at most 1, after which positive values are not yet negative."""
    falls = change < 0.0
    return min(1.0, float((-values[falls] / change[falls]).min(initial=1.0)))
