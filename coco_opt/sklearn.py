"""Isotonic regression as an estimator for scikit-learn, solved and certified by ``solve``.

Needs scikit-learn (``pip install 'coco-opt[sklearn]'``).
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats
from coco_opt.errors import MissingPackageError
from coco_opt.problems import IsotonicL1, IsotonicL2
from coco_opt.solver import Solver
from coco_opt.solving import solve

try:
    from sklearn import isotonic
    from sklearn.utils._param_validation import HasMethods, Options
    from sklearn.utils.validation import _check_sample_weight
except ImportError as error:
    raise MissingPackageError("scikit-learn", "coco_opt.sklearn", "sklearn") from error

__all__ = ["IsotonicRegression"]


class IsotonicRegression(isotonic.IsotonicRegression):  # type: ignore[misc] # scikit-learn has no types
    """Isotonic regression in squares (p = 2) or absolute values (p = 1), certified.

    Minimise sum_i w_i |f(x_i) - y_i|^p over nondecreasing (or nonincreasing) functions f between two bounds. It takes
    the place of scikit-learn's estimator of the same name, and differs in the loss, the solver and the certificate.

    Parameters
    ----------
    p : {1, 2}, default 2
        The power of the loss. With 1 the fit is a median regression, which outliers do not move.
    y_min, y_max : float, optional
        Bounds on the fitted values.
    increasing : bool or "auto", default True
        Whether f must not decrease; otherwise it must not increase. "auto" takes the sign of Spearman's correlation.
    out_of_bounds : {"nan", "clip", "raise"}, default "nan"
        What ``predict`` returns outside of the training data: nan, the nearest fitted value, or a ValueError.
    solver : str or Solver, default "auto"
        As for ``coco_opt.solve``.

    Attributes
    ----------
    X_thresholds_, y_thresholds_ : ndarray, shape (k,)
        Distinct training values, in increasing order, and their fitted values, without those within constant parts.
    X_min_, X_max_ : float
        The ends of the training data.
    increasing_ : bool
        Whether the fit does not decrease.
    solution_ : Solution
        The certified solution, one value for each observation in the order of x and, among equal ones, of falling y.

    Raises
    ------
    ValueError
        A parameter is none of those above, y_min exceeds y_max, X has more than one column, or a weight is negative.
    SolverError
        The solver's answer is not optimal.

    Notes
    -----
    Observations of equal x have equal fitted values: they enter in the order of falling y, and where y falls an optimal
    fit is constant. Observations of weight 0 are left out. Between the thresholds ``predict`` interpolates linearly.
    Shapes, types and all else are scikit-learn's, whose class this one derives from.

    Examples
    --------
    >>> from coco_opt.sklearn import IsotonicRegression
    >>> model = IsotonicRegression(p=1).fit([[1], [2], [3], [4], [5]], [1, 2, 90, 4, 5])
    >>> model.predict([[3], [3.5]]).tolist()
    [5.0, 5.0]
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **isotonic.IsotonicRegression._parameter_constraints,
        "p": [Options(Integral, {1, 2})],
        "solver": [str, HasMethods("solve")],
    }

    def __init__(
        self,
        *,
        p: Literal[1, 2] = 2,
        y_min: float | None = None,
        y_max: float | None = None,
        increasing: bool | Literal["auto"] = True,
        out_of_bounds: Literal["nan", "clip", "raise"] = "nan",
        solver: str | Solver = "auto",
    ) -> None:
        super().__init__(y_min=y_min, y_max=y_max, increasing=increasing, out_of_bounds=out_of_bounds)
        self.p = p
        self.solver = solver

    def _build_y(
        self, X: NDArray[Any], y: NDArray[Any], sample_weight: Any, trim_duplicates: bool = True
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the thresholds and the fit at them; scikit-learn's ``fit`` solves its own problem in this step."""
        lower = -np.inf if self.y_min is None else float(self.y_min)
        upper = np.inf if self.y_max is None else float(self.y_max)
        if lower > upper:
            raise ValueError(f"y_min = {self.y_min} exceeds y_max = {self.y_max}")
        self._check_input_data_shape(X)
        x = X.reshape(-1)
        weights: Floats = _check_sample_weight(sample_weight, x, dtype=np.float64, ensure_non_negative=True)
        used = np.flatnonzero(weights > 0)
        if used.size == 0:
            raise ValueError("every sample_weight is zero: there is nothing to fit")
        rises = isotonic.check_increasing(x, y) if self.increasing == "auto" else self.increasing
        self.increasing_, sign = rises, 1 if rises else -1
        signed = sign * y.astype(np.float64)
        # Values of x that differ by less than their type resolves count as equal: a line between them would be upright.
        values = np.unique(x[used])
        thresholds = isotonic._make_unique(values, values, np.ones_like(values))[0]  # each the least of its group
        same = np.searchsorted(thresholds, x[used], "right")
        # Among equal x by falling y: an optimal fit is constant there.
        place = np.lexsort((-signed[used], same))
        order, same = used[place], same[place]
        uniform = bool((weights[order] == weights[order[0]]).all())
        problem = IsotonicL1 if self.p == 1 else IsotonicL2
        ends = (lower, upper) if rises else (-upper, -lower)
        data = problem(signed[order], None if uniform else weights[order], lower=ends[0], upper=ends[1])
        self.solution_ = solve(data, self.solver)
        first = np.flatnonzero(np.diff(same, prepend=0))
        fitted = (sign * np.asarray(self.solution_.value, np.float64)[first]).astype(x.dtype)
        self.X_min_, self.X_max_ = thresholds[0], thresholds[-1]
        if trim_duplicates and fitted.size > 2:
            rising = fitted[1:] != fitted[:-1]
            kept = np.concatenate([[True], rising[1:] | rising[:-1], [True]])
            thresholds, fitted = thresholds[kept], fitted[kept]
        return thresholds, fitted

    def __getstate__(self) -> dict[str, Any]:
        # Of classes outside scikit-learn its own method empties the estimator's dictionary, not a copy.
        return {name: value for name, value in self.__dict__.items() if name != "f_"}
