"""Which solver answers which kind of problem in a run, and the certificates its answers earned."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from coco_opt.errors import UnknownSolverError
from coco_opt.problem import Problem
from coco_opt.problems import PROBLEMS
from coco_opt.registry import resolve
from coco_opt.solution import Solution
from coco_opt.solver import Solver, solve

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class Certificate:
    """The worst certified figures over all problems of one kind in a run.

    ``gap`` is in the objective's unit, ``relative_gap`` divided by the objective (or 1), ``violation`` the largest
    left after repair; ``seconds`` is wall time inside the solver.
    """

    problem: str
    solver: str
    solves: int = 0
    gap: float = 0.0
    relative_gap: float = 0.0
    violation: float = 0.0
    seconds: float = 0.0

    def add(self, solution: Solution[Any]) -> Certificate:
        """Return the certificate with one more solution counted in."""
        return replace(
            self,
            solves=self.solves + 1,
            gap=max(self.gap, solution.gap),
            relative_gap=max(self.relative_gap, solution.relative_gap),
            violation=max(self.violation, solution.violation),
            seconds=self.seconds + solution.seconds,
        )


class SolverChoices:
    """Solve each problem with the solver chosen for its kind (``auto`` where none is) and keep the worst gaps.

    ``choices`` maps a problem's kind to a solver name or value; UnknownSolverError for a kind that does not exist.
    Safe to share between threads.
    """

    def __init__(self, choices: Mapping[str, str | Solver] | None = None) -> None:
        self._choices: dict[str, str | Solver] = dict(choices or {})
        for kind in self._choices:
            if kind not in PROBLEMS:
                near = difflib.get_close_matches(kind, PROBLEMS, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(PROBLEMS)}"
                raise UnknownSolverError(f"no kind of problem is called {kind!r}{hint}")
        self._solvers: dict[str, Solver] = {}
        self._certificates: dict[str, Certificate] = {}
        self._lock = threading.Lock()

    def solver(self, problem: type[Problem[Any, Any]]) -> Solver:
        """Return the solver chosen for a type of problem, made once."""
        with self._lock:
            if problem.kind not in self._solvers:
                self._solvers[problem.kind] = resolve(self._choices.get(problem.kind, "auto"), problem)
            return self._solvers[problem.kind]

    def solve(self, problem: Problem[ValueT, Any]) -> ValueT:
        """Return the certified value of one problem; SolverError where its solver missed the tolerance."""
        solver = self.solver(type(problem))
        solution = solve(problem, solver)
        with self._lock:
            before = self._certificates.get(problem.kind, Certificate(problem.kind, solver.name))
            self._certificates[problem.kind] = before.add(solution)
        return solution.value

    def resume(self, certificates: Iterable[Certificate]) -> None:
        """Count in what an interrupted run had solved already."""
        with self._lock:
            self._certificates.update({row.problem: row for row in certificates})

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """Return the worst figures so far, one row a kind of problem, sorted by kind."""
        with self._lock:
            return tuple(self._certificates[kind] for kind in sorted(self._certificates))
