"""Which solver answers which kind of problem in a run, which solvers follow where it fails, and the certificates."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from coco_opt.errors import SolverError, UnknownSolverError
from coco_opt.plugins import near
from coco_opt.problem import Problem
from coco_opt.problems import PROBLEMS, SUCCESSORS
from coco_opt.registry import built_in, resolve
from coco_opt.solution import Solution
from coco_opt.solver import Solver
from coco_opt.solving import solve

ValueT = TypeVar("ValueT")

_ALTERNATIVE_SECONDS = 60.0  # for a solver after the first: the next may be done sooner


@dataclass(frozen=True, slots=True)
class Fallback:
    """``solver`` failed ``times`` times for a reason (a status, or the type of an error), and ``used`` answered."""

    solver: str
    reason: str
    used: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class UncertifiedGap:
    """How many answers missed their tolerance and were used all the same, and the largest relative gap known of one.

    ``unknown`` of them have no known gap: every solver failed, and a last point, or any feasible integer tables, were
    used.
    """

    steps: int = 0
    gap: float = 0.0
    unknown: int = 0

    def __bool__(self) -> bool:
        return self.steps > 0

    def __add__(self, other: UncertifiedGap) -> UncertifiedGap:
        return UncertifiedGap(self.steps + other.steps, max(self.gap, other.gap), self.unknown + other.unknown)


ALL_CERTIFIED = UncertifiedGap()


@dataclass(frozen=True, slots=True)
class Certificate:
    """The worst certified figures over all problems of one kind in a run, by one solver or several (", " between).

    ``gap`` is in the objective's unit, ``relative_gap`` as in ``Solution``, ``violation`` the largest left after
    repair; ``seconds`` is wall time inside the solver. ``fallbacks`` name where another solver answered, and
    ``missed`` counts answers that no solver certified.
    """

    problem: str
    solver: str
    solves: int = 0
    gap: float = 0.0
    relative_gap: float = 0.0
    violation: float = 0.0
    seconds: float = 0.0
    fallbacks: tuple[Fallback, ...] = ()
    missed: UncertifiedGap = ALL_CERTIFIED

    @classmethod
    def of(cls, solution: Solution[Any]) -> Certificate:
        """Return the certificate of one solution."""
        return cls(
            solution.problem,
            solution.solver,
            1,
            solution.gap,
            solution.relative_gap,
            solution.violation,
            solution.seconds,
        )

    def merged(self, other: Certificate) -> Certificate:
        """Return the certificate of all solves that two certificates of the same problem count."""
        # Sorted, so the order does not depend on how the work was cut into tasks.
        names = sorted({*self.solver.split(", "), *other.solver.split(", ")})
        times = Counter[tuple[str, str, str]]()
        for each in (*self.fallbacks, *other.fallbacks):
            times[each.solver, each.reason, each.used] += each.times
        return Certificate(
            self.problem,
            ", ".join(names),
            self.solves + other.solves,
            max(self.gap, other.gap),
            max(self.relative_gap, other.relative_gap),
            max(self.violation, other.violation),
            self.seconds + other.seconds,
            tuple(Fallback(*failure, times[failure]) for failure in sorted(times)),
            self.missed + other.missed,
        )


class SolverChoices:
    """Solve each problem with the solver chosen for its kind, and keep the worst gaps.

    Parameters
    ----------
    choices : mapping of str to str or Solver, optional
        A problem's kind and the name or value of its solver; "auto" for kinds that are left out.
    fallback : bool, default True
        If an answer misses its tolerance, or a solver breaks or cannot express this very problem, try the other
        built-in solvers, exact solvers first, each for at most a minute where it has a time limit.

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

    def __init__(self, choices: Mapping[str, str | Solver] | None = None, *, fallback: bool = True) -> None:
        self._choices: dict[str, str | Solver] = dict(choices or {})
        self._fallback = fallback
        for kind in self._choices:
            if kind not in PROBLEMS:
                hint = f": it is {SUCCESSORS[kind]!r} now" if kind in SUCCESSORS else near(kind, PROBLEMS)
                raise UnknownSolverError(f"no kind of problem is called {kind!r}{hint}")
        self._limits: dict[str, float] = {}
        self._solvers: dict[str, Solver] = {}
        self._named: dict[tuple[str, tuple[str, ...]], tuple[Solver, ...]] = {}
        self._certificates: dict[str, Certificate] = {}
        self._lock = threading.Lock()

    @property
    def fallback(self) -> bool:
        """Return whether other solvers, and last resorts, are tried where one fails."""
        return self._fallback

    def solver(self, problem: type[Problem[Any, Any]]) -> Solver:
        """Return the solver chosen for a type of problem, made once; ``limited`` applies if none was chosen."""
        kind = problem.kind
        with self._lock:
            if kind not in self._solvers:
                solver = resolve(self._choices.get(kind, "auto"), problem)
                limited = kind in self._limits and self._is_automatic(problem)
                self._solvers[kind] = _within(solver, self._limits[kind]) if limited else solver
            return self._solvers[kind]

    def solve(self, problem: Problem[ValueT, Any], *, fallback: bool = True) -> ValueT:
        """Return the certified value of one problem; see ``solution``."""
        return self.solution(problem, fallback=fallback).value

    def solution(self, problem: Problem[ValueT, Any], *, fallback: bool = True) -> Solution[ValueT]:
        """Return the certified solution of one problem; SolverError where every solver tried missed its tolerance.

        Without ``fallback`` no other solver is tried where the chosen one ran, for a caller that can use its
        uncertified answer; what it cannot express or breaks on is answered by the others all the same.
        """
        solver = self.solver(type(problem))
        try:
            return self._counted(_certified(problem, solver))
        except SolverError as error:
            first_error, reason = error, _reason(error)
            fallback = fallback or error.__cause__ is not None  # a package that broke left no answer to use
        except UnknownSolverError as error:  # a problem may need another form than the simplest ones of its type
            if not self._fallback:
                raise
            first_error, reason, fallback = SolverError(str(error)), "cannot express it", True
        if not (fallback and self._fallback):
            raise first_error
        for alternative in self._alternatives(problem, solver):
            try:
                solution = _certified(problem, alternative)
            except Exception:
                continue
            failure = Fallback(solver.name, reason, alternative.name)
            self.merge([replace(Certificate.of(solution), solver=solver.name, fallbacks=(failure,))])
            return solution
        raise first_error

    def nearest(self, problem: Problem[ValueT, Any]) -> tuple[ValueT, float]:
        """Return the best value of a problem of integers, and its relative gap where it is not certified, else 0.

        A solution that misses its solver's tolerance but satisfies every constraint is accepted: it is integer and
        consistent, only not certified optimal. Raises SolverError where no solver returns one.
        """
        try:
            return self.solve(problem, fallback=False), 0.0
        except SolverError as error:
            solution = error.solution
        if solution is not None and solution.usable:
            return solution.value, solution.relative_gap
        return self.solve(problem), 0.0

    def solve_suited(self, problem: Problem[ValueT, Any], suited: Sequence[str]) -> ValueT:
        """Return ``solve``'s value; where no solver was chosen, the ``suited`` solvers are tried first.

        A suited solver that is not installed or misses its tolerance is passed over; with ``fallback`` also one that
        breaks.
        """
        if self._is_automatic(type(problem)):
            passed_over = Exception if self._fallback else SolverError
            for solver in self._suited(type(problem), tuple(suited)):
                with suppress(passed_over):
                    return self._counted(_certified(problem, solver)).value
        return self.solve(problem)

    def _is_automatic(self, problem: type[Problem[Any, Any]]) -> bool:
        """Return whether no solver was chosen for a type of problem."""
        return self._choices.get(problem.kind, "auto") == "auto"

    def _suited(self, problem: type[Problem[Any, Any]], names: tuple[str, ...]) -> tuple[Solver, ...]:
        """Return the installed solvers of some names that can express a type of problem, made once."""
        key = problem.kind, names
        with self._lock:
            if key not in self._named:
                rows = {row.name: row for row in built_in() if row.name in names and row.claims(problem)}
                self._named[key] = tuple(rows[name].make() for name in names if name in rows and rows[name].installed)
            return self._named[key]

    def _alternatives(self, problem: Problem[Any, Any], tried: Solver) -> Iterator[Solver]:
        """Yield the installed built-in solvers that can express a problem of this size, exact solvers first."""
        kind = type(problem)
        for row in built_in():
            fits = row.answers(problem) and row.installed and problem.variables <= row.limit(kind.kind)
            if fits and row.name != tried.name:
                yield _within(row.make(), self._limits.get(kind.kind, _ALTERNATIVE_SECONDS))

    def _counted(self, solution: Solution[ValueT]) -> Solution[ValueT]:
        self.merge([Certificate.of(solution)])
        return solution

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
        self.merge([Certificate(problem.kind, name, solves, gap, relative_gap, violation, seconds)])

    def note_missed(self, problem: type[Problem[Any, Any]], gap: float) -> None:
        """Count an answer of a relative gap, infinite if unknown, that is used though it misses the tolerance."""
        known = math.isfinite(gap)
        missed = UncertifiedGap(1, gap if known else 0.0, int(not known))
        self.merge([Certificate(problem.kind, self.solver(problem).name, missed=missed)])

    def limited(self, problem: type[Problem[Any, Any]], seconds: float) -> Self:
        """Return the same choices, with the same certificates, whose solver of a type of problem has so many seconds.

        A solver that was chosen keeps its own limits, and so does a solver without limits.
        """
        choices = copy(self)
        choices._limits, choices._solvers = {**self._limits, problem.kind: seconds}, {}
        return choices

    def fresh(self) -> Self:
        """Return the same choices without certificates, for one task; ``merge`` takes its certificates back."""
        choices = copy(self)
        choices._certificates, choices._lock = {}, threading.Lock()
        return choices

    def merge(self, certificates: Iterable[Certificate]) -> None:
        """Count in solutions of other choices: those of a task, which were ``fresh``, or of an interrupted run."""
        with self._lock:
            for row in certificates:
                earlier = self._certificates.get(row.problem)
                self._certificates[row.problem] = row if earlier is None else earlier.merged(row)

    def __getstate__(self) -> dict[str, Any]:
        # Locks cannot be pickled, and solvers are built again.
        return {**self.__dict__, "_lock": None, "_solvers": {}, "_named": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({**state, "_lock": threading.Lock()})

    @property
    def uncertified_gap(self) -> UncertifiedGap:
        """Return how many answers of all kinds missed their tolerance, and by how much."""
        return sum((row.missed for row in self.certificates), start=ALL_CERTIFIED)

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """Return the worst figures so far, one row a kind of problem, sorted by kind."""
        with self._lock:
            return tuple(self._certificates[kind] for kind in sorted(self._certificates))


def _certified(problem: Problem[ValueT, Any], solver: Solver) -> Solution[ValueT]:
    """Return a solution that is certified; SolverError also where only a search of the solver's claims it."""
    solution = solve(problem, solver)
    if not solution.ok:
        raise SolverError(f"{solver.name} on {problem.kind}: {solution.status.advice}", solution)
    return solution


def _within(solver: Any, seconds: float) -> Any:
    """Return the solver with its time limit, if it knows one, lowered to so many seconds."""
    if not hasattr(solver, "time_limit"):
        return solver
    return replace(solver, time_limit=seconds if solver.time_limit is None else min(solver.time_limit, seconds))


def _reason(error: SolverError) -> str:
    if error.__cause__ is not None:
        return "broke"
    return "no point" if error.solution is None else error.solution.status.name
