"""The one verb: ``solve(problem, solver)`` asks a solver, then lets the problem judge what came back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from time import perf_counter
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np

from coco_opt.errors import SolverError, UnknownSolverError
from coco_opt.forms import FORMS, FloatArray, FormName, LinearProgram, ProgramDual
from coco_opt.problem import Problem
from coco_opt.solution import Answer, Solution, Status

ValueT = TypeVar("ValueT")


@runtime_checkable
class Solver(Protocol):
    """A solver is an immutable value that holds its own options."""

    @property
    def name(self) -> str:
        """The solver's name in config, results and tables."""

    @property
    def tolerance(self) -> float:
        """The certified gap, relative to the objective (or to 1), at which its answers count as optimal."""

    def solve(self, problem: Problem[Any, Any]) -> Answer[Any, Any]:
        """Return a point for the problem; UnknownSolverError if the problem is not one it can express."""


@dataclass(frozen=True, eq=False)
class ProgramAnswer:
    """What a generic solver returns for a program: variables (n,), duals, and how it stopped."""

    z: FloatArray | None
    status: Status
    dual: ProgramDual | None = None
    iterations: int | None = None


class ProgramSolver(ABC):
    """Base of the generic backends: solves any problem that can write itself as a program they accept.

    A subclass is a frozen dataclass of typed options that implements ``solve_program``. ``accepts`` lists
    exactly the forms it solves; a subclass of an accepted form is not accepted. ``form``, an option of some
    solvers, picks one of them where a problem can be written in several.
    """

    name: ClassVar[str]
    accepts: ClassVar[tuple[type[LinearProgram], ...]]
    tolerance: float
    form: FormName | None = None

    @abstractmethod
    def solve_program(self, program: LinearProgram) -> ProgramAnswer:
        """Solve one program of an accepted form."""

    def form_for(self, problem: Problem[Any, Any]) -> type[LinearProgram]:
        """Return the first of the problem's forms that this solver accepts, or the one asked for."""
        offered = self.accepts if self.form is None else (FORMS[self.form],)
        for form in problem.forms:
            if form in offered:
                return form
        wanted = ", ".join(form.form for form in problem.forms)
        having = ", ".join(form.form for form in offered)
        raise UnknownSolverError(
            f"solver {self.name!r} cannot express {problem.kind}: it takes {having}, the problem is {wanted}"
        )

    def solve(self, problem: Problem[ValueT, Any]) -> Answer[ValueT, Any]:
        """Write the problem as a program, solve it, and translate the answer back."""
        start = perf_counter()
        formulation = problem.formulate(self.form_for(problem))
        built = perf_counter()
        program = formulation.program
        answer = self.solve_program(program) if program.variables else _without_variables(program)
        done = perf_counter()
        multipliers = None
        if answer.dual is not None and formulation.multipliers is not None:
            multipliers = formulation.multipliers(answer.dual)
        return Answer(
            value=None if answer.z is None else formulation.recover(answer.z),
            status=answer.status,
            multipliers=multipliers,
            iterations=answer.iterations,
            seconds=done - built,
            build_seconds=built - start,
        )


def _without_variables(program: LinearProgram) -> ProgramAnswer:
    """Answer a program with nothing to choose, which several packages refuse."""
    feasible = bool(((program.row_lower <= 0) & (program.row_upper >= 0)).all())
    dual = ProgramDual(np.zeros(program.rows), np.zeros(0))
    return ProgramAnswer(np.zeros(0), Status.OPTIMAL if feasible else Status.INFEASIBLE, dual, 0)


def solve(
    problem: Problem[ValueT, Any],
    solver: str | Solver = "auto",
    *,
    tolerance: float | None = None,
    check: bool = True,
) -> Solution[ValueT]:
    """Solve a problem and certify the answer.

    ``solver`` is a name of the solver table, a solver value, or ``"auto"`` for the fastest exact built-in one.
    ``tolerance`` is the relative certified gap that counts as optimal (default: the solver's own). Raises
    SolverError where the answer is not optimal, unless ``check`` is false (then read ``Solution.status``), and always
    where there is no point to judge.
    """
    from coco_opt.registry import resolve

    chosen = resolve(solver, type(problem))
    answer = chosen.solve(problem)
    solution = judge(problem, answer, chosen.name, chosen.tolerance if tolerance is None else tolerance)
    if check and not solution.ok:
        raise SolverError(
            f"{chosen.name} on {problem.kind} ({problem.variables} unknowns): {solution.status.name}, "
            f"relative gap {solution.relative_gap:.2g} against {solution.tolerance:.2g}, "
            f"violation {solution.violation:.2g}. {solution.status.advice}",
            solution,
        )
    return solution


def solve_many(
    problems: Iterable[Problem[ValueT, Any]],
    solver: str | Solver = "auto",
    *,
    tolerance: float | None = None,
    check: bool = True,
    threads: int = 1,
) -> list[Solution[ValueT]]:
    """Solve a ragged batch of problems with one solver, in order; compiled kernels run in parallel threads."""
    from coco_opt.registry import resolve

    @cache
    def chosen(kind: type[Problem[Any, Any]]) -> Solver:
        return resolve(solver, kind)

    def one(problem: Problem[ValueT, Any]) -> Solution[ValueT]:
        return solve(problem, chosen(type(problem)), tolerance=tolerance, check=check)

    if threads <= 1:
        return [one(problem) for problem in problems]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(one, problems))


def judge(problem: Problem[ValueT, Any], answer: Answer[ValueT, Any], name: str, tolerance: float) -> Solution[ValueT]:
    """Repair a solver's point and compute its objective, violation and certified gap by the problem alone."""
    if answer.value is None:
        claim = "although it claims success" if answer.status is Status.OPTIMAL else answer.status.advice
        raise SolverError(f"{name} on {problem.kind} returned no point: {claim}")
    start = perf_counter()
    value, objective, gap = problem.accept(answer.value), float("nan"), float("inf")
    violation, scale = problem.violation(value), problem.scale
    raw_violation = violation
    if 0.0 < raw_violation < np.inf and raw_violation <= problem.repairable * scale:
        mended = problem.repair(value)
        if mended is not value:
            value, violation = mended, problem.violation(mended)
    feasible = violation <= problem.feasibility_tolerance * scale
    if feasible:
        objective = problem.objective(value)
        gap = problem.certified_gap(value, (answer.multipliers,))
    allowed = tolerance * max(1.0, abs(objective))
    if feasible and (gap <= allowed or gap <= allowed + problem.resolution):
        status = Status.OPTIMAL
    elif answer.status is not Status.OPTIMAL:
        status = answer.status
    else:
        status = Status.GAP_TOO_LARGE if feasible else Status.INFEASIBLE_POINT
    return Solution(
        value=value,
        objective=objective,
        violation=violation,
        gap=gap,
        raw_violation=raw_violation,
        tolerance=tolerance,
        status=status,
        solver=name,
        problem=problem.kind,
        iterations=answer.iterations,
        seconds=answer.seconds,
        build_seconds=answer.build_seconds,
        judge_seconds=perf_counter() - start,
    )
