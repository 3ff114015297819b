"""Integer tree fits by merged slopes in windows, cells side by side on all cores."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import UnknownSolverError
from coco_opt.kernels.arrays import read_only
from coco_opt.problem import Problem
from coco_opt.problems.integer_tree import IntegerTree
from coco_opt.solution import Answer, Status

_MANY = 100_000  # windows of a cell: a guard for costs that only differ by rounding, which the gap shows
_BITS, _DIGITS = 40, 30  # of a weight, in all and its own: then sums of equal weights are equal, and ties are seen


@dataclass(frozen=True)
class MergedSlopesInteger:
    """Exact for p = 1 and 2; few windows of O(regions x height) a cell; ``threads`` (None: all cores) change nothing.

    Of several optima for p = 1 it takes one with the least squares, weighted by w^2, as variances are. 111 regions of
    60 cells take 4 CPU ms for p = 1 and 3 for p = 2; PIQP takes 15 and 64, HiGHS 24 and 119.
    """

    tolerance: float = 1e-9
    threads: int | None = None

    name: ClassVar[str] = "merged-slopes-integer"

    def solve(self, problem: Problem[Any, Any]) -> Answer[Any, Any]:
        """Solve one problem; UnknownSolverError for another type."""
        if not isinstance(problem, IntegerTree):
            kinds = "integer_tree_l1 and integer_tree_l2"
            raise UnknownSolverError(f"solver {self.name!r} answers {kinds}, not {problem.kind}")
        start = perf_counter()
        value, windows = self._fit(problem)
        return Answer(value, Status.OPTIMAL, iterations=windows, seconds=perf_counter() - start)

    def _fit(self, problem: IntegerTree) -> tuple[Ints, int]:
        from coco_opt.kernels import integer_tree

        weights = on_grid(problem.shares.ravel())
        x, y = np.ascontiguousarray(problem.start().T), read_only(np.ascontiguousarray(problem.y.T))
        tree = integer_tree.Tree(problem.tree.parent, problem.tree.first_child)
        cost = integer_tree.Cost(weights, weights**2, problem.power == 2)
        bounds = integer_tree.Bounds(problem.least, problem.most)
        threads = max(1, min(self.threads or os.cpu_count() or 1, len(y)))
        cuts = [len(y) * part // threads for part in range(threads + 1)]

        def part(k: int) -> int:
            return integer_tree.improve(tree, cost, bounds, y, x, _MANY, cuts[k], cuts[k + 1])

        with ThreadPoolExecutor(threads) as pool:
            windows = sum(pool.map(part, range(threads)))
        return np.ascontiguousarray(x.T), windows


def on_grid(shares: Floats) -> Floats:
    """Return weights of at most 1 rounded to multiples of 2^-40, small weights to 30 binary digits of their own."""
    _, exponent = np.frexp(shares)
    bits = np.maximum(_BITS, _DIGITS - exponent)
    return np.asarray(np.ldexp(np.rint(np.ldexp(shares, bits)), -bits), dtype=np.float64)
