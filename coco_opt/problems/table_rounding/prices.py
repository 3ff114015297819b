"""Prices of controlled rounding of tables whose rows are no network: those of the linear relaxation."""

from __future__ import annotations

from typing import Any

import numpy as np

from coco_opt.problems.table_rounding.data import RoundingData
from coco_opt.problems.table_rounding.program import relaxation
from coco_opt.problems.table_rounding.rows import RoundingDual
from coco_opt.solver import hushed

_PRICE_SECONDS = 60.0  # for one linear relaxation


def relaxed_prices(data: RoundingData) -> RoundingDual:
    """Return the optimal prices of the linear relaxation; zeros, which prove little, where it is not solved in time.

    By SciPy's HiGHS; the prices of its rows are read with the sign convention of ``coco_opt.forms``.
    """
    from scipy.optimize import linprog
    from scipy.sparse import vstack

    written = relaxation(data)
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
    solved = hushed(linprog)(program.c, **sides, method="highs-ds", options={"time_limit": _PRICE_SECONDS})
    if solved.status != 0:
        return RoundingDual.zeros(data.shape[1], data.sides[0].shape)
    dual = np.zeros(program.rows)
    dual[equal] = solved.eqlin.marginals
    dual[above] += solved.ineqlin.marginals[: int(above.sum())]
    dual[below] -= solved.ineqlin.marginals[int(above.sum()) :]
    prices: RoundingDual = written.prices(dual)
    return prices
