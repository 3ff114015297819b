"""Integer tree fits: integer values of all regions nearest to noisy values, cell by cell (Fioretto et al. 2021).

Given a tree of regions and noisy integer measurements y_v in many cells, for every cell on its own::

    minimise  sum_v w_v |x_v - y_v|^p   subject to   x_v integer,  x_parent = sum of the children's x,

p = 1 or 2, optionally with the bounds 0 <= x_v <= G_v of public numbers of groups. The constraints are a network's, so
with the costs interpolated between integers the program is a linear one with integer vertices, and duality is exact:
with prices lam (regions, cells), 0 at leaves, in units of the largest weight (equal weights are then integer, and
nothing rounds), and d_v = lam_v - lam_parent(v)::

    objective(x) - optimum <= sum_v  f_v(x_v) + d_v x_v - min over integer u within bounds of (f_v(u) + d_v u),

every term nonnegative, and 0 for the right prices; the search for u covers only the range where some optimum can be.
The paper's abstract (arXiv 2006.15673) states the setting: each size's count over the tree, a convex cost, integers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.forms import Formulation, LinearProgram, MixedIntegerProgram
from coco_opt.problem import IntegerProblem, at_most_one, plain_answer
from coco_opt.problems.integer_tree.data import IntegerTreeData, Pieces, least_squares, real_optimum, rounded, within
from coco_opt.problems.integer_tree.program import program

_WINDOW = 4  # unit steps on either side of the real optimum whose squares a program contains exactly
_UNMEASURED = 1e-9  # the precision, relative to the largest weight, of a region that was not measured


@dataclass(frozen=True, eq=False, init=False)
class IntegerTree(IntegerTreeData, IntegerProblem[NDArray[Any], Floats]):
    """Base of both losses: constraints, certificate and what their programs share.

    Values are int64 (regions, cells).
    """

    power: ClassVar[int]
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (LinearProgram, MixedIntegerProgram)
    feasibility_tolerance: ClassVar[float] = 0.0  # integers keep sums and bounds exactly or not at all

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        """Return one region, a path with leaves, ties, bounds, missing measurements and large values."""
        tree, noisy = [-1, 0, 0, 1, 1], [[9, -2], [1, 3], [7, 1], [-3, 2], [2, 0]]
        comb = [-1, *(v // 2 * 2 for v in range(40))]
        return {
            "tiny": cls([-1, 0, 0], [[5, 2], [1, 0], [0, 2]], groups=[4, 3, 2]),
            "one-region": cls([-1], [[3, -2]]),
            "ties": cls([-1, 0, 0], [[12], [0], [0]]),
            "weights": cls(tree, noisy, [0.25, 1.0, 1 / 3, 3.0, 1.0]),
            "bounds": cls(tree, noisy, groups=[8, 4, 5, 2, 3]),
            "half-measured": cls(tree, noisy, [1, 0, 1, 0, 2], groups=[8, 4, 5, 2, 3]),
            "deep": cls(comb, (np.arange(82) % 7 - 2).reshape(41, 2)),
            "large-counts": cls([-1, 0, 0], [[7 * 10**9], [4 * 10**9 + 3], [3 * 10**9 - 9]], 1 / 3),
        }

    @property
    def variables(self) -> int:
        """Return the number of cells of all regions."""
        return self.y.size

    @property
    def scale(self) -> float:
        """Return the largest magnitude among the measurements, at least 1."""
        return max(1.0, float(np.abs(self.y).max()))

    @property
    def objective_scale(self) -> float:
        """Return the cost of residuals as large as ``scale`` in all measurements, at most 1."""
        return at_most_one(self.unit * float(self._costs(np.full(self.y.shape, self.scale)).sum()))

    @property
    def resolution(self) -> float:
        """Return what rounding of the prices costs: their last digits, times how far those move a minimum."""
        digits = float(np.finfo(np.float64).eps) * self.tree.levels * self._slope()
        return self.unit * digits * float(self._swing(digits).sum())

    def violation(self, x: NDArray[Any]) -> float:
        """Return the largest distance from an integer, excess over a bound or error of a sum."""
        x = plain_answer(x)
        if x.shape != self.y.shape or not np.isfinite(x).all():
            return np.inf
        worst = max(float(np.abs(x - self.tree.sums(x)).max()), float(np.abs(x - np.rint(x)).max()))
        if self.groups is not None:
            worst = max(worst, -float(x.min()), float((x - self.groups[:, None]).max()))
        return worst

    def repair(self, x: NDArray[Any]) -> NDArray[Any]:
        """Round a fractional point from the root down, largest fractions of the children up; integer values stay.

        Every rounding that leaves integer values alone is optimal if the point is: costs are linear between
        neighbouring integer points, and the roundings are those around the point. What is out of bounds is moved as far
        as they require. A wrong shape comes back unchanged.
        """
        if x.shape != self.y.shape or not np.isfinite(x).all() or self.violation(x) == 0.0:
            return x
        inside = np.clip(x, self.least[:, None], self.most[:, None])
        return within(self.tree, rounded(self.tree, inside), self.least, self.most)

    def start(self) -> Ints:
        """Return a feasible point: least squares rounded, moved into the bounds as far as they require.

        For p = 1 each weight is squared, as variances are; regions that were not measured get a very small weight.
        """
        precision = np.maximum(self.shares[:, 0] ** (3 - self.power), _UNMEASURED)
        measurements = np.where(self.weights[:, None] > 0.0, self.y, 0)
        x = rounded(self.tree, least_squares(self.tree, measurements, precision))
        return x if self.groups is None else within(self.tree, x, self.least, self.most)

    def objective(self, x: NDArray[Any]) -> float:
        """Return the weighted sum of |residual|^p."""
        return self.unit * float(self._costs(np.asarray(x - self.y, dtype=np.float64)).sum())

    def multipliers(self, x: NDArray[Any]) -> Floats:
        """Rebuild prices from integer x by intervals, up and down the tree: exact if x is optimal."""
        from coco_opt.kernels import tree_certificate

        d_low, d_high = -self._differences(x, 1), -self._differences(x, -1)
        d_high[x <= self.least[:, None]] = np.inf
        d_low[x >= self.most[:, None]] = -np.inf
        tree, near = self.tree, np.zeros(self.tree.nodes)
        columns = zip(np.ascontiguousarray(d_low.T), np.ascontiguousarray(d_high.T), strict=True)
        prices = [tree_certificate.multipliers(tree.parent, tree.first_child, *ranges, near) for ranges in columns]
        return np.nan_to_num(np.stack(prices, axis=1), posinf=0.0, neginf=0.0)

    def admissible(self, multipliers: Floats) -> Floats:
        """Return the prices with 0 at leaves and for what is no number; zeros for a wrong shape."""
        prices = plain_answer(multipliers)
        if prices.shape != self.y.shape:
            return np.zeros(self.y.shape)
        usable = np.isfinite(prices) & ~self.tree.is_leaf[:, None]
        return np.where(usable, prices, 0.0).astype(np.float64)

    def gap(self, x: NDArray[Any], multipliers: Floats) -> float:
        """Return the certified gap of the module docstring, for integer x."""
        d = np.array(multipliers, dtype=np.float64)
        d[1:] -= multipliers[self.tree.parent[1:]]
        excess = np.maximum(self._excess(np.asarray(x - self.y, dtype=np.float64), d), 0.0)
        return self.unit * float(excess.sum())

    @abstractmethod
    def _costs(self, residual: Floats) -> Floats:
        """Return the costs of residuals (regions, cells), in units of the largest weight as all that follow."""

    @abstractmethod
    def _differences(self, x: NDArray[Any], step: int) -> Floats:
        """Return the slope of the costs between x and x + step, step being 1 or -1."""

    @abstractmethod
    def _excess(self, residual: Floats, d: Floats) -> Floats:
        """Return cost plus d x less its least value over integers in least..most, for x given by x - y.

        In residuals all integers are exact, however large the measurements are.
        """

    @abstractmethod
    def _slope(self) -> float:
        """Return the largest slope of a cost between the residuals of an optimum."""

    @abstractmethod
    def _swing(self, digits: float) -> Floats:
        """Return how far an error of that size in a price can move the u of the least value (regions, cells)."""

    @cached_property
    def sides(self) -> tuple[Floats, Floats]:
        """The range of residuals (regions, cells) of some optimum: no region costs more than a feasible start.

        Far narrower than ``least`` and ``most`` where measurements are large, so the gap does not grow with their size.
        """
        most = self._costs((self.start() - self.y).astype(np.float64)).sum(axis=0) * (1.0 + 1e-9)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            reach = np.where(self.shares > 0.0, np.floor((most / self.shares) ** (1.0 / self.power)) + 1.0, np.inf)
        low, high = self.least[:, None] - self.y, self.most[:, None] - self.y
        return np.maximum(low, -reach), np.minimum(high, reach)

    @abstractmethod
    def pieces(self) -> Pieces:
        """Return the costs as a base and unit steps up and down from it."""

    def formulate(self, form: type[LinearProgram]) -> Formulation[NDArray[Any], Floats]:
        """Write x as a base with unit steps up and down from it, each at its own cost; the last steps have no end."""
        if form not in self.forms:
            raise self._no_form(form)
        pieces = self.pieces()
        return program(self, pieces, self.objective(pieces.base), form)


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
