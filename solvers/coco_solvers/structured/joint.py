"""Joint estimation by alternating directions."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import UnknownSolverError
from coco_opt.problem import Problem
from coco_opt.problems.joint import JointFit, JointL1, JointL2
from coco_opt.problems.tree import Tree
from coco_opt.solution import Answer, Status

if TYPE_CHECKING:
    from coco_opt.kernels.joint_rows import Passes


_WIDTH = 512  # cells of a block: long rows for vector instructions, blocks that stay near a core
_SIBLINGS = 32  # leaves of one parent that one thread adds up
_TASKS = 8  # parts of all rows for each thread, which may have to wait for a core
_ABSOLUTE = 0.3  # penalty times a level's displacement over weight, for p = 1; half or twice as much costs little
_LEAST = 0.03  # least displacement that counts, in mean residuals of a cell
_SQUARES = 3.0  # penalty over weight for p = 2; half or twice as much costs a few rounds
_SMALLEST = 1e-3  # penalty over the largest for p = 2: with smaller ones far noisier levels need thousands of rounds
_MORE = 0.5  # of the rounds taken, at most, until the gap is computed again
_OTHERS = (10.0, 0.1)  # of the penalties, tried for half as many rounds where the limit is met
_POLISH = 4  # rounds after which polishing ends, in those that reached the tolerance


@dataclass(frozen=True)
class AlternatingDirections:
    """Douglas-Rachford splitting, rounds of O(cells), stopped by the certified gap.

    The gap is brought below ``tolerance`` of the objective and then, for as long as that takes at most three times the
    rounds, below ``level_tolerance`` of the loss of that measured level whose loss is least (or 1): a few upper rows
    are a small part of an objective of thousands of leaves, and would be left loose. ``penalty`` scales the penalties,
    which are chosen from the data: for p = 1 a region's weight over how far separate monotone fits of its level are
    from adding up, for p = 2 three times its weight. Where ``max_iter`` rounds are not enough, half as many follow with
    ten times the penalties, and with a tenth of them. ``threads`` (None: all cores) do not change the answer.
    In squares, 211 regions of 99 cells take .16 CPU seconds, PIQP .96; in absolute values 2.4, HiGHS .7, whose factors
    no much larger tree allows.
    The start is every region's own fit. Among optima (p = 1) the answer is what it converges to: no corner of the
    optimal face, and measured midway between those with the fewest and the most entities.
    """

    tolerance: float = 1e-4
    level_tolerance: float = 0.01
    max_iter: int = 20_000
    penalty: float = 1.0
    threads: int | None = None

    name: ClassVar[str] = "alternating-directions"

    def solve(self, problem: Problem[Any, Any]) -> Answer[Any, Any]:
        """Solve one problem; UnknownSolverError for another type."""
        if not isinstance(problem, JointL1 | JointL2):
            raise UnknownSolverError(f"solver {self.name!r} answers joint_l1 and joint_l2, not {problem.kind}")
        start = perf_counter()
        measured, keep = problem.pruned()
        threads = max(1, min(self.threads or os.cpu_count() or 1, measured.y.shape[1], keep.size))
        with ThreadPoolExecutor(threads) as pool:

            def begin(factor: float) -> _Rounds:
                return _Rounds(measured, self.penalty * factor, pool, threads)

            search = Search(measured, begin(1.0), pool)
            status = search.run_all(begin, self.tolerance, self.level_tolerance, self.max_iter)
        prices = search.prices
        if keep.size < problem.tree.nodes:
            prices = np.zeros(problem.y.shape)
            prices[keep] = search.prices
        return Answer(problem.expand(search.point, keep), status, prices, search.done, perf_counter() - start)


class Search:
    """The best point and the best prices met so far, and the gap between them."""

    def __init__(self, problem: JointFit, rounds: _Rounds, pool: Executor) -> None:
        self.problem, self.rounds, self._pool = problem, rounds, pool
        self.point: Floats = np.zeros(0)
        self.prices: Floats = np.zeros(0)
        self._objective, self._bound = np.inf, -np.inf
        self._level, self._least = problem.tree.depth, 0.0
        self._before = 0  # rounds with other penalties

    @property
    def done(self) -> int:
        """Return how many rounds were taken in all."""
        return self._before + self.rounds.done

    def run_all(
        self, begin: Callable[[float], _Rounds], tolerance: float, level_tolerance: float, max_iter: int
    ) -> Status:
        """Run; where the limit is met, ``begin`` anew with other penalties. The best point and prices are of all."""
        status = self.run(tolerance, level_tolerance, max_iter)
        for factor in _OTHERS:
            if status is Status.ITERATION_LIMIT:
                self._before = self.done
                self.rounds = begin(factor)
                status = self.run(tolerance, level_tolerance, max_iter // 2)
        return status

    def run(self, tolerance: float, level_tolerance: float, max_iter: int) -> Status:
        """Take rounds until the gap is within the tolerances or a limit is met; look at it ever less often."""
        limit, status = max_iter, Status.ITERATION_LIMIT
        while True:
            gap = self.look()
            allowed, aim = self.aims(tolerance, level_tolerance)
            if gap <= allowed and status is not Status.OPTIMAL:
                status, limit = Status.OPTIMAL, min(limit, _POLISH * max(self.rounds.done, 10))
            if gap <= aim or self.rounds.done >= limit:
                return status
            if not np.isfinite(gap):
                return Status.NUMERICAL_TROUBLE
            more = self.rounds.done * min((gap / aim) ** 0.5 - 1.0, _MORE) if aim > 0.0 else 0.0
            self.rounds.take(min(max(20, self.rounds.done // 8, int(more)), limit - self.rounds.done))

    def aims(self, tolerance: float, level_tolerance: float) -> tuple[float, float]:
        """Return the gap that counts as optimal, and the gap that leaves no level loose."""
        objective = max(self.problem.objective_scale, self._objective)
        allowed = 0.99 * tolerance * objective  # the judge sums in another order
        return allowed, min(allowed, level_tolerance * self._least)

    def look(self) -> float:
        """Judge the present point and prices, keep the best of both, and return the gap between these."""
        point = self.problem.tree.sums(self.rounds.m)
        losses = self.problem.losses(point)
        objective = float(losses.sum())
        if objective < self._objective or not self.point.size:
            self._objective, self.point = objective, point
            self._least = self._least_loss(losses)
        prices = self.rounds.prices()
        gap = self.problem.tighten(prices, point, self._pool)
        if objective - gap > self._bound or not self.prices.size:
            self._bound, self.prices = objective - gap, prices
        return min(gap, self._objective - self._bound)

    def _least_loss(self, losses: Floats) -> float:
        """Return the loss of the measured level whose loss is least, at least the objective's scale."""
        measured = np.unique(self._level[self.problem.weights > 0.0])
        return max(self.problem.objective_scale, float(np.bincount(self._level, losses)[measured].min()))


class _Rounds:
    """The state of the splitting, in the terms of ``coco_opt.kernels.joint_rows``."""

    def __init__(self, problem: JointFit, penalty: float, pool: ThreadPoolExecutor, threads: int) -> None:
        from coco_opt.kernels import joint_rounds, joint_rows

        self.done = 0
        self._kernel, self._pool, self._problem = joint_rows, pool, problem
        tree, (regions, cells) = problem.tree, problem.y.shape
        self._row_cuts = _cuts(np.arange(regions + 1), threads)
        self._cells = _cuts(np.arange(cells + 1), threads)
        self._width = min(cells, _WIDTH)
        self._top = problem.groups.astype(np.float64)
        self._scale = problem.cell_weights
        self.m: Floats = np.empty((regions, cells))
        self._separate(problem.y, np.zeros(regions))
        self._absolute = isinstance(problem, JointL1)
        self._step = 1.0 if self._absolute else 1.8
        self._penalty = penalty * self._penalties()
        self._passes = _passes(tree, *joint_rounds.pass_weights(tree.first_child, self._penalty))
        self._inner = np.flatnonzero(~tree.is_leaf)
        self._runs = _cuts(self._passes.begin, _TASKS * threads if threads > 1 else 1)
        weights = problem.weights
        self._state = joint_rows.State(
            c=self.m.copy(),
            near=self.m.copy() if self._absolute else np.zeros((0, cells)),
            m=self.m,
            y=problem.y,
            weight=weights / self._penalty if self._absolute else 2.0 * weights / (2.0 * weights + self._penalty),
            top=self._top,
            scale=self._scale if (self._scale != self._scale[0]).any() else np.zeros(0),
            x=np.zeros((self._inner.size, cells)),
            off=np.zeros((max(self._inner.size, 1), cells)),
            handed=np.zeros((self._passes.owner.size, cells)),
        )
        if not self._absolute:
            self._separate(self._state.c, self._state.weight)
        self._rows(0.0)

    def _penalties(self) -> Floats:
        """Return one penalty a region; regions that were not measured get the least of the others."""
        weights = self._problem.weights
        if self._absolute:
            chosen = _ABSOLUTE * weights / self._displacements()
        else:
            chosen = _SQUARES * np.maximum(weights, _SMALLEST * weights.max())
        return np.where(weights > 0, chosen, chosen[weights > 0].min())

    def _displacements(self) -> Floats:
        """Return for each region the mean distance, over its level, of separate fits from tables that add up.

        Levels that nearly add up count as a small part of the typical residual of a cell, a single region as all of it.
        """
        from coco_opt.kernels import joint_rounds

        tree, residual = self._problem.tree, np.abs(self.m - self._problem.y).mean(axis=1)
        typical = float(residual[self._problem.weights > 0].mean()) or 1.0
        passes, depth = joint_rounds.pass_weights(tree.first_child, np.ones(tree.nodes)), tree.depth
        far = joint_rounds.displacement(tree.first_child, tree.parent, *passes, self.m, self._width)
        level = np.bincount(depth, far) / np.bincount(depth)
        return np.asarray(np.maximum(level, typical if tree.nodes == 1 else _LEAST * typical)[depth], np.float64)

    def take(self, rounds: int) -> None:
        """Take some rounds; afterwards ``m`` belongs to the state."""
        for _ in range(rounds):
            self._reconcile()
            self._rows(self._step)
        self.done += rounds

    def prices(self) -> Floats:
        """Return the prices of all cells that the state implies."""
        if self._absolute:
            prices, far = self._state.near - self._problem.y, self._state.weight[:, None]
            np.clip(prices, -far, far, out=prices)
            prices *= self._penalty[:, None]
        else:
            prices = 2.0 * self._problem.weights[:, None] * (self.m - self._problem.y)
        prices *= self._scale
        return prices

    def _separate(self, c: Floats, toward: Floats) -> None:
        """Make every row of c, moved towards y by a part, monotone from scratch."""
        from coco_opt.kernels import joint_rounds

        y = self._problem.y

        def part(begin: int, end: int) -> None:
            joint_rounds.monotone(c, y, toward, self._scale, self._top, begin, end, self.m)

        self._everywhere(part, self._row_cuts)

    def _rows(self, step: float) -> None:
        kernel = self._kernel.rows_absolute if self._absolute else self._kernel.rows_squares
        self._everywhere(lambda begin, end: kernel(self._passes, self._state, step, begin, end), self._runs)

    def _reconcile(self) -> None:
        def part(begin: int, end: int) -> None:
            self._kernel.reconcile(self._passes, self._state, self._inner, begin, end, self._width)

        self._everywhere(part, self._cells)

    def _everywhere(self, part: Callable[[int, int], None], cuts: list[int]) -> None:
        list(self._pool.map(part, cuts[:-1], cuts[1:]))


def _passes(tree: Tree, own: Floats, share: Floats) -> Passes:
    """Return the tree for the kernels, its rows in runs: a region with children alone, leaves with their siblings."""
    from coco_opt.kernels.joint_rows import Passes

    leaf, parent = tree.is_leaf, tree.parent
    begin: list[int] = []
    for v in range(tree.nodes):
        if not (begin and leaf[v] and leaf[begin[-1]] and parent[v] == parent[begin[-1]] and v - begin[-1] < _SIBLINGS):
            begin.append(v)
    inner = np.where(leaf, -1, np.cumsum(~leaf) - 1)
    hands = leaf[begin]
    into = np.where(hands, np.cumsum(hands) - 1, -1)
    owner = np.maximum(inner[parent[begin]], 0)[hands]
    return Passes(parent, inner, own, share, np.append(begin, tree.nodes), into, owner)


def _cuts(begin: Ints, parts: int) -> list[int]:
    """Return where to cut runs that begin at ``begin``, the end behind them, into parts of about as many rows."""
    goals = [int(begin[-1]) * k // parts for k in range(parts + 1)]
    return sorted({int(position) for position in np.searchsorted(begin, goals)})
