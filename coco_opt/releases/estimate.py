"""From a measurement to a release folder: free, as often as wanted, by whatever method and solvers.

Nothing here can reach a private table: a measurement, a configuration and public files are all that comes in.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from coco_opt.config.model import Config
from coco_opt.config.sections import SOLVERS_MODEL, EngineConfig, OutputConfig, PrivacyConfig, Section
from coco_opt.errors import CocoOptError, ConfigError, InputError, Place, ProblemError, SolverError
from coco_opt.files.folder import (
    MANIFEST,
    REPORT,
    Content,
    FolderExistsError,
    as_json,
    build_folder,
    building_name,
    publish_folder,
    remove_leftovers,
)
from coco_opt.files.measurement import is_measurement, read_measurement
from coco_opt.files.regions import REGIONS, region_table
from coco_opt.kinds import kind_row
from coco_opt.privacy.cost import Cost
from coco_opt.privacy.measurement import Asked, Measurement
from coco_opt.releases.clock import Clock
from coco_opt.releases.kept import kept_measurement, read_kept
from coco_opt.releases.kind import AnyKind, PageWriter, Shown, Truth, Work
from coco_opt.releases.manifest import manifest_of, spent_line
from coco_opt.releases.measure import check_target
from coco_opt.releases.reporter import Reporter, Silent
from coco_opt.releases.runs import ledger_of
from coco_opt.releases.solvers import choices_of

_FREE = (
    "Nothing more is to be paid: change the method or a solver in the configuration and run the same command again, or "
    "coco-opt estimate MEASUREMENT CONFIG"
)


@dataclass(frozen=True, eq=False, slots=True)
class Estimated:
    """A release that was made: its folder, manifest and values, and the line that says what its noise cost."""

    folder: Path
    digest: str
    spent: str
    manifest: Mapping[str, Any]
    result: Any
    shown: Shown

    def errors(self) -> dict[str, list[float]]:
        """Return the mean error of each level, root first, by method, where the truth is known; {} elsewhere."""
        truth, measurement = self.shown.truth, self.shown.measurement
        if truth is None:
            return {}
        kind: AnyKind = kind_row(measurement.asked.kind).load()
        return dict(kind.errors(measurement, truth, self.result))


def find_measurement(name: str | Path, config: Config | None) -> Path:
    """Return the folder of a measurement: a published one, or a run's by its id; InputError for neither."""
    folder = Path(name)
    if is_measurement(folder):
        return folder
    if is_measurement(folder / "measurement"):
        return folder / "measurement"
    kept = None if config is None or folder.name != str(name) else kept_measurement(config, str(name))
    if kept is not None:
        return kept
    hint = "" if config is not None else "; for the id of a run, name its configuration too"
    message = f"is no measurement: give the folder of one, or the id of a run{hint}"
    raise InputError("file-not-found", message, Place(str(name)))


def config_of(measurement: Measurement, name: str = "release") -> Config:
    """Return a configuration that asks what a measurement answers and estimates it by its kind's defaults.

    Its folders lie in the working folder.
    """
    asked = measurement.asked
    row = kind_row(asked.kind)
    kind: AnyKind = row.load()
    return Config(
        name=name,
        kind=row.name,
        section=row.section,
        data=Section(),
        privacy=_privacy_of(measurement, PrivacyConfig.model_construct()),
        method=kind.section_model.model_validate(dict(kind.section_of(asked))),
        solvers=SOLVERS_MODEL(),
        engine=EngineConfig(),
        output=OutputConfig(),
    )


def _privacy_of(measurement: Measurement, privacy: PrivacyConfig) -> PrivacyConfig:
    asked = measurement.asked
    shares = tuple(cost.amount / asked.cost.amount for cost in _level_costs(asked))
    return privacy.measured(asked.cost, shares, asked.neighbours, measurement.noise)


def _level_costs(asked: Asked) -> tuple[Cost, ...]:
    costs = [asked.cost * 0] * asked.hierarchy.levels
    for question in asked.questions:
        if question.cost is not None:
            costs[question.level] += question.cost
    return tuple(costs)


def _as_measured(config: Config, measurement: Measurement) -> Config:
    """Return a configuration whose privacy is the measurement's: the manifest must not claim another."""
    asked, privacy = measurement.asked, config.privacy
    said: tuple[Cost, ...] = ()
    with suppress(ConfigError):  # shares for another number of levels
        said = config.levels_cost(asked.hierarchy.levels)
    same = (privacy.neighbours, privacy.noise) == (asked.neighbours, measurement.noise)
    if same and said == _level_costs(asked):
        return config
    return replace(config, privacy=_privacy_of(measurement, privacy))


def estimate(
    measurement: Measurement | str | Path,
    config: Config | None = None,
    *,
    out: Path | None = None,
    reporter: Reporter | None = None,
    page: PageWriter | None = None,
) -> Estimated:
    """Make a release of a measurement, by the method and solvers of a configuration; costs nothing.

    ``measurement`` is one, its folder, or a run's id; without a configuration its kind's defaults serve. ``out`` must
    not exist (default: ``NAME`` with the beginning of the measurement's digest in the output directory, numbered where
    taken). ``page`` writes the HTML report. A measurement of the configuration's own runs has the release recorded in
    the ledger. Raises InputError, ConfigError where the method cannot read what was asked, and SolverError where every
    solver failed.
    """
    told = Silent() if reporter is None else reporter
    run = None
    if not isinstance(measurement, Measurement):
        folder = find_measurement(measurement, config)
        with told.stage("Reading the measurement"):
            measurement, run = (read_measurement(folder)[0], None) if config is None else read_kept(config, folder)
    if out is not None:
        check_target(out)
    wanted = config_of(measurement) if config is None else _as_measured(config, measurement)
    name = f"{wanted.name}-{measurement.asked.digest[:12]}"
    made = estimated(wanted, measurement, out, name, reporter=told, page=page)
    if config is not None and run is not None:
        ledger_of(config).released(run, made.digest)
    return made


def estimated(
    config: Config,
    measurement: Measurement,
    out: Path | None,
    name: str,
    *,
    reporter: Reporter,
    page: PageWriter | None = None,
    truth: Truth | None = None,
    scratch: Path | None = None,
    clock: Clock | None = None,
) -> Estimated:
    """Estimate and publish; ``name`` is the default folder's. See ``estimate``."""
    kind = kind_for(config, measurement)
    if truth is not None and measurement.private:
        raise ProblemError("the truth beside a private release would undo its privacy: give none")
    method, solvers = kind.method(config, measurement.asked), choices_of(config)
    spent = spent_line(kind, config, measurement)
    reporter.line(spent)
    own = None if scratch is None else scratch / f"method-{method_digest(config)}"
    work = Work(solvers, config.engine.workers, scratch=own)
    result = _estimate(kind, measurement, method, work, reporter)
    if clock is not None:
        clock.lap("estimate")
    released = kind.release(measurement, method, result, config)
    for note in released.notes:
        reporter.line(note)
    manifest = manifest_of(config, measurement, solvers.certificates, released)
    shown = Shown(manifest, spent, measurement, method, result, truth)
    with reporter.stage("Writing the release"):
        files: dict[str, Content] = {**released.files, REGIONS: region_table(measurement.asked)}
        if page is not None:
            files[REPORT] = page(kind, shown).encode("utf-8")
        folder, digest = publish(config, files, manifest, out, name)
    if own is not None:
        shutil.rmtree(own, ignore_errors=True)
    if clock is not None:
        clock.lap("write")
    return Estimated(folder, digest, spent, manifest, result, shown)


def _estimate(kind: AnyKind, measurement: Measurement, method: Any, work: Work, reporter: Reporter) -> Any:
    failure: CocoOptError
    with reporter.stage("Estimating (a first run compiles)") as progress:
        try:
            return kind.estimate(measurement, method, replace(work, progress=progress))
        except SolverError as error:
            failure = SolverError(f"{error} {_FREE}", error.solution)
        except ProblemError as error:
            failure = ProblemError(f"{error}. {_FREE}")
    raise failure


def kind_for(config: Config, measurement: Measurement) -> AnyKind:
    """Return the kind of a measurement; ConfigError where the configuration is of another."""
    asked = measurement.asked.kind
    if config.kind != asked:
        section = kind_row(asked).section
        raise config.error(config.section, f"the measurement is of the kind {asked!r}: use a [{section}] section")
    kind: AnyKind = kind_row(asked).load()
    return kind


def method_digest(config: Config) -> str:
    """Return a digest of what an estimation depends on beside the measurement."""
    plain = {name: section for name, section in config.as_dict().items() if name not in ("data", "privacy")}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def publish(
    config: Config, files: Mapping[str, Content], manifest: Mapping[str, Any], out: Path | None, name: str
) -> tuple[Path, str]:
    """Write a release folder that appears complete or not at all; return where it lies and its manifest's digest.

    Without ``out`` the first name of ``NAME``, ``NAME-2``, ... that is free or holds the same release is taken. Several
    processes may publish under one name: each builds under a name of its own.
    """
    first = config.output.directory / name if out is None else out
    remove_leftovers(first)
    building = building_name(first)

    def index(digests: Mapping[str, str]) -> bytes:
        return as_json({**manifest, "files": dict(digests)})

    try:
        digest = build_folder(building, files, MANIFEST, index, private=False)
        for folder in (first,) if out is not None else _names(first):
            with suppress(FolderExistsError) if out is None else nullcontext():
                publish_folder(building, folder, digest, MANIFEST)
                return folder, digest
    finally:
        shutil.rmtree(building, ignore_errors=True)
    raise AssertionError("names of folders never end")


def _names(first: Path) -> Iterator[Path]:
    yield first
    for number in count(2):
        yield first.with_name(f"{first.name}-{number}")
