"""Controlled rounding of the tables of all children of a region: whole tables, nearest in L1, that keep sums and rows.

Over whole tables X_j (cells), one a child, next to fractional ones x_j::

    minimise  sum_j sum_c |X_jc - x_jc|
    subject to  X >= 0,  |X - x| < 1,  sum_j X_j = parent,  lower_j <= C X_j <= upper_j.

It is the L1 step of the 2020 Census TopDown algorithm (Abowd et al. 2022). Without C every cell rounds by itself, by
largest fractions. Where in every child the rows that can bind count cells once and are nested or disjoint, it is a
flow through a network, so its linear relaxation (the cost interpolated between whole numbers) has whole vertices;
otherwise it is a mixed-integer program.

Multipliers are prices lambda (cells) of the parent sums and nu_j of the rows of C. With s = lambda + C' nu, weak
duality bounds the distance to the optimum by

    sum_jc max_Y [|X - x| - s X - |Y - x| + s Y]  +  sum_jk nu+ (C X - lower) + nu- (upper - C X),

Y running through the whole numbers that X_jc may be; every term is nonnegative. For a network the best prices make it
0. For any other C it is at best the distance to the linear relaxation, which can exceed the distance to the optimum.

The distance can be measured on answers to queries instead, sum_j sum_q |Q_q (X_j - x_j)|_1, always a mixed-integer
program. Multipliers then have prices y_j in [-1, 1] of the answers too, and the bound is

    sum_jq |r| - y r  +  sum_jc max_Y (Q' y - s) (X - Y)  +  the last sum above,    r = Q (X - x).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.errors import ProblemError
from coco_opt.forms import Formulation, LinearProgram, MixedIntegerProgram
from coco_opt.operators import Operator, stack
from coco_opt.problem import Problem, whole_answer
from coco_opt.problems.split_rows import SparseRows, stacked
from coco_opt.problems.table_rounding_rows import (
    NEAR_WHOLE,
    UNBOUNDED,
    IntegerRows,
    Nested,
    RoundingDual,
    checked_parent,
    checked_tables,
    parts,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

__all__ = ["NEAR_WHOLE", "UNBOUNDED", "IntegerRows", "RoundingDual", "TableRounding"]

_ENOUGH = 1e-9  # a relative gap that needs no better prices
_NEAR_VERTEX = 1e-6  # what a linear solver may leave of a whole number
_DEAREST = 1e15  # prices beyond prove nothing, and their products might be infinite


@dataclass(frozen=True, eq=False, init=False)
class TableRounding(Problem[NDArray[Any], RoundingDual]):
    """Whole tables near x: ``TableRounding(x, parent, constraints, slack=1, queries=())``.

    x: nonnegative float64[children, cells] (numbers within NEAR_WHOLE of a whole one count as it); parent: whole
    numbers int64[cells] or None. ``slack`` 1 allows floors and ceilings alone, a larger one any |X - x| <= slack.
    ``queries``: what the distance is measured on, single cells if there are none.
    Values are int64[children, cells]. Raises ProblemError for data that do not fit together, and for a parent's cell or
    a row of C that no rounding can meet even alone.
    """

    kind: ClassVar[str] = "table_rounding"
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (MixedIntegerProgram, LinearProgram)
    repairable: ClassVar[float] = np.inf  # optimal fractional points lie anywhere between whole ones

    x: Floats
    parent: Ints | None
    constraints: IntegerRows | None
    slack: int
    queries: tuple[Operator, ...]

    def __init__(
        self,
        x: ArrayLike,
        parent: ArrayLike | None = None,
        constraints: IntegerRows | None = None,
        slack: int = 1,
        queries: Sequence[Operator] = (),
    ) -> None:
        object.__setattr__(self, "x", checked_tables(x))
        object.__setattr__(self, "queries", tuple(queries))
        if any(query.cells != self.x.shape[1] for query in self.queries):
            raise ProblemError(f"queries must be over the {self.x.shape[1]} cells of x")
        object.__setattr__(self, "constraints", constraints)
        object.__setattr__(self, "parent", None if parent is None else checked_parent(parent, self.x.shape[1]))
        if slack < 1 or slack != int(slack):
            raise ProblemError("slack must be a whole number of at least 1")
        object.__setattr__(self, "slack", int(slack))
        if constraints is not None and (constraints.lower.shape[0], constraints.operator.cells) != self.x.shape:
            raise ProblemError(
                f"constraints are for {constraints.lower.shape[0]} children of {constraints.operator.cells} cells, "
                f"x has {self.x.shape[0]} of {self.x.shape[1]}"
            )
        self._check_parent()
        self._check_rows()

    def _check_parent(self) -> None:
        if self.parent is None:
            return
        low, high = self.box
        beyond = np.flatnonzero((self.parent < low.sum(axis=0)) | (self.parent > high.sum(axis=0)))
        if beyond.size:
            raise ProblemError(
                f"no rounding of the children's cell {beyond[0]} adds up to the parent's with slack {self.slack}: "
                "the children's fractional tables must add up to the parent's, or raise slack"
            )

    def _check_rows(self) -> None:
        if self.constraints is None:
            return
        least, most = self.reach
        lower, upper = self.sides
        beyond = (most < lower) | (least > upper)
        if beyond.any():
            child, row = np.argwhere(beyond)[0]
            raise ProblemError(
                f"no rounding of child {child} meets constraint {row} with slack {self.slack}: raise slack"
            )

    def unmet(self, child: int, row: int) -> ProblemError:
        """Return the error for a row of C that nothing meets."""
        return ProblemError(
            f"no rounding within slack {self.slack} meets row {row} of the constraints of child {child} and all "
            "others: raise slack, or check that the fractional tables meet them"
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Return (children, cells)."""
        return self.x.shape[0], self.x.shape[1]

    @property
    def variables(self) -> int:
        """Return the number of cells of all children that are not whole already."""
        return int(np.count_nonzero(self.box[1] > self.box[0]))

    @property
    def resolution(self) -> float:
        """Return the rounding error of adding up all cells."""
        return float(np.finfo(np.float64).eps) * (self.x.size + float(self.x.sum()))

    @property
    def low(self) -> Ints:
        """Return the least value of every cell int64[children, cells]."""
        return self.box[0]

    @property
    def high(self) -> Ints:
        """Return the largest value of every cell int64[children, cells]."""
        return self.box[1]

    @cached_property
    def box(self) -> tuple[Ints, Ints]:
        """Return the least and the largest value of every cell, both int64[children, cells]."""
        if self.slack == 1:
            return np.floor(self.x).astype(np.int64), np.ceil(self.x).astype(np.int64)
        low = np.maximum(np.ceil(self.x - self.slack), 0.0)
        return low.astype(np.int64), np.floor(self.x + self.slack).astype(np.int64)

    @cached_property
    def open(self) -> Ints:
        """Return the cells in which some child has a choice."""
        return np.flatnonzero((self.box[1] > self.box[0]).any(axis=0))

    @cached_property
    def rows(self) -> SparseRows:
        """Return C on the open cells."""
        operator = None if self.constraints is None else self.constraints.operator
        return stacked([] if operator is None else parts(operator), self.open)

    @cached_property
    def asked(self) -> SparseRows:
        """Return the queries on the open cells."""
        return stacked([part for query in self.queries for part in parts(query)], self.open)

    @cached_property
    def room(self) -> Ints:
        """Return by how much each open cell may exceed its least value, int64[children, open cells]."""
        low, high = self.box
        return np.ascontiguousarray((high - low)[:, self.open])

    @cached_property
    def sides(self) -> tuple[Floats, Floats]:
        """Return the sides [children, rows] less what C gives on the least tables, infinite where there is none."""
        if self.constraints is None:
            return np.zeros((self.shape[0], 0)), np.zeros((self.shape[0], 0))
        least = self.constraints.operator.apply(self.box[0].astype(np.float64))
        lower, upper = (side.astype(np.float64) for side in (self.constraints.lower, self.constraints.upper))
        lower, upper = (
            np.where(lower <= -UNBOUNDED // 2, -np.inf, lower),
            np.where(upper >= UNBOUNDED // 2, np.inf, upper),
        )
        return lower - least, upper - least

    @cached_property
    def reach(self) -> tuple[Floats, Floats]:
        """Return the least and the largest distance from there that each row can have by itself [children, rows]."""
        from coco_opt.kernels import table_rounding

        return table_rounding.reach(self.rows.start, self.rows.cell, self.rows.value, self.room)

    @cached_property
    def nested(self) -> Nested | None:
        """Return the rows that can bind as trees; None where they are none, or the distance is that of answers."""
        if self.queries:
            return None
        from coco_opt.kernels import table_rounding

        rows, (least, most), (lower, upper) = self.rows, self.reach, self.sides
        binds = (least < lower) | (most > upper)
        found, leaf, up = table_rounding.nest(rows.start, rows.cell, rows.value, self.room, binds)
        return Nested(leaf, up) if found else None

    def accept(self, answer: Any) -> NDArray[Any]:
        """Return the answer as int64 where it is whole, else as float64."""
        return whole_answer(answer)

    def objective(self, x: NDArray[Any]) -> float:
        """Return the L1 distance to the fractional tables, in people, or that of the answers to the queries."""
        if self.queries:
            return float(np.abs(stack(self.queries).apply(x - self.x)).sum())
        return float(np.abs(x - self.x).sum())

    def violation(self, x: NDArray[Any]) -> float:
        """Return the largest distance from a whole number, from what a cell may be, from a parent's sum or a side."""
        x = whole_answer(x)
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
        """Return whole tables between the floors and ceilings of fractional ones that keep what those keep.

        An optimal fractional point turns into an optimal whole one. What cannot be mended comes back unchanged: a wrong
        shape, a point that is whole but wrong, rows that are not nested.
        """
        if x.shape != self.x.shape or not np.isfinite(x).all():
            return x
        from coco_opt.problems.table_rounding_transport import between

        near = np.where(np.abs(x - np.rint(x)) <= _NEAR_VERTEX, np.rint(x), x)
        if self.violation(near) == 0.0:
            return near.astype(np.int64)
        return x if self.nested is None or (near == np.rint(near)).all() else between(self, near)

    def multipliers(self, x: NDArray[Any]) -> RoundingDual:
        """Return the best prices, which do not depend on the point: from the flow, or else the linear relaxation's."""
        return self.prices

    @cached_property
    def prices(self) -> RoundingDual:
        """Return optimal prices: a shortest-path flow's, or by linear programming where the rows are not nested."""
        from coco_opt.problems import table_rounding_transport as transport

        if self.nested is None:
            return transport.relaxed_prices(self)
        found = transport.solve(self)
        return found.prices

    def admissible(self, multipliers: RoundingDual) -> RoundingDual:
        """Return bounded prices, 0 at missing sides and, for a wrong shape, everywhere."""
        shapes = (self.shape[1],), self.sides[0].shape
        parent, rows = (
            np.clip(np.where(np.isfinite(given), given, 0.0), -_DEAREST, _DEAREST)
            if given.shape == shape
            else np.zeros(shape)
            for given, shape in zip((multipliers.parent, multipliers.rows), shapes, strict=True)
        )
        lower, upper = self.sides
        rows = np.where(((rows > 0.0) & np.isinf(lower)) | ((rows < 0.0) & np.isinf(upper)), 0.0, rows)
        parent = parent if self.parent is not None else np.zeros(shapes[0])
        answers = np.zeros((self.shape[0], self.asked.shape[0]))
        if multipliers.queries is not None and multipliers.queries.shape == answers.shape:
            answers = np.nan_to_num(np.clip(multipliers.queries, -1.0, 1.0))
        return RoundingDual(parent, rows, answers)

    def gap(self, x: NDArray[Any], multipliers: RoundingDual) -> float:
        """Return the certified gap of the module docstring, for x whole up to rounding errors."""
        from coco_opt.kernels import table_rounding_certificate

        rows, tables = self.rows, (np.rint(x).astype(np.int64), *self.box)
        held, least, most = (np.ascontiguousarray(one[:, self.open]) for one in tables)
        slopes = table_rounding_certificate.slopes(
            rows.start, rows.cell, rows.value, np.ascontiguousarray(multipliers.rows), multipliers.parent[self.open]
        )
        if self.queries:
            total = self._gap_of_answers(held, slopes, multipliers)
        else:
            fractional = np.ascontiguousarray(self.x[:, self.open])
            total = table_rounding_certificate.cells(held, least, most, fractional, slopes)
        below, above = (np.maximum(side, 0.0) for side in self._slacks(x))
        bought, sold = multipliers.rows > 0.0, multipliers.rows < 0.0
        return total + float(multipliers.rows[bought] @ below[bought]) - float(multipliers.rows[sold] @ above[sold])

    def _gap_of_answers(self, held: Ints, slopes: Floats, multipliers: RoundingDual) -> float:
        asked, low = self.asked, self.low[:, self.open]
        prices = multipliers.queries if multipliers.queries is not None else np.zeros((self.shape[0], asked.shape[0]))
        residual = asked.apply((held - self.x[:, self.open]).T).T
        worth = asked.adjoint(prices.T).T - slopes
        moved = np.where(worth > 0.0, worth * (held - low), -worth * (low + self.room - held))
        return float((np.abs(residual) - prices * residual).sum() + moved.sum())

    def certified_gap(self, x: NDArray[Any], candidates: Iterable[RoundingDual | None] = ()) -> float:
        """Return the smallest gap over the candidates and, if none is good enough, the best prices."""
        given = (candidate for candidate in candidates if candidate is not None)
        best = min((self.gap(x, self.admissible(candidate)) for candidate in given), default=np.inf)
        if best <= _ENOUGH * max(1.0, self.objective(x)):
            return best
        return min(best, self.gap(x, self.admissible(self.multipliers(x))))

    def formulate(self, form: type[LinearProgram]) -> Formulation[NDArray[Any], RoundingDual]:
        """Write the choice of every cell as a mixed-integer program or, for nested rows, as a linear one."""
        if form not in self.forms or (form is LinearProgram and self.nested is None):
            raise self._no_form(form)
        from coco_opt.problems.table_rounding_program import program

        return program(self, form)
