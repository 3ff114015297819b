"""The parts of controlled rounding of tables: integer sides of its rows, prices, rows as trees, checks of its data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.operators import Operator
from coco_opt.problem import MAX_INTEGER, as_array

UNBOUNDED = 2**62
"""The upper side that stands for none, and its negative for a lower side; so do all of half its magnitude or more."""

NEAR_INTEGER = 1e-9
"""Numbers this near to an integer count as it: their distance is a solver's rounding, not information."""


@dataclass(frozen=True, eq=False, init=False, slots=True)
class IntegerRows:
    """Constraints on every child's integer table: ``lower_j <= C X_j <= upper_j``.

    Parameters
    ----------
    operator : Operator
        The rows C, a linear map from cells; see ``coco_opt.operators``.
    lower, upper : array_like of int, shape (children, rows)
        The sides: equal for an equality, and 2^62 or -2^62 (``problems.table_rounding.UNBOUNDED``) where there is none.

    Raises
    ------
    ProblemError
        The arrays are not like this, or a lower side is above the upper one.

    Examples
    --------
    >>> from coco_opt import IntegerRows, TableRounding, solve
    >>> from coco_opt.operators import total
    >>> known = IntegerRows(total(3), [[2]], [[2]])
    >>> solve(TableRounding([[0.2, 0.9, 0.9]], constraints=known)).value.tolist()
    [[0, 1, 1]]
    """

    operator: Operator
    lower: Ints
    upper: Ints

    def __init__(self, operator: Operator, lower: ArrayLike, upper: ArrayLike) -> None:
        object.__setattr__(self, "operator", operator)
        for name, values in (("lower", lower), ("upper", upper)):
            side = as_array(values, name)
            if side.ndim != 2 or side.shape[1] != operator.answers or (side.size and side.dtype.kind not in "iu"):
                raise ProblemError(f"{name} sides must be integers [children, {operator.answers} rows]")
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


def checked_tables(x: ArrayLike) -> Floats:
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


def checked_parent(parent: ArrayLike, cells: int) -> Ints:
    """Return read-only int64[cells]; ProblemError for another shape and for numbers that are not integers."""
    array = as_array(parent, "parent")
    if array.shape != (cells,) or (array.size and array.dtype.kind not in "iu"):
        raise ProblemError(f"parent must be one integer a cell, {cells} in all")
    integers = np.array(array, dtype=np.int64)
    integers.setflags(write=False)
    return integers
