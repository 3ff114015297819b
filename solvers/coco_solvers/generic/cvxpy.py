"""CVXPY: the readable reference, a program written as the mathematics it is, for any engine CVXPY knows."""

# CVXPY's types cover only part of its names and calls.
# mypy: disable-error-code="no-untyped-call,attr-defined"

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.errors import ConfigError, UnknownSolverError
from coco_opt.forms import FORMS, FormName, LinearProgram, MixedIntegerProgram, ProgramDual, QuadraticProgram
from coco_opt.solution import Status
from coco_opt.solver import ProgramAnswer, ProgramSolver
from coco_solvers.generic.adapt import claim, sides

if TYPE_CHECKING:
    import cvxpy as cp

DEFAULT_ENGINE = {"lp": "CLARABEL", "qp": "CLARABEL", "milp": "HIGHS"}

# The names of each engine's options for accuracy and iteration limit.
_ACCURACY = {
    "CLARABEL": ("tol_gap_abs", "tol_gap_rel", "tol_feas"),
    "OSQP": ("eps_abs", "eps_rel"),
    "PIQP": ("eps_abs", "eps_rel"),
    "SCS": ("eps_abs", "eps_rel"),
}
_MAX_ITER = {"CLARABEL": "max_iter", "OSQP": "max_iter", "PIQP": "max_iter", "SCS": "max_iters"}


@dataclass(frozen=True)
class CVXPY(ProgramSolver):
    """CVXPY with a chosen engine (None: Clarabel for LP and QP, HiGHS for MILP).

    ``accuracy`` and ``max_iter`` are passed on to Clarabel, OSQP, PIQP and SCS (None: the engine's own);
    ``form`` picks one writing of a problem that has several.
    """

    name: ClassVar[str] = "cvxpy"
    accepts: ClassVar[tuple[type[LinearProgram], ...]] = tuple(FORMS.values())

    engine: str | None = None
    form: FormName | None = None
    accuracy: float | None = None
    max_iter: int | None = None
    tolerance: float = 1e-6

    def solve_program(self, program: LinearProgram) -> ProgramAnswer:
        """Solve a program; UnknownSolverError for an engine that is not installed or cannot express it."""
        import cvxpy as cp

        engine = self._checked_engine(program)
        z = cp.Variable(program.variables, integer=_integer(program))
        cost = program.c @ z
        if isinstance(program, QuadraticProgram):
            # The program promises a convex P; checking it again would take eigenvalues.
            cost += 0.5 * cp.quad_form(z, cp.psd_wrap(program.P))
        rows = _Between(program.A @ z, program.row_lower, program.row_upper)
        bounds = _Between(z, program.lower, program.upper)
        problem = cp.Problem(cp.Minimize(cost), rows.constraints + bounds.constraints)
        status = _solve(problem, engine, self._options(engine))
        dual = None
        if status is Status.OPTIMAL and not isinstance(program, MixedIntegerProgram):
            dual = ProgramDual(rows.dual(), bounds.dual())
        iterations = None if problem.solver_stats is None else problem.solver_stats.num_iters
        return claim(status, z.value, dual, max(0, int(iterations or 0)))

    def _checked_engine(self, program: LinearProgram) -> str:
        import cvxpy as cp
        from cvxpy.reductions.solvers.defines import INSTALLED_MI_SOLVERS

        engine = DEFAULT_ENGINE[program.form] if self.engine is None else self.engine.upper()
        if engine not in cp.installed_solvers():
            engines = ", ".join(cp.installed_solvers())
            raise UnknownSolverError(f"CVXPY has no engine {self.engine!r} installed; installed: {engines}")
        if isinstance(program, MixedIntegerProgram) and engine not in INSTALLED_MI_SOLVERS:
            engines = ", ".join(INSTALLED_MI_SOLVERS)
            raise UnknownSolverError(f"CVXPY's {engine} solves no mixed-integer programs; installed: {engines}")
        return engine

    def _options(self, engine: str) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if self.accuracy is not None:
            options |= dict.fromkeys(_option_name(_ACCURACY, engine, "accuracy"), self.accuracy)
        if self.max_iter is not None:
            options[_option_name(_MAX_ITER, engine, "max_iter")] = self.max_iter
        return options


class _Between:
    """The constraints ``lower <= expression <= upper`` (k,), infinite sides left out, and their duals."""

    def __init__(self, expression: Any, lower: Floats, upper: Floats) -> None:
        split = sides(lower, upper)
        # CVXPY's multipliers of == and <= have the opposite sign of coco_opt.forms, those of >= the same.
        parts = [
            (split.equal, -1.0, lambda position: expression[position] == lower[position]),
            (split.lower, +1.0, lambda position: expression[position] >= lower[position]),
            (split.upper, -1.0, lambda position: expression[position] <= upper[position]),
        ]
        self.size = lower.size
        self.parts = [(position, sign, write(position)) for position, sign, write in parts if position.size]

    @property
    def constraints(self) -> list[cp.Constraint]:
        return [constraint for _, _, constraint in self.parts]

    def dual(self) -> Floats:
        dual = np.zeros(self.size)
        for position, sign, constraint in self.parts:
            dual[position] += sign * constraint.dual_value
        return dual


def _integer(program: LinearProgram) -> Any:
    """Return which variables are integer, as CVXPY expects it: a truth value or a tuple of index arrays."""
    if not isinstance(program, MixedIntegerProgram) or not program.integer.any():
        return False
    return True if program.integer.all() else np.nonzero(program.integer)


def _solve(problem: cp.Problem, engine: str, options: dict[str, Any]) -> Status:
    import cvxpy as cp

    try:
        problem.get_problem_data(engine)
    except cp.SolverError:
        raise UnknownSolverError(f"CVXPY's {engine} cannot express this kind of program") from None
    with warnings.catch_warnings():
        # CVXPY warns of inaccurate solutions; here the status shows that, and the core measures the inaccuracy.
        warnings.simplefilter("ignore", UserWarning)
        try:
            problem.solve(solver=engine, **options)
        except cp.SolverError:
            return Status.NUMERICAL_TROUBLE
    return {
        cp.OPTIMAL: Status.OPTIMAL,
        cp.INFEASIBLE: Status.INFEASIBLE,
        cp.INFEASIBLE_INACCURATE: Status.INFEASIBLE,
        cp.UNBOUNDED: Status.UNBOUNDED,
        cp.UNBOUNDED_INACCURATE: Status.UNBOUNDED,
        cp.USER_LIMIT: Status.ITERATION_LIMIT,
    }.get(problem.status, Status.NUMERICAL_TROUBLE)


def _option_name(table: dict[str, Any], engine: str, option: str) -> Any:
    if engine not in table:
        engines = ", ".join(table)
        raise ConfigError(f"solvers.cvxpy.{option}", f"cannot be set for {engine}, only for {engines}")
    return table[engine]
