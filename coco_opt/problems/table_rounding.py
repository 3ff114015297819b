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
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.errors import ProblemError
from coco_opt.forms import Formulation, LinearProgram, MixedIntegerProgram
from coco_opt.operators import Operator, Stacked
from coco_opt.problem import MAX_INTEGER, Problem, whole_answer
from coco_opt.problems.split_rows import SparseRows, stacked

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

UNBOUNDED = 2**62
"""The upper side that stands for none, and its negative for a lower one; so do all of half its magnitude or more."""

NEAR_WHOLE = 1e-9
"""Numbers this near to a whole one are taken for it: their distance from it is a solver's rounding, not information."""

_ENOUGH = 1e-9  # a relative gap that needs no better prices
_NEAR_VERTEX = 1e-6  # what a linear solver may leave of a whole number


@dataclass(frozen=True, eq=False, slots=True)
class IntegerRows:
    """Constraints on every child's whole table: ``lower_j <= C X_j <= upper_j``.

    operator: C; lower, upper int64[children, rows], equal for an equality, UNBOUNDED in magnitude where there is none. Raises
    ProblemError for another shape, sides that are not whole or a lower side above the upper one.
    """

    operator: Operator
    lower: Ints
    upper: Ints

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            side = np.asarray(getattr(self, name))
            if side.ndim != 2 or side.shape[1] != self.operator.answers or (side.size and side.dtype.kind not in "iu"):
                raise ProblemError(f"{name} sides must be whole numbers [children, {self.operator.answers} rows]")
            side = np.array(side, dtype=np.int64)
            side.setflags(write=False)
            object.__setattr__(self, name, side)
        if self.lower.shape != self.upper.shape:
            raise ProblemError("lower and upper sides must have one shape")
        empty = self.lower > self.upper
        if empty.any():
            child, row = np.argwhere(empty)[0]
            raise ProblemError(f"the sides of child {child}, row {row} cross: the lower one is above the upper one")


@dataclass(frozen=True, eq=False, slots=True)
class RoundingDual:
    """Prices of the parent sums float64[cells] and of the constraints float64[children, rows of C]."""

    parent: Floats
    rows: Floats


@dataclass(frozen=True, eq=False, slots=True)
class Nested:
    """The rows that can bind as one tree a child, over the open cells.

    leaf int64[children, open cells]: the smallest row that counts a cell, -1 for none; up int64[children, rows]: the
    smallest row around a row, -1 for none, -2 for a row that cannot bind.
    """

    leaf: Ints
    up: Ints


@dataclass(frozen=True, eq=False, init=False)
class TableRounding(Problem[NDArray[Any], RoundingDual]):
    """Whole tables near x: ``TableRounding(x, parent, constraints, slack=1)``.

    x: nonnegative float64[children, cells] (numbers within NEAR_WHOLE of a whole one count as it); parent: whole
    numbers int64[cells] or None. ``slack`` 1 allows floors and ceilings alone, a larger one any |X - x| <= slack.
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

    def __init__(
        self,
        x: ArrayLike,
        parent: ArrayLike | None = None,
        constraints: IntegerRows | None = None,
        slack: int = 1,
    ) -> None:
        object.__setattr__(self, "x", _checked(x))
        object.__setattr__(self, "constraints", constraints)
        object.__setattr__(self, "parent", None if parent is None else _checked_parent(parent, self.x.shape[1]))
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
            f"no rounding within slack {self.slack} meets row {row} of the constraints of child {child} and all others: "
            "raise slack, or check that the fractional tables meet them"
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
        return stacked([] if operator is None else _parts(operator), self.open)

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
        """Return the rows that can bind as trees, None where they are not nested and the problem is no network."""
        from coco_opt.kernels import table_rounding

        rows, (least, most), (lower, upper) = self.rows, self.reach, self.sides
        binds = (least < lower) | (most > upper)
        found, leaf, up = table_rounding.nest(rows.start, rows.cell, rows.value, self.room, binds)
        return Nested(leaf, up) if found else None

    def accept(self, answer: Any) -> NDArray[Any]:
        """Return the answer as int64 where it is whole, else as float64."""
        return whole_answer(answer)

    def objective(self, x: NDArray[Any]) -> float:
        """Return the L1 distance to the fractional tables, in people."""
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
        if x.shape != self.x.shape or not np.isfinite(x).all() or self.nested is None:
            return x
        from coco_opt.problems.table_rounding_transport import between

        near = np.where(np.abs(x - np.rint(x)) <= _NEAR_VERTEX, np.rint(x), x)
        if self.violation(near) == 0.0:
            return near.astype(np.int64)
        return x if (near == np.rint(near)).all() else between(self, near)

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
        """Return finite prices, 0 at missing sides and, for a wrong shape, everywhere."""
        shapes = (self.shape[1],), self.sides[0].shape
        parent, rows = (
            np.where(np.isfinite(given), given, 0.0) if given.shape == shape else np.zeros(shape)
            for given, shape in zip((multipliers.parent, multipliers.rows), shapes, strict=True)
        )
        lower, upper = self.sides
        rows = np.where(((rows > 0.0) & np.isinf(lower)) | ((rows < 0.0) & np.isinf(upper)), 0.0, rows)
        return RoundingDual(parent if self.parent is not None else np.zeros(shapes[0]), rows)

    def gap(self, x: NDArray[Any], multipliers: RoundingDual) -> float:
        """Return the certified gap of the module docstring, for whole x."""
        from coco_opt.kernels import table_rounding_certificate

        rows, (low, high) = self.rows, self.box
        tables = (np.ascontiguousarray(table[:, self.open]) for table in (np.asarray(x, np.int64), low, high, self.x))
        slopes = table_rounding_certificate.slopes(
            rows.start, rows.cell, rows.value, np.ascontiguousarray(multipliers.rows), multipliers.parent[self.open]
        )
        total = float(table_rounding_certificate.cells(*tables, slopes))
        below, above = self._slacks(x)
        bought, sold = multipliers.rows > 0.0, multipliers.rows < 0.0
        return total + float(multipliers.rows[bought] @ below[bought]) - float(multipliers.rows[sold] @ above[sold])

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


def _checked(x: ArrayLike) -> Floats:
    table = np.asarray(x)
    if table.ndim != 2 or table.shape[0] == 0 or (table.size and table.dtype.kind not in "iuf"):
        raise ProblemError("x must be a table of numbers, one row a child")
    table = np.array(table, dtype=np.float64)
    if not np.isfinite(table).all() or table.sum() > MAX_INTEGER:
        raise ProblemError("x must be finite, and all cells together at most 2^53")
    nearest = np.rint(table)
    table = np.where(np.abs(table - nearest) <= NEAR_WHOLE, nearest, table)
    if (table < 0.0).any():
        raise ProblemError("x must not be negative: counts of people are not")
    table.setflags(write=False)
    return table


def _checked_parent(parent: ArrayLike, cells: int) -> Ints:
    given = np.asarray(parent)
    if given.shape != (cells,) or (given.size and given.dtype.kind not in "iu"):
        raise ProblemError(f"parent must be one whole number a cell, {cells} in all")
    whole = np.array(given, dtype=np.int64)
    whole.setflags(write=False)
    return whole


def _parts(operator: Operator) -> list[Operator]:
    """Return the operators one below the other, whose own sparse forms are cheaper than the whole's."""
    return [part for one in operator.parts for part in _parts(one)] if isinstance(operator, Stacked) else [operator]
