"""Wrong answers put into a comparison to be caught: feasible, plausible, and claimed to be optimal."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.problem import Problem
from coco_opt.problems import IsotonicL2, TopdownSplit
from coco_opt.solution import Answer, Status
from coco_opt.solver import solve

PLANTED = ("corrupted pav", "even split")


@dataclass(frozen=True)
class CorruptedPav:
    """Pool adjacent violators with a shifted upper half: feasible, plausible, and wrong; claims to be optimal."""

    tolerance: float = 1e-9
    shift: float = 1.0

    name = PLANTED[0]

    def solve(self, problem: Problem[Any, Any]) -> Answer[NDArray[np.float64], Any]:
        """Return the kernel's answer with its larger half moved up (or its smaller half down, at the bound)."""
        start = perf_counter()
        assert isinstance(problem, IsotonicL2)
        fit = np.array(solve(problem).value, dtype=np.float64)
        middle = fit.size // 2
        if middle < fit.size and fit[-1] + self.shift <= problem.upper:
            fit[middle:] += self.shift
        else:
            fit[: middle + 1] = np.maximum(problem.lower, fit[: middle + 1] - self.shift)
        return Answer(fit, Status.OPTIMAL, seconds=perf_counter() - start)


@dataclass(frozen=True)
class EvenSplit:
    """Every child gets the same part of its parent: it adds up, and has nothing to do with what was measured."""

    tolerance: float = 1e-6

    name = PLANTED[1]

    def solve(self, problem: Problem[Any, Any]) -> Answer[NDArray[np.float64], Any]:
        """Return the parent's table divided by the number of children."""
        start = perf_counter()
        assert isinstance(problem, TopdownSplit)
        assert problem.parent is not None
        even = np.tile(problem.parent / problem.shape[0], (problem.shape[0], 1))
        return Answer(even, Status.OPTIMAL, seconds=perf_counter() - start)
