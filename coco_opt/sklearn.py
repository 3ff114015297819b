"""Isotonic regression as an estimator for scikit-learn, solved and certified by ``solve``.

Needs scikit-learn (``pip install 'coco-opt[sklearn]'``).
"""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.array_types import Floats
from coco_opt.errors import MissingPackageError
from coco_opt.problems import IsotonicL1, IsotonicL2
from coco_opt.solver import Solver
from coco_opt.solving import solve

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils import Tags
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise MissingPackageError("scikit-learn", "coco_opt.sklearn", "sklearn") from error

__all__ = ["IsotonicRegression"]


class IsotonicRegression(RegressorMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Isotonic regression in squares (p = 2) or absolute values (p = 1), certified.

    Minimise sum_i w_i |f(x_i) - y_i|^p over nondecreasing (or nonincreasing) functions f between two bounds.

    Parameters
    ----------
    p : {1, 2}, default 2
        The power of the loss. With 1 the fit is a median regression, which outliers do not move.
    y_min, y_max : float, optional
        Bounds on the fitted values.
    increasing : bool, default True
        Whether f must not decrease; otherwise it must not increase.
    out_of_bounds : {"clip", "nan"}, default "clip"
        What ``predict`` returns outside of the training data: the nearest fitted value, or nan.
    solver : str or Solver, default "auto"
        As for ``coco_opt.solve``.

    Attributes
    ----------
    X_thresholds_ : ndarray, shape (k,)
        The distinct training values, in increasing order.
    y_thresholds_ : ndarray, shape (k,)
        The fitted value at each of them.
    solution_ : Solution
        The certified solution, one value for each observation in the order of x and, among equal ones, of falling y.
    n_features_in_ : int
        Always 1.

    Raises
    ------
    ValueError
        A parameter is none of those above, X has more than one column, or a weight is not positive.
    SolverError
        The solver's answer is not optimal.

    Notes
    -----
    Observations of equal x have equal fitted values: they enter in the order of falling y, and where y falls an optimal
    fit is constant. Observations of weight 0 are left out. Between the thresholds ``predict`` interpolates linearly.

    Examples
    --------
    >>> from coco_opt.sklearn import IsotonicRegression
    >>> model = IsotonicRegression(p=1).fit([[1], [2], [3], [4], [5]], [1, 2, 90, 4, 5])
    >>> model.predict([[3], [3.5]]).tolist()
    [5.0, 5.0]
    """

    def __init__(
        self,
        *,
        p: Literal[1, 2] = 2,
        y_min: float | None = None,
        y_max: float | None = None,
        increasing: bool = True,
        out_of_bounds: Literal["clip", "nan"] = "clip",
        solver: str | Solver = "auto",
    ) -> None:
        self.p = p
        self.y_min = y_min
        self.y_max = y_max
        self.increasing = increasing
        self.out_of_bounds = out_of_bounds
        self.solver = solver

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to X (n,) or (n, 1), responses y (n,) and weights (n,); return the estimator."""
        if self.p not in (1, 2) or self.out_of_bounds not in ("clip", "nan"):
            raise ValueError("p must be 1 or 2, and out_of_bounds 'clip' or 'nan'")
        checked, responses = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_2d=False)
        x, signed = _single_column(checked), np.asarray(responses) * (1 if self.increasing else -1)
        weights = _check_sample_weight(sample_weight, x, dtype=np.float64, ensure_non_negative=True)
        used = np.flatnonzero(weights > 0)
        if used.size == 0:
            raise ValueError("every sample_weight is zero: there is nothing to fit")
        # Among equal x by falling y: an optimal fit is constant there.
        order = used[np.lexsort((-signed[used], x[used]))]
        sign = 1 if self.increasing else -1
        lower, upper = sorted((sign * self._bound(self.y_min, -np.inf), sign * self._bound(self.y_max, np.inf)))
        problem = IsotonicL1 if self.p == 1 else IsotonicL2
        uniform = bool((weights[order] == weights[order[0]]).all())
        data = problem(signed[order], None if uniform else weights[order], lower=lower, upper=upper)
        self.solution_ = solve(data, self.solver)
        self.X_thresholds_, first = np.unique(x[order], return_index=True)
        self.y_thresholds_ = sign * np.asarray(self.solution_.value, np.float64)[first]
        self.n_features_in_ = 1
        return self

    def predict(self, X: ArrayLike) -> Floats:
        """Return the fitted function at X (n,) or (n, 1), as float64 (n,)."""
        check_is_fitted(self)
        x = _single_column(validate_data(self, X, dtype=np.float64, ensure_2d=False, reset=False))
        outside = np.nan if self.out_of_bounds == "nan" else None
        return np.interp(x, self.X_thresholds_, self.y_thresholds_, left=outside, right=outside)

    @staticmethod
    def _bound(value: float | None, otherwise: float) -> float:
        return otherwise if value is None else float(value)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags


def _single_column(X: NDArray[Any]) -> Floats:
    """Return X (n,) or (n, 1) as (n,); ValueError for more columns."""
    if X.ndim == 2 and X.shape[1] != 1:
        raise ValueError(f"isotonic regression takes one feature, X has {X.shape[1]} features")
    return X.ravel()
