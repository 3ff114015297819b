"""Controlled rounding of tables whose rows are nested, as a flow: nearest tables with optimal prices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.problems.sparse_rows import Floats, Ints
from coco_opt.problems.table_rounding.data import RoundingData
from coco_opt.problems.table_rounding.rows import UNBOUNDED, IntegerRows, RoundingDual

_ROUNDS = 20
_WHOLE = 1e-6  # how near to a whole number a side counts as one


@dataclass(frozen=True, eq=False, slots=True)
class Transport:
    """A flow's outcome: tables int64[children, cells], prices, and a (child, row) that cannot be met, or None."""

    table: Ints
    prices: RoundingDual
    unmet: tuple[int, int] | None


def solve(data: RoundingData) -> Transport:
    """Return the nearest tables of a problem whose rows are nested, with optimal prices."""
    from coco_opt.kernels import table_rounding, table_rounding_flow, table_rounding_prices

    nested, open_cells = data.nested, data.open
    assert nested is not None
    x = np.ascontiguousarray(data.x[:, open_cells])
    low, high = (np.ascontiguousarray(side[:, open_cells]) for side in data.box)
    held, sums = np.empty(x.shape, np.int64), data.parent is not None
    lower, upper, aim = _carried(data)
    cell_price, row_price = np.zeros(open_cells.size if sums else 0), np.zeros_like(lower)
    if data.parent is None:
        table_rounding.nearest(x, low, high, held)
    else:
        table_rounding.largest_fractions(x, low, high, data.parent[open_cells], held, cell_price)
        if data.queries:
            cell_price[:] = 0.0  # what a cell holds costs nothing
        elif data.slack == 1 and row_price.size:
            rows = data.rows
            table_rounding_prices.ascend(
                x, low, high, rows.start, rows.cell, nested.up, lower, upper, held, cell_price, row_price, _ROUNDS
            )
    failed = table_rounding_flow.solve(
        x, low, high, nested.leaf, nested.up, lower, upper, held, cell_price, row_price, aim, float(not data.queries)
    )
    table, parent = data.box[0].copy(), np.zeros(data.shape[1])
    table[:, open_cells] = held
    if sums:
        parent[open_cells] = cell_price
    unmet = None if failed < 0 else divmod(int(failed), row_price.size // row_price.shape[0])
    count = data.rows.shape[0]
    # One person more in an answer costs what the way out of its row saves.
    return Transport(table, RoundingDual(parent, row_price[:, :count], -row_price[:, count:]), unmet)


def _carried(data: RoundingData) -> tuple[Floats, Floats, Floats]:
    """Return the lower and upper sides and the aims of what the network's rows carry [children, rows]."""
    lower, upper = np.ceil(data.sides[0] - _WHOLE), np.floor(data.sides[1] + _WHOLE)
    aim = np.full(lower.shape, -1.0)
    if not data.queries:
        return lower, upper, aim
    asked = np.maximum(data.aims, 0.0)
    free = np.zeros_like(asked), np.full_like(asked, np.inf)
    return np.hstack([lower, free[0]]), np.hstack([upper, free[1]]), np.hstack([aim, asked])


def between(data: RoundingData, x: NDArray[Any]) -> NDArray[Any]:
    """Return whole tables between the floors and ceilings of x whose rows lie between those of x's; x if none exist.

    Where x is optimal for the linear relaxation of nested rows, so is the answer for the problem: each of its cells and
    rows lies where the prices that prove x optimal leave it free.
    """
    constraints = data.constraints
    if constraints is not None:
        values = constraints.operator.apply(x)
        low, high = np.floor(values + _WHOLE).astype(np.int64), np.ceil(values - _WHOLE).astype(np.int64)
        lower, upper = np.maximum(constraints.lower, low), np.minimum(constraints.upper, high)
        if (lower > upper).any():
            return x
        constraints = replace(constraints, lower=lower, upper=upper)
    try:
        flow = solve_nested(RoundingData(np.maximum(x, 0.0), data.parent, constraints))
    except ProblemError:
        return x
    return x if flow is None or flow.unmet is not None else flow.table


def solve_nested(data: RoundingData) -> Transport | None:
    """Return the flow's outcome, None where the rows are not nested."""
    return None if data.nested is None else solve(data)


def nested_part(data: RoundingData) -> RoundingData:
    """Return the problem of nearest cells with the first rows of C alone that are nested with those before them."""
    from coco_opt.kernels import table_rounding

    rows, (least, most), (lower, upper) = data.rows, data.reach, data.sides
    binds, kept = (least < lower) | (most > upper), np.zeros(rows.shape[0], np.bool_)
    for row in range(rows.shape[0]):
        kept[row] = True
        kept[row] = table_rounding.nest(rows.start, rows.cell, rows.value, data.room, binds & kept)[0]
    given = data.constraints
    if given is None:
        return RoundingData(data.x, data.parent, None, data.slack)
    sides = np.where(kept, given.lower, -UNBOUNDED), np.where(kept, given.upper, UNBOUNDED)
    return RoundingData(data.x, data.parent, IntegerRows(given.operator, *sides), data.slack)
