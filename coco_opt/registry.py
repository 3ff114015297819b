"""The solver table: backends found once, lazily, through the entry-point group ``coco_opt.solvers``.

Each entry point names a tuple of Backend rows. The rows of the built-in package come first and only they are
candidates for ``auto``; a third party's backends are used by name.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any

from coco_opt.errors import ConfigError, MissingPackageError, UnknownSolverError
from coco_opt.plugins import all_rows, loaded, near
from coco_opt.problem import Problem
from coco_opt.solver import ProgramSolver, Solver

GROUP = "coco_opt.solvers"
BUILT_IN = "coco_solvers"


@dataclass(frozen=True, slots=True)
class Backend:
    """One row of a solver table; describes a solver without importing it.

    ``target`` is ``"module:Class"``. ``kinds`` names the problems a structured solver answers, ``forms`` the
    programs a generic one accepts. ``parameter`` is the option that ``name:VALUE`` sets. ``size_limit`` is the number
    of unknowns beyond which ``compare`` leaves the backend out, and says so. An ``exhaustive`` one tries every point,
    and raises UnknownSolverError for all but tiny problems.
    """

    name: str
    target: str
    summary: str
    kinds: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    extra: str | None = None
    parameter: str | None = None
    honours_ties: bool = False
    exhaustive: bool = False
    size_limit: int = 10**9
    size_limits: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def installed(self) -> bool:
        """Return whether the packages it needs can be found (they are not imported)."""
        return all(find_spec(package) is not None for package in self.packages)

    def claims(self, problem: type[Problem[Any, Any]]) -> bool:
        """Return whether this backend can express a type of problem."""
        return problem.kind in self.kinds or any(form.form in self.forms for form in problem.forms)

    def answers(self, problem: Problem[Any, Any]) -> bool:
        """Return whether this backend can express this very problem, of a type that it claims."""
        return problem.kind in self.kinds or any(form.form in self.forms for form in problem.own_forms)

    def limit(self, kind: str) -> int:
        """Return the largest number of unknowns worth trying on a problem of this kind."""
        return self.size_limits.get(kind, self.size_limit)

    def make(self, options: Mapping[str, Any] | None = None) -> Solver:
        """Import the solver and build it with checked options."""
        for package in self.packages:
            if find_spec(package) is None:
                raise MissingPackageError(package, f"solver {self.name!r}", self.extra)
        solver_type = loaded(self.target)
        return typing.cast(Solver, solver_type(**_checked_options(self.name, solver_type, options or {})))


@cache
def backends() -> tuple[Backend, ...]:
    """Return every installed solver's row of the solver table, built-in ones first.

    Returns
    -------
    tuple of Backend
        Rows with ``name``, ``summary`` and the problems (``kinds``) or programs (``forms``) that the solver answers.

    Notes
    -----
    Two rows of one name are refused. A table of another package that cannot be loaded is left out with a warning,
    because it must not stop the solvers that can be loaded.

    Examples
    --------
    >>> from coco_opt import backends
    >>> "highs" in [row.name for row in backends()]
    True
    """
    return all_rows(GROUP, BUILT_IN, "solver", UnknownSolverError)


@cache
def built_in() -> tuple[Backend, ...]:
    """Return the rows of the built-in table, cheapest exact solver first."""
    points = [point for point in entry_points(group=GROUP) if point.name == BUILT_IN]
    if not points:
        raise MissingPackageError("coco-opt", "the solver table (installation metadata not found)")
    return tuple(points[0].load())


def backend(name: str, problem: type[Problem[Any, Any]] | None = None) -> Backend:
    """Return the row of a name; ``base:VALUE`` finds the row of ``base``.

    An unknown name is answered by the nearest one, or by those that can express the ``problem``.
    """
    base = name.partition(":")[0]
    row = next((row for row in backends() if row.name == base), None)
    if row is None:
        names = [row.name for row in (backends() if problem is None else candidates(problem))]
        raise UnknownSolverError(f"no solver is called {name!r}{near(base, names)}")
    return row


def make_solver(name: str, **options: Any) -> Solver:
    """Return a solver by name, with typed options.

    Parameters
    ----------
    name : str
        A name of the solver table. After a colon it may have a parameter: "cvxpy:SCS" is CVXPY with its solver SCS.
    **options
        The solver's own options, such as ``tolerance``.

    Returns
    -------
    Solver
        An immutable value, to pass to ``solve`` or ``SolverChoices``.

    Raises
    ------
    UnknownSolverError
        There is no such name; the message names the nearest one.
    ConfigError
        The solver has no such option, or its value has another type.

    Examples
    --------
    >>> from coco_opt import make_solver
    >>> make_solver("clarabel", tolerance=1e-6).name
    'clarabel'
    """
    row = backend(name)
    _, colon, value = name.partition(":")
    if colon:
        if row.parameter is None:
            raise UnknownSolverError(f"solver {row.name!r} takes no ':{value}'")
        options = {row.parameter: value, **options}
    return row.make(options)


@lru_cache(maxsize=16)  # a time limit is an option, and differs from program to program
def program_solver(name: str, **options: Any) -> ProgramSolver:
    """Return a generic solver by name, for a program that is no problem of its own; see ``make_solver``."""
    solver = make_solver(name, **options)
    if not isinstance(solver, ProgramSolver):
        raise UnknownSolverError(f"solver {name!r} takes problems, not programs")
    return solver


def candidates(problem: type[Problem[Any, Any]]) -> list[Backend]:
    """Return the backends that can express a type of problem, cheapest first."""
    return [row for row in backends() if row.claims(problem)]


def resolve(solver: str | Solver, problem: type[Problem[Any, Any]]) -> Solver:
    """Return the solver meant by a value, ``"auto"`` or a name, which must be able to express the type of problem."""
    if not isinstance(solver, str):
        if not isinstance(solver, Solver):
            raise UnknownSolverError(
                f"a solver is a name, or a value with a name, a tolerance and a method solve(problem), not {solver!r}"
            )
        return solver
    if solver == "auto":
        return _automatic(problem)
    row = backend(solver, problem)
    if not row.claims(problem):
        names = ", ".join(candidate.name for candidate in candidates(problem))
        raise UnknownSolverError(f"solver {solver!r} cannot express {problem.kind}; these can: {names}")
    return make_solver(solver)


@cache
def _automatic(problem: type[Problem[Any, Any]]) -> Solver:
    """Return the first installed built-in solver that can express a type of problem."""
    for row in built_in():
        if row.claims(problem) and row.installed:
            return row.make()
    raise UnknownSolverError(f"no installed solver can express {problem.kind}; see 'coco-opt solvers'")


def _checked_options(name: str, solver_type: type, options: Mapping[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(solver_type)
    types = {field.name: hints[field.name] for field in dataclasses.fields(solver_type)}
    for key, value in options.items():
        if key not in types:
            hint = near(key, types, f"; it has: {', '.join(types) or 'no options'}")
            raise ConfigError(f"solvers.{name}.{key}", f"is no option of solver {name!r}{hint}")
        if not _fits(value, types[key]):
            raise ConfigError(f"solvers.{name}.{key}", f"must be {_spelled(types[key])}, not {value!r}")
        if key.endswith(("tolerance", "time_limit")) and value is not None and not 0 <= value < math.inf:
            raise ConfigError(f"solvers.{name}.{key}", f"must be a finite number of at least 0, not {value!r}")
    return dict(options)


def _fits(value: object, hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return value in arguments
    if arguments:
        return any(_fits(value, argument) for argument in arguments)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _spelled(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(repr(choice) for choice in typing.get_args(hint))
    if arguments := [argument for argument in typing.get_args(hint) if argument is not type(None)]:
        return " or ".join(map(_spelled, arguments))
    return getattr(hint, "__name__", str(hint))
