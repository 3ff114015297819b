"""The parts of controlled rounding of tables: prices, rows as trees, checks of its data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.problem import MAX_INTEGER, as_array

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
