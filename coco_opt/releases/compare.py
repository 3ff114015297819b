"""Every available solver on the same problems, judged by the problems: the table behind ``coco-opt compare``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from coco_opt.config.model import Config
from coco_opt.errors import CocoOptError, SolverError
from coco_opt.privacy.measurement import Measurement
from coco_opt.privacy.seeded import SeededNoise
from coco_opt.registry import Backend, candidates
from coco_opt.releases.drawing import noisy, source_of
from coco_opt.releases.estimate import kind_for
from coco_opt.releases.kind import AnyProblem, Instance, kind_of
from coco_opt.releases.planning import planned
from coco_opt.releases.reporter import Reporter, default_reporter
from coco_opt.releases.solvers import solvers_of
from coco_opt.report.style import PAGE, plain, saved, styled
from coco_opt.solution import Answer, Status
from coco_opt.solver import Solver
from coco_opt.solving import judge, solve, timed

DEFAULT_SIZE = 2_000
_SIMULATION_SEED = 7


@dataclass(frozen=True, slots=True)
class Planted:
    """The best answer with its second half moved, and made feasible again: plausible and wrong, it claims to be best.

    A comparison must not certify it. At a bound the answer is moved the other way.
    """

    shift: float = 1.0
    tolerance: float = 1e-6
    name: ClassVar[str] = "planted fault"

    def solve(self, problem: AnyProblem) -> Answer[Any, Any]:
        """Return the moved answer with the larger objective."""
        start = perf_counter()
        best = np.array(solve(problem).value, np.float64)
        move = np.where(np.arange(best.size) < best.size // 2, 0.0, self.shift).reshape(best.shape)
        moved = max((problem.repair(best + move), problem.repair(best - move)), key=problem.objective)
        return Answer(moved, Status.OPTIMAL, seconds=perf_counter() - start)


PLANTED = Planted()


@dataclass(frozen=True, slots=True)
class Row:
    """One solver on one problem of ``unknowns`` unknowns.

    ``difference`` is the objective minus the first row's, divided by the first row's (or by 1). The first row is the
    solver that "auto" takes on the same problem; the difference is negative where that solver stopped within its
    tolerance. ``seconds`` is wall time in the solver without writing the program. Figures are None where nothing came
    back. ``used`` says that an estimation by the configuration would use this solver.
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
        return finite_or_none(asdict(self))


def finite_or_none(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record as JSON can state it: a figure that is not finite becomes None."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in record.items()
    }


@dataclass(frozen=True, eq=False, slots=True)
class Comparison:
    """The rows, and one line that says on which data they were measured."""

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

        A solver that refuses a problem it was not made for gave no answer.
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
    """Solve the problems of an estimation with every solver that can, and compare them.

    Parameters
    ----------
    config : Config
        Which problems arise.
    measurement : Measurement, optional
        A measurement that poses the problems. Without it a seeded measurement does: of the user's data if the config's
        noise is seeded, otherwise of simulated data; the private table then stays closed.
    size : int, default 2000
        The largest number of unknowns. A solver whose own limit is lower gets the same problem cut to its limit.
    reporter : Reporter, optional
        Receives the progress.

    Returns
    -------
    Comparison
        ``rows``, one for each problem and solver: objective, gap, violation and seconds. A solver that fails is a row,
        not an exception.

    Raises
    ------
    ConfigError, InputError, ProblemError
        As ``forecast`` raises them.
    """
    reporter = default_reporter(reporter)
    chosen, data = solvers_of(config), ""
    if measurement is None:
        measurement, data = _seeded_measurement(config, reporter)
    kind = kind_for(config, measurement)
    data = data or f"a measurement of {measurement.measurement_plan.cost}, {measurement.status}; nothing more is spent"
    return compare_instances(kind.instances(measurement, config), data, chosen, size=size, reporter=reporter)


def _seeded_measurement(config: Config, reporter: Reporter) -> tuple[Measurement, str]:
    """Return a seeded measurement, and in words the data it is of."""
    plan = planned(config, reporter)
    source = source_of(config)
    if not source.private:
        with reporter.stage("Counting the table"):
            private = kind_of(config).read(plan)
        words = f"NOT PRIVATE: seeded noise on the data of {config.name!r}; no privacy budget was spent"
        return noisy(plan, private, source, reporter), words
    with reporter.stage("Simulating data"):
        simulated = kind_of(config).simulated_data(plan)
    words = f"{simulated.words}, with seeded noise; the private table was not opened, no privacy budget was spent"
    return noisy(simulated.plan, simulated.private, SeededNoise(_SIMULATION_SEED), reporter), words


def compare_instances(
    instances: Sequence[Instance],
    data: str,
    chosen: Mapping[str, Solver],
    *,
    size: int = DEFAULT_SIZE,
    planted: Solver = PLANTED,
    reporter: Reporter | None = None,
) -> Comparison:
    """Solve every instance, of at most ``size`` unknowns, with every solver that can express it; see ``compare``.

    ``chosen`` are configured solvers, used with their options; ``data`` says which data the instances come from. The
    ``planted`` solver answers the first instance wrongly, which must not be certified.
    """
    reporter = default_reporter(reporter)
    with reporter.stage("Compiling kernels"):
        for instance in instances:
            solve(instance.make(2))
    jobs = [
        (instance, position, row) for instance in instances for position, row in enumerate(_backends(instance, chosen))
    ]
    rows: list[Row] = []
    with reporter.stage("Solving") as progress:
        for done, (instance, position, backend) in enumerate(jobs, start=1):
            fault = planted if done == 1 else None
            rows.extend(_rows(instance, backend, size, chosen, fault, first=position == 0))
            progress(done, len(jobs))
    return Comparison(data, tuple(rows))


def _backends(instance: Instance, chosen: Mapping[str, Solver]) -> list[Backend]:
    """Return the rows of the table that can express an instance, and one for a chosen solver that has none."""
    rows, solver = candidates(type(instance.make(1))), chosen.get(instance.kind)
    if solver is None or any(row.name == solver.name for row in rows):
        return rows
    return [*rows, Backend(solver.name, "", "", kinds=(instance.kind,))]


def _rows(
    instance: Instance, backend: Backend, size: int, chosen: Mapping[str, Solver], fault: Solver | None, *, first: bool
) -> Iterator[Row]:
    """Yield the row of one backend, the ``first`` or another of an instance, and then that of a planted fault."""
    limit = backend.limit(instance.kind)
    size_wanted = min(size, instance.largest)
    problem = instance.make(min(size_wanted, limit))
    note = f"cut from {size_wanted} to its cap of {limit} unknowns" if limit < size_wanted else ""
    row = partial(Row, instance.kind, unknowns=problem.variables, honours_ties=backend.honours_ties)
    if not backend.installed:
        requirement = f"coco-opt[{backend.extra}]" if backend.extra else " ".join(backend.packages)
        yield row(solver=backend.name, status="NOT INSTALLED", note=f"pip install '{requirement}'")
        return
    solver = chosen.get(instance.kind)
    if solver is None or solver.name != backend.name:
        solver = backend.make()
    reference = solve(problem, check=False).objective  # it may stop above its tolerance, which its row says
    with suppress(Exception):  # a package is imported outside the measured time; failures show afterwards
        solver.solve(instance.make(2))
    configured = chosen.get(instance.kind)
    row = partial(row, used=first if configured is None else configured.name == backend.name)
    yield _judged_row(row, problem, solver, backend.name, reference, note)
    if fault is not None:
        planted = partial(row, planted=True, used=False)
        yield _judged_row(planted, problem, fault, fault.name, reference, "planted, to be caught")


def _judged_row(row: partial[Row], problem: AnyProblem, solver: Solver, name: str, reference: float, note: str) -> Row:
    failure = ""
    try:
        solution = judge(problem, timed(solver, problem), name, solver.tolerance)
    except SolverError as error:
        failure = str(error)
    except CocoOptError as error:
        return row(solver=name, status="REFUSED", note=str(error))
    if failure:
        return row(solver=name, status="NO POINT", note=failure)
    return row(
        solver=name,
        status=solution.status.name,
        objective=solution.objective,
        difference=(solution.objective - reference) / max(solution.objective_scale, abs(reference)),
        relative_gap=solution.relative_gap,
        tolerance=solution.tolerance,
        violation=solution.violation,
        seconds=solution.seconds,
        note=note,
    )


def columns() -> Sequence[str]:
    """Return the names of a row's fields as written to CSV and JSON."""
    return tuple(Row("", "", 0, "").as_dict())


AUTO = "auto (fast exact)"
_FLOOR = 1e-7  # seconds: the resolution of a clock


@styled()
def draw_profiles(path: Path, comparison: Comparison) -> list[Path]:
    """Write ``path``.png and ``path``.pdf with a curve a solver; return the files."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(PAGE, PAGE / 2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name, points in profiles(comparison).items():
        axes.step(*zip(*points, strict=True), where="post", label=name)
    axes.set(
        xscale="log", ylim=(0.0, 1.02), xlabel="times the fastest solver's seconds", ylabel="share of the problems"
    )
    plain(axes.xaxis)
    figure.legend(loc="outside right upper")
    return saved(figure, path)


def profiles(comparison: Comparison) -> dict[str, list[tuple[float, float]]]:
    """Return each solver's profile: factors of the fastest time, rising, and the share of the problems within them.

    The fast exact solvers, one for each kind of problem, together are ``AUTO``, what is used where none is chosen.
    Source: Dolan and Moré 2002, equation 2.1, over the problems at their full size.
    """
    factors: dict[str, list[float]] = {}
    kinds = list(dict.fromkeys(row.problem for row in comparison.rows))
    for kind in kinds:
        solved = _solved(kind, comparison)
        fastest = min((_seconds(row) for row in solved), default=_FLOOR)
        auto = next(row.solver for row in comparison.rows if row.problem == kind)
        for row in solved:
            factors.setdefault(AUTO if row.solver == auto else row.solver, []).append(_seconds(row) / fastest)
    last = max((value for values in factors.values() for value in values), default=1.0)
    return {
        name: [
            (1.0, sum(value <= 1.0 for value in values) / len(kinds)),
            *((value, (k + 1) / len(kinds)) for k, value in enumerate(sorted(values)) if value > 1.0),
            (last, len(values) / len(kinds)),
        ]
        for name, values in factors.items()
    }


def _solved(kind: str, comparison: Comparison) -> list[Row]:
    """Return the certified answers to a problem at its full size."""
    rows = [row for row in comparison.rows if row.problem == kind and not row.planted]
    full = max(row.unknowns for row in rows)
    return [row for row in rows if row.status == Status.OPTIMAL.name and row.unknowns == full]


def _seconds(row: Row) -> float:
    return max(_FLOOR, row.seconds or 0.0)
