"""Isotonic regression by its own algorithms: pooling for p = 2, divide and conquer for p = 1."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.problems import IsotonicL1, IsotonicL2
from coco_solvers.structured.kernel_solver import KernelSolver

_SAFE_ENTRIES = 2**9  # so many integers of at most 2^53 have a sum below 2^62


def _small(y: Ints) -> NDArray[Any]:
    """Return integers as they are where their sum fits in int64, else as float64."""
    return y if float(y.max()) * y.size < 2.0**62 else y.astype(np.float64)


@dataclass(frozen=True)
class PoolAdjacentViolators(KernelSolver):
    """Pool adjacent violators, O(n); bounds clip the unbounded fit, which is optimal."""

    tolerance: float = 1e-9

    name: ClassVar[str] = "pav"
    problem = IsotonicL2

    def fit(self, problem: IsotonicL2) -> Floats:
        """Return the fit (n,) as float64."""
        from coco_opt.kernels import isotonic_l2

        y = problem.y
        if y.dtype == np.int64 and y.size >= _SAFE_ENTRIES and problem.scale * y.size >= 2.0**62:
            # Block sums would overflow; what the values have in common is taken out of them exactly.
            base = int(y.min())
            fitted = isotonic_l2.fit(_small(y - base), problem.weights)
            return np.clip(fitted + base, problem.lower, problem.upper)
        return isotonic_l2.fit(y, problem.weights, problem.lower, problem.upper)


@dataclass(frozen=True)
class SciPyPava(KernelSolver):
    """SciPy's ``isotonic_regression``, clipped to the bounds."""

    tolerance: float = 1e-9

    name: ClassVar[str] = "scipy-pava"
    problem = IsotonicL2

    def fit(self, problem: IsotonicL2) -> Floats:
        """Return the fit (n,) as float64."""
        from scipy.optimize import isotonic_regression

        if problem.y.size == 0:
            return np.zeros(0)
        fitted = isotonic_regression(problem.y, weights=problem.weights).x
        return np.asarray(np.clip(fitted, problem.lower, problem.upper))


@dataclass(frozen=True)
class DivideAndConquer(KernelSolver):
    """Divide and conquer on the value range, O(n log range), exact, with the problem's tie rule."""

    tolerance: float = 1e-9

    name: ClassVar[str] = "divide-and-conquer"
    problem = IsotonicL1

    def fit(self, problem: IsotonicL1) -> NDArray[Any]:
        """Return the upper or lower fit, or their mean (float64)."""
        if problem.ties == "midpoint":
            middle: Floats = 0.5 * (self._extreme(problem, upper=True) + self._extreme(problem, upper=False))
            return middle
        return self._extreme(problem, upper=problem.ties == "upper")

    def _extreme(self, problem: IsotonicL1, *, upper: bool) -> NDArray[Any]:
        from coco_opt.kernels import isotonic_l1

        y, w, lower, upper_bound = problem.y, problem.weights, problem.lower, problem.upper
        if y.dtype != np.int64 or not (_integer_or_none(lower) and _integer_or_none(upper_bound)):
            return isotonic_l1.fit_real(y, w, lower, upper_bound, upper=upper)
        lo = int(lower) if isfinite(lower) else None
        hi = int(upper_bound) if isfinite(upper_bound) else None
        if w is None:
            return isotonic_l1.fit(y, lo, hi, upper=upper)
        return isotonic_l1.fit_weighted(y, w, lo, hi, upper=upper)


def _integer_or_none(bound: float) -> bool:
    return not isfinite(bound) or bound.is_integer()
