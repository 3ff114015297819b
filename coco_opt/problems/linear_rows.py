"""Linear rows that bind the table of every child of a region, in splits and in roundings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from coco_opt.array_types import Floats
from coco_opt.errors import ProblemError
from coco_opt.operators import Operator
from coco_opt.problem import MAX_INTEGER, as_array


@dataclass(frozen=True, eq=False, init=False)
class LinearRows:
    """Constraints on every child's table: ``lower_j <= C x_j <= upper_j``, integer sides where tables are rounded.

    Parameters
    ----------
    operator : Operator
        The rows C, a linear map from cells; see ``coco_opt.operators``.
    lower, upper : array_like, shape (children, rows)
        The sides: infinite where there is none, as all beyond 2^53 are, equal for an equality.

    Raises
    ------
    ProblemError
        The arrays are not like this, or a lower side is above the upper one.

    Examples
    --------
    >>> from coco_opt import LinearRows, SplitTerm, TopdownSplit, solve
    >>> from coco_opt.operators import identity, total
    >>> known = LinearRows(total(2), [[4.0], [3.0]], [[4.0], [3.0]])
    >>> noisy = SplitTerm(identity(2), [[3.0, 2.0], [1.0, 1.0]], 1.0)
    >>> solve(TopdownSplit([noisy], constraints=known)).value.round(6).tolist()
    [[2.5, 1.5], [1.5, 1.5]]
    """

    operator: Operator
    lower: Floats
    upper: Floats

    def __init__(self, operator: Operator, lower: ArrayLike, upper: ArrayLike) -> None:
        least, most = (
            checked_table(sides, operator.answers, f"the {name} sides")
            for name, sides in (("lower", lower), ("upper", upper))
        )
        if least.shape != most.shape or np.isnan(least).any() or np.isnan(most).any():
            raise ProblemError("lower and upper sides must be numbers and of one shape")
        empty = (least > most) | (least > MAX_INTEGER) | (most < -MAX_INTEGER)
        if empty.any():
            child, row = np.argwhere(empty)[0]
            raise ProblemError(
                f"constraint {row} of child {child} is empty: its lower side is above its upper side, or beyond 2^53"
            )
        least[least < -MAX_INTEGER], most[most > MAX_INTEGER] = -np.inf, np.inf
        object.__setattr__(self, "operator", operator)
        for name, side in (("lower", least), ("upper", most)):
            side.setflags(write=False)
            object.__setattr__(self, name, side)


def checked_table(values: ArrayLike, columns: int, name: str) -> Floats:
    """Return a writable copy float64[children, columns]; ProblemError naming it for another shape."""
    table = np.array(as_array(values, name, np.float64))
    if table.ndim != 2 or table.shape[0] == 0 or table.shape[1] != columns:
        raise ProblemError(f"{name} must be a table, one row a child and {columns} columns, not {table.shape}")
    return table
