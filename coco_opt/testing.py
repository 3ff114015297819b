"""Conformance of any solver: it solves the examples of every problem it can express, and the problems judge it.

from coco_opt.testing import check_solver

def test_my_solver() -> None:
check_solver(MySolver())
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from coco_opt.errors import CocoOptError, UnknownSolverError
from coco_opt.problem import Problem
from coco_opt.problems import PROBLEMS
from coco_opt.solution import Solution
from coco_opt.solver import Solver
from coco_opt.solving import solve

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*(:[A-Za-z0-9._-]+)?")


@dataclass(frozen=True, slots=True)
class Conformance:
    """How a solver did on one example of a problem; ``failure`` is empty where it passed.

    ``objective`` and ``gap`` are the problem's own verdict of its point, ``best`` the objective of the exact solver.
    """

    problem: str
    example: str
    objective: float
    gap: float
    best: float
    failure: str = ""


def conformance(solver: Solver, problems: Collection[str] | None = None) -> Iterator[Conformance]:
    """Solve every example of every problem that a solver can express, or of those named by ``problems``.

    An answer passes if the problem certifies it within the solver's own tolerance, its objective is that of the exact
    solver, and a second run gives the same bits. A problem that the solver cannot express is passed over; where it is
    named, it counts as a failure. Raises UnknownSolverError for an unknown problem.
    """
    unknown = sorted(set(problems or ()) - set(PROBLEMS))
    if unknown:
        raise UnknownSolverError(f"there is no problem {unknown[0]!r}: there are {', '.join(PROBLEMS)}")
    for kind, problem_type in PROBLEMS.items():
        if problems is not None and kind not in problems:
            continue
        for example, problem in problem_type.examples().items():
            result = _conformance_on(solver, problem, example, named=problems is not None)
            if result is not None:
                yield result


def check_solver(solver: Solver, problems: Collection[str] | None = None) -> tuple[Conformance, ...]:
    """Raise AssertionError that lists every failure of ``conformance``, else return what was seen.

    A solver must have a name in kebab case and a positive tolerance, and express one problem at least.
    """
    assert isinstance(solver, Solver), "a solver has a name, a tolerance, and solve(problem)"
    assert _NAME.fullmatch(solver.name), f"the name {solver.name!r} is not words in lower case joined by '-'"
    assert 0.0 < solver.tolerance < 1.0, f"the tolerance {solver.tolerance!r} is not between 0 and 1"
    seen = tuple(conformance(solver, problems))
    assert seen, f"{solver.name} can express no problem of the table"
    failures = [f"{result.problem}, {result.example}: {result.failure}" for result in seen if result.failure]
    assert not failures, "\n".join([f"{solver.name} fails on {len(failures)} of {len(seen)} examples", *failures])
    return seen


def _conformance_on(solver: Solver, problem: Problem[Any, Any], example: str, *, named: bool) -> Conformance | None:
    best = solve(problem, check=False).objective
    try:
        first = solve(problem, solver, check=False)
        again = solve(problem, solver, check=False)
    except UnknownSolverError as error:
        return Conformance(problem.kind, example, np.nan, np.inf, best, str(error)) if named else None
    except CocoOptError as error:
        cause = error.__cause__  # what a package raised, whose own words help its author
        failure = str(error) if cause is None else f"raises {type(cause).__name__}: {cause}"
        return Conformance(problem.kind, example, np.nan, np.inf, best, failure)
    return Conformance(problem.kind, example, first.objective, first.gap, best, _failure(first, again, best))


def _failure(first: Solution[Any], again: Solution[Any], best: float) -> str:
    if not first.ok:
        allowed = f"gap {first.relative_gap:.2g} against {first.tolerance:.2g}"
        return f"{first.status.name}: {allowed}, violation {first.violation:.2g}"
    if first.objective > best + first.tolerance * max(first.objective_scale, abs(best)):
        return f"the objective {first.objective:.12g} is certified, and the exact solver's is {best:.12g}"
    if not np.array_equal(np.asarray(first.value), np.asarray(again.value)):
        return "the same problem gave another answer the second time"
    return ""
