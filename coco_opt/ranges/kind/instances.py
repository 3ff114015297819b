"""The problem that an estimation of ranges poses, cut to any size, and a wrong answer to it.

Simulated counts over a public domain, to compare solvers and to audit without reading the private values.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import UnknownSolverError
from coco_opt.problem import Problem
from coco_opt.problems import TreeLeastSquares
from coco_opt.ranges.estimating.universal import least_squares
from coco_opt.ranges.interval_counts import IntervalCounts
from coco_opt.releases.kind import Instance
from coco_opt.solution import Answer, Status
from coco_opt.solving import solve


def instances(counts: IntervalCounts, *, nonnegative: bool) -> tuple[Instance, ...]:
    """Return least squares on the tree; cut, on its first nodes, the widest intervals."""
    problem = least_squares(counts, nonnegative=nonnegative)

    def cut(size: int) -> TreeLeastSquares:
        first = slice(max(2, size))
        return TreeLeastSquares(
            problem.tree.parent[first], problem.y[first], problem.variance[first], lower=problem.lower[first]
        )

    return (Instance(TreeLeastSquares.kind, problem.variables, cut, ShiftedLeaf()),)


@dataclass(frozen=True)
class ShiftedLeaf:
    """The best answer with its last leaf moved up: its sums hold, and it is wrong; claims to be optimal."""

    tolerance: float = 1e-9
    shift: float = 1.0

    name = "shifted leaf"

    def solve(self, problem: Problem[Any, Any]) -> Answer[Floats, Any]:
        """Return the shifted answer; UnknownSolverError for anything but least squares on a tree."""
        start = perf_counter()
        if not isinstance(problem, TreeLeastSquares):
            raise UnknownSolverError(f"{self.name!r} cannot express {problem.kind}")
        value = np.array(solve(problem).value, dtype=np.float64)
        value[-1] += self.shift
        return Answer(problem.tree.sums(value), Status.OPTIMAL, seconds=perf_counter() - start)


_SEED = 2010
_ENTITIES = 40  # a cell, on average


def generated_cells(cells: int) -> Ints:
    """Return counts int64 (cells,): two humps over a thin ground with gaps; the same for each number of cells."""
    rng = np.random.default_rng([_SEED, cells])
    position = (np.arange(cells) + 0.5) / cells
    humps = np.exp(-(((position - 0.3) / 0.08) ** 2)) + 0.5 * np.exp(-(((position - 0.7) / 0.15) ** 2))
    weights = humps + 0.02 * (rng.random(cells) < 0.5)
    counts: Ints = rng.poisson(_ENTITIES * cells * weights / weights.sum()).astype(np.int64)
    return counts
