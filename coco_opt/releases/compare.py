"""Every available solver on the same problems, judged by the problems: the table behind ``coco-opt compare``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from coco_opt.config.model import Config
from coco_opt.errors import CocoOptError, SolverError
from coco_opt.privacy.measurement import Measurement
from coco_opt.privacy.seeded import SeededNoise
from coco_opt.registry import Backend, candidates
from coco_opt.releases.estimate import kind_for
from coco_opt.releases.instances import AnyProblem, Instance
from coco_opt.releases.measure import kind_of, noisy, planned, source_of
from coco_opt.releases.reporter import Reporter, Silent
from coco_opt.releases.solvers import solvers_of
from coco_opt.solution import Solution, Status
from coco_opt.solver import Solver
from coco_opt.solving import judge, solve

DEFAULT_SIZE = 2_000
_MADE_DATA_SEED = 7


@dataclass(frozen=True, slots=True)
class Row:
    """One solver on one problem of ``unknowns`` unknowns.

    ``difference`` is the objective minus that of the first row, the solver that "auto" takes, on the same problem,
    divided by it (or 1): negative where that one stopped within its tolerance. ``seconds`` is wall time in the solver
    without writing the program. Figures are None where nothing came back. ``used`` says that an estimation by the
    configuration would ask this solver.
    """

    problem: str
    solver: str
    unknowns: int
    status: str
    objective: float | None = None
    difference: float | None = None
    relative_gap: float | None = None
    tolerance: float | None = None
    violation: float | None = None
    seconds: float | None = None
    honours_ties: bool = False
    planted: bool = False
    used: bool = False
    note: str = ""

    @property
    def tried(self) -> bool:
        """Return whether the solver was run."""
        return self.status != "NOT INSTALLED"

    def as_dict(self) -> dict[str, Any]:
        """Return the row for CSV and JSON; a figure that is not finite becomes None."""
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(self).items()
        }


@dataclass(frozen=True, eq=False, slots=True)
class Comparison:
    """The rows, and what they were measured on, in one line."""

    data: str
    rows: tuple[Row, ...]

    @property
    def caught(self) -> bool:
        """Return whether the planted fault was there and was not certified."""
        planted = [row for row in self.rows if row.planted]
        return bool(planted) and all(row.status == Status.GAP_TOO_LARGE.name for row in planted)

    @property
    def missed(self) -> tuple[Row, ...]:
        """Return the rows of installed solvers whose answer was not certified within their tolerance.

        A solver that refuses a problem it was not made for answered nothing.
        """
        honest = (row for row in self.rows if row.tried and not row.planted and row.status != "REFUSED")
        return tuple(row for row in honest if row.status != Status.OPTIMAL.name)


def compare(
    config: Config,
    measurement: Measurement | None = None,
    *,
    size: int = DEFAULT_SIZE,
    reporter: Reporter | None = None,
) -> Comparison:
    """Solve the problems that an estimation poses, of at most ``size`` unknowns, with every solver that can.

    They are posed by a ``measurement``, or by a seeded one: of the user's data where the configuration's noise is
    seeded, else of made data, and the private table stays closed. A solver whose own limit is lower gets the same
    problem cut to its limit. Raises what planning raises; a solver that fails is a row, not an exception.
    """
    told = Silent() if reporter is None else reporter
    chosen, data = solvers_of(config), ""
    if measurement is None:
        measurement, data = _seeded(config, told)
    kind = kind_for(config, measurement)
    data = data or f"a measurement of {measurement.asked.cost}, {measurement.status}; nothing more is spent"
    return compare_instances(kind.instances(measurement, config), data, chosen, size=size, reporter=told)


def _seeded(config: Config, told: Reporter) -> tuple[Measurement, str]:
    """Return a seeded measurement and, in words, of what."""
    plan = planned(config, told)
    source = source_of(config)
    if not source.private:
        with told.stage("Counting the table"):
            private = kind_of(config).read(plan)
        words = f"NOT PRIVATE: seeded noise on the data of {config.name!r}; no privacy budget was spent"
        return noisy(plan, private, source, told), words
    with told.stage("Making data"):
        like = kind_of(config).look_alike(plan)
    words = f"{like.words}, with seeded noise; the private table was not opened, no privacy budget was spent"
    return noisy(like.plan, like.private, SeededNoise(_MADE_DATA_SEED), told), words


def compare_instances(
    found: Sequence[Instance],
    data: str,
    chosen: Mapping[str, Solver],
    *,
    size: int = DEFAULT_SIZE,
    reporter: Reporter | None = None,
) -> Comparison:
    """Solve every instance, of at most ``size`` unknowns, with every solver that can express it; see ``compare``.

    ``chosen`` are configured solvers, used with their options; ``data`` says what the instances were taken from.
    """
    told = Silent() if reporter is None else reporter
    with told.stage("Compiling kernels"):
        for instance in found:
            solve(instance.make(2))
    jobs = [(instance, at, row) for instance in found for at, row in enumerate(candidates(type(instance.make(1))))]
    rows: list[Row] = []
    with told.stage("Solving") as progress:
        for done, (instance, at, backend) in enumerate(jobs, start=1):
            rows.extend(_rows(instance, backend, size, chosen, first=at == 0))
            progress(done, len(jobs))
    return Comparison(data, tuple(rows))


def _rows(
    instance: Instance, backend: Backend, size: int, chosen: Mapping[str, Solver], *, first: bool
) -> Iterator[Row]:
    """Yield the row of one backend, and of the ``first`` one that of the instance's planted fault, if it has one."""
    limit = backend.limit(instance.kind)
    wanted = min(size, instance.largest)
    problem = instance.make(min(wanted, limit))
    note = f"cut from {wanted} to its cap of {limit} unknowns" if limit < wanted else ""
    row = partial(Row, instance.kind, unknowns=problem.variables, honours_ties=backend.honours_ties)
    if not backend.installed:
        yield row(solver=backend.name, status="NOT INSTALLED", note=_how_to_install(backend))
        return
    solver = chosen.get(instance.kind)
    if solver is None or solver.name != backend.name:
        solver = backend.make()
    reference = solve(problem).objective
    _warm_up(solver, instance)
    configured = chosen.get(instance.kind)
    row = partial(row, used=first if configured is None else configured.name == backend.name)
    yield _judged(row, problem, solver, backend.name, reference, note)
    if first and instance.planted is not None:
        planted = instance.planted
        yield _judged(
            partial(row, planted=True, used=False), problem, planted, planted.name, reference, "planted, to be caught"
        )


def _warm_up(solver: Solver, instance: Instance) -> None:
    """Let a solver import its package on a tiny problem, outside the measured time; failures show afterwards."""
    with suppress(Exception):
        solver.solve(instance.make(2))


def _judged(row: partial[Row], problem: AnyProblem, solver: Solver, name: str, reference: float, note: str) -> Row:
    failure = ""
    try:
        solution = judge(problem, solver.solve(problem), name, solver.tolerance)
    except SolverError as error:
        failure = str(error)
    except CocoOptError as error:
        return row(solver=name, status="REFUSED", note=str(error))
    except Exception as error:  # a package that breaks is a result of the comparison, not its end
        return row(solver=name, status="FAILED", note=type(error).__name__)
    if failure:
        return row(solver=name, status="NO POINT", note=failure)
    return _filled(row, solution, name, reference, note)


def _filled(row: partial[Row], solution: Solution[Any], name: str, reference: float, note: str) -> Row:
    return row(
        solver=name,
        status=solution.status.name,
        objective=solution.objective,
        difference=(solution.objective - reference) / max(1.0, abs(reference)),
        relative_gap=solution.relative_gap,
        tolerance=solution.tolerance,
        violation=solution.violation,
        seconds=solution.seconds,
        note=note,
    )


def _how_to_install(backend: Backend) -> str:
    what = f"coco-opt[{backend.extra}]" if backend.extra else " ".join(backend.packages)
    return f"pip install '{what}'"


def columns() -> Sequence[str]:
    """Return the names of a row's fields as written to CSV and JSON."""
    return tuple(Row("", "", 0, "").as_dict())
