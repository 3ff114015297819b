"""Least squares over a scaled simplex: nonnegative coefficients with a fixed sum.

::

    minimise  sum_i (A x - y)_i^2   subject to   x >= 0,  sum_j x_j = total

``SimplexProjection`` is the case in which A is the identity. For any vector s (m,), g = 2 A' s, and any number nu that
no entry of g falls below, the certified gap of x with residuals r = A x - y is::

    sum_i (r_i - s_i)^2 + sum_j x_j (g_j - nu)

Every term is nonnegative, and |A z - y|^2 >= 2 s' (A z - y) - s' s >= total nu - 2 s' y - s' s for every z on the
simplex. With s = r it is the duality gap of Frank and Wolfe (1956; Jaggi 2013, section 2). There the last digits of x
cost the square of a column's length, so that s = r proves nothing about columns of very different lengths; s is then
moved to the nearest vector for which g is level where x is positive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from coco_opt.array_types import Floats
from coco_opt.errors import ProblemError
from coco_opt.forms import Formulation, LinearProgram, ProgramDual, QuadraticProgram
from coco_opt.problem import at_most_one, checked_vector
from coco_opt.problems.simplex_projection import SimplexProblem


@dataclass(frozen=True, eq=False, init=False)
class SimplexLeastSquares(SimplexProblem):
    """Least squares with nonnegative coefficients of a fixed sum: ``SimplexLeastSquares(A, y, total)``.

    Minimise sum_i (A x - y)_i^2 subject to x >= 0 and sum_j x_j = total.

    Parameters
    ----------
    A : array_like, shape (m, n)
        The design matrix; finite, with at least one column.
    y : array_like, shape (m,)
        The responses; finite.
    total : float, default 1
        The sum of the coefficients; finite, not negative.

    Raises
    ------
    ProblemError
        The shapes do not fit, a number is not finite, the total is negative or not finite, or the entries of A, those
        of A times the total, or those of y exceed 1e100.

    Notes
    -----
    The fitted values A x are unique; x is unique where the columns of A are affinely independent. Solutions are
    float64 (n,).

    Examples
    --------
    >>> from coco_opt import SimplexLeastSquares, solve
    >>> mixed = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    >>> solve(SimplexLeastSquares(mixed, [0.75, 0.25, 1.0])).value.round(6).tolist()
    [0.75, 0.25]
    """

    A: Floats
    y: Floats
    total: float

    kind: ClassVar[str] = "simplex_least_squares"
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (QuadraticProgram,)

    def __init__(self, A: ArrayLike, y: ArrayLike, total: float = 1.0) -> None:
        matrix = np.array(A, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[1] == 0:
            raise ProblemError("A must be a matrix with at least one column")
        entries = checked_vector(matrix.ravel(), "A").reshape(matrix.shape)
        object.__setattr__(self, "A", entries)
        object.__setattr__(self, "y", checked_vector(y, "y"))
        object.__setattr__(self, "total", float(total))
        if self.y.size != matrix.shape[0]:
            raise ProblemError(f"y has {self.y.size} entries and A has {matrix.shape[0]} rows: they must agree")
        longest = float(np.abs(entries).max(initial=0.0)) * max(1.0, self.total)
        self._check_total(max(longest, float(np.abs(self.y).max(initial=0.0))))

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        """Return fits inside the simplex and on its boundary, with equal columns, one column, and total 0."""
        rng = np.random.default_rng(5)
        return {
            "tiny": cls([[1, 0], [0, 1]], [2, -1]),
            "inside": cls([[1, 0], [0, 1], [1, 1]], [0.75, 0.25, 1]),
            "identity": cls(np.eye(5), [5.0, -1.0, 0.25, 4.0, -3.0], 6),
            "equal-columns": cls([[1, 1, 2], [3, 3, 1]], [1, 2]),
            "fewer-rows": cls(rng.normal(size=(3, 8)), rng.normal(size=3), 2),
            "one-column": cls([[2], [1]], [1, 1], 3),
            "nothing": cls([[1, 2], [3, 4]], [1, 1], 0),
            "no-rows": cls(np.zeros((0, 3)), [], 1),
        }

    @property
    def variables(self) -> int:
        """Return the number of coefficients n."""
        return int(self.A.shape[1])

    @cached_property
    def lengths(self) -> Floats:
        """Return the Euclidean lengths of the columns of A (n,)."""
        lengths: Floats = np.linalg.norm(self.A, axis=0)
        return lengths

    @property
    def objective_scale(self) -> float:
        """Return the larger square of the responses and of the longest column times the total, at most 1."""
        return at_most_one(max(float(self.y @ self.y), float(self.lengths.max() * self.total) ** 2))

    def objective(self, x: Floats) -> float:
        """Return the sum of squared residuals."""
        residual = self.A @ x - self.y
        return float(residual @ residual)

    def gradient(self, x: Floats) -> Floats:
        """Return the gradient 2 A' (A x - y) of the objective, (n,)."""
        slope: Floats = 2.0 * (self.A.T @ (self.A @ x - self.y))
        return slope

    def multipliers(self, x: Floats) -> float:
        """Return the largest admissible nu at x: the smallest entry of the gradient."""
        return float(self.gradient(x).min())

    def gap(self, x: Floats, multipliers: float) -> float:
        """Return the certified gap of the module docstring; a nu that is too large counts as the largest admissible."""
        residual = self.A @ x - self.y
        slope = 2.0 * (self.A.T @ residual)
        plain = float(x @ (slope - min(float(multipliers), float(slope.min()))))
        plain = min(plain, float(residual @ residual))  # s = 0: no objective is negative
        if not 0.0 < plain < np.inf:
            return plain
        shift = self._levelling(x, residual, slope)
        slope = 2.0 * (self.A.T @ (residual + shift))
        return min(plain, float(shift @ shift + x @ (slope - slope.min())))

    def _levelling(self, x: Floats, residual: Floats, slope: Floats) -> Floats:
        """Return the shortest d (m,) that makes slopes + 2 A' d equal where x is positive, and none of them less."""
        lengths = np.where(self.lengths > 0.0, self.lengths, np.inf)
        # The slope of the shortest column is the most exact, and says what the common one is.
        level = slope[np.argmin(np.where(x > 0.0, lengths, np.inf))]
        columns = np.flatnonzero(((x > 0.0) | (slope < level)) & (self.lengths > 0.0))
        # A little above the level: what rounding takes off a long column's slope would count for all of the total.
        rounding = 16.0 * float(np.finfo(np.float64).eps) * (np.abs(self.A[:, columns]).T @ np.abs(residual))
        missing = 0.5 * (level - slope[columns] + rounding) / lengths[columns]
        shift: Floats = np.linalg.lstsq((self.A[:, columns] / lengths[columns]).T, missing, rcond=None)[0]
        return shift

    def formulate(self, form: type[LinearProgram]) -> Formulation[Floats, float]:
        """Write the quadratic program in x and the residuals r = A x - y.

        x is counted in the total, r in the largest entry of A times the total: most solvers' tolerances are absolute.
        """
        if form is not QuadraticProgram:
            raise self._no_form(form)
        from scipy.sparse import csc_array, diags_array, eye_array, hstack

        rows, n = self.A.shape
        unit, total = float(np.abs(self.A).max(initial=0.0)) or 1.0, self.total or 1.0
        sides = np.append(self.y / unit / total, self.total / total)
        coefficients = csc_array(np.vstack([self.A / unit, np.ones(n)]))
        residuals = csc_array(-eye_array(rows + 1, rows))
        program = QuadraticProgram(
            P=csc_array(diags_array(np.repeat([0.0, 2.0], [n, rows]))),
            c=np.zeros(n + rows),
            A=csc_array(hstack([coefficients, residuals])),
            row_lower=sides,
            row_upper=sides,
            lower=np.repeat([0.0, -np.inf], [n, rows]),
            upper=np.full(n + rows, np.inf),
        )

        def read_dual(dual: ProgramDual) -> float:
            return unit * unit * total * float(dual.rows[-1])

        return Formulation(program, recover=lambda z: total * z[:n], multipliers=read_dual)
