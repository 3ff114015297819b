"""Joint estimation from sums over buckets by alternating directions."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats
from coco_opt.errors import UnknownSolverError
from coco_opt.problem import Problem
from coco_opt.problems.joint_sums import JointSums, JointSumsL1, JointSumsL2
from coco_opt.solution import Answer
from coco_solvers.structured.joint import Search, depths, displacements

_WIDTH = 512  # cells of a block, as for single cells
_STEP = 1.7  # over-relaxation: 1 takes twice the rounds


@dataclass(frozen=True)
class AlternatingSums:
    """Douglas-Rachford splitting in the metric of the cells' widths, rounds of O(cells), stopped by the certified gap.

    The method makes copies of the table equal: one near the measurements, which moves all cells of a bucket by one
    amount; one monotone in its rows; one that adds up. Leaves measured in every cell have best prices in closed form;
    those with wider buckets do not, so the gap is that of the splitting's own prices and falls more slowly:
    ``tolerance`` is 1e-3 of the objective. ``level_tolerance``, ``max_iter`` and ``penalty`` are those of
    ``AlternatingDirections``. Where buckets leave a choice, the answer is what the splitting converges to from
    every region's own fit of its buckets' means, which rises evenly between their middles.
    """

    tolerance: float = 1e-3
    level_tolerance: float = 0.05
    max_iter: int = 40_000
    penalty: float = 1.0

    name: ClassVar[str] = "alternating-sums"

    def solve(self, problem: Problem[Any, Any]) -> Answer[Any, Any]:
        """Solve one problem; UnknownSolverError for another type."""
        if not isinstance(problem, JointSumsL1 | JointSumsL2):
            raise UnknownSolverError(f"solver {self.name!r} answers joint estimation from sums, not {problem.kind}")
        start = perf_counter()
        search = Search(problem, _Rounds(problem, self.penalty))
        status = search.run_all(
            lambda factor: _Rounds(problem, self.penalty * factor),
            self.tolerance,
            self.level_tolerance,
            self.max_iter,
        )
        return Answer(search.point, status, search.prices, search.done, perf_counter() - start)


class _Rounds:
    """The state of the splitting: ``m`` monotone, two copies folded with their duals, and the last shifts."""

    def __init__(self, problem: JointSums, penalty: float) -> None:
        from coco_opt.kernels import joint_rounds

        self.done = 0
        self._kernel, self._problem = joint_rounds, problem
        regions, cells = problem.y.shape
        counts = problem.begins.sum(axis=1)
        self._lengths = np.diff(problem.starts, append=problem.y.size)
        self._spans = np.add.reduceat(np.tile(problem.widths, regions), problem.starts).astype(np.float64)
        self._width = min(cells, _WIDTH)
        self.m = problem.nearest_rows(self._over_cells(problem.answers / self._spans))
        own = penalty * self._penalties(counts)
        self._penalty = np.repeat(own, counts)
        self._passes = joint_rounds.pass_weights(problem.tree.first_child, own)
        self.m = self._rising()
        self._ordered, self._near = self.m.copy(), self.m.copy()
        self._shift = problem.shifts(problem.residuals(self._near), self._spans, self._penalty)

    def _over_cells(self, values: Floats) -> Floats:
        """Return a table that has in every cell the value of its bucket."""
        return np.repeat(values, self._lengths).reshape(self._problem.y.shape)

    def _rising(self) -> Floats:
        """Return the start: every region's own fit, which rises evenly between the middles of its buckets.

        Moving all cells of a bucket by one amount keeps this shape as far as order and tree allow.
        """
        problem = self._problem
        ends = np.cumsum(problem.widths).astype(np.float64)
        cells, rows = ends - 0.5 * problem.widths, np.empty(self.m.shape)
        for v, begins in enumerate(problem.begins):
            first = np.flatnonzero(begins)
            begin = (ends - problem.widths)[first]
            middles = np.append(0.5 * (begin + np.append(begin[1:], ends[-1])), ends[-1] + 0.5)
            rows[v] = np.interp(cells, middles, np.append(self.m[v, first], problem.groups[v]))
        return rows

    def _penalties(self, counts: NDArray[Any]) -> Floats:
        """Return one penalty a region: its answers' typical slope over how far its level is from adding up."""
        problem, depth = self._problem, depths(self._problem.tree)
        residual = problem.residuals(self.m)
        region = np.repeat(np.arange(problem.tree.nodes), counts)
        mean = np.bincount(region, np.abs(residual / self._spans)) / counts
        typical = float(mean[problem.weights > 0.0].mean()) or 1.0
        far = displacements(problem.tree, self.m, self._width, typical)
        slope = problem.weights
        if isinstance(problem, JointSumsL2):
            slopes = np.bincount(region, np.abs(problem.slopes(residual))) / counts
            slope = (np.bincount(depth, slopes) / np.bincount(depth))[depth]
            slope = np.maximum(slope, 2.0 * problem.weights * typical)
        chosen = slope / far
        some = problem.weights > 0.0
        return np.where(some, chosen, chosen[some].min())

    def take(self, rounds: int) -> None:
        """Take some rounds."""
        tree, problem = self._problem.tree, self._problem
        for _ in range(rounds):
            near = self._near + self._over_cells(self._shift)
            sums = near + self.m - 0.5 * (self._near + self._ordered)
            # Of two equal tables the kernel's round leaves their projection.
            self._kernel.reconcile_squares(
                tree.first_child, tree.parent, *self._passes, 1.0, 0, sums.shape[1], sums, sums, self._width
            )
            self._ordered += _STEP * (sums - self.m)
            self._near += _STEP * (sums - near)
            self.m = problem.nearest_rows(self._ordered)
            self._shift = problem.shifts(problem.residuals(self._near), self._spans, self._penalty)
        self.done += rounds

    def prices(self) -> Floats:
        """Return the prices of all answers that the state implies."""
        prices: Floats = -self._penalty * self._shift
        return prices
