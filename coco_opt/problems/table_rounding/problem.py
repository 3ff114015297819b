"""Controlled rounding of the tables of all children of a region: nearest integer tables in L1 that keep sums and rows.

Over integer tables X_j (cells), one a child, next to fractional tables x_j::

    minimise  sum_j sum_c |X_jc - x_jc|
    subject to  X >= 0,  |X - x| < 1,  sum_j X_j = parent,  lower_j <= C X_j <= upper_j.

It is the L1 step of the 2020 Census TopDown algorithm (Abowd et al. 2022). Without C every cell rounds by itself, by
largest fractions. Where in every child the rows that can bind count cells once and are nested or disjoint, it is a
flow through a network, so its linear relaxation (the cost interpolated between integers) has integer vertices;
otherwise it is a mixed-integer program.

Multipliers are prices lambda (cells) of the parent sums and nu_j of the rows of C. With s = lambda + C' nu, weak
duality bounds the distance to the optimum by

    sum_jc max_Y [|X - x| - s X - |Y - x| + s Y]  +  sum_jk nu+ (C X - lower) + nu- (upper - C X),

Y running through the integers that X_jc may be; every term is nonnegative. For a network the best prices make it
0. For any other C it is at best the distance to the linear relaxation, which can exceed the distance to the optimum.

The distance can be measured on answers to queries instead, sum_j sum_q |Q_q (X_j - x_j)|_1, again a flow where rows and
queries together are nested. Multipliers then have prices y_j in [-1, 1] of the answers too, and the bound is

    sum_jq max_A [|R - a| - y R - |A - a| + y A]  +  sum_jc max_Y (Q' y - s) (X - Y)  +  the last sum above,

R = Q X being the answers, a = Q x their aims, and A running through the integers, for answers are integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.forms import Formulation, LinearProgram, MixedIntegerProgram
from coco_opt.operators import Grouping, stack, total
from coco_opt.problem import IntegerProblem, integer_answer
from coco_opt.problems.linear_rows import LinearRows
from coco_opt.problems.table_rounding import transport
from coco_opt.problems.table_rounding.data import RoundingData, RoundingDual
from coco_opt.problems.table_rounding.program import program, relaxed_prices

_ENOUGH = 1e-9  # a relative gap that needs no better prices
_NEAR_VERTEX = 1e-6  # the distance from an integer that a linear solver may leave
_MOST_PRICED = 300  # cells up to which a linear program proves more of several queries than nearest integers do
_DEAREST = 1e15  # prices beyond prove nothing, and their products might be infinite


@dataclass(frozen=True, eq=False, init=False)
class TableRounding(RoundingData, IntegerProblem[NDArray[Any], RoundingDual]):
    """Integer tables near x: ``TableRounding(x, parent, constraints, slack=1, queries=(), seed=0)``.

    Minimise sum_j sum_c |X_jc - x_jc| over nonnegative integer tables X_j of the children that sum to the parent's
    table and meet the constraints.

    Parameters
    ----------
    x : array_like, shape (children, cells)
        The fractional tables, in persons.
    parent : array_like of int, shape (cells,), optional
        The parent's table; without it there are no sums to meet.
    constraints : LinearRows, optional
        Linear rows with integer sides for each child.
    slack : int, default 1
        1 allows floors and ceilings alone; a larger slack any |X - x| <= slack, in persons.
    queries : sequence of Operator, default ()
        Measure the distance on the answers to these queries in place of cells.
    seed : int, default 0
        Makes the random choices of a solver where several queries cross.

    Raises
    ------
    ProblemError
        The data are not like this.

    Notes
    -----
    Values are int64 (children, cells). Where rows nest or are disjoint it is a network flow; otherwise a mixed-integer
    program. Source: Abowd et al. 2022, the L1 step of the TopDown algorithm.

    Examples
    --------
    >>> from coco_opt import TableRounding, solve
    >>> solve(TableRounding([[0.4, 1.6], [0.6, 0.4]], [1, 2])).value.tolist()
    [[0, 2], [1, 0]]
    """

    kind: ClassVar[str] = "table_rounding"
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (MixedIntegerProgram, LinearProgram)

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        """Return tables with and without a parent, with nested and with crossing rows, more slack, large counts."""
        x, parent = [[0.5, 1.25, 0.0, 2.25], [0.5, 0.75, 3.0, 0.75]], [1, 2, 3, 3]
        halves, ends = Grouping(np.array([0, 0, 1, 1]), 2), Grouping(np.array([0, 1, 1, 0]), 2)
        crossing, moved = stack([halves, ends]), np.array([[4], [2]])
        return {
            "tiny": cls([[0.5, 1.25], [0.5, 0.75]], [1, 2]),
            "root": cls(x),
            "whole": cls([[1, 2], [3, 0]], [4, 2]),
            "parent": cls(x, parent),
            "totals": cls(x, parent, LinearRows(total(4), np.array([[4], [5]]), np.array([[4], [5]]))),
            "groups": cls(x, parent, LinearRows(halves, np.array([[1, 2], [1, 3]]), np.array([[2, 2], [2, 4]]))),
            "slack": cls([[1, 2], [3, 0]], [4, 2], LinearRows(total(2), moved, moved), 2),
            "crossing": cls(x, parent, LinearRows(crossing, np.zeros((2, 4), np.int64), np.array([[2] * 4, [4] * 4]))),
            "answers": cls(x, parent, queries=[halves, total(4)]),
            "crossing-answers": cls(x, parent, queries=[halves, ends]),
            "answers-and-totals": cls(
                x, parent, LinearRows(total(4), np.array([[4], [5]]), np.array([[4], [5]])), queries=[halves]
            ),
            "large-counts": cls([[1e12 + 0.25, 0.5], [2e12 + 0.75, 0.5]], [3 * 10**12 + 1, 1]),
        }

    @property
    def variables(self) -> int:
        """Return the number of cells of all children that are not integers already."""
        return int(np.count_nonzero(self.box[1] > self.box[0]))

    @property
    def resolution(self) -> float:
        """Return the rounding error of adding up all cells."""
        return float(np.finfo(np.float64).eps) * (self.x.size + float(self.x.sum()))

    def objective(self, x: NDArray[Any]) -> float:
        """Return the L1 distance to the fractional tables, in people, or that of the answers to the queries."""
        if self.queries:
            return float(np.abs(stack(self.queries).apply(x - self.x)).sum())
        return float(np.abs(x - self.x).sum())

    def violation(self, x: NDArray[Any]) -> float:
        """Return the largest distance from an integer, from what a cell may be, from a parent's sum or a side."""
        x = integer_answer(x)
        if x.shape != self.x.shape or not np.isfinite(x).all():
            return np.inf
        low, high = self.box
        worst = float(np.maximum(low - x, x - high).max(initial=0))
        if x.dtype != np.int64:
            worst = max(worst, float(np.abs(x - np.rint(x)).max(initial=0.0)))
        if self.parent is not None:
            worst = max(worst, float(np.abs(x.sum(axis=0) - self.parent).max(initial=0)))
        below, above = self._slacks(x)
        return max(worst, -float(below.min(initial=0.0)), -float(above.min(initial=0.0)))

    def _slacks(self, x: NDArray[Any]) -> tuple[Floats, Floats]:
        """Return how far every row lies above its lower and below its upper side [children, rows]."""
        if self.constraints is None:
            return self.sides
        values = self.constraints.operator.apply((x - self.box[0]).astype(np.float64))
        lower, upper = self.sides
        return values - lower, upper - values

    def repair(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return integer tables between floors and ceilings of fractional tables, with the same sums and rows kept.

        An optimal fractional point turns into an optimal integer point. What cannot be repaired comes back unchanged: a
        wrong shape, a point that is integer but wrong, rows that are not nested.
        """
        if x.shape != self.x.shape or not np.isfinite(x).all():
            return x
        near = np.where(np.abs(x - np.rint(x)) <= _NEAR_VERTEX, np.rint(x), x)
        if self.violation(near) == 0.0:
            return near.astype(np.int64)
        flows = self.nested is not None and not self.queries
        return transport.between(self, near) if flows and (near != np.rint(near)).any() else x

    def multipliers(self, x: NDArray[Any]) -> RoundingDual:
        """Return the best prices, which do not depend on the point: from the flow, or else the linear relaxation's."""
        return self.prices

    @cached_property
    def prices(self) -> RoundingDual:
        """Return optimal prices: a shortest-path flow's, or by linear programming where the rows are not nested."""
        if self.nested is not None:
            return transport.solve(self).prices
        if len(self.queries) > 1 and self.variables > _MOST_PRICED:
            return RoundingDual.zeros(self.shape[1], self.sides[0].shape)
        return relaxed_prices(self)

    def admissible(self, multipliers: RoundingDual) -> RoundingDual:
        """Return bounded prices, 0 at missing sides and, for a wrong shape, everywhere."""
        shapes = (self.shape[1],), self.sides[0].shape
        parent, rows = (
            np.clip(np.where(np.isfinite(values), values, 0.0), -_DEAREST, _DEAREST)
            if values.shape == shape
            else np.zeros(shape)
            for values, shape in zip((multipliers.parent, multipliers.rows), shapes, strict=True)
        )
        lower, upper = self.sides
        rows = np.where(((rows > 0.0) & np.isinf(lower)) | ((rows < 0.0) & np.isinf(upper)), 0.0, rows)
        parent = parent if self.parent is not None else np.zeros(shapes[0])
        answers = np.zeros((self.shape[0], self.query_rows.shape[0]))
        if multipliers.queries is not None and multipliers.queries.shape == answers.shape:
            answers = np.nan_to_num(np.clip(multipliers.queries, -1.0, 1.0))
        return RoundingDual(parent, rows, answers)

    def gap(self, x: NDArray[Any], multipliers: RoundingDual) -> float:
        """Return the certified gap of the module docstring, for x integer up to rounding errors."""
        from coco_opt.kernels import table_rounding_certificate

        rows, tables = self.rows, (np.rint(x).astype(np.int64), *self.box)
        values, least, most = (np.ascontiguousarray(table[:, self.open]) for table in tables)
        slopes = table_rounding_certificate.slopes(
            rows.start, rows.cell, rows.value, np.ascontiguousarray(multipliers.rows), multipliers.parent[self.open]
        )
        if self.queries:
            moves = self._gap_of_answers(values, slopes, multipliers)
        else:
            fractional = np.ascontiguousarray(self.x[:, self.open])
            moves = table_rounding_certificate.cells(values, least, most, fractional, slopes)
        below, above = (np.maximum(side, 0.0) for side in self._slacks(x))
        bought, sold = multipliers.rows > 0.0, multipliers.rows < 0.0
        return moves + float(multipliers.rows[bought] @ below[bought]) - float(multipliers.rows[sold] @ above[sold])

    def _gap_of_answers(self, table: Ints, slopes: Floats, multipliers: RoundingDual) -> float:
        queries, low = self.query_rows, self.low[:, self.open]
        prices = multipliers.queries if multipliers.queries is not None else np.zeros((self.shape[0], queries.shape[0]))
        residual = np.rint(queries.apply((table - low).astype(np.float64).T).T) - self.aims
        above = self.aims - np.floor(self.aims)
        least = np.minimum(above * (1.0 + prices), (1.0 - above) * (1.0 - prices))
        errors = np.maximum(np.abs(residual) - prices * residual - least, 0.0)
        worth = queries.adjoint(prices.T).T - slopes
        moved = np.where(worth > 0.0, worth * (table - low), -worth * (low + self.room - table))
        return float(errors.sum() + moved.sum())

    def certified_gap(self, x: NDArray[Any], multipliers: RoundingDual | None = None) -> float:
        """Return the gap of a solver's prices or, where that is not small enough, of the best prices too."""
        best = np.inf if multipliers is None else self.gap(x, self.admissible(multipliers))
        if best <= _ENOUGH * max(1.0, self.objective(x)):
            return best
        return min(best, self.gap(x, self.admissible(self.multipliers(x))))

    @property
    def own_forms(self) -> tuple[type[LinearProgram], ...]:
        """Return a linear program too where rows are nested and no queries are rounded along."""
        linear = self.nested is not None and not self.queries
        return self.forms if linear else (MixedIntegerProgram,)

    def formulate(self, form: type[LinearProgram]) -> Formulation[NDArray[Any], RoundingDual]:
        """Write the choice of every cell as a mixed-integer program, for cells in nested rows as a linear program."""
        if form not in self.own_forms:
            raise self._no_form(form)
        return program(self, form)
