"""Prices of controlled rounding of tables whose rows are no network: those of the linear relaxation."""

from __future__ import annotations

from coco_opt.problems.table_rounding.data import RoundingData
from coco_opt.problems.table_rounding.program import relaxation
from coco_opt.problems.table_rounding.rows import RoundingDual
from coco_opt.registry import program_solver
from coco_opt.solution import Status
from coco_opt.solver import hushed

_PRICE_SECONDS = 60.0  # for one linear relaxation


def relaxed_prices(data: RoundingData) -> RoundingDual:
    """Return the optimal prices of the linear relaxation; zeros, which prove little, where it is not solved in time.

    By dual simplex of the solver table.
    """
    written = relaxation(data)
    with hushed:
        answer = program_solver("scipy", method="highs-ds", time_limit=_PRICE_SECONDS).solve_program(written.program)
    if answer.status is not Status.OPTIMAL or answer.dual is None:
        return RoundingDual.zeros(data.shape[1], data.sides[0].shape)
    prices: RoundingDual = written.prices(answer.dual.rows)
    return prices
