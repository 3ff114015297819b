"""Controlled rounding of tables whose rows are nested, as a flow: nearest tables with optimal prices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.problems.table_rounding.data import RoundingData, RoundingDual

_ROUNDS = 20
_NEAR_INTEGER = 1e-6  # a side this near to an integer counts as it


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
    open_table, sums = np.empty(x.shape, np.int64), data.parent is not None
    lower, upper, aim = _network_sides(data)
    cell_price, row_price = np.zeros(open_cells.size if sums else 0), np.zeros_like(lower)
    box, sides = table_rounding.Box(x, low, high), table_rounding.RowSides(lower, upper)
    prices = table_rounding.Prices(cell_price, row_price)
    if data.parent is None:
        table_rounding.nearest(x, low, high, open_table)
    else:
        table_rounding.largest_fractions(x, low, high, data.parent[open_cells], open_table, cell_price)
        if data.queries:
            cell_price[:] = 0.0  # what a cell holds costs nothing
        elif data.slack == 1 and row_price.size:
            rows = data.rows
            table_rounding_prices.ascend(box, rows.start, rows.cell, nested.up, sides, open_table, prices, _ROUNDS)
    nest = table_rounding.Nest(nested.leaf, nested.up)
    failed = table_rounding_flow.solve(box, nest, sides, open_table, prices, aim, float(not data.queries))
    table, parent = data.box[0].copy(), np.zeros(data.shape[1])
    table[:, open_cells] = open_table
    if sums:
        parent[open_cells] = cell_price
    unmet = None if failed < 0 else divmod(int(failed), row_price.size // row_price.shape[0])
    count = data.rows.shape[0]
    # The price of one person more in an answer is minus the price of its row.
    return Transport(table, RoundingDual(parent, row_price[:, :count], -row_price[:, count:]), unmet)


def _network_sides(data: RoundingData) -> tuple[Floats, Floats, Floats]:
    """Return the lower and upper sides and the aims of the network's rows [children, rows]."""
    lower, upper = np.ceil(data.sides[0] - _NEAR_INTEGER), np.floor(data.sides[1] + _NEAR_INTEGER)
    aim = np.full(lower.shape, -1.0)
    if not data.queries:
        return lower, upper, aim
    aims = np.maximum(data.aims, 0.0)
    free = np.zeros_like(aims), np.full_like(aims, np.inf)
    return np.hstack([lower, free[0]]), np.hstack([upper, free[1]]), np.hstack([aim, aims])


def between(data: RoundingData, x: NDArray[Any]) -> NDArray[Any]:
    """Return integer tables between the floors and ceilings of x whose rows lie between those of x's; x if none exist.

    Where x is optimal for the linear relaxation of nested rows, so is the answer for the problem: each of its cells and
    rows lies where the prices that prove x optimal leave it free.
    """
    constraints = data.constraints
    if constraints is not None:
        values = constraints.operator.apply(x)
        low, high = np.floor(values + _NEAR_INTEGER).astype(np.int64), np.ceil(values - _NEAR_INTEGER).astype(np.int64)
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
