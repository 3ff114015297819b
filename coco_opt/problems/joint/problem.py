"""Joint estimation: consistent cumulative tables of a whole hierarchy nearest to noisy tables, in one convex program.

Given a tree of regions, noisy cumulative counts y_v (cells 0 .. n-1, in groups) and public numbers of groups G_v::

    minimise  sum_v w_v sum_i u_i |x_v[i] - y_v[i]|^p
    subject to  x_v nondecreasing in i,  0 <= x_v <= G_v,  x_parent = sum of the children's x in every cell.

Double-geometric noise has likelihood exp(-eps |x - y|), so p = 1 with w_v = eps_v is the maximum likelihood estimate;
p = 2 with w_v = 1 / variance is least squares. A region of weight 0 was not measured. The leaves' order and bounds
imply those of all regions. Cells have weights u: where all regions were measured in the same buckets of n_i sizes, a
cell is the mean of a bucket, whose noise is that of the sum over n_i; then u_i = n_i for p = 1 and n_i^2 for p = 2.

Multipliers are prices s (regions, cells) with |s_v| <= w_v u for p = 1 and s_v = 0 where w_v = 0. With t_j the sum of
the prices on the path from leaf j to the root and T_j[k] = sum_{i >= k} t_j[i], weak duality gives the certified gaps

* p = 1: ``sum w_v u |x - y| - s (x - y)``;  p = 2: ``sum w_v u (x - y - s / 2 w_v u)^2``;
* both plus ``sum_j sum_k (x_j[k] - x_j[k-1]) (T_j[k] - min T_j)``, where x_j[-1] = 0, x_j[n] = G_j and T_j[n] = 0,

every term nonnegative: the best row of a leaf under linear prices jumps from 0 to G_j in one cell. Leaves that no
measurement distinguishes have the same T and are added up first (``frontier``).
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.forms import Formulation, LinearProgram, QuadraticProgram
from coco_opt.problem import Problem, at_most_one, plain_answer
from coco_opt.problems.joint.data import checked_cell_weights, checked_groups, checked_table, checked_weights
from coco_opt.problems.tree.data import Tree

if TYPE_CHECKING:
    from coco_opt.kernels.joint_certificate import Measured

_PART = 16  # regions of the frontier that a task tightens


@dataclass(frozen=True, eq=False, init=False)
class JointFit(Problem[NDArray[Any], Floats]):
    """Base of both losses: data, constraints, certificate and the rows of their programs.

    tree: a Tree or its parent array (regions,); y (regions, cells) finite; groups (regions,) integer, a parent's being
    the sum of its children's; weights (regions,) or one number, nonnegative; cell_weights (cells,) or one number,
    positive. Values are float64 (regions, cells).
    Raises ProblemError for anything else.
    """

    squares: ClassVar[bool]  # the loss of both: squares, or absolute values
    tree: Tree
    y: Floats
    groups: Ints
    weights: Floats
    cell_weights: Floats

    def __init__(
        self,
        tree: Tree | ArrayLike,
        y: ArrayLike,
        groups: ArrayLike,
        weights: ArrayLike = 1.0,
        cell_weights: ArrayLike = 1.0,
    ) -> None:
        shape = tree if isinstance(tree, Tree) else Tree(tree)
        table = checked_table(y, shape)
        object.__setattr__(self, "tree", shape)
        arrays: dict[str, NDArray[Any]] = {
            "y": table,
            "groups": checked_groups(groups, shape),
            "weights": checked_weights(weights, shape.nodes),
            "cell_weights": checked_cell_weights(cell_weights, table.shape[1]),
        }
        for name, values in arrays.items():
            values.setflags(write=False)
            object.__setattr__(self, name, values)

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        """Return one region, one cell, no groups, regions that were not measured, three levels and large counts."""
        tree = [-1, 0, 0, 1, 1, 2]
        rows = [[3, 9, 8, 15], [1, 4, 4, 9], [2, 3, 7, 6], [-1, 2, 1, 4], [0, 3, 2, 5], [1, 1, 8, 7]]
        groups = [16, 9, 7, 4, 5, 7]
        return {
            "tiny": cls([-1, 0, 0], [[2, 1], [1, 0], [0, 2]], [3, 2, 1]),
            "one-region": cls([-1], [[-1, 4, 3, 3, 12]], [9]),
            "one-cell": cls([-1, 0, 0], [[9], [1], [2]], [12, 4, 8], [1.0, 0.5, 2.0]),
            "no-groups": cls([-1, 0], [[2, -1], [0, 1]], [0, 0]),
            "levels": cls(tree, rows, groups),
            "half-measured": cls(tree, rows, groups, [1.0, 0.0, 0.5, 2.0, 0.0, 0.0]),
            "large-counts": cls(tree, 10**5 * np.array(rows), 10**5 * np.array(groups)),
            "unlike-cells": cls(tree, rows, groups, [1.0, 0.3, 0.5, 2.0, 1.0, 0.2], [1, 100, 4, 9]),
        }

    @property
    def variables(self) -> int:
        """Return the number of cells of all regions."""
        return self.y.size

    @property
    def scale(self) -> float:
        """Return the largest magnitude in the data, at least 1."""
        return max(1.0, float(np.abs(self.y).max(initial=0.0)), float(self.groups.max()))

    @cached_property
    def objective_scale(self) -> float:
        """Return the loss of residuals as large as ``scale`` in all cells, at most 1."""
        return at_most_one(float(self.losses(self.y + self.scale).sum()))

    @property
    def frontier(self) -> Ints:
        """Return the topmost regions below which nothing was measured; every leaf is at or below exactly one."""
        quiet = self._nothing_below()
        return np.flatnonzero(quiet & ~np.append(False, quiet[self.tree.parent[1:]]))

    def _nothing_below(self) -> Flags:
        quiet = np.ones(self.tree.nodes, dtype=np.bool_)
        for v in range(self.tree.nodes - 1, 0, -1):
            if self.weights[v] > 0.0 or not quiet[v]:
                quiet[self.tree.parent[v]] = False
        return quiet

    def pruned(self) -> tuple[Self, Ints]:
        """Return the problem without the regions below the frontier, and the regions it keeps; itself if that is all.

        Whatever the frontier's rows are, the regions below can follow them at no cost: see ``expand``.
        """
        quiet = self._nothing_below()
        keep = np.flatnonzero(~np.append(False, quiet[self.tree.parent[1:]]))
        if keep.size == self.tree.nodes:
            return self, keep
        number = np.cumsum(np.isin(np.arange(self.tree.nodes), keep)) - 1
        parent = np.append(-1, number[self.tree.parent[keep[1:]]])
        return type(self)(Tree(parent), self.y[keep], self.groups[keep], self.weights[keep], self.cell_weights), keep

    def expand(self, rows: Floats, keep: Ints) -> Floats:
        """Return the rows of the regions in ``keep`` with those below them, each in proportion to its groups."""
        if keep.size == self.tree.nodes:
            return rows
        table = np.zeros(self.y.shape)
        table[keep] = rows
        for v in np.setdiff1d(np.arange(self.tree.nodes), keep):
            up = self.tree.parent[v]
            if self.groups[up] > 0:
                table[v] = table[up] * (self.groups[v] / self.groups[up])
        return table

    def violation(self, x: NDArray[Any]) -> float:
        """Return the largest decrease in a row, excess over a bound or error of a sum."""
        x = plain_answer(x)
        if x.shape != self.y.shape or not np.isfinite(x).all():
            return np.inf
        decrease = -float(np.diff(x, axis=1).min(initial=0.0))
        beyond = max(-float(x.min(initial=0.0)), float((x - self.groups[:, None]).max(initial=0.0)))
        return max(decrease, beyond, float(np.abs(x - self.tree.sums(x)).max(initial=0.0)))

    def repair(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the sums of the leaves' rows, each projected on the nondecreasing rows within its bounds."""
        if x.shape != self.y.shape or not np.isfinite(x).all():
            return x
        from coco_opt.kernels import joint_rounds

        table, top = np.array(x, dtype=np.float64), self.groups.astype(np.float64)
        joint_rounds.monotone(table, table, np.zeros(len(table)), self.cell_weights, top, 0, len(table), table)
        return self.tree.sums(table)

    def losses(self, x: NDArray[Any]) -> Floats:
        """Return each region's weight times the sum of its absolute or squared residuals (regions,)."""
        from coco_opt.kernels import joint_certificate

        rows = np.ascontiguousarray(x, dtype=np.float64)
        return joint_certificate.distances(rows, self.y, self.cell_weights, self.squares) * self.weights

    def objective(self, x: NDArray[Any]) -> float:
        """Return the sum of all regions' losses."""
        return float(self.losses(x).sum())

    def multipliers(self, x: NDArray[Any]) -> Floats:
        """Rebuild prices from x: a loss's slope (0 at a kink) above the leaves, the best completion at them.

        Exact for an optimal x if p = 2; for p = 1 only a solver knows the inner regions' prices at kinks.
        """
        return self.tightened(self._slopes(np.asarray(x, dtype=np.float64) - self.y))

    def admissible(self, multipliers: Floats) -> Floats:
        """Return the nearest valid prices, those of the leaves replaced by the best prices; zeros for a wrong shape."""
        prices = np.asarray(multipliers, dtype=np.float64)
        if prices.shape != self.y.shape:
            prices = np.zeros(self.y.shape)
        return self.tightened(np.where(np.isfinite(prices), prices, 0.0))

    def gap(self, x: NDArray[Any], multipliers: Floats) -> float:
        """Return the certified gap of the module docstring."""
        everywhere, ends = np.arange(self.tree.nodes), np.zeros(self.tree.nodes, np.bool_)
        ends[self.frontier] = True
        return float(self._gaps(x, self._limited(multipliers), everywhere, ends).sum())

    @property
    def resolution(self) -> float:
        """Return what the rounding of suffix sums of prices costs: each is off by their digits, all groups pay."""
        eps, depth = float(np.finfo(np.float64).eps), 1 + int(np.log2(self.tree.nodes))
        price = float(self._slopes(np.ones(self.y.shape)).max(initial=0.0))
        return float(eps * self.y.shape[1] * depth * price * float(self.groups[0]))

    def tightened(self, prices: Floats) -> Floats:
        """Return valid prices whose part at the frontier is the best for those above."""
        best = self._limited(prices)
        self._tighten(self.frontier, best, np.zeros((0, self.y.shape[1])), np.zeros(self.tree.nodes))
        return best

    def tighten(self, prices: Floats, x: Floats, pool: Executor) -> float:
        """Replace prices by ``tightened`` prices, in place, and return the gap that they leave of x.

        The gap adds up over regions. Parts of the frontier are tightened by the tasks of a pool, which changes no bit.
        """
        self._limited(prices, out=prices)
        frontier, above = self.frontier, np.ones(self.tree.nodes, np.bool_)
        above[frontier] = False
        gaps = self._gaps(x, prices, np.flatnonzero(above), np.zeros(self.tree.nodes, np.bool_))
        parts = np.array_split(frontier, -(-frontier.size // _PART))
        list(pool.map(lambda part: self._tighten(part, prices, x, gaps), parts))
        return float(gaps.sum())

    def _gaps(self, x: NDArray[Any], prices: Floats, regions: Ints, ends: Flags) -> Floats:
        """Return the parts of some regions in the gap (regions,), with the order's at the ends of paths."""
        from coco_opt.kernels import joint_certificate

        gaps, values = np.zeros(self.tree.nodes), np.ascontiguousarray(x, dtype=np.float64)
        joint_certificate.write_gaps(self._measured, self.squares, regions, ends, prices, values, gaps)
        return gaps

    def _tighten(self, regions: Ints, prices: Floats, x: Floats, gaps: Floats) -> None:
        """Replace some prices by the best prices under those above, and write the gaps of x, if it has rows."""
        from coco_opt.kernels import joint_leaves

        tighten = joint_leaves.tighten_squares if self.squares else joint_leaves.tighten_absolute
        tighten(self._measured, regions, prices, x, gaps)

    @property
    def _measured(self) -> Measured:
        """Return the data in the form of the kernels."""
        from coco_opt.kernels.joint_certificate import Measured

        return Measured(self.tree.parent, self.y, self.weights, self.groups.astype(np.float64), self.cell_weights)

    @property
    def _cell_table(self) -> Floats:
        """Return the weights of all cells (regions, cells)."""
        return np.multiply.outer(self.weights, self.cell_weights)

    def _slopes(self, residual: Floats) -> Floats:
        """Return the loss's derivative at residuals (regions, cells), 0 at a kink."""
        slopes: Floats = self._cell_table * (2.0 * residual if self.squares else np.sign(residual))
        return slopes

    def _limited(self, prices: Floats, out: Floats | None = None) -> Floats:
        """Return the nearest valid prices, in ``out`` or a new table."""
        if not self.squares:
            nearest: Floats = np.clip(prices, -self._cell_table, self._cell_table, out=out)
            return nearest
        limited = prices.copy() if out is None else out
        limited[self.weights == 0.0] = 0.0
        return limited

    def formulate(self, form: type[LinearProgram]) -> Formulation[NDArray[Any], Floats]:
        """Write the program in the residuals x - y of all cells; for p = 1 in their parts at cost w (q + r)."""
        if form not in self.forms:
            raise self._no_form(form)
        from coco_opt.problems.joint.program import linear, quadratic

        return (quadratic if self.squares else linear)(self.tree, self.y, self.groups, self._cell_table)


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
    squares: ClassVar[bool] = False


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
    squares: ClassVar[bool] = True
