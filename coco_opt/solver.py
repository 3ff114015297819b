"""What a solver is, and the base of those that take a problem as a linear, quadratic or integer program."""

from __future__ import annotations

import ctypes
import io
import os
import sys
import threading
from abc import ABC, abstractmethod
from contextlib import ContextDecorator, suppress
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.errors import ConfigError, UnknownSolverError
from coco_opt.forms import FORMS, FormName, Formulation, LinearProgram, MixedIntegerProgram, ProgramDual
from coco_opt.problem import Problem
from coco_opt.solution import Answer, Status

ValueT = TypeVar("ValueT")
DualT = TypeVar("DualT")

_STDOUT, _STDERR = 1, 2
_ROUNDS = 4  # programs that are solved for one answer, at most
_FALLS = 0.5  # what a gap must fall to for another round
_STEEPEST = 1e4  # the largest cost or curvature in the first program: packages stop early or break down beyond
_GENTLER = 1e-3  # what this is multiplied by after a round without a feasible point
_FINAL = (Status.UNBOUNDED, Status.TIME_LIMIT)  # ways to end that another round would repeat


@runtime_checkable
class Solver(Protocol):
    """A solver is an immutable value that holds its own options."""

    @property
    def name(self) -> str:
        """The solver's name in config, results and tables."""

    @property
    def tolerance(self) -> float:
        """The certified relative gap at which its answers count as optimal."""

    def solve(self, problem: Problem[Any, Any]) -> Answer[Any, Any]:
        """Return a point for the problem; UnknownSolverError if the problem is not one it can express."""


@dataclass(frozen=True, eq=False)
class ProgramAnswer:
    """What a generic solver returns for a program: variables (n,), duals, and how it stopped."""

    z: Floats | None
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
        """Return the first of the problem's forms that this solver accepts, or ``form`` where that is set."""
        if self.form is not None and self.form not in FORMS:
            raise ConfigError(
                f"solvers.{self.name}.form", f"must be {' or '.join(map(repr, FORMS))}, not {self.form!r}"
            )
        offered = self.accepts if self.form is None else (FORMS[self.form],)
        for form in problem.own_forms:
            if form in offered:
                return form
        problem_forms = ", ".join(form.form for form in problem.own_forms)
        solver_forms = ", ".join(form.form for form in offered)
        raise UnknownSolverError(
            f"solver {self.name!r} cannot express {problem.kind}: it takes {solver_forms}, "
            f"the problem is {problem_forms}"
        )

    def solve(self, problem: Problem[ValueT, Any]) -> Answer[ValueT, Any]:
        """Write the problem as a program, solve it, and translate the answer back.

        A program with free variables, such as cells that no answer measures by itself, is solved again around its own
        point while the gap is too large and falls: what is left is smaller, and so are its units.
        """
        start, seconds = perf_counter(), 0.0
        formulation = problem.formulate(self.form_for(problem))
        best, gap, again, steepest = None, np.inf, bool(formulation.free_columns.any()), _STEEPEST
        for _ in range(_ROUNDS if again else 1):
            answer, z = self._in_units(formulation, problem.objective_scale, steepest)
            seconds += answer.seconds
            now = relative_gap(problem, answer) if again else 0.0
            slow = now >= _FALLS * gap and gap < np.inf
            if best is None or now < gap:
                best, gap = answer, now
            if slow or gap <= self.tolerance or answer.status in _FINAL:
                break
            if z is not None:
                formulation = formulation.around(z)
            if gap == np.inf:
                steepest *= _GENTLER
        assert best is not None
        return replace(best, seconds=seconds, build_seconds=perf_counter() - start - seconds)

    def solve_formulation(self, formulation: Formulation[ValueT, DualT], least: float = 1.0) -> Answer[ValueT, DualT]:
        """Solve a program, in units of its own, and translate the answer; an objective of ``least`` counts as none."""
        return self._in_units(formulation, least, _STEEPEST)[0]

    def _in_units(
        self, formulation: Formulation[ValueT, DualT], least: float, steepest: float
    ) -> tuple[Answer[ValueT, DualT], Floats | None]:
        """Return the answer of a program in units of its own, and the program's variables."""
        unit, price = formulation.units(least, steepest)
        scaled, before = formulation.counted_in(unit, price), perf_counter()
        program = scaled.program
        with hushed:
            result = self.solve_program(program) if program.variables else _without_variables(program)
        answer = replace(_translated(result, scaled), seconds=perf_counter() - before)
        return answer, None if result.z is None else unit * result.z


def _translated(answer: ProgramAnswer, formulation: Formulation[ValueT, DualT]) -> Answer[ValueT, DualT]:
    """Return the answer of a program in the problem's own terms."""
    multipliers = None
    if answer.dual is not None and formulation.multipliers is not None:
        multipliers = formulation.multipliers(answer.dual)
    value = None if answer.z is None else formulation.recover(answer.z)
    searched = answer.status is Status.OPTIMAL and isinstance(formulation.program, MixedIntegerProgram)
    return Answer(value, Status.OPTIMAL_BY_SEARCH if searched else answer.status, multipliers, answer.iterations)


def relative_gap(problem: Problem[ValueT, Any], answer: Answer[ValueT, Any]) -> float:
    """Return the certified gap over the objective, infinite without a feasible point."""
    if answer.value is None:
        return np.inf
    judged = problem.appraise(problem.accept(answer.value), answer.multipliers)
    return judged.gap / max(problem.objective_scale, abs(judged.objective)) if judged.gap < np.inf else np.inf


def _without_variables(program: LinearProgram) -> ProgramAnswer:
    """Answer a program with nothing to choose, which several packages refuse."""
    feasible = bool(((program.row_lower <= 0) & (program.row_upper >= 0)).all())
    dual = ProgramDual(np.zeros(program.rows), np.zeros(0))
    return ProgramAnswer(np.zeros(0), Status.OPTIMAL if feasible else Status.INFEASIBLE, dual, 0)


class _Hush(ContextDecorator):
    """Drop what packages print to ``sys.stdout`` while any thread is inside; use ``hushed``, also as a decorator.

    What their compiled code writes to the standard output's descriptor goes to standard error.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._stdout = sys.stdout
        self._descriptor = -1

    def __enter__(self) -> None:
        # If each thread restored the stream it saw, it could restore another thread's silence: only the last does.
        with self._lock:
            if self._inside == 0:
                self._stdout, sys.stdout = sys.stdout, io.StringIO()
                _flush_compiled()
                with suppress(OSError):  # a descriptor that is closed needs no silence
                    self._descriptor = os.dup(_STDOUT)
                    os.dup2(_STDERR, _STDOUT)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                sys.stdout = self._stdout
                _flush_compiled()
                if self._descriptor >= 0:
                    os.dup2(self._descriptor, _STDOUT)
                    os.close(self._descriptor)
                    self._descriptor = -1


def _flush_compiled() -> None:
    """Write what C's standard streams hold: it would appear after the silence."""
    with suppress(OSError, AttributeError, TypeError):  # where the process has no C library to load
        ctypes.CDLL(None).fflush(None)


hushed = _Hush()
