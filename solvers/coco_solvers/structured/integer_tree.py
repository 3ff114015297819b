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
from coco_opt.problems.integer_tree import IntegerTree, passes
from coco_opt.solution import Answer, Status

_FEW = 12  # windows of a cell before a closer start is worth its price: most cells take fewer
_MANY = 100_000  # windows of a cell in all: a guard for costs that only differ by rounding, which the gap shows
_BITS, _DIGITS = 40, 30  # of a weight, in all and its own: then sums of equal weights are equal, and ties are seen


@dataclass(frozen=True)
class MergedSlopesInteger:
    """Exact for p = 1 and 2; few windows of O(regions x height) a cell; ``threads`` (None: all cores) change nothing.

    Of several optima for p = 1 it takes one with the least squares, weighted by w^2, as variances are.
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
        bounds = integer_tree.Bounds(problem.least, problem.most, problem.root is not None)
        threads = max(1, min(self.threads or os.cpu_count() or 1, len(y)))
        cuts = [len(y) * part // threads for part in range(threads + 1)]
        done, limit = np.zeros(len(y), np.bool_), _FEW

        def part(k: int) -> int:
            return integer_tree.improve(tree, cost, bounds, y, x, done, limit, cuts[k], cuts[k + 1])

        with ThreadPoolExecutor(threads) as pool:
            windows = sum(pool.map(part, range(threads)))
            far = np.flatnonzero(~done)
            if far.size:
                limit, x[far] = _MANY, closer_start(problem, far).T
                windows += sum(pool.map(part, range(threads)))
        return np.ascontiguousarray(x.T), windows


def on_grid(shares: Floats) -> Floats:
    """Return weights of at most 1 rounded to multiples of 2^-40, small weights to 30 binary digits of their own."""
    _, exponent = np.frexp(shares)
    bits = np.maximum(_BITS, _DIGITS - exponent)
    return np.asarray(np.ldexp(np.rint(np.ldexp(shares, bits)), -bits), dtype=np.float64)


def closer_start(problem: IntegerTree, cells: Ints) -> Ints:
    """Return a point (regions, cells) next to the optimum in some cells, from real fits of one cell after another.

    p = 2: bounded least squares, rounded. p = 1: an optimum, then the least squares among all of them: its prices show
    on which side of its measurement each region may lie (complementary slackness).
    """
    from coco_opt.kernels import tree_bounded_l1, tree_bounded_l2

    tree, shares = problem.tree, problem.shares.ravel()
    real = np.empty((tree.nodes, cells.size))
    for k, cell in enumerate(cells):
        y = np.ascontiguousarray(problem.y[:, cell])
        least, most = problem.least.astype(np.float64), problem.most.astype(np.float64)
        if problem.root is not None:
            least[0] = most[0] = problem.root[cell]
        if problem.power == 1:
            x = tree_bounded_l1.fit(tree.parent, tree.first_child, y, shares, least, most)
            least, most = _optimal_sides(problem, x, y, least, most)
        precision = shares ** (3 - problem.power)
        real[:, k], _ = tree_bounded_l2.fit(tree.parent, tree.first_child, y.astype(np.float64), precision, least, most)
    root = None if problem.root is None else problem.root[cells]
    return passes.within(tree, passes.rounded(tree, real, root), problem.least, problem.most, root)


def _optimal_sides(problem: IntegerTree, x: Ints, y: Ints, least: Floats, most: Floats) -> tuple[Floats, Floats]:
    """Return the bounds (regions,) that hold for every optimum of absolute values, from one of them."""
    shares = problem.shares.ravel()
    up, down = np.where(x >= y, shares, -shares), np.where(x > y, shares, -shares)
    low, high = np.where(x >= most, -np.inf, -up), np.where(x <= least, np.inf, -down)
    lam = passes.prices(problem.tree, low[:, None], high[:, None]).ravel()
    d = lam - np.append(0.0, lam[problem.tree.parent[1:]])
    kink, tie = np.clip(y, least, most), 1e-9
    bottom = np.select([d >= shares - tie, d > -shares - tie], [least, kink], most)
    top = np.select([d <= tie - shares, d < shares + tie], [most, kink], least)
    return bottom, top
