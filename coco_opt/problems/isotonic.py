"""Isotonic regression: the nearest nondecreasing vector, in squares (p = 2) or absolute values (p = 1).

Given data y, weights w > 0 and bounds lo <= hi::

    minimise  sum_i w_i |x_i - y_i|^p   subject to   lo <= x_0 <= x_1 <= ... <= x_{n-1} <= hi

The rank and cumulative estimators of Kuo et al. 2018 (sections 4.2 and 4.3) and the unattributed histograms of Hay
et al. 2010 (section 3) are this problem. A run of equal true values enters as one weighted entry.

Multipliers are a vector lam (n + 1,): lam[0] for ``lo <= x_0``, lam[i] for ``x_{i-1} <= x_i``, lam[n] for
``x_{n-1} <= hi``, all nonnegative. With d_i = lam[i+1] - lam[i], weak duality gives the certified gaps

* p = 2: ``sum w_i (x_i - y_i + d_i / 2 w_i)^2`` plus complementary slackness;
* p = 1, where also |d_i| <= w_i: ``sum w_i |x_i - y_i| + d_i (x_i - y_i)`` plus complementary slackness,

every term nonnegative for a feasible x (complementary slackness is ``sum_i lam[i] * slack_i``). Multipliers are rebuilt
from the point where a solver brings none; for p = 1 a point may be a few digits off the data, as solvers of linear
programs leave it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.array_types import Floats
from coco_opt.errors import ProblemError
from coco_opt.forms import Formulation, LinearProgram, ProgramDual, QuadraticProgram, first_differences
from coco_opt.problem import MAX_INTEGER, MAX_MAGNITUDE, Appraisal, Problem, at_most_one, checked_vector, plain_answer

TieRule = Literal["upper", "lower", "midpoint"]
TIE_RULES: tuple[TieRule, ...] = ("upper", "lower", "midpoint")


@dataclass(frozen=True, eq=False, init=False)
class _IsotonicRegression(Problem[NDArray[Any], Floats]):
    y: NDArray[Any]
    weights: Floats | None
    lower: float
    upper: float

    def __init__(
        self,
        y: ArrayLike,
        weights: ArrayLike | None = None,
        *,
        lower: float = -np.inf,
        upper: float = np.inf,
    ) -> None:
        data = checked_vector(y, "y", keep_integers=True)
        if data.size and max(data.max(), -data.min()) > MAX_MAGNITUDE:
            raise ProblemError(f"y must not exceed {MAX_MAGNITUDE:g} in magnitude: rescale")
        object.__setattr__(self, "y", data)
        object.__setattr__(self, "weights", _checked_weights(weights, data.size))
        _check_bounds(lower, upper)
        object.__setattr__(self, "lower", float(lower))
        object.__setattr__(self, "upper", float(upper))

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        """Return data in order and out of it, with bounds and weights, one entry, none, and counts in billions."""
        return {
            "tiny": cls([2, 0, 1], lower=0, upper=2),
            "paper": cls([14, 9, 10, 15]),
            "sorted": cls([9, 10, 14]),
            "falling": cls([6, 5, 4, 3, 2, 1]),
            "bounds": cls([5, -3, 8, 2, 2, 9], lower=0, upper=6),
            "weights": cls([3, 1, 2, 5, 4], [1.0, 2.5, 0.5, 1.0, 3.0], lower=1.5),
            "real": cls([0.5, -1.25, 2.0, 1.75, 1.75, 0.0]),
            "one-entry": cls([7], lower=0, upper=3),
            "nothing": cls([]),
            "large-counts": cls([5 * 10**9, 5 * 10**9 - 1, 7, 5 * 10**9 + 1]),
        }

    @property
    def variables(self) -> int:
        """Return the number of entries n."""
        return self.y.size

    @cached_property
    def scale(self) -> float:
        """Return the largest magnitude in the data, at least 1."""
        return max(1.0, float(self.y.max(initial=0)), -float(self.y.min(initial=0)))

    @property
    def _total_weight(self) -> float:
        return float(self.y.size if self.weights is None else self.weights.sum())

    @property
    def _largest(self) -> float:
        """Return the largest magnitude among the data and finite bounds."""
        bounds = [abs(bound) for bound in (self.lower, self.upper) if np.isfinite(bound)]
        return max(float(self.y.max(initial=0)), -float(self.y.min(initial=0)), *bounds)

    @property
    def dense_weights(self) -> Floats:
        """Return the weights as a vector (all 1 by default)."""
        return np.ones(self.y.size) if self.weights is None else self.weights

    def violation(self, x: NDArray[Any]) -> float:
        """Return the largest decrease between neighbours or excess over a bound."""
        x = plain_answer(x)
        if x.shape != self.y.shape or not np.isfinite(x).all():
            return np.inf
        if x.size == 0:
            return 0.0
        decrease = -float(np.min(x[1:] - x[:-1], initial=0))
        return max(0.0, decrease, self.lower - float(x[0]), float(x[-1]) - self.upper)

    @property
    @abstractmethod
    def _certificate(self) -> ModuleType:
        """Return the compiled functions that judge a point by this loss."""

    def multipliers(self, x: NDArray[Any]) -> Floats:
        """Rebuild lam from x: partial sums of (sub)gradients inside each block of equal values."""
        lam: Floats = self._certificate.multipliers(x, self.y, self.weights, self.lower, self.upper)
        return lam

    def gap(self, x: NDArray[Any], multipliers: Floats) -> float:
        """Return the certified gap of the module docstring."""
        return float(self._certificate.gap(x, self.y, self.weights, self.lower, self.upper, multipliers))

    def appraise(self, x: NDArray[Any], multipliers: Floats | None = None) -> Appraisal[NDArray[Any]]:
        """Judge a point by itself and, where they prove more, by a solver's multipliers."""
        if x.shape == self.y.shape and x.size and x.dtype in (np.int64, np.float64):
            # Violation, objective and gap of n >= 1 numbers, in one pass.
            violation, objective, gap = self._certificate.judge(x, self.y, self.weights, self.lower, self.upper)
            if violation == 0.0:
                if multipliers is not None:
                    gap = min(gap, self.gap(x, self.admissible(multipliers)))
                return Appraisal(x, 0.0, 0.0, objective, gap)
        return super().appraise(x, multipliers)

    def repair(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the Euclidean projection of x onto the feasible set; a wrong shape comes back unchanged."""
        if x.shape != self.y.shape or not np.isfinite(x).all():
            return x
        from coco_opt.kernels import isotonic_l2

        return isotonic_l2.fit(np.ascontiguousarray(x, dtype=np.float64), None, self.lower, self.upper)

    def _nonnegative(self, multipliers: Floats) -> Floats:
        """Return lam with zero for what is negative or no number; all zero, which is admissible, for a wrong shape."""
        lam = np.asarray(multipliers, dtype=np.float64)
        if lam.shape != (self.y.size + 1,):
            return np.zeros(self.y.size + 1)
        return np.where(np.isfinite(lam), np.maximum(lam, 0.0), 0.0)

    def _residual_bounds(self) -> tuple[Floats, Floats]:
        """Return bounds on the residual u = x - y: only the ends are bounded, the order does the rest."""
        lower, upper = np.full(self.y.size, -np.inf), np.full(self.y.size, np.inf)
        if self.y.size:
            lower[0], upper[-1] = self.lower - self.y[0], self.upper - self.y[-1]
        return lower, upper

    def _decreases(self) -> Floats:
        """Return y_i - y_{i+1} (n - 1,): what neighbouring residuals must make up for."""
        falls: Floats = (self.y[:-1] - self.y[1:]).astype(np.float64)
        return falls

    def _multipliers_of(self, rows: Floats, first: float, last: float) -> Floats:
        """Return lam from the duals of the n - 1 order rows, of the first entry's lower side and the last's upper."""
        n = self.y.size
        lam = np.zeros(n + 1)
        lam[1:n] = np.maximum(rows, 0.0)
        lam[0] = max(first, 0.0) if np.isfinite(self.lower) else 0.0
        lam[n] = max(last, 0.0) if np.isfinite(self.upper) else 0.0
        return lam


@dataclass(frozen=True, eq=False, init=False)
class IsotonicL2(_IsotonicRegression):
    """Isotonic regression in least squares, p = 2: ``IsotonicL2(y, weights, lower=, upper=)``.

    Minimise sum_i w_i (x_i - y_i)^2 subject to lower <= x_0 <= ... <= x_{n-1} <= upper.

    Parameters
    ----------
    y : array_like, shape (n,)
        The data, integers or floats; finite.
    weights : array_like, shape (n,), optional
        Positive weights; all 1 if they are left out.
    lower, upper : float, default -inf and inf
        Bounds on all values.

    Raises
    ------
    ProblemError
        The data are not finite, a weight is not positive, or the bounds cross.

    Notes
    -----
    The solution is unique, float64 (n,). The fast solver pools adjacent violators in O(n) (Barlow et al. 1972; Hay et
    al. 2010, section 3).

    Examples
    --------
    >>> from coco_opt import IsotonicL2, solve
    >>> solve(IsotonicL2([3.0, 1.0, 2.0, 5.0, 4.0])).value.tolist()
    [2.0, 2.0, 2.0, 4.5, 4.5]
    """

    kind: ClassVar[str] = "isotonic_l2"
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (QuadraticProgram,)

    @property
    def resolution(self) -> float:
        """Return the weight of all entries times the square of the last digit of a double at the data's scale."""
        return self._total_weight * (float(np.finfo(np.float64).eps) * self.scale) ** 2

    @property
    def objective_scale(self) -> float:
        """Return the weight of all entries times the square of the largest magnitude, at most 1."""
        return at_most_one(self._total_weight * self._largest**2)

    def objective(self, x: NDArray[Any]) -> float:
        """Return the weighted sum of squared residuals."""
        residual = np.asarray(x - self.y, dtype=np.float64)
        # einsum, not @: threads of the linear algebra library cost more than they bring at these sizes.
        if self.weights is None:
            return float(np.einsum("i,i->", residual, residual))
        return float(np.einsum("i,i,i->", self.weights, residual, residual))

    @property
    def _certificate(self) -> ModuleType:
        from coco_opt.kernels import isotonic_l2_certificate

        return isotonic_l2_certificate

    def admissible(self, multipliers: Floats) -> Floats:
        """Return multipliers, with zero for those that are negative and those of infinite bounds."""
        lam = self._nonnegative(multipliers)
        lam[0] = lam[0] if np.isfinite(self.lower) else 0.0
        lam[-1] = lam[-1] if np.isfinite(self.upper) else 0.0
        return lam

    def formulate(self, form: type[LinearProgram]) -> Formulation[NDArray[Any], Floats]:
        """Write the quadratic program in the residual u = x - y.

        In x the optimum is a small difference of large numbers, and solvers stop digits too early.
        """
        if form is not QuadraticProgram:
            raise self._no_form(form)
        from scipy.sparse import diags_array

        n = self.y.size
        lower, upper = self._residual_bounds()
        program = QuadraticProgram(
            P=diags_array([2.0 * self.dense_weights], offsets=[0], shape=(n, n), format="csc"),
            c=np.zeros(n),
            A=first_differences(n),
            row_lower=self._decreases(),
            row_upper=np.full(max(n - 1, 0), np.inf),
            lower=lower,
            upper=upper,
        )

        def read_dual(dual: ProgramDual) -> Floats:
            if n == 0:
                return np.zeros(1)
            return self._multipliers_of(dual.rows, float(dual.bounds[0]), -float(dual.bounds[-1]))

        return Formulation(program, recover=lambda u: self.y + u, multipliers=read_dual, in_residuals=True)


@dataclass(frozen=True, eq=False, init=False)
class IsotonicL1(_IsotonicRegression):
    """Isotonic regression in absolute values, p = 1: ``IsotonicL1(y, weights, lower=, upper=, ties=)``.

    Minimise sum_i w_i |x_i - y_i| subject to lower <= x_0 <= ... <= x_{n-1} <= upper.

    Parameters
    ----------
    y : array_like, shape (n,)
        The data, integers or floats; finite.
    weights : array_like, shape (n,), optional
        Positive weights; all 1 if they are left out.
    lower, upper : float, default -inf and inf
        Bounds on all values.
    ties : {"upper", "lower", "midpoint"}, default "upper"
        Which of several optima: the largest, the smallest, or the mean of both.

    Raises
    ------
    ProblemError
        The data are not finite, a weight is not positive, or the bounds cross.

    Notes
    -----
    Optima are not unique. Solvers that honour ties return exactly the point that ``ties`` names; others return some
    optimum. So compare objectives across solvers, never fitted values. With integer data and bounds the upper and lower
    fits are int64. The fast solver divides and conquers on the value range.

    Examples
    --------
    >>> from coco_opt import IsotonicL1, solve
    >>> solve(IsotonicL1([3, 1, 4, 1, 5])).value.tolist()
    [3, 3, 4, 4, 5]
    >>> solve(IsotonicL1([3, 1, 4, 1, 5], ties="lower")).value.tolist()
    [1, 1, 1, 1, 5]
    """

    kind: ClassVar[str] = "isotonic_l1"
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (LinearProgram,)
    ties: TieRule

    def __init__(
        self,
        y: ArrayLike,
        weights: ArrayLike | None = None,
        *,
        lower: float = -np.inf,
        upper: float = np.inf,
        ties: TieRule = "upper",
    ) -> None:
        if ties not in TIE_RULES:
            raise ProblemError(f"ties must be one of {', '.join(TIE_RULES)}, not {ties!r}")
        object.__setattr__(self, "ties", ties)
        super().__init__(y, weights, lower=lower, upper=upper)

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        """Return the examples of both losses with the largest fits, and some with the smallest and the mean fits."""
        examples = super().examples()
        tied = {
            f"{name}-{ties}": replace(examples[name], ties=ties)
            for name in ("paper", "bounds", "weights")
            for ties in TIE_RULES[1:]
        }
        return {**examples, **tied}

    @property
    def resolution(self) -> float:
        """Return the weight of all entries times the last digit of a double at the data's scale; 0 for integers."""
        if self.y.dtype == np.int64:
            return 0.0
        return self._total_weight * float(np.finfo(np.float64).eps) * self.scale

    @property
    def objective_scale(self) -> float:
        """Return the weight of all entries times the largest magnitude, at most 1."""
        return at_most_one(self._total_weight * self._largest)

    def objective(self, x: NDArray[Any]) -> float:
        """Return the weighted sum of absolute residuals."""
        residual = np.abs(x - self.y).astype(np.float64, copy=False)  # int64 would overflow in the sum
        return float(residual.sum() if self.weights is None else self.weights @ residual)

    @property
    def _certificate(self) -> ModuleType:
        from coco_opt.kernels import isotonic_l1_certificate

        return isotonic_l1_certificate

    def admissible(self, multipliers: Floats) -> Floats:
        """Return the largest multipliers below these with lam >= 0 and |d_i| <= w_i."""
        from coco_opt.kernels import isotonic_l1_certificate

        return isotonic_l1_certificate.project_multipliers(
            self._nonnegative(multipliers), self.weights, self.lower, self.upper
        )

    def formulate(self, form: type[LinearProgram]) -> Formulation[NDArray[Any], Floats]:
        """Write the linear program in the parts p, m >= 0 of the residual x - y = p - m, with cost w (p + m)."""
        if form is not LinearProgram:
            raise self._no_form(form)
        from scipy.sparse import csc_array, hstack, vstack

        n, w = self.y.size, self.dense_weights
        rows = csc_array(vstack([first_differences(n), _end_entries(n)]))
        lower, upper = self._residual_bounds()
        program = LinearProgram(
            c=np.concatenate([w, w]),
            A=csc_array(hstack([rows, -rows])),
            row_lower=np.concatenate([self._decreases(), lower[:1], np.full(min(n, 1), -np.inf)]),
            row_upper=np.concatenate([np.full(max(n - 1, 0) + min(n, 1), np.inf), upper[-1:]]),
            lower=np.zeros(2 * n),
            upper=np.full(2 * n, np.inf),
        )
        return Formulation(program, lambda z: self.y + (z[:n] - z[n:]), self._read_dual, in_residuals=True)

    def _read_dual(self, dual: ProgramDual) -> Floats:
        if self.y.size == 0:
            return np.zeros(1)
        return self._multipliers_of(dual.rows[:-2], float(dual.rows[-2]), -float(dual.rows[-1]))


def _check_bounds(lower: float, upper: float) -> None:
    """Raise ProblemError for bounds that no finite number lies between or that are rounded on the way to doubles."""
    if not lower <= upper or lower == np.inf or upper == -np.inf:
        raise ProblemError(f"lower must not exceed upper, and a number must fit between (lower {lower}, upper {upper})")
    for bound in (lower, upper):
        if np.isfinite(bound) and abs(bound) > MAX_INTEGER:
            raise ProblemError("bounds must not exceed 2^53 in magnitude; leave one out, or infinite, for none")


def _checked_weights(weights: ArrayLike | None, n: int) -> Floats | None:
    if weights is None:
        return None
    checked = checked_vector(weights, "weights")
    if checked.size != n:
        raise ProblemError(f"weights must have one entry per value ({n}), not {checked.size}")
    if not (checked > 0).all():
        raise ProblemError("weights must be positive")
    if not ((checked >= 1.0 / MAX_MAGNITUDE) & (checked <= MAX_MAGNITUDE)).all():
        raise ProblemError(f"weights must lie between {1.0 / MAX_MAGNITUDE:g} and {MAX_MAGNITUDE:g}: rescale")
    return checked


def _end_entries(n: int) -> Any:
    """Return the sparse rows that read the first and the last of n entries (none for n = 0)."""
    from scipy.sparse import csc_array

    ends = ([0, 1], [0, n - 1]) if n else ([], [])
    return csc_array((np.ones(len(ends[0])), ends), shape=(len(ends[0]), n))
