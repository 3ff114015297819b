"""The two losses of joint estimation from sums; the problem is stated in ``coco_opt.problems.joint_sums.problem``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats
from coco_opt.forms import Formulation, LinearProgram, QuadraticProgram
from coco_opt.problems.joint_sums.problem import JointSums


@dataclass(frozen=True, eq=False, init=False)
class JointSumsL1(JointSums):
    """Joint estimation from sums over buckets in absolute values, p = 1.

    Minimise sum_v w_v sum_B |sum_(c in B) n_c x_v[c] - y_v[B]|^1 over tables as in ``JointL1``, B being the buckets of
    a region and n_c the width of cell c.

    Parameters
    ----------
    tree : Tree or array_like, shape (regions,)
        The tree of regions, or its parent array.
    y : array_like, shape (regions, cells)
        The noisy sum of a bucket, in groups x sizes, at the cell where the bucket begins; other entries are not read.
    begins : array_like of bool, shape (regions, cells)
        Whether a bucket of the region begins at the cell; always true of the first cell.
    groups : array_like of int, shape (regions,)
        The number of groups of each region; a parent's is the sum of its children's.
    weights : array_like, shape (regions,), or float, default 1
        Nonnegative weights; 0 for a region that was not measured.
    widths : array_like of int, shape (cells,), or int, default 1
        How many single sizes a cell stands for, at least 1.

    Raises
    ------
    ProblemError
        The arrays are not like this.

    Notes
    -----
    Values are float64 (regions, cells). Optima are not unique.

    Examples
    --------
    >>> from coco_opt import JointSumsL1, solve
    >>> sums, begins = [[1, 3], [2, 0], [0, 1]], [[1, 1], [1, 0], [1, 1]]
    >>> solve(JointSumsL1([-1, 0, 0], sums, begins, [4, 2, 2])).objective <= 1
    True
    """

    kind: ClassVar[str] = "joint_sums_l1"
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (LinearProgram,)

    @property
    def _tightening(self) -> tuple[Callable[..., None], Floats]:
        from coco_opt.kernels import joint_leaves

        return joint_leaves.tighten_absolute, self.widths.astype(np.float64)

    def answer_losses(self, residual: Floats) -> Floats:
        """Return the weighted absolute residuals [answers]."""
        return np.abs(residual) * self.answer_weights

    def slopes(self, residual: Floats) -> Floats:
        """Return the weights with the residuals' signs [answers]."""
        return np.sign(residual) * self.answer_weights

    def limited(self, prices: Floats) -> Floats:
        """Return prices cut off at the weights."""
        return np.clip(prices, -self.answer_weights, self.answer_weights)

    def loss_gap(self, residual: Floats, prices: Floats) -> float:
        """Return the sum of w |r| - s r."""
        return float((self.answer_weights * np.abs(residual) - prices * residual).sum())

    def shifts(self, residual: Floats, spans: Floats, penalty: Floats) -> Floats:
        """Return the shifts that bring sums to their answers, or as far as the weight pulls."""
        reach = self.answer_weights / penalty
        return np.clip(-residual / spans, -reach, reach)

    def formulate(self, form: type[LinearProgram]) -> Formulation[NDArray[Any], Floats]:
        """Write the linear program in cells and in the parts of residuals q - r, q and r >= 0, at cost w (q + r)."""
        if form is not LinearProgram:
            raise self._no_form(form)
        from coco_opt.problems.joint_sums.program import linear

        return linear(self)


@dataclass(frozen=True, eq=False, init=False)
class JointSumsL2(JointSums):
    """Joint estimation from sums over buckets in least squares, p = 2.

    Minimise sum_v w_v sum_B |sum_(c in B) n_c x_v[c] - y_v[B]|^2 over tables as in ``JointL2``, B being the buckets of
    a region and n_c the width of cell c.

    Parameters
    ----------
    tree : Tree or array_like, shape (regions,)
        The tree of regions, or its parent array.
    y : array_like, shape (regions, cells)
        The noisy sum of a bucket, in groups x sizes, at the cell where the bucket begins; other entries are not read.
    begins : array_like of bool, shape (regions, cells)
        Whether a bucket of the region begins at the cell; always true of the first cell.
    groups : array_like of int, shape (regions,)
        The number of groups of each region; a parent's is the sum of its children's.
    weights : array_like, shape (regions,), or float, default 1
        Nonnegative weights; 0 for a region that was not measured.
    widths : array_like of int, shape (cells,), or int, default 1
        How many single sizes a cell stands for, at least 1.

    Raises
    ------
    ProblemError
        The arrays are not like this.

    Notes
    -----
    Values are float64 (regions, cells). What buckets leave open is not unique.

    Examples
    --------
    >>> from coco_opt import JointSumsL2, solve
    >>> sums, begins = [[1, 3], [2, 0], [0, 1]], [[1, 1], [1, 0], [1, 1]]
    >>> solve(JointSumsL2([-1, 0, 0], sums, begins, [4, 2, 2])).objective <= 1
    True
    """

    kind: ClassVar[str] = "joint_sums_l2"
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (QuadraticProgram,)

    @property
    def _tightening(self) -> tuple[Callable[..., None], Floats]:
        from coco_opt.kernels import joint_leaves

        return joint_leaves.tighten_squares, np.square(self.widths.astype(np.float64))

    def answer_losses(self, residual: Floats) -> Floats:
        """Return the weighted squared residuals [answers]."""
        return np.square(residual) * self.answer_weights

    def slopes(self, residual: Floats) -> Floats:
        """Return twice the weighted residuals [answers]."""
        return 2.0 * residual * self.answer_weights

    def limited(self, prices: Floats) -> Floats:
        """Return prices, those of regions that were not measured 0."""
        return np.where(self.answer_weights > 0.0, prices, 0.0)

    def loss_gap(self, residual: Floats, prices: Floats) -> float:
        """Return the sum of w (r - s / 2 w)^2."""
        weights = self.answer_weights
        half = np.divide(0.5, weights, out=np.zeros(weights.size), where=weights > 0.0)
        return float(weights @ np.square(residual - half * prices))

    def shifts(self, residual: Floats, spans: Floats, penalty: Floats) -> Floats:
        """Return the shifts that balance slope and penalty."""
        return -2.0 * self.answer_weights * residual / (2.0 * self.answer_weights * spans + penalty)

    def formulate(self, form: type[LinearProgram]) -> Formulation[NDArray[Any], Floats]:
        """Write the quadratic program in cells and residuals."""
        if form is not QuadraticProgram:
            raise self._no_form(form)
        from coco_opt.problems.joint_sums.program import quadratic

        return quadratic(self)
