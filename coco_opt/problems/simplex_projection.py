"""Projection onto a scaled simplex: the naive estimator's post-processing (Kuo et al. 2018, section 4.1).

::

    minimise  sum_i (x_i - y_i)^2   subject to   x >= 0,  sum_i x_i = total

The multiplier is one number nu for the sum; those of x >= 0 follow as mu_i = max(0, nu - 2 y_i). With
z_i = max(y_i - nu / 2, 0) the certified gap is ``sum (x_i - z_i)^2 + mu_i x_i``, every term nonnegative. It refers to
the total of x itself: a sum of doubles meets the required total only up to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from coco_opt.array_types import Floats
from coco_opt.errors import ProblemError
from coco_opt.forms import Formulation, LinearProgram, QuadraticProgram
from coco_opt.problem import MAX_MAGNITUDE, Problem, at_most_one, checked_vector, plain_answer


@dataclass(frozen=True, eq=False, init=False)
class SimplexProjection(Problem[Floats, float]):
    """Euclidean projection of y (n,) onto nonnegative vectors with a fixed total (groups).

    Parameters
    ----------
    y : array_like, shape (n,)
        The point to project; finite, not empty.
    total : float
        The sum of the projection; finite, not negative.

    Raises
    ------
    ProblemError
        ``y`` is empty or not finite, the total is negative or not finite, or one of them exceeds 1e100.

    Notes
    -----
    The naive estimator of Kuo et al. 2018, section 4.1. The solution is unique, float64 (n,).

    Examples
    --------
    >>> from coco_opt import SimplexProjection, solve
    >>> solve(SimplexProjection([3.0, 1.0], 2)).value.tolist()
    [2.0, 0.0]
    """

    y: Floats
    total: float

    kind: ClassVar[str] = "simplex_projection"
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (QuadraticProgram,)

    def __init__(self, y: ArrayLike, total: float) -> None:
        object.__setattr__(self, "y", checked_vector(y, "y"))
        object.__setattr__(self, "total", float(total))
        if self.y.size == 0:
            raise ProblemError("y must not be empty: no vector without entries has a total")
        if not 0 <= self.total < np.inf:
            raise ProblemError("total must be a nonnegative number")
        # Squares of the total and of the largest number are finite.
        if max(self.total, float(np.abs(self.y).max())) > MAX_MAGNITUDE:
            raise ProblemError(f"numbers and total must not exceed {MAX_MAGNITUDE:g} in magnitude: rescale")

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        """Return projections with ties, with zeros, with total 0 and of counts in billions."""
        return {
            "tiny": cls([2, 0, -1], 2),
            "inside": cls([1, 2, 3], 6),
            "zeros": cls([5.0, -1.0, 0.25, 4.0, -3.0], 6),
            "ties": cls([1, 1, 1, 1], 2),
            "nothing": cls([1, -2, 3], 0),
            "one-cell": cls([-4], 3),
            "large-counts": cls([3e9, -2, 5e9, 7], 8e9 + 1),
        }

    @property
    def variables(self) -> int:
        """Return the number of cells n."""
        return self.y.size

    @property
    def scale(self) -> float:
        """Return the total, at least 1."""
        return max(1.0, self.total)

    def accept(self, answer: Any) -> Floats:
        """Return the answer as float64."""
        return np.asarray(plain_answer(answer), dtype=np.float64)

    def violation(self, x: Floats) -> float:
        """Return the largest negative entry or the error of the sum."""
        x = self.accept(x)
        if x.shape != (self.variables,) or not np.isfinite(x).all():
            return np.inf
        error = abs(float(x.sum()) - self.total)
        # A sum of n terms is exact up to rounding only: an error of that size is no violation.
        rounding = 4.0 * np.finfo(np.float64).eps * float(np.abs(x).sum())
        return max(0.0, -float(x.min()), 0.0 if error <= rounding else error)

    def repair(self, x: Floats) -> Floats:
        """Return the projection of x onto the feasible set; a wrong shape comes back unchanged."""
        if x.shape != (self.variables,) or not np.isfinite(x).all():
            return x
        from coco_opt.kernels import simplex

        return simplex.project(np.ascontiguousarray(x, dtype=np.float64), self.total)[0]

    @property
    def resolution(self) -> float:
        """Return the number of cells times the square of the last digit of a double at the total's size."""
        return self.variables * (float(np.finfo(np.float64).eps) * self.scale) ** 2

    @property
    def objective_scale(self) -> float:
        """Return the largest square of an entry or the total, at most 1."""
        return at_most_one(max(self.total, float(np.abs(self.y).max())) ** 2)

    def objective(self, x: Floats) -> float:
        """Return the squared distance to y."""
        residual = x - self.y
        return float(np.einsum("i,i->", residual, residual))

    def multipliers(self, x: Floats) -> float:
        """Rebuild nu from x: twice the mean shift of the positive entries."""
        from coco_opt.kernels import simplex

        return float(simplex.multiplier(x, self.y))

    def gap(self, x: Floats, multipliers: float) -> float:
        """Return the certified gap of the module docstring."""
        from coco_opt.kernels import simplex

        return float(simplex.gap(x, self.y, multipliers))

    def formulate(self, form: type[LinearProgram]) -> Formulation[Floats, float]:
        """Write the quadratic program in the residual u = x - y, whose optimum is the objective itself."""
        if form is not QuadraticProgram:
            raise self._no_form(form)
        from scipy.sparse import csc_array, eye_array

        n = self.y.size
        missing = np.array([self.total - float(self.y.sum())])
        program = QuadraticProgram(
            P=csc_array(2.0 * eye_array(n)),
            c=np.zeros(n),
            A=csc_array(np.ones((1, n))),
            row_lower=missing,
            row_upper=missing,
            lower=-self.y,
            upper=np.full(n, np.inf),
        )
        return Formulation(program, lambda u: self.y + u, lambda dual: -float(dual.rows[0]), in_residuals=True)
