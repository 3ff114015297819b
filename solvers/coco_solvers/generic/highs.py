"""HiGHS and its HiPO through highspy: linear, quadratic and mixed-integer programs, passed as arrays."""

# highspy's types cover only part of its calls.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from coco_opt.errors import ConfigError, SolverError
from coco_opt.forms import (
    FORMS,
    FormName,
    LinearProgram,
    MixedIntegerProgram,
    ProgramDual,
    QuadraticProgram,
)
from coco_opt.problem import Problem
from coco_opt.solution import Answer, Status
from coco_opt.solver import ProgramAnswer, ProgramSolver, ValueT, relative_gap
from coco_solvers.generic.adapt import claim, csc32

if TYPE_CHECKING:
    import highspy


@dataclass(frozen=True)
class _ThroughHiGHS(ProgramSolver):
    """The base of all algorithms of HiGHS: options, passing the model, reading the solution.

    ``time_limit`` is in seconds; ``form`` picks one writing of a problem that has several.
    """

    form: FormName | None = None
    presolve: bool = True
    threads: int = 1
    max_iter: int | None = None
    time_limit: float | None = None
    primal_feasibility_tolerance: float = 1e-9
    dual_feasibility_tolerance: float = 1e-9
    tolerance: float = 1e-7

    def solve_program(self, program: LinearProgram) -> ProgramAnswer:
        """Solve a program of an accepted form."""
        import highspy

        # HiGHS keeps its workers per thread from the first run on; a later run with another number would fail.
        wait = True
        highspy.Highs.resetGlobalScheduler(wait)
        highs = highspy.Highs()
        for option, (field, value) in self._settings(program).items():
            if highs.setOptionValue(option, value) == highspy.HighsStatus.kError:
                raise ConfigError(f"solvers.{self.name}.{field}", f"HiGHS refuses the value {value!r}")
        failed = highs.passModel(_model(program)) == highspy.HighsStatus.kError
        if not failed:
            failed = highs.run() == highspy.HighsStatus.kError
            failed &= highs.getModelStatus() == highspy.HighsModelStatus.kNotset
        if failed:
            raise SolverError(f"HiGHS fails on this {program.form}, perhaps as P is not convex: use another solver")
        return _answer(highs, isinstance(program, MixedIntegerProgram))

    def _settings(self, program: LinearProgram) -> dict[str, tuple[str, Any]]:
        """Return HiGHS's option names with this class's field and value for each."""
        settings: dict[str, tuple[str, Any]] = {
            "output_flag": ("output", False),
            "presolve": ("presolve", "on" if self.presolve else "off"),
            "threads": ("threads", self.threads),
            "primal_feasibility_tolerance": ("primal_feasibility_tolerance", self.primal_feasibility_tolerance),
            "dual_feasibility_tolerance": ("dual_feasibility_tolerance", self.dual_feasibility_tolerance),
        }
        if self.time_limit is not None:
            settings["time_limit"] = ("time_limit", self.time_limit)
        return settings


@dataclass(frozen=True)
class HiGHS(_ThroughHiGHS):
    """HiGHS: simplex, interior point or PDLP for LP, an active set for QP, then HiPO, branch and cut for MILP.

    ``method`` applies to linear programs; ``max_iter`` counts simplex, interior-point, PDLP or active-set
    iterations, or nodes (None: HiGHS's own limit, but 1,000 + 3 (n + m) for the active set: what ends takes less than
    2 (n + m), the rest cycles).
    """

    name: ClassVar[str] = "highs"
    accepts: ClassVar[tuple[type[LinearProgram], ...]] = tuple(FORMS.values())

    method: Literal["choose", "simplex", "ipm", "pdlp"] = "choose"
    mip_rel_gap: float = 0.0

    def solve(self, problem: Problem[ValueT, Any]) -> Answer[ValueT, Any]:
        """Solve a problem; one whose active set ends without a certified answer also by the interior point.

        HiGHS 1.15 refuses its own optimum, rows missed by 1e-5 to 1e-4, for 2 of 15 splits of Hawaii's blocks. The
        answer of smaller certified gap is kept: what HiGHS refuses is often good after repair.
        """
        start = perf_counter()
        answer = super().solve(problem)
        if answer.status is not Status.NUMERICAL_TROUBLE or self.form_for(problem) is not QuadraticProgram:
            return answer
        gap = relative_gap(problem, answer)
        if gap <= self.tolerance:
            return answer
        options = {field.name: getattr(self, field.name) for field in fields(_ThroughHiGHS)}
        limit = HiPO.time_limit if self.time_limit is None else self.time_limit - (perf_counter() - start)
        if limit is not None and limit <= 0:
            return answer
        try:
            second = HiPO(**options | {"time_limit": limit}).solve(problem)
        except (ConfigError, SolverError):  # without HiPO, or where it fails, the first answer stays
            return answer
        best = second if relative_gap(problem, second) < gap else answer
        return replace(
            best,
            seconds=answer.seconds + second.seconds,
            build_seconds=answer.build_seconds + second.build_seconds,
        )

    def _settings(self, program: LinearProgram) -> dict[str, tuple[str, Any]]:
        settings = super()._settings(program)
        settings["mip_feasibility_tolerance"] = settings["primal_feasibility_tolerance"]
        settings["mip_rel_gap"] = ("mip_rel_gap", self.mip_rel_gap)
        if program.form == "lp":
            # For any other form a method chosen by name would drop the quadratic term or the integrality.
            settings["solver"] = ("method", self.method)
        limit = self.max_iter
        if limit is None and program.form == "qp":
            limit = 1000 + 3 * (program.variables + program.rows)
        if limit is not None:
            settings |= dict.fromkeys(_LIMITS[program.form], ("max_iter", limit))
        return settings


@dataclass(frozen=True)
class HiPO(_ThroughHiGHS):
    """HiPO, the interior-point method of HiGHS with a factorisation of its own, for LP and QP.

    ``gap_tolerance`` bounds the relative duality gap; ``max_iter`` counts interior-point iterations. ``time_limit`` is
    in seconds: on badly scaled programs HiPO of HiGHS 1.15 may never end, whatever its number of iterations.
    """

    name: ClassVar[str] = "hipo"
    accepts: ClassVar[tuple[type[LinearProgram], ...]] = (LinearProgram, QuadraticProgram)

    gap_tolerance: float = 1e-10
    time_limit: float | None = 60.0

    def solve_program(self, program: LinearProgram) -> ProgramAnswer:
        """Solve a linear or quadratic program."""
        from scipy.sparse import csc_array, csr_array

        # Rows without bounds crash HiPO of HiGHS 1.15, or break its answer.
        bounded = np.flatnonzero((program.row_lower > -np.inf) | (program.row_upper < np.inf))
        if bounded.size == program.rows:
            return super().solve_program(program)
        answer = super().solve_program(
            replace(
                program,
                A=csc_array(csr_array(program.A)[bounded]),
                row_lower=program.row_lower[bounded],
                row_upper=program.row_upper[bounded],
            )
        )
        if answer.dual is None:
            return answer
        rows = np.zeros(program.rows)
        rows[bounded] = answer.dual.rows
        return replace(answer, dual=replace(answer.dual, rows=rows))

    def _settings(self, program: LinearProgram) -> dict[str, tuple[str, Any]]:
        settings = super()._settings(program)
        settings["solver"] = ("solver", "hipo")
        settings["ipm_optimality_tolerance"] = ("gap_tolerance", self.gap_tolerance)
        if self.max_iter is not None:
            settings["ipm_iteration_limit"] = ("max_iter", self.max_iter)
        return settings


_LIMITS = {
    "lp": ("simplex_iteration_limit", "ipm_iteration_limit", "pdlp_iteration_limit"),
    "qp": ("qp_iteration_limit",),
    "milp": ("mip_max_nodes",),
}


def _model(program: LinearProgram) -> highspy.HighsModel:
    import highspy

    matrix = csc32(program.A)
    model = highspy.HighsModel()
    lp = model.lp_
    lp.num_col_, lp.num_row_ = program.variables, program.rows
    lp.offset_ = program.offset
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = program.c, program.lower, program.upper
    lp.row_lower_, lp.row_upper_ = program.row_lower, program.row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = matrix.indptr, matrix.indices, matrix.data
    if isinstance(program, MixedIntegerProgram):
        kinds = np.array([highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger])
        lp.integrality_ = kinds[program.integer.astype(np.intp)].tolist()
    if isinstance(program, QuadraticProgram):
        from scipy.sparse import tril

        lower = csc32(tril(program.P))
        model.hessian_.dim_ = program.variables
        model.hessian_.format_ = highspy.HessianFormat.kTriangular
        model.hessian_.start_, model.hessian_.index_ = lower.indptr, lower.indices
        model.hessian_.value_ = lower.data
    return model


def _answer(highs: highspy.Highs, integer: bool) -> ProgramAnswer:
    import highspy

    kinds = highspy.HighsModelStatus
    statuses = {
        kinds.kOptimal: Status.OPTIMAL,
        kinds.kModelEmpty: Status.OPTIMAL,
        kinds.kInfeasible: Status.INFEASIBLE,
        kinds.kUnbounded: Status.UNBOUNDED,
        kinds.kUnboundedOrInfeasible: Status.INFEASIBLE,
        kinds.kIterationLimit: Status.ITERATION_LIMIT,
        kinds.kSolutionLimit: Status.ITERATION_LIMIT,
        kinds.kTimeLimit: Status.TIME_LIMIT,
    }
    status = statuses.get(highs.getModelStatus(), Status.NUMERICAL_TROUBLE)
    solution, info = highs.getSolution(), highs.getInfo()
    counts = (
        info.simplex_iteration_count,
        info.ipm_iteration_count,
        info.pdlp_iteration_count,
        info.qp_iteration_count,
    )
    # After a solve error the last point is still there: slightly infeasible, as a rule, and for the core to judge.
    offered = solution.value_valid or highs.getModelStatus() == kinds.kSolveError
    z = np.array(solution.col_value) if offered else None
    dual = None
    if solution.dual_valid and not integer:
        dual = ProgramDual(np.array(solution.row_dual), np.array(solution.col_dual))
    return claim(status, z, dual, sum(max(0, count) for count in counts))
