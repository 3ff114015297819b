"""Release: measure and estimate in one call; a repeated call does only what is missing."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coco_opt.config.model import Config, digest_of
from coco_opt.errors import InputError, ProblemError
from coco_opt.execution import Executor
from coco_opt.files.folder import MANIFEST, file_digest, read_manifest
from coco_opt.files.scratch import Scratch
from coco_opt.privacy.measurement import MeasurementPlan
from coco_opt.privacy.private_files import replace_private
from coco_opt.releases.drawing import Measured, source_of
from coco_opt.releases.estimate import estimated, free_to_repeat, method_digest, with_measured_privacy
from coco_opt.releases.kind import PageWriter, Plan, Truth, kind_of
from coco_opt.releases.measure import measured_of
from coco_opt.releases.planning import planned
from coco_opt.releases.release_in_memory import Estimated
from coco_opt.releases.reporter import Reporter, default_reporter
from coco_opt.releases.resource_cost import Clock
from coco_opt.releases.solvers import compiling_late, try_solvers, warm_worker
from coco_opt.releases.storage import check_target, open_private_folder, write_private_record
from coco_opt.releases.stored_runs import record_release, runs_of_ledger


@dataclass(frozen=True, eq=False, slots=True)
class Outcome:
    """What a release wrote: the public folder and the private record; ``estimate`` is None where it existed before.

    ``run`` is the id of the run whose measurement was estimated, ``paid`` whether this call paid for it.
    """

    folder: Path
    record: Path | None
    run: str
    paid: bool
    estimate: Estimated | None
    manifest: Mapping[str, Any]


def release(
    config: Config,
    out: Path | None = None,
    *,
    reporter: Reporter | None = None,
    page: PageWriter | None = None,
    truth: Truth | None = None,
) -> Outcome:
    """Measure the queries of a config once, estimate, and write the release folder.

    Parameters
    ----------
    config : Config
        The data, the budget, the queries and the method.
    out : Path, optional
        The folder, which must not exist; ``NAME-RUNID`` in the output directory if it is left out.
    reporter : Reporter, optional
        Receives the progress.
    page : callable, optional
        Writes the HTML report: ``render_report``.
    truth : Truth, optional
        The truth of simulated data, to compare with.

    Returns
    -------
    Outcome
        The folder, the private record, and whether this call paid.

    Raises
    ------
    ConfigError, InputError, ProblemError, MissingPackageError, BudgetError
        Before anything is paid.
    SolverError, ProblemError
        After the payment; the same call continues from there for free.

    Notes
    -----
    The same queries on the same data are paid for once. With other estimation keys the measurement is estimated anew,
    for free; a release that was already made by the same keys is named.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import pandas as pd
    >>> from coco_opt import configure, release, verify_release
    >>> visits = pd.DataFrame({"value": [3, 1, 4, 1, 5]})
    >>> privacy = {"epsilon": "1", "noise": "seeded", "seed": 7}
    >>> with TemporaryDirectory() as folder:
    ...     config = configure(folder=folder, data={"values": visits}, privacy=privacy, ranges={"cells": 8})
    ...     all(check.passed for check in verify_release(release(config).folder))
    True
    """
    reporter, clock = default_reporter(reporter), Clock()
    if truth is not None and source_of(config).private:
        raise ProblemError("the truth next to a private release would undo its privacy: give none, or seeded noise")
    try_solvers(config)
    plan = planned(config, reporter, measuring=True)
    kind = kind_of(config)
    method = kind.method(plan.config, plan.measurement_plan)
    resuming = out is not None and _is_resumed(plan, out)
    if not resuming:
        like_its_own = config.output.directory / f"{config.name}-{'0' * 25}"
        check_target(out or like_its_own, private=config.output.private)
    private = open_private_folder(config.output.private)
    clock.lap("read_public")
    late = compiling_late(kind, config, method, plan.measurement_plan)
    with late, config.engine.open() as executor, Scratch(private) as scratch:
        executor.start(warm_worker)
        measured = _measure(config, plan, scratch, reporter, clock, page)
        earlier = _earlier_release(measured, out, reporter)
        return earlier or _estimate(measured, executor, out, reporter, clock, page, truth)


def _measure(
    config: Config, plan: Plan, scratch: Scratch, reporter: Reporter, clock: Clock, page: PageWriter | None
) -> Measured:
    try:
        measured = measured_of(plan, scratch=scratch, reporter=reporter, clock=clock, page=page)
    except InputError as error:
        if error.code != "file-not-found" or (run := _measured_run(config, plan.measurement_plan)) is None:
            raise
        hint = f"run {run} measured these queries: coco-opt estimate {run} CONFIG needs no private table"
        missing = InputError(error.code, f"{error.message}; {hint}", error.place)
    else:
        if measured.folder is not None and not measured.paid:
            reporter.line(f"Run {measured.run} measured this already, or was paid to: nothing more is spent")
        return measured
    raise missing


def _as_paid(measured: Measured) -> Config:
    """Return the configuration with the noise and the cost of the run, even if its own were changed since."""
    privacy = measured.config.privacy.model_copy(update={"noise": measured.measurement.noise})
    config = with_measured_privacy(replace(measured.config, privacy=privacy), measured.measurement)
    return replace(config, privacy=config.privacy.model_copy(update={"dataset": privacy.dataset}))


def _measured_run(config: Config, measurement_plan: MeasurementPlan) -> str | None:
    """Return a run that measured these queries and whose measurement is stored, None without one."""
    names = [
        stored.name
        for stored in runs_of_ledger(config)
        if stored.run is not None and stored.run.charge.digest == measurement_plan.digest and stored.folder is not None
    ]
    return names[-1] if names else None


def _is_resumed(plan: Plan, out: Path) -> bool:
    """Return whether an existing folder is a release of these queries by a run of this ledger.

    A process may have died after publishing the folder and before writing its record: then the same call completes it.
    """
    try:
        digest = read_manifest(out).get("measurement")
    except InputError:
        return False
    return bool(digest == plan.identity) and _measured_run(plan.config, plan.measurement_plan) is not None


def _estimate(
    measured: Measured,
    executor: Executor,
    out: Path | None,
    reporter: Reporter,
    clock: Clock,
    page: PageWriter | None,
    truth: Truth | None,
) -> Outcome:
    """Estimate, publish, write the private record, and close the run in the ledger."""
    config = _as_paid(measured)
    name = f"{config.name}-{measured.run}"
    scratch = None if measured.folder is None else measured.folder.parent
    with nullcontext() if scratch is None else free_to_repeat(measured.run, config):
        estimate = estimated(
            config, measured.measurement, name, reporter=reporter, truth=truth, scratch=scratch, executor=executor
        )
        clock.lap("estimate")
        folder, digest = estimate.publish(out, page=page, reporter=reporter)
        clock.lap("write")
    record = {  # private: timings and row counts depend on private data
        "run": measured.run,
        "release": str(folder.resolve()),
        **{key: estimate.manifest[key] for key in ("status", "budget", "config")},
        "identity": dict(measured.identity),
        "seconds": dict(clock.laps),
        "solver_seconds": {row.problem: row.seconds for row in estimate.result.certificates},
    }
    path = write_private_record(config.output.private, _record_name(measured, digest), record)
    if scratch is not None:
        record_release(measured.config, measured.run, digest)  # whose ledger was paid from
        _write_note(scratch, config, folder, digest)  # a release that a note names is recorded
    return Outcome(folder, path, measured.run, measured.paid, estimate, estimate.manifest)


def _note_path(folder: Path, config: Config) -> Path:
    drawn = None if config.output.geometry is None else file_digest(config.output.geometry)
    shown = digest_of([drawn, config.output.title, config.output.date, config.output.words])
    return folder / f"released-{method_digest(config)}-{shown}.json"


def _write_note(scratch: Path, config: Config, folder: Path, digest: str) -> None:
    """Note in the run's folder where the release of this method lies, as seen from there: both may be moved."""
    try:
        place = os.path.relpath(folder.resolve(), scratch.resolve())
    except ValueError:  # on another drive
        place = str(folder.resolve())
    entries = {"folder": place, "manifest": digest}
    replace_private(_note_path(scratch, config), [json.dumps(entries, indent=2).encode()])


def _earlier_release(measured: Measured, out: Path | None, reporter: Reporter) -> Outcome | None:
    """Return the release of this run by the same method, in ``out`` if that is named; None without it unchanged."""
    if measured.folder is None or measured.paid:
        return None
    path = _note_path(measured.folder.parent, measured.config)
    if not path.is_file():
        return None
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        folder = (path.parent / entries["folder"]).resolve()
        if out is not None and out.resolve() != folder:
            return None
        if file_digest(folder / MANIFEST) != entries["manifest"]:
            return None
    except (ValueError, KeyError, TypeError, InputError):
        return None  # a damaged note costs only another estimation
    reporter.line(f"Released already by the same method: {folder}")
    record = measured.config.output.private / f"{_record_name(measured, entries['manifest'])}.json"
    there = record if record.is_file() else None
    return Outcome(folder, there, measured.run, paid=False, estimate=None, manifest=read_manifest(folder))


def _record_name(measured: Measured, digest: str) -> str:
    """Return the name of the private record of a release whose manifest has this digest."""
    return f"{measured.config.name}-{measured.run}-{digest[:8]}"
