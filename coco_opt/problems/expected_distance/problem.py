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
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.array_types import Floats
from coco_opt.forms import Formulation, LinearProgram, MixedIntegerProgram
from coco_opt.problem import Problem, integer_answer
from coco_opt.problems.expected_distance.data import DistanceData
from coco_opt.problems.expected_distance.marginals import Marginals
from coco_opt.problems.expected_distance.prices import Ascent, cell_prices

_ASCENT = 60  # rounds in which prices are rebuilt from a point alone


@dataclass(frozen=True, eq=False, init=False)
class ExpectedDistance(DistanceData, Problem[NDArray[Any], Floats]):
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
    Values are int64 (regions, cells), the objective is in groups. The fast solver raises prices by averaged
    subgradients, to a certified relative gap.

    Examples
    --------
    >>> from coco_opt import ExpectedDistance, Marginals, solve
    >>> draws = [[[3, 4], [1, 2], [2, 2]], [[2, 4], [1, 1], [1, 3]], [[3, 4], [1, 2], [2, 2]]]
    >>> solve(ExpectedDistance([-1, 0, 0], [4, 2, 2], Marginals.from_samples(draws))).value.tolist()
    [[3, 4], [1, 2], [2, 2]]
    """

    kind: ClassVar[str] = "expected_distance"
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (LinearProgram, MixedIntegerProgram)
    repair_limit: ClassVar[float] = np.inf  # optimal fractional points lie anywhere between integers
    feasibility_tolerance: ClassVar[float] = 0.0  # integers keep sums and bounds exactly or not at all

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

    @property
    def variables(self) -> int:
        """Return the number of cells of all regions."""
        return self.marginals.shape[0] * self.marginals.shape[1]

    def accept(self, answer: Any) -> NDArray[Any]:
        """Return the answer as int64 where it is integer, else as float64."""
        return integer_answer(answer)

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
        """Round a fractional point from the root down, by earliest deadlines; a wrong shape comes back unchanged."""
        if x.shape != self.marginals.shape or not np.isfinite(x).all() or self.violation(x) == 0.0:
            return x
        from coco_opt.problems.expected_distance.rounding import rounded

        return rounded(self.tree, np.asarray(x, dtype=np.float64), self.groups)

    def multipliers(self, x: NDArray[Any]) -> Floats:
        """Rebuild prices from x: those of every cell on its own, then some rounds of ascent towards its objective."""
        ascent = Ascent(self, cell_prices(self))
        ascent.rounds(_ASCENT, self.parts(np.asarray(x)))
        return ascent.best / self.grain

    def admissible(self, multipliers: Floats) -> Floats:
        """Return the prices on the grid, 0 at leaves and for what is no number; zeros for a wrong shape."""
        return self.in_parts(multipliers) / self.grain

    def gap(self, x: NDArray[Any], multipliers: Floats) -> float:
        """Return the certified gap of the module docstring, for integer x."""
        from coco_opt.kernels import expected_distance_rows

        state = Ascent(self, self.in_parts(multipliers)).state
        rows, integers = np.empty(self.tree.nodes, np.int64), np.ascontiguousarray(x, dtype=np.int64)
        expected_distance_rows.row_gaps(self.costs, self.shape, integers, state, rows)
        return sum(rows.tolist()) // self.fineness / self.total

    def certified_gap(self, x: NDArray[Any], multipliers: Floats | None = None) -> float:
        """Return the smaller gap of a solver's prices and the cells' own; without any, that of rebuilt prices."""
        if multipliers is None:
            return self.gap(x, self.multipliers(x))
        return min(self.gap(x, multipliers), self.gap(x, cell_prices(self) / self.grain))

    def formulate(self, form: type[LinearProgram]) -> Formulation[NDArray[Any], Floats]:
        """Write every count as the sum of its segments between atoms, each at its slope."""
        if form not in self.forms:
            raise self._no_form(form)
        from coco_opt.problems.expected_distance.program import program

        return program(self, form)
