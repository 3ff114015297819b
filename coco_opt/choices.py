"""Which solver answers which kind of problem in a run, which solvers follow where it fails, and the certificates."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from coco_opt.errors import CocoOptError, SolverError, UnknownSolverError
from coco_opt.plugins import near
from coco_opt.problem import Problem
from coco_opt.problems import PROBLEMS
from coco_opt.registry import built_in, resolve
from coco_opt.solution import Solution
from coco_opt.solver import Solver
from coco_opt.solving import solve

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class Fallback:
    """``solver`` failed ``times`` times for a reason (a status, or the type of an error), and ``used`` answered."""

    solver: str
    reason: str
    used: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class Certificate:
    """The worst certified figures over all problems of one kind in a run, by one solver or several (", " between).

    ``gap`` is in the objective's unit, ``relative_gap`` divided by the objective (or 1), ``violation`` the largest
    left after repair; ``seconds`` is wall time inside the solver. ``fallbacks`` name where another solver answered.
    """

    problem: str
    solver: str
    solves: int = 0
    gap: float = 0.0
    relative_gap: float = 0.0
    violation: float = 0.0
    seconds: float = 0.0
    fallbacks: tuple[Fallback, ...] = ()

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

    def fell_back(self, fallback: Fallback) -> Certificate:
        """Return the certificate with one more failure counted in, or several alike."""
        same = {(earlier.solver, earlier.reason, earlier.used): earlier for earlier in self.fallbacks}
        key = (fallback.solver, fallback.reason, fallback.used)
        same[key] = replace(fallback, times=same[key].times + fallback.times) if key in same else fallback
        return replace(self, fallbacks=tuple(same[name] for name in sorted(same)))

    def and_all(self, other: Certificate) -> Certificate:
        """Return the certificate of all solves that two certificates of the same problem count."""
        # Sorted, so the order does not depend on how the work was cut into tasks.
        names = sorted({*self.solver.split(", "), *other.solver.split(", ")})
        both = replace(
            self,
            solver=", ".join(names),
            solves=self.solves + other.solves,
            gap=max(self.gap, other.gap),
            relative_gap=max(self.relative_gap, other.relative_gap),
            violation=max(self.violation, other.violation),
            seconds=self.seconds + other.seconds,
        )
        for fallback in other.fallbacks:
            both = both.fell_back(fallback)
        return both


class SolverChoices:
    """Solve each problem with the solver chosen for its kind, and keep the worst gaps.

    Parameters
    ----------
    choices : mapping of str to str or Solver, optional
        A problem's kind and the name or value of its solver; "auto" for kinds that are left out.
    fallback : bool, default False
        If an answer misses its tolerance, or a solver breaks, try the other built-in solvers, exact ones first.

    Raises
    ------
    UnknownSolverError
        A kind of problem, or a solver, does not exist.

    Notes
    -----
    Safe to share between threads.

    Examples
    --------
    >>> from coco_opt import IsotonicL1, SolverChoices
    >>> SolverChoices({"isotonic_l1": "highs"}).solve(IsotonicL1([2, 1, 3])).tolist()
    [1.0, 1.0, 3.0]
    """

    def __init__(self, choices: Mapping[str, str | Solver] | None = None, *, fallback: bool = False) -> None:
        self._choices: dict[str, str | Solver] = dict(choices or {})
        self._fallback = fallback
        for kind in self._choices:
            if kind not in PROBLEMS:
                raise UnknownSolverError(f"no kind of problem is called {kind!r}{near(kind, PROBLEMS)}")
        self._solvers: dict[str, Solver] = {}
        self._named: dict[tuple[str, tuple[str, ...]], tuple[Solver, ...]] = {}
        self._certificates: dict[str, Certificate] = {}
        self._lock = threading.Lock()

    @property
    def fallback(self) -> bool:
        """Return whether other solvers, and last resorts, are tried where one fails."""
        return self._fallback

    def solver(self, problem: type[Problem[Any, Any]]) -> Solver:
        """Return the solver chosen for a type of problem, made once."""
        with self._lock:
            if problem.kind not in self._solvers:
                self._solvers[problem.kind] = resolve(self._choices.get(problem.kind, "auto"), problem)
            return self._solvers[problem.kind]

    def solve(self, problem: Problem[ValueT, Any], *, fallback: bool = True) -> ValueT:
        """Return the certified value of one problem; SolverError where every solver tried missed its tolerance.

        Without ``fallback`` only the chosen solver is tried, for a caller that can use its uncertified answer.
        """
        solver = self.solver(type(problem))
        failure = ""
        try:
            return self._count_solution(problem, solver, solve(problem, solver))
        except SolverError as error:
            if not (fallback and self._fallback):
                raise
            first, failure = error, _reason(error)
        except (CocoOptError, MemoryError):
            raise
        except Exception as error:  # a package that breaks must not end an estimation that others can finish
            if not (fallback and self._fallback):
                raise
            first, failure = SolverError(f"{solver.name} on {problem.kind} broke: {type(error).__name__}"), "broke"
        for alternative in self._alternatives(problem, solver):
            try:
                solution = solve(problem, alternative)
            except Exception:
                continue
            return self._count_solution(problem, solver, solution, Fallback(solver.name, failure, alternative.name))
        raise first

    def solve_suited(self, problem: Problem[ValueT, Any], suited: Sequence[str]) -> ValueT:
        """Return ``solve``'s value; where no solver was chosen, the ``suited`` ones are tried first.

        A suited solver that is not installed, or misses its tolerance, is passed over.
        """
        if self._choices.get(problem.kind, "auto") == "auto":
            for solver in self._suited(type(problem), tuple(suited)):
                with suppress(Exception):
                    return self._count_solution(problem, solver, solve(problem, solver))
        return self.solve(problem)

    def _suited(self, problem: type[Problem[Any, Any]], names: tuple[str, ...]) -> tuple[Solver, ...]:
        """Return the installed solvers of some names that can express a type of problem, made once."""
        key = problem.kind, names
        with self._lock:
            if key not in self._named:
                rows = {row.name: row for row in built_in() if row.name in names and row.claims(problem)}
                self._named[key] = tuple(rows[name].make() for name in names if name in rows and rows[name].installed)
            return self._named[key]

    def _alternatives(self, problem: Problem[Any, Any], tried: Solver) -> Iterator[Solver]:
        """Yield the installed built-in solvers that can express a problem of this size, exact ones first."""
        kind = type(problem)
        for row in built_in():
            fits = row.claims(kind) and row.installed and problem.variables <= row.limit(kind.kind)
            if fits and row.name != tried.name:
                yield row.make()

    def _count_solution(
        self,
        problem: Problem[ValueT, Any],
        solver: Solver,
        solution: Solution[ValueT],
        fallback: Fallback | None = None,
    ) -> ValueT:
        with self._lock:
            row = self._certificates.get(problem.kind, Certificate(problem.kind, solver.name)).add(solution)
            if solver.name not in row.solver.split(", "):
                row = replace(row, solver=f"{row.solver}, {solver.name}")
            self._certificates[problem.kind] = row if fallback is None else row.fell_back(fallback)
        return solution.value

    def count(
        self,
        problem: type[Problem[Any, Any]],
        solves: int,
        gap: float,
        relative_gap: float,
        violation: float,
        seconds: float,
    ) -> None:
        """Count in certified solutions of many problems of one kind that the chosen solver solved together.

        ``gap``, ``relative_gap`` and ``violation`` are the worst of them.
        """
        name = self.solver(problem).name
        with self._lock:
            row = self._certificates.get(problem.kind, Certificate(problem.kind, name))
            self._certificates[problem.kind] = replace(
                row,
                solves=row.solves + solves,
                gap=max(row.gap, gap),
                relative_gap=max(row.relative_gap, relative_gap),
                violation=max(row.violation, violation),
                seconds=row.seconds + seconds,
            )

    def resume(self, certificates: Iterable[Certificate]) -> None:
        """Count in what an interrupted run had solved already."""
        with self._lock:
            self._certificates.update({row.problem: row for row in certificates})

    def limit(self, problem: type[Problem[Any, Any]], seconds: float) -> None:
        """Give the solver of a type of problem, unless it was chosen, at most so many seconds where it has limits."""
        if self._choices.get(problem.kind, "auto") != "auto":
            return
        solver: Any = self.solver(problem)
        limits = {name: getattr(solver, name, None) for name in ("time_limit", "sweep_limit")}
        present = {name: min(value, seconds / len(limits)) for name, value in limits.items() if value is not None}
        if present:
            with self._lock:
                self._choices[problem.kind] = self._solvers[problem.kind] = replace(solver, **present)

    def fresh(self) -> Self:
        """Return the same choices without certificates, for one task; ``merge`` takes its certificates back."""
        choices = copy(self)
        choices._certificates, choices._lock = {}, threading.Lock()
        return choices

    def merge(self, certificates: Iterable[Certificate]) -> None:
        """Count in what a task has solved by choices that were ``fresh``."""
        with self._lock:
            for row in certificates:
                earlier = self._certificates.get(row.problem)
                self._certificates[row.problem] = row if earlier is None else earlier.and_all(row)

    def __getstate__(self) -> dict[str, Any]:
        # Locks cannot be pickled, and solvers are built again.
        return {**self.__dict__, "_lock": None, "_solvers": {}, "_named": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({**state, "_lock": threading.Lock()})

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """Return the worst figures so far, one row a kind of problem, sorted by kind."""
        with self._lock:
            return tuple(self._certificates[kind] for kind in sorted(self._certificates))


def _reason(error: SolverError) -> str:
    solution = error.solution
    return solution.status.name if isinstance(solution, Solution) else "no point"
