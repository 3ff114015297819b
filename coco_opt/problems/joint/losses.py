"""The two losses of joint estimation; the problem itself is stated in ``coco_opt.problems.joint.problem``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats
from coco_opt.forms import Formulation, LinearProgram, QuadraticProgram
from coco_opt.problems.joint.problem import JointFit


@dataclass(frozen=True, eq=False, init=False)
class JointL1(JointFit):
    """Joint estimation of all regions in absolute values, p = 1: ``JointL1(tree, y, groups, weights, cell_weights)``.

    Minimise sum_v w_v sum_i u_i |x_v[i] - y_v[i]|^1 over tables x_v that are nondecreasing in i, between 0 and
    groups_v, and sum to their parent's table.

    Parameters
    ----------
    tree : Tree or array_like, shape (regions,)
        The tree of regions, or its parent array.
    y : array_like, shape (regions, cells)
        Noisy cumulative counts, in groups; finite.
    groups : array_like of int, shape (regions,)
        The number of groups of each region; a parent's is the sum of its children's.
    weights : array_like, shape (regions,), or float, default 1
        Nonnegative weights, 1 / scale of the noise for maximum likelihood; 0 for a region that was not measured.
    cell_weights : array_like, shape (cells,), or float, default 1
        Positive weights u of the cells.

    Raises
    ------
    ProblemError
        The arrays are not like this.

    Notes
    -----
    Values are float64 (regions, cells). Optima are not unique. The fast solver uses alternating directions, to a
    certified gap of 1e-4.

    Examples
    --------
    >>> from coco_opt import JointL1, solve
    >>> solve(JointL1([-1, 0, 0], [[1, 3], [0, 2], [0, 1]], [4, 2, 2])).objective <= 1
    True
    """

    kind: ClassVar[str] = "joint_l1"
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (LinearProgram,)

    def losses(self, x: NDArray[Any]) -> Floats:
        """Return each region's weight times the sum of its absolute residuals (regions,)."""
        from coco_opt.kernels import joint_certificate

        return (
            joint_certificate.distances(np.ascontiguousarray(x, dtype=np.float64), self.y, self.cell_weights)
            * self.weights
        )

    def _slopes(self, residual: Floats) -> Floats:
        slopes: Floats = self._cell_table * np.sign(residual)
        return slopes

    def _limited(self, prices: Floats, out: Floats | None = None) -> Floats:
        limited: Floats = np.clip(prices, -self._cell_table, self._cell_table, out=out)
        return limited

    @property
    def _kernels(self) -> tuple[Callable[..., None], Callable[..., None]]:
        from coco_opt.kernels import joint_certificate, joint_leaves

        return joint_certificate.gaps_absolute, joint_leaves.tighten_absolute

    def formulate(self, form: type[LinearProgram]) -> Formulation[NDArray[Any], Floats]:
        """Write the linear program in the parts of the residual x - y = q - r, q and r >= 0, at cost w (q + r)."""
        if form is not LinearProgram:
            raise self._no_form(form)
        from coco_opt.problems.joint.program import linear

        return linear(self.tree, self.y, self.groups, self._cell_table)


@dataclass(frozen=True, eq=False, init=False)
class JointL2(JointFit):
    """Joint estimation of all regions in least squares, p = 2: ``JointL2(tree, y, groups, weights, cell_weights)``.

    Minimise sum_v w_v sum_i u_i |x_v[i] - y_v[i]|^2 over tables x_v that are nondecreasing in i, between 0 and
    groups_v, and sum to their parent's table.

    Parameters
    ----------
    tree : Tree or array_like, shape (regions,)
        The tree of regions, or its parent array.
    y : array_like, shape (regions, cells)
        Noisy cumulative counts, in groups; finite.
    groups : array_like of int, shape (regions,)
        The number of groups of each region; a parent's is the sum of its children's.
    weights : array_like, shape (regions,), or float, default 1
        Nonnegative weights, 1 / variance of the noise for maximum likelihood; 0 for a region that was not measured.
    cell_weights : array_like, shape (cells,), or float, default 1
        Positive weights u of the cells.

    Raises
    ------
    ProblemError
        The arrays are not like this.

    Notes
    -----
    Values are float64 (regions, cells). The fast solver uses alternating directions, to a certified gap of 1e-4.

    Examples
    --------
    >>> from coco_opt import JointL2, solve
    >>> solve(JointL2([-1, 0, 0], [[1, 3], [0, 2], [0, 1]], [4, 2, 2])).objective <= 1
    True
    """

    kind: ClassVar[str] = "joint_l2"
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (QuadraticProgram,)

    def losses(self, x: NDArray[Any]) -> Floats:
        """Return each region's weight times the sum of its squared residuals (regions,)."""
        from coco_opt.kernels import joint_certificate

        return (
            joint_certificate.squared_distances(np.ascontiguousarray(x, dtype=np.float64), self.y, self.cell_weights)
            * self.weights
        )

    def _slopes(self, residual: Floats) -> Floats:
        return 2.0 * self._cell_table * residual

    def _limited(self, prices: Floats, out: Floats | None = None) -> Floats:
        limited = prices.copy() if out is None else out
        limited[self.weights == 0.0] = 0.0
        return limited

    @property
    def _kernels(self) -> tuple[Callable[..., None], Callable[..., None]]:
        from coco_opt.kernels import joint_certificate, joint_leaves

        return joint_certificate.gaps_squares, joint_leaves.tighten_squares

    def formulate(self, form: type[LinearProgram]) -> Formulation[NDArray[Any], Floats]:
        """Write the quadratic program in the residuals x - y of all cells."""
        if form is not QuadraticProgram:
            raise self._no_form(form)
        from coco_opt.problems.joint.program import quadratic

        return quadratic(self.tree, self.y, self.groups, self._cell_table)
