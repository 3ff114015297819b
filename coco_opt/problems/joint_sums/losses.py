"""The two losses of joint estimation from sums; the problem is stated in ``coco_opt.problems.joint_sums.problem``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coco_opt.forms import FloatArray, Formulation, LinearProgram, QuadraticProgram
from coco_opt.problems.joint_sums.problem import JointSums


@dataclass(frozen=True, eq=False, init=False)
class JointSumsL1(JointSums):
    """Joint estimation from sums in absolute values, p = 1; optima are not unique."""

    kind: ClassVar[str] = "joint_sums_l1"
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (LinearProgram,)

    @property
    def _tightening(self) -> tuple[Callable[..., None], FloatArray]:
        from coco_opt.kernels import joint_leaves

        return joint_leaves.tighten_absolute, self.widths.astype(np.float64)

    def answer_losses(self, residual: FloatArray) -> FloatArray:
        """Return the weighted absolute residuals [answers]."""
        return np.abs(residual) * self.answer_weights

    def slopes(self, residual: FloatArray) -> FloatArray:
        """Return the weights with the residuals' signs [answers]."""
        return np.sign(residual) * self.answer_weights

    def limited(self, prices: FloatArray) -> FloatArray:
        """Return prices cut off at the weights."""
        return np.clip(prices, -self.answer_weights, self.answer_weights)

    def loss_gap(self, residual: FloatArray, prices: FloatArray) -> float:
        """Return the sum of w |r| - s r."""
        return float((self.answer_weights * np.abs(residual) - prices * residual).sum())

    def shifts(self, residual: FloatArray, spans: FloatArray, penalty: FloatArray) -> FloatArray:
        """Return the shifts that bring sums to their answers, or as far as the weight pulls."""
        reach = self.answer_weights / penalty
        return np.clip(-residual / spans, -reach, reach)

    def formulate(self, form: type[LinearProgram]) -> Formulation[NDArray[Any], FloatArray]:
        """Write the linear program in cells and in the parts of residuals q - r, q and r >= 0, at cost w (q + r)."""
        if form is not LinearProgram:
            raise self._no_form(form)
        from coco_opt.problems.joint_sums.program import linear

        return linear(self)


@dataclass(frozen=True, eq=False, init=False)
class JointSumsL2(JointSums):
    """Joint estimation from sums in least squares, p = 2; what buckets leave open is not unique."""

    kind: ClassVar[str] = "joint_sums_l2"
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (QuadraticProgram,)

    @property
    def _tightening(self) -> tuple[Callable[..., None], FloatArray]:
        from coco_opt.kernels import joint_leaves

        return joint_leaves.tighten_squares, np.square(self.widths.astype(np.float64))

    def answer_losses(self, residual: FloatArray) -> FloatArray:
        """Return the weighted squared residuals [answers]."""
        return np.square(residual) * self.answer_weights

    def slopes(self, residual: FloatArray) -> FloatArray:
        """Return twice the weighted residuals [answers]."""
        return 2.0 * residual * self.answer_weights

    def limited(self, prices: FloatArray) -> FloatArray:
        """Return prices, those of regions that were not measured 0."""
        return np.where(self.answer_weights > 0.0, prices, 0.0)

    def loss_gap(self, residual: FloatArray, prices: FloatArray) -> float:
        """Return the sum of w (r - s / 2 w)^2."""
        weights = self.answer_weights
        half = np.divide(0.5, weights, out=np.zeros(weights.size), where=weights > 0.0)
        return float(weights @ np.square(residual - half * prices))

    def shifts(self, residual: FloatArray, spans: FloatArray, penalty: FloatArray) -> FloatArray:
        """Return the shifts that balance slope and penalty."""
        return -2.0 * self.answer_weights * residual / (2.0 * self.answer_weights * spans + penalty)

    def formulate(self, form: type[LinearProgram]) -> Formulation[NDArray[Any], FloatArray]:
        """Write the quadratic program in cells and residuals."""
        if form is not QuadraticProgram:
            raise self._no_form(form)
        from coco_opt.problems.joint_sums.program import quadratic

        return quadratic(self)
