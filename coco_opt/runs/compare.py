"""Every available solver on the same problems, judged by the problems: the table behind ``coco-opt compare``.

Nothing here spends privacy budget: the measurement is seeded, and taken of the user's data only where their own
configuration says ``noise = "seeded"``; otherwise of the demo's made data, and the private table stays closed.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.choices import SolverChoices
from coco_opt.errors import CocoOptError, SolverError
from coco_opt.groups import FitOptions
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.privacy import Query, SeededNoise
from coco_opt.registry import Backend, candidates
from coco_opt.runs.demo import write_demo
from coco_opt.runs.instances import AnyProblem, Instance, RootMeasurements, instances, measure_root
from coco_opt.runs.plan import plan_release, read_counts
from coco_opt.runs.planted import PLANTED
from coco_opt.runs.program_instances import program_instances
from coco_opt.runs.reporter import Reporter, Silent
from coco_opt.runs.settings import Settings, budget_of, method_of, solvers_of
from coco_opt.solution import Solution, Status
from coco_opt.solver import Solver, judge, solve
from coco_opt.tables import read_tables

DEFAULT_SIZE = 2_000
_MADE_DATA_SEED = 7


@dataclass(frozen=True, slots=True)
class Row:
    """One solver on one problem of ``unknowns`` unknowns.

    ``difference`` is the objective minus the fast exact solver's on the same problem, divided by it (or 1);
    ``seconds`` is wall time in the solver without writing the program. Figures are None where nothing came back.
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
    note: str = ""

    @property
    def tried(self) -> bool:
        """Return whether the solver was run."""
        return self.status != "NOT INSTALLED"

    @property
    def planted(self) -> bool:
        """Return whether this row is a fault put there to be caught."""
        return self.solver in PLANTED

    def as_dict(self) -> dict[str, Any]:
        """Return the row for CSV and JSON; a figure that is not finite becomes None."""
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(self).items()
        }
        return {**finite, "planted": self.planted}


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
        """Return the rows of installed solvers whose answer was not certified within their tolerance."""
        honest = (row for row in self.rows if row.tried and not row.planted)
        return tuple(row for row in honest if row.status != Status.OPTIMAL.name)


def compare(settings: Settings, *, size: int = DEFAULT_SIZE, reporter: Reporter | None = None) -> Comparison:
    """Solve one problem of every kind, of at most ``size`` unknowns, with every solver that can express it.

    A solver whose own limit is lower gets the same problem cut to its limit. Raises what ``run_release`` raises
    before its first noise; a solver that fails is a row, not an exception.
    """
    told = Silent() if reporter is None else reporter
    chosen = solvers_of(settings)
    root, data = _measure(settings, told)
    found = [*instances(root, SolverChoices()), *program_instances(root, settings.groups.consistency)]
    return compare_instances(found, data, chosen, size=size, reporter=told)


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
            rows.extend(_rows(instance, backend, size, chosen, plant=at == 0))
            progress(done, len(jobs))
    return Comparison(data, tuple(rows))


def _rows(
    instance: Instance, backend: Backend, size: int, chosen: Mapping[str, Solver], *, plant: bool
) -> Iterator[Row]:
    """Yield the row of one backend, and with ``plant`` that of the instance's planted fault, if it has one."""
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
    yield _judged(row, problem, solver, backend.name, reference, note)
    if plant and instance.planted is not None:
        planted = instance.planted
        yield _judged(row, problem, planted, planted.name, reference, "planted, to be caught")


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


def _measure(settings: Settings, told: Reporter) -> tuple[RootMeasurements, str]:
    """Return seeded measurements and, in words, of what."""
    seed = settings.privacy.seed
    if settings.privacy.noise == "seeded" and seed is not None:
        with told.stage("Counting the table"):
            plan = plan_release(settings)
            counts = read_counts(plan)
        root = _root(settings, counts.histograms(), plan.hierarchy, counts.group_counts, seed)
        return root, f"NOT PRIVATE: seeded noise on the data of {settings.name!r}; no privacy budget was spent"
    with told.stage("Making data"), tempfile.TemporaryDirectory() as folder:
        files = write_demo(Path(folder))
        counts = read_tables(files.entities, files.groups, files.hierarchy)
    hierarchy = counts.hierarchy
    root = _root(settings, counts.histograms(), hierarchy, counts.group_counts, _MADE_DATA_SEED)
    return root, "made data with seeded noise; the private table was not opened, no privacy budget was spent"


def _root(
    settings: Settings,
    histograms: list[CountOfCounts],
    hierarchy: Hierarchy,
    group_counts: NDArray[np.int64],
    seed: int,
) -> RootMeasurements:
    levels = hierarchy.levels
    fits = _fits(settings, levels)
    cumulative: list[Query] = ["cumulative"] * levels
    fit = FitOptions("l1", settings.groups.ties, settings.groups.rounding)
    return measure_root(
        histograms,
        hierarchy,
        group_counts,
        queries=settings.estimators(levels) if fits else tuple(cumulative),
        fit=method_of(settings, levels).fit_options(0) if fits else fit,
        budget=budget_of(settings, (Fraction(1, levels),) * levels),
        max_size=settings.groups.max_size,
        source=SeededNoise(seed),
    )


def _fits(settings: Settings, levels: int) -> bool:
    """Return whether per-level lists of the configuration, if any, have as many entries as these data levels."""
    try:
        settings.estimators(levels)
        settings.losses(levels)
    except CocoOptError:
        return False
    return True


def columns() -> Sequence[str]:
    """Return the names of a row's fields as written to CSV and JSON."""
    return tuple(Row("", "", 0, "").as_dict())
