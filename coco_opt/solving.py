"""Solve a problem with a solver of the table, and let the problem judge the answer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from coco_opt.activity import doing
from coco_opt.errors import CocoOptError, ProblemError, SolverError, is_out_of_memory
from coco_opt.problem import Problem
from coco_opt.registry import candidates, resolve
from coco_opt.solution import Answer, Solution, Status
from coco_opt.solver import Solver

ValueT = TypeVar("ValueT")

_LARGE = 1_000  # unknowns of a problem that is worth naming to whoever waits
_NAMED = 4  # solvers, in the advice of an error


def solve(
    problem: Problem[ValueT, Any],
    solver: str | Solver = "auto",
    *,
    tolerance: float | None = None,
    check: bool = True,
) -> Solution[ValueT]:
    """Solve a problem and certify the answer.

    Parameters
    ----------
    problem : Problem
        What to solve, such as ``IsotonicL1`` or ``TreeLeastSquares``.
    solver : str or Solver, default "auto"
        A name of the solver table (``backends``), a value from ``make_solver``, or "auto" for the fastest exact one.
    tolerance : float, optional
        The relative gap that counts as optimal, see ``Solution``; the solver's own if it is left out.
    check : bool, default True
        Raise an error if the answer is not optimal. Otherwise read ``Solution.status``. No error is raised for a
        feasible point that a search of integer points ended with (OPTIMAL_BY_SEARCH): duality cannot prove them all.

    Returns
    -------
    Solution
        The point with its objective, violation and certified gap, which the problem computes and not the solver.

    Raises
    ------
    SolverError
        The answer is not optimal and ``check`` is true, or there is no point to judge, or the solver failed.
    UnknownSolverError
        No solver has this name, or it cannot answer this problem.
    ProblemError
        The tolerance is negative or not finite.

    Notes
    -----
    The gap follows from weak duality: it is the objective minus the dual objective at the solver's multipliers, or at
    multipliers that the problem rebuilds from the point, summed term by term.

    Examples
    --------
    >>> from coco_opt import IsotonicL1, solve
    >>> solution = solve(IsotonicL1([3, 1, 4, 1, 5], lower=0, upper=5))
    >>> solution.value.tolist(), solution.objective, solution.gap
    ([3, 3, 4, 4, 5], 5.0, 0.0)
    """
    chosen = resolve(solver, type(problem))
    allowed = chosen.tolerance if tolerance is None else tolerance
    if not 0 <= allowed < math.inf:
        raise ProblemError(f"tolerance must be a finite number of at least 0, not {allowed!r}")
    with doing(f"solving {problem.kind} by {chosen.name}") if problem.variables >= _LARGE else nullcontext():
        answer = timed(chosen, problem)
    solution = judge(problem, answer, chosen.name, allowed)
    if check and not (solution.ok or solution.status is Status.OPTIMAL_BY_SEARCH):
        raise SolverError(
            f"{chosen.name} on {problem.kind} ({problem.variables} unknowns): {solution.status.name}, "
            f"relative gap {solution.relative_gap:.2g} against {solution.tolerance:.2g}, "
            f"violation {solution.violation:.2g}. {_unreadable(problem, solution)}{solution.status.advice} "
            f"{_others(problem, chosen.name)}",
            solution,
        )
    return solution


def timed(solver: Solver, problem: Problem[ValueT, Any]) -> Answer[ValueT, Any]:
    """Return a solver's answer, with the wall time of the call where the solver states no time of its own."""
    start = perf_counter()
    with _named_failure(solver.name, problem):
        answer = solver.solve(problem)
    if isinstance(answer, Answer) and answer.seconds == 0.0:
        answer = replace(answer, seconds=perf_counter() - start)
    return answer


@contextmanager
def _named_failure(name: str, problem: Problem[Any, Any]) -> Iterator[None]:
    """Raise SolverError, with its cause, for any error of a package: another solver may do without it.

    What overflows is judged like any other answer, without warnings.
    """
    try:
        with np.errstate(all="ignore"):
            yield
    except CocoOptError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        message = f"{name} on {problem.kind} failed with {type(error).__name__}. {_others(problem, name)}"
        raise SolverError(message) from error


def _unreadable(problem: Problem[Any, Any], solution: Solution[Any]) -> str:
    """Describe a point whose violation is infinite; empty for any other."""
    if solution.violation < math.inf:
        return ""
    shape = getattr(solution.value, "shape", None)
    described = f"a {type(solution.value).__name__}" if shape is None else f"of shape {shape}"
    return (
        f"The point is {described} for {problem.variables} unknowns: its shape is not that of a solution, "
        "or an entry that is no finite number. "
    )


def _others(problem: Problem[Any, Any], tried: str) -> str:
    """Name the installed solvers that can be tried on a problem next, cheapest first."""
    rows = [row for row in candidates(type(problem)) if row.answers(problem) and row.installed and row.name != tried]
    names = [row.name for row in rows if problem.variables <= row.limit(problem.kind)][:_NAMED]
    return f"Others for {problem.kind}: {', '.join(names)}." if names else "No other is meant for a problem so large."


def solve_many(
    problems: Iterable[Problem[ValueT, Any]],
    solver: str | Solver = "auto",
    *,
    tolerance: float | None = None,
    check: bool = True,
    threads: int = 1,
) -> list[Solution[ValueT]]:
    """Solve many problems with one solver, in order.

    Parameters
    ----------
    problems : iterable of Problem
        The problems, of any sizes and kinds.
    solver : str or Solver, default "auto"
        As for ``solve``; "auto" chooses for each kind of problem.
    tolerance : float, optional
        As for ``solve``.
    check : bool, default True
        As for ``solve``.
    threads : int, default 1
        How many problems are solved in parallel. Compiled solvers run in parallel threads.

    Returns
    -------
    list of Solution
        One solution for each problem, in the order of the problems.

    Raises
    ------
    SolverError
        As ``solve`` does.
    ProblemError
        ``threads`` is not an integer of at least 1.

    Examples
    --------
    >>> from coco_opt import IsotonicL2, solve_many
    >>> [solution.value.tolist() for solution in solve_many([IsotonicL2([2.0, 1.0]), IsotonicL2([1.0, 2.0])])]
    [[1.5, 1.5], [1.0, 2.0]]
    """

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
    if not isinstance(answer, Answer):
        raise SolverError(
            f"{name} on {problem.kind} returned a {type(answer).__name__}: "
            "a solver returns coco_opt.solution.Answer(point, Status.OPTIMAL)"
        )
    if answer.value is None:
        claim = "it claims success all the same." if answer.status is Status.OPTIMAL else answer.status.advice
        raise SolverError(f"{name} on {problem.kind} returned no point: {claim} {_others(problem, name)}")
    start = perf_counter()
    with _named_failure(name, problem):
        appraisal = problem.appraise(problem.accept(answer.value), answer.multipliers)
    # Scales and resolution take a pass over the data: they are computed only where zero does not decide.
    feasible = appraisal.violation == 0.0 or appraisal.violation <= problem.feasibility_tolerance * problem.scale
    scale = problem.objective_scale if appraisal.gap > 0.0 and abs(appraisal.objective) < 1.0 else 1.0
    allowed = tolerance * max(scale, abs(appraisal.objective))
    # An infinite gap proves nothing, not even of an infinite objective.
    proved = appraisal.gap < math.inf
    if feasible and proved and (appraisal.gap <= allowed or appraisal.gap <= allowed + problem.resolution):
        status = Status.OPTIMAL
    elif not feasible and answer.status in (Status.OPTIMAL, Status.OPTIMAL_BY_SEARCH):
        status = Status.INFEASIBLE_POINT
    else:
        status = Status.GAP_TOO_LARGE if answer.status is Status.OPTIMAL else answer.status
    return Solution(
        value=appraisal.value,
        objective=appraisal.objective,
        violation=appraisal.violation + 0.0,  # so that none is written -0
        gap=appraisal.gap,
        raw_violation=appraisal.raw_violation + 0.0,
        tolerance=tolerance,
        status=status,
        solver=name,
        problem=problem.kind,
        iterations=answer.iterations,
        seconds=answer.seconds,
        build_seconds=answer.build_seconds,
        judge_seconds=perf_counter() - start,
        objective_scale=scale,
    )
