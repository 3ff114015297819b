"""The data of controlled rounding of tables, checked, and as the arrays that programs and flows compute with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.operators import Operator
from coco_opt.problem import MAX_INTEGER, as_array
from coco_opt.problems.linear_rows import LinearRows
from coco_opt.problems.sparse_rows import SparseRows, stacked

NEAR_INTEGER = 1e-9
"""Numbers this near to an integer count as it: their distance is a solver's rounding, not information."""


@dataclass(frozen=True, eq=False, slots=True)
class RoundingDual:
    """Prices of the parent sums float64[cells], of C and, where the distance is theirs, of queries' answers.

    The latter two are float64[children, rows]; ``queries`` None stands for zeros.
    """

    parent: Floats
    rows: Floats
    queries: Floats | None = None

    @classmethod
    def zeros(cls, cells: int, sides: tuple[int, ...]) -> RoundingDual:
        """Return prices of 0, which prove how far each number is from the nearest integer, and no more."""
        return cls(np.zeros(cells), np.zeros(sides))


@dataclass(frozen=True, eq=False, slots=True)
class Nested:
    """The rows that can bind as one tree a child, over the open cells.

    leaf int64[children, open cells]: the smallest row that counts a cell, -1 for none; up int64[children, rows]: the
    smallest row around a row, -1 for none, -2 for a row that cannot bind.
    """

    leaf: Ints
    up: Ints


@dataclass(frozen=True, eq=False, init=False)
class RoundingData:
    """Tables to round and their constraints: ``RoundingData(x, parent, constraints, slack=1, queries=(), seed=0)``.

    x: nonnegative float64[children, cells] (numbers within NEAR_INTEGER of an integer count as that integer); parent:
    integers int64[cells] or None. ``slack`` 1 allows floors and ceilings alone, a larger slack any |X - x| <= slack.
    ``queries``: what the distance is measured on, with integer weights; single cells if there are none. ``seed`` makes
    the random choices where these cross. Raises ProblemError for data that do not fit together, and for a parent's cell
    or a row of C that no rounding can meet even alone.
    """

    x: Floats
    parent: Ints | None
    constraints: LinearRows | None
    slack: int
    queries: tuple[Operator, ...]
    seed: int

    def __init__(
        self,
        x: ArrayLike,
        parent: ArrayLike | None = None,
        constraints: LinearRows | None = None,
        slack: int = 1,
        queries: Sequence[Operator] = (),
        seed: int = 0,
    ) -> None:
        object.__setattr__(self, "x", _checked_tables(x))
        object.__setattr__(self, "queries", tuple(queries))
        object.__setattr__(self, "seed", int(seed))
        if any(query.cells != self.x.shape[1] for query in self.queries):
            raise ProblemError(f"queries must be over the {self.x.shape[1]} cells of x")
        object.__setattr__(self, "constraints", constraints)
        object.__setattr__(self, "parent", None if parent is None else _checked_parent(parent, self.x.shape[1]))
        if slack < 1 or slack != int(slack):
            raise ProblemError("slack must be an integer of at least 1")
        object.__setattr__(self, "slack", int(slack))
        if (self.query_rows.value != np.rint(self.query_rows.value)).any():
            raise ProblemError("queries must have integer weights, so that integer tables have integer answers")
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
        sides = np.concatenate([self.constraints.lower, self.constraints.upper])
        if (sides[np.isfinite(sides)] % 1.0).any():
            raise ProblemError("the sides of constraints must be integers")
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
        return stacked([] if self.constraints is None else [self.constraints.operator], self.open)

    @cached_property
    def query_rows(self) -> SparseRows:
        """Return the queries on the open cells."""
        return stacked(self.queries, self.open)

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
        return self.constraints.lower - least, self.constraints.upper - least

    @cached_property
    def reach(self) -> tuple[Floats, Floats]:
        """Return the least and the largest distance from there that each row can have by itself [children, rows]."""
        from coco_opt.kernels import table_rounding

        return table_rounding.reach(self.rows.start, self.rows.cell, self.rows.value, self.room)

    @cached_property
    def aims(self) -> Floats:
        """Return by how much the queries' answers of x exceed those of the least tables [children, answers]."""
        above = np.ascontiguousarray((self.x - self.box[0])[:, self.open].T)
        return np.ascontiguousarray(self.query_rows.apply(above).T)

    @cached_property
    def family(self) -> SparseRows:
        """Return the rows of a network: those of C and, below them, those of the queries, on the open cells."""
        return self.rows.above(self.query_rows)

    @cached_property
    def nested(self) -> Nested | None:
        """Return the rows that can bind and those of queries as trees; None where they are none."""
        from coco_opt.kernels import table_rounding

        rows, (least, most), (lower, upper) = self.family, self.reach, self.sides
        binds = (least < lower) | (most > upper)
        if self.queries:
            moves = table_rounding.reach(self.query_rows.start, self.query_rows.cell, self.query_rows.value, self.room)
            binds = np.hstack([binds, moves[0] < moves[1]])
        is_nested, leaf, up = table_rounding.nest(rows.start, rows.cell, rows.value, self.room, binds)
        return Nested(leaf, up) if is_nested else None


def _checked_tables(x: ArrayLike) -> Floats:
    """Return read-only float64[children, cells], integer where nearly so; ProblemError for no or negative numbers."""
    table = as_array(x, "x")
    if table.ndim != 2 or table.shape[0] == 0 or (table.size and table.dtype.kind not in "iuf"):
        raise ProblemError("x must be a table of numbers, one row a child")
    table = np.array(table, dtype=np.float64)
    if not (np.abs(table) <= MAX_INTEGER).all() or table.sum() > MAX_INTEGER:
        raise ProblemError("x must be finite, and all cells together at most 2^53")
    nearest = np.rint(table)
    table = np.where(np.abs(table - nearest) <= NEAR_INTEGER, nearest, table)
    if (table < 0.0).any():
        raise ProblemError("x must not be negative: counts of people are not")
    table.setflags(write=False)
    return table


def _checked_parent(parent: ArrayLike, cells: int) -> Ints:
    """Return read-only int64[cells]; ProblemError for another shape and for numbers that are not integers."""
    array = as_array(parent, "parent")
    if array.shape != (cells,) or (array.size and array.dtype.kind not in "iu"):
        raise ProblemError(f"parent must be one integer a cell, {cells} in all")
    integers = np.array(array, dtype=np.int64)
    integers.setflags(write=False)
    return integers
