"""One release of tables from configuration to folder: the private table is open in one function, and in no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coco_opt.choices import SolverChoices
from coco_opt.privacy import RunKey, SecureNoise
from coco_opt.runs.clock import Clock
from coco_opt.runs.manifest import implied_privacy
from coco_opt.runs.opened import OpenRun, opened_run
from coco_opt.runs.paid import PaidRun, keyed_digest
from coco_opt.runs.publish import publish
from coco_opt.runs.records import write_private_record
from coco_opt.runs.reporter import Reporter, Silent
from coco_opt.runs.settings import rehearse
from coco_opt.runs.tables.checkpoints import LevelFiles, remove_levels
from coco_opt.runs.tables.columns import estimate_columns, exact_columns
from coco_opt.runs.tables.manifest import manifest_of_tables
from coco_opt.runs.tables.plan import TablesPlan, charged_arrays, plan_tables, read_private_tables
from coco_opt.runs.tables.settings import TablesSettings
from coco_opt.tables.persons import CellRuns, write_tables
from coco_opt.topdown.counts import TableCounts
from coco_opt.topdown.linear import LinearStage
from coco_opt.topdown.measure import measure_tables
from coco_opt.topdown.measurements import TableMeasurements
from coco_opt.topdown.release import TablesResult, estimate_tables, linear_estimates
from coco_opt.topdown.seal import TABLES_SEALING

_THREADS = 2


@dataclass(frozen=True, eq=False, slots=True)
class TablesPage:
    """All that the report of a release of tables may show."""

    manifest: Mapping[str, Any]
    spent: str
    plan: TablesPlan
    measurements: TableMeasurements
    result: TablesResult
    linear: LinearStage


TablesPageWriter = Callable[[TablesPage], str]


@dataclass(frozen=True, eq=False, slots=True)
class TablesOutcome:
    """What a run left behind: the public folder, the private record, and the released values."""

    folder: Path
    record: Path
    spent: str
    manifest: Mapping[str, Any]
    result: TablesResult
    page: TablesPage


def run_tables(
    settings: TablesSettings,
    out: Path | None = None,
    *,
    reporter: Reporter | None = None,
    page: TablesPageWriter | None = None,
) -> TablesOutcome:
    """Release the tables a configuration asks for and return where they lie.

    ``out`` must not exist (default: ``NAME-RUNID`` in the output directory). A private run is paid for in the ledger
    before its table is opened; one that was interrupted is taken up by the same configuration, at the last level it
    finished, and pays nothing. Raises ConfigError, InputError, ProblemError, MissingPackageError or BudgetError before
    any budget is spent, SolverError or ProblemError naming region and constraint after it.
    """
    told = Silent() if reporter is None else reporter
    clock = Clock()
    with told.stage("Reading the public tables"):
        plan = plan_tables(settings)
    rehearse(settings, plan.solvers)
    implied_privacy(settings, plan.queries.unit, plan.queries.spent)
    with opened_run(settings, plan.charge if plan.source.private else None, out) as run:
        clock.lap("read_public")
        measurements, identity = _measured(plan, run.paid, told, clock)
        # A resumed run reports what was measured then, also where a strategy would be optimised otherwise today.
        plan = replace(plan, queries=measurements.plan)
        run.tell(plan.spent, told)
        result = _estimate(plan, measurements, run.paid, told)
        clock.lap("estimate")
        return _finish(plan, run, measurements, result, identity, told, clock, page)


def _measured(
    plan: TablesPlan, paid: PaidRun | None, told: Reporter, clock: Clock
) -> tuple[TableMeasurements, Mapping[str, int]]:
    """Return sealed measurements and the identity of the rows, which goes to the private record only."""
    if paid is None:
        counts, rows = _read(plan, told, clock)
        return _add_noise(plan, counts, told, clock), _identity(counts, rows)
    run = paid

    def measure(key: RunKey) -> TableMeasurements:
        source = SecureNoise(key) if plan.source.name == SecureNoise.name else plan.source
        counts, rows = _read(plan, told, clock)
        run.folder.bind("input", keyed_digest(key, charged_arrays(counts)))
        run.folder.keep("identity", _identity(counts, rows))
        return _add_noise(replace(plan, source=source), counts, told, clock)

    return run.measurements(measure, TABLES_SEALING), run.folder.kept("identity")


def _read(plan: TablesPlan, told: Reporter, clock: Clock) -> tuple[TableCounts, int]:
    with told.stage("Counting the private table"):
        found = read_private_tables(plan)
    clock.lap("read_private")
    return found


def _identity(counts: TableCounts, rows: int) -> dict[str, int]:
    # Reading refuses a table of which any row is not counted exactly once.
    read = {"rows_read": rows, "rows_counted": rows, "rows_rejected": 0}
    return {**read, "persons": int(counts.counts.sum()), "cells_occupied": int(counts.cells.size)}


def _add_noise(plan: TablesPlan, counts: TableCounts, told: Reporter, clock: Clock) -> TableMeasurements:
    with told.stage("Measuring queries") as progress:
        measured = measure_tables(
            counts,
            plan.queries,
            source=plan.source,
            invariants=plan.invariants,
            bounds=plan.bounds,
            progress=progress,
        )
    clock.lap("measure")
    return measured


def _estimate(plan: TablesPlan, measurements: TableMeasurements, paid: PaidRun | None, told: Reporter) -> TablesResult:
    """Post-process sealed measurements, level by level; nothing private is in reach."""
    levelwise = plan.method.estimation != "bottom_up"
    solvers = SolverChoices(dict(plan.solvers))
    files = LevelFiles(paid.folder.path, solvers) if paid is not None and levelwise else None
    with told.stage("Splitting regions (a first run compiles)") as progress:
        return estimate_tables(
            measurements,
            plan.method,
            solvers,
            threads=_THREADS,
            progress=progress,
            after_level=None if files is None else files.keep,
            resume_from=None if files is None else files.last(),
        )


def _undetermined(plan: TablesPlan, linear: LinearStage) -> list[str]:
    """Return the workload's queries of which some answer at some level does not follow from what is measured."""
    levels = range(plan.queries.levels)
    return [
        query.text
        for query in plan.workload
        if not all(linear.normal[level].determines(query.operator).all() for level in levels)
    ]


def _finish(
    plan: TablesPlan,
    run: OpenRun,
    measurements: TableMeasurements,
    result: TablesResult,
    identity: Mapping[str, int],
    told: Reporter,
    clock: Clock,
    page: TablesPageWriter | None,
) -> TablesOutcome:
    """Publish, write the private record, and close the run in the ledger."""
    manifest = manifest_of_tables(plan, result)
    linear = linear_estimates(measurements)
    for text in _undetermined(plan, linear):
        told.line(f"Not determined by what is measured: {text!r}; its released answers rest on other queries alone")
    shown = TablesPage(manifest, plan.spent, plan, measurements, result, linear)
    with told.stage("Writing the release"):
        html = None if page is None else page(shown)
        exact, estimates = exact_columns(measurements.invariants), estimate_columns(linear, plan.workload)
        runs = CellRuns.of(result.tables)

        def write(target: Path) -> None:
            write_tables(
                target,
                plan.hierarchy,
                plan.schema,
                runs,
                manifest,
                exact=exact,
                estimates=estimates,
                microdata=plan.settings.topdown.microdata,
                report_html=html,
            )

        digest = publish(run.folder, write, resumed=run.resumed)
    clock.lap("write")
    record = run.record(manifest, identity, clock.laps, result.certificates)
    records = plan.settings.output.private
    path = write_private_record(records, f"{plan.settings.name}-{run.run_id}", record, keep=run.resumed)
    if run.paid is not None:
        run.paid.released(digest)
        remove_levels(run.paid.folder.path)
    return TablesOutcome(run.folder, path, plan.spent, manifest, result, shown)
