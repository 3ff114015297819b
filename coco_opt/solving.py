"""Solve a problem with a solver of the table, and let the problem judge the answer."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from coco_opt.errors import ProblemError, SolverError
from coco_opt.problem import Problem
from coco_opt.registry import resolve
from coco_opt.solution import Answer, Solution, Status
from coco_opt.solver import Solver

ValueT = TypeVar("ValueT")


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

    @cache
    def chosen(kind: type[Problem[Any, Any]]) -> Solver:
        return resolve(solver, kind)

    def solve_one(problem: Problem[ValueT, Any]) -> Solution[ValueT]:
        return solve(problem, chosen(type(problem)), tolerance=tolerance, check=check)

    check_threads(threads)
    if threads == 1:
        return [solve_one(problem) for problem in problems]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(solve_one, problems))


def check_threads(threads: int) -> None:
    """Raise ProblemError unless the number of threads is an integer of at least 1."""
    if isinstance(threads, bool) or not isinstance(threads, int | np.integer) or threads < 1:
        raise ProblemError(f"threads must be an integer of at least 1, not {threads!r}")


def judge(problem: Problem[ValueT, Any], answer: Answer[ValueT, Any], name: str, tolerance: float) -> Solution[ValueT]:
    """Repair a solver's point and compute its objective, violation and certified gap by the problem alone."""
    if answer.value is None:
        claim = "although it claims success" if answer.status is Status.OPTIMAL else answer.status.advice
        raise SolverError(f"{name} on {problem.kind} returned no point: {claim}")
    start = perf_counter()
    appraisal = problem.appraise(problem.accept(answer.value), (answer.multipliers,))
    feasible = appraisal.violation == 0.0 or appraisal.violation <= problem.feasibility_tolerance * problem.scale
    allowed = tolerance * max(1.0, abs(appraisal.objective))
    if feasible and (appraisal.gap <= allowed or appraisal.gap <= allowed + problem.resolution):
        status = Status.OPTIMAL
    elif answer.status is not Status.OPTIMAL:
        status = answer.status
    else:
        status = Status.GAP_TOO_LARGE if feasible else Status.INFEASIBLE_POINT
    return Solution(
        value=appraisal.value,
        objective=appraisal.objective,
        violation=appraisal.violation,
        gap=appraisal.gap,
        raw_violation=appraisal.raw_violation,
        tolerance=tolerance,
        status=status,
        solver=name,
        problem=problem.kind,
        iterations=answer.iterations,
        seconds=answer.seconds,
        build_seconds=answer.build_seconds,
        judge_seconds=perf_counter() - start,
    )
