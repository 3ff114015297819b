"""How controlled rounding of tables is solved for its own sake: as a flow, and by its linear relaxation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.problems.table_rounding_rows import UNBOUNDED, IntegerRows, RoundingDual

if TYPE_CHECKING:
    from coco_opt.problems.table_rounding import TableRounding

Ints = NDArray[np.int64]

_ROUNDS = 20
_PRICE_SECONDS = 60.0  # for the prices of a relaxation that is no flow
_WHOLE = 1e-6  # how near to a whole number a side counts as one


@dataclass(frozen=True, eq=False, slots=True)
class Transport:
    """A flow's outcome: tables int64[children, cells], prices, and a (child, row) that cannot be met, or None."""

    table: Ints
    prices: RoundingDual
    unmet: tuple[int, int] | None


def solve(problem: TableRounding) -> Transport:
    """Return the nearest tables of a problem whose rows are nested, with optimal prices."""
    from coco_opt.kernels import table_rounding, table_rounding_flow, table_rounding_prices

    nested, open_cells = problem.nested, problem.open
    assert nested is not None
    x = np.ascontiguousarray(problem.x[:, open_cells])
    low, high = (np.ascontiguousarray(side[:, open_cells]) for side in problem.box)
    held, sums = np.empty(x.shape, np.int64), problem.parent is not None
    cell_price, row_price = np.zeros(open_cells.size if sums else 0), np.zeros_like(problem.sides[0])
    lower, upper = np.ceil(problem.sides[0] - _WHOLE), np.floor(problem.sides[1] + _WHOLE)
    if problem.parent is None:
        table_rounding.nearest(x, low, high, held)
    else:
        table_rounding.largest_fractions(x, low, high, problem.parent[open_cells], held, cell_price)
        if problem.slack == 1 and row_price.size:
            rows = problem.rows
            table_rounding_prices.ascend(
                x, low, high, rows.start, rows.cell, nested.up, lower, upper, held, cell_price, row_price, _ROUNDS
            )
    failed = table_rounding_flow.solve(x, low, high, nested.leaf, nested.up, lower, upper, held, cell_price, row_price)
    table, parent = problem.box[0].copy(), np.zeros(problem.shape[1])
    table[:, open_cells] = held
    if sums:
        parent[open_cells] = cell_price
    unmet = None if failed < 0 else divmod(int(failed), row_price.size // row_price.shape[0])
    return Transport(table, RoundingDual(parent, row_price), unmet)


def between(problem: TableRounding, x: NDArray[Any]) -> NDArray[Any]:
    """Return whole tables between the floors and ceilings of x whose rows lie between those of x's; x if none exist.

    Where x is optimal for the linear relaxation of nested rows, so is the answer for the problem: each of its cells and
    rows lies where the prices that prove x optimal leave it free.
    """
    from coco_opt.problems.table_rounding import TableRounding

    constraints = problem.constraints
    if constraints is not None:
        values = constraints.operator.apply(x)
        low, high = np.floor(values + _WHOLE).astype(np.int64), np.ceil(values - _WHOLE).astype(np.int64)
        lower, upper = np.maximum(constraints.lower, low), np.minimum(constraints.upper, high)
        if (lower > upper).any():
            return x
        constraints = replace(constraints, lower=lower, upper=upper)
    try:
        found = solve_nested(TableRounding(np.maximum(x, 0.0), problem.parent, constraints))
    except ProblemError:
        return x
    return x if found is None or found.unmet is not None else found.table


def solve_nested(problem: TableRounding) -> Transport | None:
    """Return the flow's outcome, None where the rows are not nested."""
    return None if problem.nested is None else solve(problem)


def nested_part(problem: TableRounding) -> TableRounding:
    """Return the problem of nearest cells with the first rows of C alone that are nested with those before them."""
    from coco_opt.kernels import table_rounding
    from coco_opt.problems.table_rounding import TableRounding

    rows, (least, most), (lower, upper) = problem.rows, problem.reach, problem.sides
    binds, kept = (least < lower) | (most > upper), np.zeros(rows.shape[0], np.bool_)
    for row in range(rows.shape[0]):
        kept[row] = True
        kept[row] = table_rounding.nest(rows.start, rows.cell, rows.value, problem.room, binds & kept)[0]
    given = problem.constraints
    if given is None:
        return TableRounding(problem.x, problem.parent, None, problem.slack)
    sides = np.where(kept, given.lower, -UNBOUNDED), np.where(kept, given.upper, UNBOUNDED)
    return TableRounding(problem.x, problem.parent, IntegerRows(given.operator, *sides), problem.slack)


def relaxed_prices(problem: TableRounding) -> RoundingDual:
    """Return the optimal prices of the linear relaxation; zeros, which prove little, where it is not solved in time.

    By SciPy's HiGHS; the prices of its rows are read with the sign convention of ``coco_opt.forms``.
    """
    from scipy.optimize import linprog
    from scipy.sparse import vstack

    from coco_opt.problems.table_rounding_program import relaxation

    written = relaxation(problem)
    program = written.program
    equal = program.row_lower == program.row_upper
    below, above = ~equal & np.isfinite(program.row_lower), ~equal & np.isfinite(program.row_upper)
    matrix = program.A.tocsr()
    sides: dict[str, Any] = {
        "A_eq": matrix[equal],
        "b_eq": program.row_lower[equal],
        "A_ub": vstack([matrix[above], -matrix[below]], format="csr"),
        "b_ub": np.concatenate([program.row_upper[above], -program.row_lower[below]]),
        "bounds": np.column_stack([program.lower, program.upper]),
    }
    found = linprog(program.c, **sides, method="highs-ds", options={"time_limit": _PRICE_SECONDS})
    if found.status != 0:
        return RoundingDual(np.zeros(problem.shape[1]), np.zeros(problem.sides[0].shape))
    dual = np.zeros(program.rows)
    dual[equal] = found.eqlin.marginals
    dual[above] += found.ineqlin.marginals[: int(above.sum())]
    dual[below] -= found.ineqlin.marginals[int(above.sum()) :]
    prices: RoundingDual = written.prices(dual)
    return prices
