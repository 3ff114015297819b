"""The solvers that a configuration names, built and tried before anything is paid."""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from typing import Any

from coco_opt.choices import SolverChoices
from coco_opt.compiling import compiling
from coco_opt.config.model import Config
from coco_opt.errors import CocoOptError, ConfigError, MissingPackageError, UnknownSolverError
from coco_opt.execution import executor_row
from coco_opt.kinds import kind_rows
from coco_opt.privacy.measurement import MeasurementPlan
from coco_opt.problems import PROBLEMS
from coco_opt.registry import backend, backends, make_solver
from coco_opt.releases.kind import AnyKind, promise_of
from coco_opt.solver import Solver
from coco_opt.solving import solve


def solvers_of(config: Config) -> dict[str, Solver]:
    """Build the chosen solvers, so that a wrong name or option is an error before any data is read.

    Raises ConfigError for an unknown solver, a wrong option or a solver that cannot express the problem,
    MissingPackageError for a solver that is not installed.
    """
    built: dict[str, Solver] = {}
    for kind, choice in config.solvers.chosen().items():
        if choice.name == "auto" and not choice.options and choice.solver is None:
            continue
        failure, key = "", f"solvers.{config.solvers.key_of(kind)}"
        try:
            if choice.solver is not None:
                built[kind] = choice.solver
                failure = "" if key == f"solvers.{kind}" else "a solver itself serves one problem: use that one's key"
            elif choice.name == "auto":
                failure = "'auto' takes no options: name a solver"
            elif not backend(choice.name, PROBLEMS[kind]).claims(PROBLEMS[kind]):
                failure = f"solver {choice.name!r} cannot express {kind}; see 'coco-opt solvers'"
            else:
                built[kind] = make_solver(choice.name, **choice.options)
        except UnknownSolverError as error:
            failure = str(error)
        except ConfigError as error:
            failure, key = error.message, f"{key}.{error.key.rpartition('.')[2]}"
        if failure:
            raise config.error(key, failure)
    return built


def choices_of(config: Config) -> SolverChoices:
    """Return the configured solvers with their fallbacks; raises what ``solvers_of`` does."""
    return SolverChoices(solvers_of(config), fallback=config.solvers.fallback)


def exhaustive(config: Config) -> list[str]:
    """Return the chosen solvers that try every point, and so answer tiny problems only."""
    chosen = config.solvers.chosen().values()
    names = {choice.name if choice.solver is None else choice.solver.name for choice in chosen}
    return sorted(names & {row.name for row in backends() if row.exhaustive})


def size_note(config: Config, measurement_plan: MeasurementPlan) -> str:
    """Return what becomes of problems that are too large for a chosen solver; "" where every solver takes any size."""
    if not (names := exhaustive(config)):
        return ""
    start = f"Note: the solver {', '.join(names)} tries every point, so it answers tiny problems only. Larger ones"
    if config.solvers.fallback:
        return f"{start} go to another solver"
    if promise_of(measurement_plan).groups == "private":
        return f"{start} end the release after the payment (fallback = false), and their sizes are private"
    return f"{start} end the release (fallback = false): coco-opt check tries simulated data of this size"


def try_solvers(config: Config) -> None:
    """Let each chosen solver solve a tiny public problem, so that wrong options fail before anything is paid.

    Whether it answers what this configuration needs is shown by the rehearsal (``coco_opt.releases.rehearsal``).

    Raises ConfigError for a solver that breaks, MissingPackageError for solvers and for the executor.
    """
    executor_row(config.engine.executor).check()
    for kind, solver in solvers_of(config).items():
        failure = _failure(kind, solver)
        if failure:
            raise config.error(f"solvers.{config.solvers.key_of(kind)}", failure)


def warm_worker() -> None:
    """Import what takes a worker the longest, while the measurement is still being made or read."""
    for row in kind_rows():
        row.load()
    importlib.import_module("numba")


def compiling_late(
    kind: AnyKind, config: Config, method: Any, measurement_plan: MeasurementPlan
) -> AbstractContextManager[object]:
    """Compile, while the body runs, the missing kernels that the kind says an estimation calls late.

    Problems for which the configuration names a solver are left out.
    """
    named = {problem for problem, choice in config.solvers.chosen().items() if choice.name != "auto"}
    return compiling(
        *(late for late in kind.late_kernels(method, measurement_plan) if late.partition("/")[0] not in named)
    )


def _failure(kind: str, solver: Solver) -> str:
    """Return why a solver breaks on a tiny problem of this kind, "" where it does not."""
    try:
        solve(next(iter(PROBLEMS[kind].examples().values())), solver, check=False)
    except MissingPackageError:
        raise
    except CocoOptError as error:
        if error.__cause__ is None:
            return f"fails already on a tiny problem: {error}"
        # Whatever a package raises on wrong options.
        reason = f"{type(error.__cause__).__name__}: {' '.join(str(error.__cause__).split())}"
        return f"fails already on a tiny problem, so check its options ({reason})"
    return ""
