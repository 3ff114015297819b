"""The two losses of integer tree fits; the problem itself is stated in ``coco_opt.problems.integer_tree.problem``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats
from coco_opt.problems.integer_tree.data import Pieces, real_optimum
from coco_opt.problems.integer_tree.problem import IntegerTree

_WINDOW = 4  # unit steps on either side of the real optimum whose squares a program contains exactly


@dataclass(frozen=True, eq=False, init=False)
class IntegerTreeL1(IntegerTree):
    """Integer counts of a tree nearest to measurements in absolute values, p = 1.

    Minimise sum_v w_v sum_i |x_v[i] - y_v[i]| over nonnegative integers x that sum to their parent's, in every cell.

    Parameters
    ----------
    tree : Tree or array_like, shape (regions,)
        The tree of regions, or its parent array.
    y : array_like of int, shape (regions, cells)
        The noisy counts.
    weights : array_like, shape (regions,), or float, default 1
        Nonnegative weights; 0 for a region that was not measured.
    groups : array_like of int, shape (regions,), optional
        Upper bounds on every region's counts.

    Raises
    ------
    ProblemError
        The arrays are not like this, or no counts satisfy the constraints.

    Notes
    -----
    Values are int64 (regions, cells). Optima are not unique.
    Source: Fioretto et al. 2021. The fast solver merges slopes and is exact.

    Examples
    --------
    >>> from coco_opt import IntegerTreeL1, solve
    >>> solve(IntegerTreeL1([-1, 0, 0], [[6], [1], [2]], groups=[9, 3, 4])).objective
    3.0
    """

    kind: ClassVar[str] = "integer_tree_l1"
    power: ClassVar[int] = 1

    def _costs(self, residual: Floats) -> Floats:
        return self.shares * np.abs(residual)

    def _differences(self, x: NDArray[Any], step: int) -> Floats:
        slope = step * np.sign(step * (x - self.y) + 0.5)
        return np.asarray(self.shares * slope, dtype=np.float64)

    def _excess(self, residual: Floats, d: Floats) -> Floats:
        least, most = self.sides
        cost, worst = self._costs(residual), np.zeros(residual.shape)
        for u in (np.clip(0.0, least, most), least, most):
            worst = np.maximum(worst, cost - self._costs(u) + d * (residual - u))
        return worst

    def _slope(self) -> float:
        return 1.0

    def _swing(self, digits: float) -> Floats:
        return self.sides[1] - self.sides[0]

    def pieces(self) -> Pieces:
        """Return y, from where every step costs its weight."""
        steps = np.broadcast_to(self.shares, (1, *self.y.shape))
        return Pieces(self.y, steps, steps)


@dataclass(frozen=True, eq=False, init=False)
class IntegerTreeL2(IntegerTree):
    """Integer counts of a tree nearest to measurements in squares, p = 2.

    Minimise sum_v w_v sum_i (x_v[i] - y_v[i])^2 over nonnegative integers x that sum to their parent's, in every cell.

    Parameters
    ----------
    tree : Tree or array_like, shape (regions,)
        The tree of regions, or its parent array.
    y : array_like of int, shape (regions, cells)
        The noisy counts.
    weights : array_like, shape (regions,), or float, default 1
        Nonnegative weights; 0 for a region that was not measured.
    groups : array_like of int, shape (regions,), optional
        Upper bounds on every region's counts.

    Raises
    ------
    ProblemError
        The arrays are not like this, or no counts satisfy the constraints.

    Notes
    -----
    Values are int64 (regions, cells). Programs for general solvers contain the squares in a window around
    the real optimum and continue them by lines: where the optimum lies in the window, as it does unless there are many
    leaves, they find it, and the gap shows that.
    Source: Fioretto et al. 2021. The fast solver merges slopes and is exact.

    Examples
    --------
    >>> from coco_opt import IntegerTreeL2, solve
    >>> solve(IntegerTreeL2([-1, 0, 0], [[6], [1], [2]], groups=[9, 3, 4])).objective
    3.0
    """

    kind: ClassVar[str] = "integer_tree_l2"
    power: ClassVar[int] = 2

    def _costs(self, residual: Floats) -> Floats:
        return self.shares * np.square(residual)

    def _differences(self, x: NDArray[Any], step: int) -> Floats:
        return np.asarray(self.shares * (2 * (x - self.y) + step), dtype=np.float64)

    def _excess(self, residual: Floats, d: Floats) -> Floats:
        least, most = self.sides
        w = self.shares
        half = np.divide(0.5 * d, w, out=np.zeros(d.shape), where=w > 0.0)
        edge = np.where(d > 0.0, least, np.where(d < 0.0, most, residual))
        u = np.where(w > 0.0, np.clip(np.rint(-half), least, most), edge)
        return (residual - u) * (w * (residual + u) + d)

    def _slope(self) -> float:
        furthest = np.maximum(-self.sides[0], self.sides[1])
        return float((self.shares * (2.0 * furthest + 1.0)).max())

    def _swing(self, digits: float) -> Floats:
        # The costs bend: one unit, and more only where a weight is as small as the error of the price.
        free = np.divide(digits, self.shares, out=np.full(self.shares.shape, np.inf), where=self.shares > 0.0)
        return np.asarray(np.minimum(1.0 + free, self.sides[1] - self.sides[0]), dtype=np.float64)

    def pieces(self) -> Pieces:
        """Return the real optimum rounded down, and what the first few steps from there cost."""
        base, w = np.floor(real_optimum(self)).astype(np.int64), self.shares
        residual, steps = base - self.y, np.arange(_WINDOW)[:, None, None]
        return Pieces(base, w * (2 * residual + 2 * steps + 1), w * (2 * steps + 1 - 2 * residual))
