"""Expected distance: the consistent integer tables of a hierarchy that lie nearest, on average, to random tables.

Given a tree of regions, public numbers of groups G_v, and for every cumulative count (region v, cell i of n) its own
distribution of X_v[i], such as a posterior's marginal::

    minimise  sum_v sum_i E|x_v[i] - X_v[i]|
    subject to  x_v integer, nondecreasing in i,  0 <= x_v <= G_v,  x_parent = sum of the children's x in every cell,

which is the expected earth mover's distance, all regions added, whatever the joint distribution is. Every cost is
convex and piecewise linear, with slope 2 P(X <= x) - 1 (a weighted median minimises it), so the problem is an
integer program with a linear relaxation.

Multipliers are prices (regions, cells) of the sums, 0 at leaves: a group more in v than in its children costs
price_v[i]. Given them every region has a problem of its own, a tilted isotonic regression with integer solutions::

    objective(x) - optimum <= sum_v  [cost of row x_v  -  least cost of a row of v],   f_v[i] + (price_v - price_parent)

each term nonnegative, for any prices. They are rounded to a grid and weights are integer: gaps are sums of integers,
exact, and rounded down to the next value that a difference of objectives can have.

Leaves and one other level are totally unimodular (their prefixes form two laminar families), and the right prices prove
the optimum. Three levels are not: the relaxation's value can lie below every integer table's, and so does any such
bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import log2
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.forms import Formulation, LinearProgram, MixedIntegerProgram
from coco_opt.problem import IntegerProblem, integer_answer
from coco_opt.problems.expected_distance.marginals import Marginals
from coco_opt.problems.joint.data import checked_groups
from coco_opt.problems.tree import Tree

if TYPE_CHECKING:
    from coco_opt.kernels.expected_distance_rows import Costs, Shape

_LARGEST = 2**61  # sums of costs and prices over a table stay below it
_FINEST = 2**16  # parts of a weight in which prices are counted
_NEAR = 1e-6  # of an integer: what a linear program's solver leaves
_FRACTION_BITS = 10  # of a number that is rounded


@dataclass(frozen=True, eq=False, init=False)
class ExpectedDistance(IntegerProblem[NDArray[Any], Floats]):
    """The consistent integer table of least expected distance: ``ExpectedDistance(tree, groups, marginals, total=)``.

    Minimise sum_v sum_i E|x_v[i] - X_v[i]| over integer tables x_v that are nondecreasing in i, between 0 and groups_v,
    and sum to their parent's table.

    Parameters
    ----------
    tree : Tree or array_like, shape (regions,)
        The tree of regions, or its parent array.
    groups : array_like of int, shape (regions,)
        The number of groups of each region; a parent's is the sum of its children's.
    marginals : Marginals
        The distribution of every random count X_v[i], of shape (regions, cells).
    total : int, optional
        The weight that stands for probability 1; the largest sum of weights of a cell if it is left out. Cells whose
        weights sum to less count for less.

    Raises
    ------
    ProblemError
        The arrays are not like this, or so large that sums could pass 2^61.

    Notes
    -----
    Values are int64 (regions, cells), the objective is in groups. The fast solver passes tables down cell by cell, to a
    certified relative gap. ``ExpectedDistance.rounding`` is the rounding of a table of real numbers.

    Examples
    --------
    >>> from coco_opt import ExpectedDistance, Marginals, solve
    >>> draws = [[[3, 4], [1, 2], [2, 2]], [[2, 4], [1, 1], [1, 3]], [[3, 4], [1, 2], [2, 2]]]
    >>> solve(ExpectedDistance([-1, 0, 0], [4, 2, 2], Marginals.from_samples(draws))).value.tolist()
    [[3, 4], [1, 2], [2, 2]]
    """

    tree: Tree
    groups: Ints
    marginals: Marginals
    total: int
    fineness: int
    """Parts of a unit of weight, a power of 2, in which costs and prices are counted: ``grain`` of them are 1 group."""

    kind: ClassVar[str] = "expected_distance"
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (LinearProgram, MixedIntegerProgram)
    feasibility_tolerance: ClassVar[float] = 0.0  # integers keep sums and bounds exactly or not at all

    def __init__(
        self, tree: Tree | ArrayLike, groups: ArrayLike, marginals: Marginals, *, total: int | None = None
    ) -> None:
        shape = tree if isinstance(tree, Tree) else Tree(tree)
        counts = checked_groups(groups, shape)
        if marginals.shape[0] != shape.nodes:
            raise ProblemError(f"marginals must have one row for each of the {shape.nodes} regions")
        counts.setflags(write=False)
        heaviest = int(marginals.totals.max(initial=0))
        if total is not None and not 1 <= total <= 2**53:
            raise ProblemError("total must be an integer between 1 and 2^53")
        fields = (("tree", shape), ("groups", counts), ("marginals", marginals), ("total", total or max(heaviest, 1)))
        for name, value in fields:
            object.__setattr__(self, name, value)
        largest = heaviest * _path_sums(shape.levels) * marginals.shape[1] * int(counts[0])
        if largest > _LARGEST:
            raise ProblemError("weights times groups times cells are too large: their sums would pass 2^61")
        fineness = _FINEST
        while largest * fineness > _LARGEST:
            fineness //= 2
        object.__setattr__(self, "fineness", fineness)

    @classmethod
    def rounding(cls, tree: Tree, x: Floats, groups: Ints) -> Self:
        """Return the problem of the integer table nearest to real x (regions, cells), all regions added.

        Fractions are counted in parts of 1 / 1,024, or larger ones where sums of weights could pass 2^61.
        """
        spare = int(log2(_LARGEST / (_path_sums(tree.levels) * x.shape[1] * max(int(groups[0]), 1))))
        whole = 2 ** max(0, min(_FRACTION_BITS, spare - 1))
        below = np.floor(np.clip(x, 0.0, groups[:, None])).astype(np.int64)
        part = np.rint((x - below) * whole).astype(np.int64).clip(0, whole)
        points, weights = np.stack([below, below + 1], axis=2), np.stack([whole - part, part], axis=2)
        used = weights > 0
        ends = np.append(0, np.cumsum(used.sum(axis=2)))
        return cls(tree, groups, Marginals(x.shape, ends, points[used], weights[used]), total=whole)

    @classmethod
    def examples(cls) -> Mapping[str, ExpectedDistance]:
        """Return ties, one region, one cell, no groups, a deep tree, cells without a cost and large counts."""
        three = [[[3, 6], [7, 9], [9, 15]], [[2, 2], [6, 1], [4, 8]], [[0, 9], [7, 2], [7, 5]]]
        deep = np.random.default_rng(4).integers(0, 4, (5, 7, 3)).cumsum(axis=2)
        large = np.random.default_rng(6).integers(0, 10**9, (3, 5, 5))

        def problem(tree: list[int], groups: list[int], points: ArrayLike, weights: ArrayLike = 1) -> ExpectedDistance:
            return cls(tree, groups, Marginals.from_points(points, weights))

        return {
            "tiny": problem([-1, 0, 0], [3, 2, 1], [[[2], [1]], [[1], [0]], [[0], [2]]]),
            "ties": problem([-1, 0, 0], [12, 6, 6], three, 2),
            "one-region": problem([-1], [9], [[[4, 0, 1], [3, 3, 2], [1, 9, 9], [2, 4, 12]]]),
            "one-cell": problem([-1, 0, 0], [12, 4, 8], [[[9, 8, 11]], [[1, 2, 5]], [[2, 6, 4]]], [1, 4, 2]),
            "no-groups": problem([-1, 0], [0, 0], [[[1, 2]], [[0, 1]]]),
            "free-cells": problem([-1, 0, 0], [8, 4, 4], three, np.array(three) % 2),
            "deep": cls([-1, 0, 0, 1, 1, 3, 3], [9, 7, 2, 4, 3, 2, 2], Marginals.from_samples(deep)),
            "large-counts": problem([-1, 0, 0], [2 * 10**9, 10**9, 10**9], np.sort(large, axis=1)),
        }

    @cached_property
    def _steepest(self) -> int:
        """What no price has to pass, in parts: the slopes of all costs on a path."""
        return int(self.marginals.totals.max()) * self.tree.levels * self.fineness

    @property
    def grain(self) -> int:
        """Return the number of parts, in which kernels count costs and prices, of an objective of 1."""
        return self.total * self.fineness

    @cached_property
    def shape(self) -> Shape:
        """The tree and the bounds, for kernels."""
        from coco_opt.kernels.expected_distance_rows import Shape

        return Shape(self.tree.parent, self.tree.first_child, self.groups)

    @cached_property
    def costs(self) -> Costs:
        """The costs, for kernels: in parts, atoms beyond a region's bounds left out."""
        from coco_opt.kernels.expected_distance_rows import Costs

        marginals, cells = self.marginals, self.marginals.shape[1]
        cell, size = marginals.cell_of, marginals.offsets.size - 1
        inside = (marginals.atoms > 0) & (marginals.atoms < self.groups[cell // cells])
        passed = np.append(0, np.cumsum(marginals.weights))
        totals = marginals.totals
        below = np.bincount(cell, np.where(marginals.atoms <= 0, marginals.weights, 0), size).astype(np.int64)
        slopes = 2 * (passed[1:] - passed[marginals.offsets[cell]]) - totals[cell]
        return Costs(
            np.append(0, np.cumsum(np.bincount(cell[inside], minlength=size))),
            marginals.atoms[inside],
            slopes[inside] * self.fineness,
            (2 * below - totals) * self.fineness,
        )

    @cached_property
    def at_zero(self) -> int:
        """The objective where all counts are 0, in parts."""
        atoms, weights = np.abs(self.marginals.atoms), self.marginals.weights
        if float(atoms.astype(np.float64) @ weights) < _LARGEST:
            return self.fineness * int(atoms @ weights)
        return self.fineness * int(sum(a * w for a, w in zip(atoms.tolist(), weights.tolist(), strict=True)))

    def parts(self, x: Ints) -> int:
        """Return the objective of integer x within bounds in parts (``grain``), exactly."""
        from coco_opt.kernels import expected_distance_rows

        rows = np.empty(self.tree.nodes, np.int64)
        expected_distance_rows.costs_of_rows(self.costs, np.ascontiguousarray(x, dtype=np.int64), rows)
        return self.at_zero + int(sum(rows.tolist()))

    def limited(self, prices: NDArray[Any]) -> Ints:
        """Return prices in parts rounded to integers, within what no sum can pass, and 0 at leaves."""
        integers: Ints = np.rint(np.clip(prices, -self._steepest, self._steepest)).astype(np.int64)
        integers[self.tree.is_leaf] = 0
        return integers

    def in_parts(self, multipliers: Floats) -> Ints:
        """Return prices, in groups, in parts: 0 for what is no number, and zeros for a wrong shape."""
        prices = np.asarray(multipliers, dtype=np.float64)
        if prices.shape != self.marginals.shape:
            prices = np.zeros(self.marginals.shape)
        return self.limited(np.where(np.isfinite(prices), prices, 0.0) * self.grain)

    @cached_property
    def cell_prices(self) -> Ints:
        """The prices (regions, cells), in parts, that are optimal cell by cell, the order of rows left out."""
        from coco_opt.kernels import expected_distance_cells

        prices, order = np.empty(self.marginals.shape, np.int64), np.zeros(self.marginals.shape, np.int64)
        expected_distance_cells.solve_cells(self.costs, self.shape, order, False, np.empty_like(prices), prices)  # noqa: FBT003
        return self.limited(prices)

    def best_rows(self, prices: Ints) -> Ints:
        """Return every region's best row under prices in parts, whether or not they add up."""
        from coco_opt.kernels import expected_distance_rows

        best = np.empty(self.marginals.shape, np.int64)
        expected_distance_rows.best_rows(self.costs, self.shape, prices, best)
        return best

    def table(self) -> Ints:
        """Return a consistent integer table: cells in turn from the last on, each within the values of the next one.

        The prices of the order of the best rows tell a cell what it costs those before it.
        """
        from coco_opt.kernels import expected_distance_cells, expected_distance_rows

        data, best = (self.costs, self.shape), self.best_rows(self.cell_prices)
        order, table, prices = (np.empty(best.shape, np.int64) for _ in range(3))
        expected_distance_rows.order_prices(*data, self.cell_prices, best, order)
        expected_distance_cells.solve_cells(*data, order, True, table, prices)  # noqa: FBT003
        return table

    @property
    def variables(self) -> int:
        """Return the number of cells of all regions."""
        return self.marginals.shape[0] * self.marginals.shape[1]

    def objective(self, x: NDArray[Any]) -> float:
        """Return the sum of all expected distances, in groups; the last digit is right for integer x within bounds."""
        x = integer_answer(x)
        if x.dtype == np.int64 and (x >= 0).all() and (x <= self.groups[:, None]).all():
            return self.parts(x) / self.grain
        apart = np.abs(np.repeat(x.ravel(), np.diff(self.marginals.offsets)) - self.marginals.atoms)
        return float(apart.astype(np.float64) @ self.marginals.weights) / self.total

    def violation(self, x: NDArray[Any]) -> float:
        """Return the largest distance from an integer, decrease, excess over a bound or error of a sum."""
        x = integer_answer(x)
        if x.shape != self.marginals.shape or not np.isfinite(x).all():
            return np.inf
        decrease = -float(np.diff(x, axis=1).min(initial=0))
        beyond = max(-float(x.min()), float((x - self.groups[:, None]).max()))
        return max(
            0.0, decrease, beyond, float(np.abs(x - self.tree.sums(x)).max()), float(np.abs(x - np.rint(x)).max())
        )

    def repair(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the integer table nearest to the leaves' rows and their sums; a wrong shape comes back unchanged."""
        if x.shape != self.marginals.shape or not np.isfinite(x).all() or self.violation(x) == 0.0:
            return x
        near = np.rint(x)
        snapped = np.where(np.abs(x - near) < _NEAR, near, x)
        return self.rounding(self.tree, np.asarray(self.tree.sums(snapped), np.float64), self.groups).table()

    def multipliers(self, x: NDArray[Any]) -> Floats:
        """Return the prices of every cell on its own, which do not depend on the point."""
        return self.cell_prices / self.grain

    def admissible(self, multipliers: Floats) -> Floats:
        """Return the prices on the grid, 0 at leaves and for what is no number; zeros for a wrong shape."""
        return self.in_parts(multipliers) / self.grain

    def gap(self, x: NDArray[Any], multipliers: Floats) -> float:
        """Return the certified gap of the module docstring, for integer x."""
        from coco_opt.kernels import expected_distance_rows

        prices, integers = self.in_parts(multipliers), np.ascontiguousarray(x, dtype=np.int64)
        rows = np.empty(self.tree.nodes, np.int64)
        expected_distance_rows.row_gaps(self.costs, self.shape, integers, prices, self.best_rows(prices), rows)
        return sum(rows.tolist()) // self.fineness / self.total

    def formulate(self, form: type[LinearProgram]) -> Formulation[NDArray[Any], Floats]:
        """Write every count as the sum of its segments between atoms, each at its slope."""
        if form not in self.forms:
            raise self._no_form(form)
        from coco_opt.problems.expected_distance.program import program

        return program(self.tree, self.groups, self.costs, self.at_zero / self.grain, self.grain, form)


def _path_sums(levels: int) -> int:
    """Return what the heaviest slope is multiplied by in a price, a path's slopes twice and one more, and on a path."""
    return (2 * levels + 1) * levels
