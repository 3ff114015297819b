"""Release: measure and estimate in one call; taken up again, only what is missing is done."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coco_opt.config.model import Config
from coco_opt.errors import InputError, ProblemError
from coco_opt.execution import Executor
from coco_opt.files.folder import MANIFEST, file_digest, read_manifest
from coco_opt.files.spill import Scratch
from coco_opt.privacy.measurement import Asked
from coco_opt.privacy.private_files import replace_private
from coco_opt.releases.clock import Clock
from coco_opt.releases.estimate import estimated, method_digest
from coco_opt.releases.estimated import Estimated
from coco_opt.releases.kept import known_runs
from coco_opt.releases.kind import PageWriter, Plan, Truth
from coco_opt.releases.measure import Measured, check_target, kind_of, measured_of, planned, source_of
from coco_opt.releases.records import open_private_folder, private_record, write_private_record
from coco_opt.releases.reporter import Reporter, Silent
from coco_opt.releases.runs import ledger_of
from coco_opt.releases.solvers import choices_of, compiling_late, rehearse, warm_worker


@dataclass(frozen=True, eq=False, slots=True)
class Outcome:
    """What a release left behind: the public folder and the private record; ``made`` is None where it lay there.

    ``run`` is the id of the run whose measurement it was made of, ``paid`` whether this call paid for it.
    """

    folder: Path
    record: Path | None
    run: str
    paid: bool
    made: Estimated | None
    manifest: Mapping[str, Any]


def release(
    config: Config,
    out: Path | None = None,
    *,
    reporter: Reporter | None = None,
    page: PageWriter | None = None,
    truth: Truth | None = None,
) -> Outcome:
    """Measure what a configuration asks, once, and make the release that it wants of it.

    ``out`` must not exist (default: ``NAME-RUNID`` in the output directory). The same questions of the same data are
    paid once: with other estimation keys the measurement is estimated anew, for free, and a release that was made so
    is named. Raises ConfigError, InputError, ProblemError, MissingPackageError, BudgetError before anything is paid;
    SolverError, ProblemError after it, from where the same call goes on for free.
    """
    told, clock = Silent() if reporter is None else reporter, Clock()
    if truth is not None and source_of(config).private:
        raise ProblemError("the truth beside a private release would undo its privacy: give none, or seeded noise")
    rehearse(config)
    plan = planned(config, told)
    kind = kind_of(config)
    method = kind.method(config, plan.asked)
    choices_of(config)
    own = out is not None and _is_own(config, plan.asked, out)
    if not own:
        check_target(_probe(config) if out is None else out)
    private = open_private_folder(config.output.private)
    clock.lap("read_public")
    late = compiling_late(kind, config, method, plan.asked)
    with late, config.engine.open() as executor, Scratch(private) as scratch:
        executor.start(warm_worker)
        measured = _measured(config, plan, scratch, told, clock)
        return _made(config, measured, executor, out, told, clock, page, truth)


def _measured(config: Config, plan: Plan, scratch: Scratch, reporter: Reporter, clock: Clock) -> Measured:
    try:
        return measured_of(plan, scratch=scratch, reporter=reporter, clock=clock)
    except InputError as error:
        if error.code != "file-not-found" or (run := _measured_run(config, plan.asked)) is None:
            raise
        hint = f"run {run} measured these questions: coco-opt estimate {run} CONFIG needs no private table"
        gone = InputError(error.code, f"{error.message}; {hint}", error.place)
    raise gone


def _made(
    config: Config,
    measured: Measured,
    executor: Executor,
    out: Path | None,
    reporter: Reporter,
    clock: Clock,
    page: PageWriter | None,
    truth: Truth | None,
) -> Outcome:
    if measured.folder is not None and not measured.paid:
        reporter.line(f"Run {measured.run} measured this already, or was paid to: nothing more is spent")
        earlier = _earlier(measured, config) if out is None else None
        if earlier is not None:
            reporter.line(f"Released already by the same method: {earlier}")
            manifest = json.loads((earlier / MANIFEST).read_text(encoding="utf-8"))
            return Outcome(earlier, None, measured.run, paid=False, made=None, manifest=manifest)
    # How a run was paid stands in its own measurement, whatever was written into the file since.
    privacy = config.privacy.model_copy(update={"noise": measured.measurement.noise})
    return _finish(replace(config, privacy=privacy), measured, executor, out, reporter, clock, page, truth)


def _measured_run(config: Config, asked: Asked) -> str | None:
    """Return a run that measured these questions and whose measurement is kept, None without one."""
    found = [
        known.name
        for known in known_runs(config)
        if known.run is not None and known.run.charge.digest == asked.digest and known.folder is not None
    ]
    return found[-1] if found else None


def _is_own(config: Config, asked: Asked, out: Path) -> bool:
    """Tell whether a folder that exists is a release of what is asked, by a run of this ledger.

    A process may have died between the folder's appearing and its record: then the same call completes it.
    """
    try:
        digest = read_manifest(out).get("measurement")
    except InputError:
        return False
    return digest == asked.digest and _measured_run(config, asked) is not None


def _finish(
    config: Config,
    measured: Measured,
    executor: Executor,
    out: Path | None,
    reporter: Reporter,
    clock: Clock,
    page: PageWriter | None,
    truth: Truth | None,
) -> Outcome:
    """Estimate, publish, write the private record, and close the run in the ledger."""
    name = f"{config.name}-{measured.run}"
    scratch = None if measured.folder is None else measured.folder.parent
    try:
        made = estimated(
            config, measured.measurement, name, reporter=reporter, truth=truth, scratch=scratch, executor=executor
        )
        clock.lap("estimate")
        folder, digest = made.publish(out, page=page, reporter=reporter)
        clock.lap("write")
    except Exception:
        if scratch is not None:
            reporter.line(f"The measurement of run {measured.run} is kept: going on is free")
        raise
    record = private_record(measured.run, folder, made.manifest, measured.identity, clock.laps, made.result)
    path = write_private_record(config.output.private, f"{name}-{digest[:8]}", record)
    if scratch is not None:
        _note(scratch, config, folder, digest)
        ledger_of(config).released(measured.run, digest)
    return Outcome(folder, path, measured.run, measured.paid, made, made.manifest)


def _probe(config: Config) -> Path:
    """Return a folder as the release's will be named, to see whether it can be made."""
    return config.output.directory / f"{config.name}-{'0' * 25}"


def _notes(folder: Path, config: Config) -> Path:
    return folder / f"released-{method_digest(config)}.json"


def _note(scratch: Path, config: Config, folder: Path, digest: str) -> None:
    """Keep in the run's folder where the release of this method lies."""
    facts = {"folder": str(folder.absolute()), "manifest": digest}
    replace_private(_notes(scratch, config), [json.dumps(facts, indent=2).encode()])


def _earlier(measured: Measured, config: Config) -> Path | None:
    """Return the release that was made by the same method and is still there unchanged, None without one."""
    assert measured.folder is not None
    path = _notes(measured.folder.parent, config)
    if not path.is_file():
        return None
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        folder = Path(facts["folder"])
        return folder if file_digest(folder / MANIFEST) == facts["manifest"] else None
    except (ValueError, KeyError, TypeError, InputError):
        return None  # a damaged note costs an estimation, no more
