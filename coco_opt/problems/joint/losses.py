"""The two losses of joint estimation; the problem itself is stated in ``coco_opt.problems.joint.problem``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coco_opt.forms import FloatArray, Formulation, LinearProgram, QuadraticProgram
from coco_opt.problems.joint.problem import JointFit


@dataclass(frozen=True, eq=False, init=False)
class JointL1(JointFit):
    """Joint estimation in absolute values, p = 1: ``JointL1(tree, y, groups, weights)``; optima are not unique."""

    kind: ClassVar[str] = "joint_l1"
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (LinearProgram,)

    def losses(self, x: NDArray[Any]) -> FloatArray:
        """Return each region's weight times the sum of its absolute residuals (regions,)."""
        losses: FloatArray = np.abs(x - self.y).sum(axis=1) * self.weights
        return losses

    def _slopes(self, residual: FloatArray) -> FloatArray:
        slopes: FloatArray = self.weights[:, None] * np.sign(residual)
        return slopes

    def _limited(self, prices: FloatArray) -> FloatArray:
        limited: FloatArray = np.clip(prices, -self.weights[:, None], self.weights[:, None])
        return limited

    def _loss_gap(self, residual: FloatArray, prices: FloatArray) -> float:
        return float((self.weights[:, None] * np.abs(residual) - prices * residual).sum())

    def _best_leaves(
        self, rows: FloatArray, weights: FloatArray, top: FloatArray, above: FloatArray, threads: int
    ) -> FloatArray:
        from coco_opt.kernels import joint_leaves

        return joint_leaves.tighten(joint_leaves.tighten_absolute, rows, weights, top, above, threads)

    def formulate(self, form: type[LinearProgram]) -> Formulation[NDArray[Any], FloatArray]:
        """Write the linear program in the parts of the residual x - y = q - r, q and r >= 0, at cost w (q + r)."""
        if form is not LinearProgram:
            raise self._no_form(form)
        from coco_opt.problems.joint.program import linear

        return linear(self.tree, self.y, self.groups, self.weights)


@dataclass(frozen=True, eq=False, init=False)
class JointL2(JointFit):
    """Joint estimation in least squares, p = 2: ``JointL2(tree, y, groups, weights)``."""

    kind: ClassVar[str] = "joint_l2"
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (QuadraticProgram,)

    def losses(self, x: NDArray[Any]) -> FloatArray:
        """Return each region's weight times the sum of its squared residuals (regions,)."""
        losses: FloatArray = np.square(x - self.y).sum(axis=1) * self.weights
        return losses

    def _slopes(self, residual: FloatArray) -> FloatArray:
        return 2.0 * self.weights[:, None] * residual

    def _limited(self, prices: FloatArray) -> FloatArray:
        return np.where(self.weights[:, None] > 0.0, prices, 0.0)

    def _loss_gap(self, residual: FloatArray, prices: FloatArray) -> float:
        half = np.divide(0.5, self.weights, out=np.zeros(self.weights.size), where=self.weights > 0.0)
        return float(np.square(residual - half[:, None] * prices).sum(axis=1) @ self.weights)

    def _best_leaves(
        self, rows: FloatArray, weights: FloatArray, top: FloatArray, above: FloatArray, threads: int
    ) -> FloatArray:
        from coco_opt.kernels import joint_leaves

        return joint_leaves.tighten(joint_leaves.tighten_squares, rows, weights, top, above, threads)

    def formulate(self, form: type[LinearProgram]) -> Formulation[NDArray[Any], FloatArray]:
        """Write the quadratic program in the residuals x - y of all cells."""
        if form is not QuadraticProgram:
            raise self._no_form(form)
        from coco_opt.problems.joint.program import quadratic

        return quadratic(self.tree, self.y, self.groups, self.weights)
