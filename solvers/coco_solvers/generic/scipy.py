"""SciPy: ``linprog`` for linear programs and ``milp`` for mixed-integer programs (both call HiGHS inside)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from coco_opt.forms import LinearProgram, MixedIntegerProgram, ProgramDual
from coco_opt.solution import Status
from coco_opt.solver import ProgramAnswer, ProgramSolver
from coco_solvers.generic.adapt import Sides, claim, csc32, sides


@dataclass(frozen=True)
class SciPyLinprog(ProgramSolver):
    """``scipy.optimize.linprog``: ``highs-ds`` is dual simplex, ``highs-ipm`` interior point."""

    name: ClassVar[str] = "scipy"
    accepts: ClassVar[tuple[type[LinearProgram], ...]] = (LinearProgram,)

    method: Literal["highs", "highs-ds", "highs-ipm"] = "highs"
    presolve: bool = True
    max_iter: int | None = None
    time_limit: float | None = None
    primal_feasibility_tolerance: float = 1e-9
    dual_feasibility_tolerance: float = 1e-9
    tolerance: float = 1e-7

    def solve_program(self, program: LinearProgram) -> ProgramAnswer:
        """Solve a linear program; its rows are split into equalities and one-sided inequalities."""
        from scipy.optimize import linprog
        from scipy.sparse import csr_array, vstack

        split = sides(program.row_lower, program.row_upper)
        by_row = csr_array(program.A)
        arguments: dict[str, Any] = {
            "A_ub": csc32(vstack([by_row[split.upper], -by_row[split.lower]])),
            "b_ub": np.concatenate([program.row_upper[split.upper], -program.row_lower[split.lower]]),
            "A_eq": csc32(by_row[split.equal]),
            "b_eq": program.row_lower[split.equal],
            "bounds": np.column_stack([program.lower, program.upper]),
        }
        result = linprog(program.c, **arguments, method=self.method, options=self._options())
        return claim(_status(result), result.x, _dual(result, split, program.rows), int(result.nit))

    def _options(self) -> Any:
        limits = {"maxiter": self.max_iter, "time_limit": self.time_limit}
        return {
            "presolve": self.presolve,
            "primal_feasibility_tolerance": self.primal_feasibility_tolerance,
            "dual_feasibility_tolerance": self.dual_feasibility_tolerance,
            **{key: value for key, value in limits.items() if value is not None},
        }


@dataclass(frozen=True)
class SciPyMilp(ProgramSolver):
    """``scipy.optimize.milp``, which returns no multipliers.

    ``form`` picks one writing of a problem that has both.
    """

    name: ClassVar[str] = "scipy-milp"
    accepts: ClassVar[tuple[type[LinearProgram], ...]] = (MixedIntegerProgram, LinearProgram)

    form: Literal["lp", "milp"] | None = None
    presolve: bool = True
    max_nodes: int | None = None
    time_limit: float | None = None
    mip_rel_gap: float = 0.0
    tolerance: float = 1e-7

    def solve_program(self, program: LinearProgram) -> ProgramAnswer:
        """Solve a mixed-integer or linear program."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        integer = program.integer if isinstance(program, MixedIntegerProgram) else np.zeros(program.variables)
        requested = {"node_limit": self.max_nodes, "time_limit": self.time_limit}
        limits = {key: value for key, value in requested.items() if value is not None}
        options: Any = {"presolve": self.presolve, "mip_rel_gap": self.mip_rel_gap, **limits}
        result = milp(
            program.c,
            integrality=integer.astype(np.uint8),
            bounds=Bounds(program.lower, program.upper),
            constraints=LinearConstraint(csc32(program.A), program.row_lower, program.row_upper),
            options=options,
        )
        nodes = result.mip_node_count
        return claim(_status(result), result.x, None, 0 if nodes is None else int(nodes))


def _status(result: Any) -> Status:
    """Translate SciPy's status; one number stands for both limits, so the message must decide which it was."""
    if result.status == 1:
        return Status.TIME_LIMIT if "time limit" in result.message.lower() else Status.ITERATION_LIMIT
    statuses = {0: Status.OPTIMAL, 2: Status.INFEASIBLE, 3: Status.UNBOUNDED}
    return statuses.get(result.status, Status.NUMERICAL_TROUBLE)


def _dual(result: Any, split: Sides, rows: int) -> ProgramDual | None:
    """Return the marginals as duals of two-sided rows; those of lower sides were written negated."""
    if result.x is None:
        return None
    upper, lower = np.split(result.ineqlin.marginals, [split.upper.size])
    on_rows = np.zeros(rows)
    on_rows[split.equal] += result.eqlin.marginals
    on_rows[split.upper] += upper
    on_rows[split.lower] -= lower
    return ProgramDual(on_rows, result.lower.marginals + result.upper.marginals)
