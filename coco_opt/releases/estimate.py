"""From a measurement to a release folder: free, as often as wanted, by whatever method and solvers.

Nothing here can reach a private table: a measurement, a configuration and public files are all that comes in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from coco_opt.config.load import load_config
from coco_opt.config.model import Config
from coco_opt.config.sections import SOLVERS_MODEL, EngineConfig, OutputConfig, PrivacyConfig, Section
from coco_opt.errors import CocoOptError, ConfigError, InputError, Place, ProblemError, SolverError
from coco_opt.execution import Executor, Threads
from coco_opt.files.measurement import is_measurement, read_measurement
from coco_opt.kinds import kind_row
from coco_opt.privacy.cost import Cost, in_rho
from coco_opt.privacy.measurement import Measurement
from coco_opt.privacy.several import together
from coco_opt.releases.estimated import Estimated
from coco_opt.releases.kept import kept_measurement, read_kept
from coco_opt.releases.kind import AnyKind, Shown, Truth, Work
from coco_opt.releases.manifest import manifest_of, noise_of, spent_line
from coco_opt.releases.measure import Measured, with_bought
from coco_opt.releases.reporter import Reporter, Silent
from coco_opt.releases.runs import ledger_of
from coco_opt.releases.solvers import choices_of, compiling_late, warm_worker

Given = Measurement | Measured | str | Path
"""A measurement, what ``measure`` returned, a measurement's folder or a run's id."""

_FREE = (
    "Nothing more is to be paid: change the method or a solver in the configuration and run the same command again, or "
    "coco-opt estimate MEASUREMENT CONFIG"
)


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


def read_config(measurement: Measurement, path: str | Path) -> Config:
    """Read how to estimate a measurement: what the file leaves out of [data], [privacy] and its questions is known.

    Raises ConfigError.
    """
    return load_config(path, like=config_of(measurement))


def _privacy_of(measurement: Measurement, privacy: PrivacyConfig) -> PrivacyConfig:
    cost = measurement.cost
    shares = tuple(one.amount / cost.amount for one in _level_costs(measurement))
    return privacy.measured(cost, shares, measurement.asked.neighbours, noise_of(measurement.sources))


def _level_costs(measurement: Measurement) -> tuple[Cost, ...]:
    """Return the cost of each level, in the unit of the whole."""
    whole = measurement.cost
    costs = [whole * 0] * measurement.hierarchy.levels
    for question in measurement.questions:
        if question.cost is not None:
            costs[question.level] += question.cost if question.cost.unit == whole.unit else in_rho(question.cost)
    return tuple(costs)


def _as_measured(config: Config, measurement: Measurement) -> Config:
    """Return a configuration whose privacy is the measurement's: the manifest must not claim another."""
    asked, privacy = measurement.asked, config.privacy
    same = (privacy.neighbours, privacy.noise) == (asked.neighbours, measurement.noise) and not measurement.also
    for known in (config, with_bought(config, asked)) if same else ():
        with suppress(ConfigError):  # shares for another number of levels
            if known.levels_cost(asked.hierarchy.levels) == _level_costs(measurement):
                return known
    return replace(config, privacy=_privacy_of(measurement, privacy))


def estimate(
    measurement: Given | Sequence[Given],
    config: Config | None = None,
    *,
    engine: EngineConfig | None = None,
    reporter: Reporter | None = None,
) -> Estimated:
    """Make a release of a measurement, by the method and solvers of a configuration; costs nothing and writes nothing.

    ``measurement`` is one, what ``measure`` returned, a folder, or a run's id; or a list of several of the same data,
    which are estimated together (tables; groups by their posterior): their costs add up. Without a configuration that
    which measured first serves, or its kind's defaults; ``engine`` says how the work is run, whatever the configuration
    does. What comes back lies in memory: ``Estimated.save`` writes its
    folder, and records it in the ledger where runs of the configuration measured. Raises InputError
    (measurements-differ, measurement-twice, one-measurement), ConfigError where the method cannot read what was asked,
    and SolverError where every solver failed.
    """
    told = Silent() if reporter is None else reporter
    given = [measurement] if isinstance(measurement, (Measurement, Measured, str, Path)) else list(measurement)
    if config is None and given and isinstance(given[0], Measured):
        config = given[0].config
    engine = engine or (EngineConfig() if config is None else config.engine)
    with engine.open() as executor:
        executor.start(warm_worker)
        read = [_read(one, config, told) for one in given]
        noisy, runs = together([one for one, _ in read]), [run for _, run in read if run is not None]
        wanted = replace(config_of(noisy) if config is None else _as_measured(config, noisy), engine=engine)
        name = f"{wanted.name}-{noisy.identity[:12]}"
        kind = kind_for(wanted, noisy)
        with compiling_late(kind, wanted, method_for(kind, wanted, noisy), noisy.asked):
            made = estimated(wanted, noisy, name, reporter=told, executor=executor)
    return made if config is None or not runs else replace(made, recorded=partial(_record, config, runs))


def _record(config: Config, runs: Sequence[str], digest: str) -> None:
    """Write into the ledger what was released of each run's measurement."""
    for run in runs:
        ledger_of(config).released(run, digest)


def _read(given: Given, config: Config | None, reporter: Reporter) -> tuple[Measurement, str | None]:
    """Return a measurement and the run of the configuration that made it, None for none."""
    if isinstance(given, Measured):
        return given.measurement, given.run if given.measurement.private else None
    if isinstance(given, Measurement):
        return given, None
    folder = find_measurement(given, config)
    with reporter.stage("Reading the measurement"):
        return (read_measurement(folder)[0], None) if config is None else read_kept(config, folder)


def estimated(
    config: Config,
    measurement: Measurement,
    name: str,
    *,
    reporter: Reporter,
    truth: Truth | None = None,
    scratch: Path | None = None,
    executor: Executor | None = None,
) -> Estimated:
    """Estimate; ``name`` is the default folder's, and ``scratch`` keeps finished parts. See ``estimate``.

    ``executor`` runs the tasks (default: threads, as many as the configuration has workers).
    """
    kind = kind_for(config, measurement)
    if truth is not None and any(one.private for one in measurement.every):
        raise ProblemError("the truth beside a private release would undo its privacy: give none")
    method, solvers = method_for(kind, config, measurement), choices_of(config)
    spent = spent_line(kind, config, measurement)
    reporter.line(spent)
    own = None if scratch is None else scratch / f"method-{method_digest(config)}"
    workers = config.engine.workers
    work = Work(solvers, workers, scratch=own, executor=Threads(workers) if executor is None else executor)
    result = _estimate(kind, measurement, method, work, reporter)
    released = kind.release(measurement, method, result, config)
    for note in released.notes:
        reporter.line(note)
    manifest = manifest_of(config, measurement, solvers.certificates, released)
    shown = Shown(manifest, spent, measurement, method, result, truth, released.beside)
    return Estimated(kind, shown, released.files, config.output.directory / name, own, numbers=released.numbers)


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


def method_for(kind: AnyKind, config: Config, measurement: Measurement) -> Any:
    """Return the post-processing that a configuration asks for; InputError where it takes one measurement only."""
    also = [one.asked for one in measurement.also]
    if also and not kind.takes_several:
        message = f"{kind.name} are estimated from one measurement at a time: give one"
        raise InputError("one-measurement", message)
    return kind.method(config, measurement.asked, *also)


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
