"""From a measurement to a release folder: free, as often as wanted, by any method and solvers.

Nothing here can reach a private table: the only inputs are a measurement, a configuration and public files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from coco_opt.config.load import load_config
from coco_opt.config.model import Config
from coco_opt.config.sections import SOLVERS_MODEL, AutoSection, EngineConfig, OutputConfig, PrivacyConfig, Section
from coco_opt.errors import Advice, ConfigError, InputError, Place, ProblemError
from coco_opt.execution import Executor, Threads
from coco_opt.files.measurement import is_measurement, read_measurement
from coco_opt.privacy.combined_measurements import together
from coco_opt.privacy.cost import Cost, in_rho
from coco_opt.privacy.measurement import Measurement
from coco_opt.releases.drawing import Measured
from coco_opt.releases.kind import AnyKind, Shown, Truth, Work, kind_named
from coco_opt.releases.manifest import manifest_of, noise_of, spent_line
from coco_opt.releases.planning import outlines_of, with_bought
from coco_opt.releases.release_in_memory import Estimated
from coco_opt.releases.reporter import Reporter, default_reporter
from coco_opt.releases.runs import sweep
from coco_opt.releases.solvers import choices_of, compiling_late, warm_worker
from coco_opt.releases.stored_runs import read_stored, record_release, stored_measurement

MeasurementLike = Measurement | Measured | str | Path
"""A measurement, what ``measure`` returned, a measurement's folder or a run's id."""

_SOON = 0.001  # seconds of [auto]: so few that no method is chosen that takes long


@contextmanager
def free_to_repeat(run: str, config: Config | None) -> Iterator[None]:
    """Note on any error of the body that nothing more has to be paid, and the command that estimates most plainly."""
    try:
        yield
    except Exception as error:
        file = "" if config is None else f" {config.file or 'CONFIG'}"
        advice = (
            f"Run {run} is measured and kept. No further payment is needed: change the method or a solver in the "
            "configuration and run the same command again, or estimate by the plainest method:  "
            f"coco-opt estimate {run}{file} --plain"
        )
        error.add_note(Advice(advice))
        raise


def plainest(config: Config, measurement: Measurement) -> Config:
    """Return a configuration with the plainest method of its kind that reads a measurement, and automatic solvers.

    It draws no map.
    """
    kind = kind_for(config, measurement)
    defaults = config_of(measurement).method
    output = config.output.model_copy(update={"geometry": None})
    plain = replace(config, method=defaults, solvers=SOLVERS_MODEL(), auto=AutoSection(time=_SOON), output=output)
    with suppress(ConfigError):
        stated = replace(plain, method=defaults.model_copy(update=dict(kind.plainest)))
        method_for(kind, stated, measurement)
        return stated
    return plain


def find_measurement(name: str | Path, config: Config | None) -> Path:
    """Return the folder of a measurement: a published measurement, or a run's by its id; InputError for neither."""
    folder = Path(name)
    if is_measurement(folder):
        return folder
    if is_measurement(folder / "measurement"):
        return folder / "measurement"
    stored = None if config is None or folder.name != str(name) else stored_measurement(config, str(name))
    if stored is not None:
        return stored
    hint = "" if config is not None else "; for the id of a run, name its configuration too"
    message = f"is no measurement: give the folder of one, or the id of a run{hint}"
    raise InputError("file-not-found", message, Place(str(name)))


def config_of(measurement: Measurement, name: str = "release") -> Config:
    """Return a configuration with the queries of a measurement that estimates it by its kind's defaults.

    Its folders lie in the working directory.
    """
    measurement_plan = measurement.measurement_plan
    kind = kind_named(measurement_plan.kind)
    return Config(
        name=name,
        kind=kind.name,
        section=kind.section,
        data=Section(),
        privacy=_privacy_of(measurement, PrivacyConfig.model_construct()),
        method=kind.section_model.model_validate(dict(kind.section_of(measurement_plan))),
        solvers=SOLVERS_MODEL(),
        engine=EngineConfig(),
        output=OutputConfig(),
    )


def read_config(measurement: Measurement, path: str | Path) -> Config:
    """Read how to estimate a measurement, which fills in what the file leaves out of [data], [privacy] and its queries.

    Raises ConfigError.
    """
    return load_config(path, like=config_of(measurement))


def _privacy_of(measurement: Measurement, privacy: PrivacyConfig) -> PrivacyConfig:
    cost = measurement.cost
    shares = tuple(level_cost.amount / cost.amount for level_cost in _level_costs(measurement))
    return privacy.measured(cost, shares, measurement.measurement_plan.neighbours, noise_of(measurement.sources))


def _level_costs(measurement: Measurement) -> tuple[Cost, ...]:
    """Return the cost of each level, in the unit of the total."""
    total = measurement.cost
    costs = [total * 0] * measurement.hierarchy.levels
    for level_query in measurement.queries:
        if level_query.cost is not None:
            costs[level_query.level] += (
                level_query.cost if level_query.cost.unit == total.unit else in_rho(level_query.cost)
            )
    return tuple(costs)


def with_measured_privacy(config: Config, measurement: Measurement) -> Config:
    """Return a configuration whose privacy section is the measurement's: the manifest must not claim another."""
    measurement_plan, privacy = measurement.measurement_plan, config.privacy
    same = (privacy.neighbours, privacy.noise) == (
        measurement_plan.neighbours,
        measurement.noise,
    ) and not measurement.several
    for candidate in (config, with_bought(config, measurement_plan)) if same else ():
        with suppress(ConfigError):  # shares for another number of levels
            if candidate.levels_cost(measurement_plan.hierarchy.levels) == _level_costs(measurement):
                return candidate
    return replace(config, privacy=_privacy_of(measurement, privacy))


def estimate(
    measurement: MeasurementLike | Sequence[MeasurementLike],
    config: Config | None = None,
    *,
    engine: EngineConfig | None = None,
    plain: bool = False,
    reporter: Reporter | None = None,
) -> Estimated:
    """Make a release of a measurement by the method and solvers of a config; pay nothing and write nothing.

    Parameters
    ----------
    measurement : Measured, Measurement, folder or run id, or a sequence of them
        What to estimate. Several measurements of the same data (tables; groups by their posterior) are estimated
        together, and their costs add up.
    config : Config, optional
        The method and the solvers; that of the first measurement, or its kind's defaults, if it is left out.
    engine : EngineConfig, optional
        How the work is run, in place of the config's ``[engine]``.
    plain : bool, default False
        Take the plainest method of the kind and automatic solvers, whatever the config says: for when another fails.
    reporter : Reporter, optional
        Receives the progress.

    Returns
    -------
    Estimated
        The release in memory: tables by region, frames (``to_pandas``), and ``save``, which writes the folder.

    Raises
    ------
    ConfigError
        The method cannot read what was measured.
    InputError
        measurements-differ, measurement-twice, one-measurement.
    SolverError
        Every solver failed.

    Examples
    --------
    >>> import pandas as pd
    >>> from coco_opt import configure, estimate, measure
    >>> visits = pd.DataFrame({"value": [3, 1, 4, 1, 5]})
    >>> privacy = {"epsilon": "1", "noise": "seeded", "seed": 7}
    >>> measured = measure(configure(data={"values": visits}, privacy=privacy, ranges={"cells": 8}))
    >>> estimate(measured).to_pandas().columns.tolist()
    ['tree_level', 'start', 'stop', 'estimate', 'standard_error']
    """
    reporter = default_reporter(reporter)
    sources = [measurement] if isinstance(measurement, (Measurement, Measured, str, Path)) else list(measurement)
    if config is None and sources and isinstance(sources[0], Measured):
        config = sources[0].config
    engine = engine or (EngineConfig() if config is None else config.engine)
    with engine.open() as executor:
        executor.start(warm_worker)
        if config is not None:
            sweep(config, reporter.line)
        inputs = [_read(source, config, reporter) for source in sources]
        combined, runs = together([part for part, _ in inputs]), [run for _, run in inputs if run is not None]
        settings = replace(
            config_of(combined) if config is None else with_measured_privacy(config, combined), engine=engine
        )
        if plain:
            settings = plainest(settings, combined)
        name = f"{settings.name}-{combined.identity[:12]}"
        kind, method = kind_for(settings, combined), method_for(kind_for(settings, combined), settings, combined)
        called = " ".join(run or "MEASUREMENT" for _, run in inputs)
        with free_to_repeat(called, config), compiling_late(kind, settings, method, combined.measurement_plan):
            release = estimated(settings, combined, name, reporter=reporter, executor=executor)

    def record(digest: str) -> None:
        if config is not None:
            for run in runs:
                record_release(config, run, digest)

    return replace(release, recorded=record)


def _read(source: MeasurementLike, config: Config | None, reporter: Reporter) -> tuple[Measurement, str | None]:
    """Return a measurement and the run of the configuration that made it, None where no run did."""
    if isinstance(source, Measured):
        return source.measurement, source.run if source.measurement.private else None
    if isinstance(source, Measurement):
        return source, None
    folder = find_measurement(source, config)
    with reporter.stage("Reading the measurement"):
        return (read_measurement(folder)[0], None) if config is None else read_stored(config, folder)


def estimated(
    config: Config,
    measurement: Measurement,
    name: str,
    *,
    reporter: Reporter,
    truth: Truth | None = None,
    scratch: Path | None = None,
    executor: Executor | None = None,
    method: Any = None,
) -> Estimated:
    """Estimate; ``name`` is that of the default folder, and ``scratch`` keeps finished parts. See ``estimate``.

    ``executor`` runs the tasks (default: threads, as many as the configuration has workers). ``method`` is the
    post-processing, by default that of the configuration.
    """
    kind = kind_for(config, measurement)
    if truth is not None and any(part.private for part in measurement.every):
        raise ProblemError("the truth next to a private release would undo its privacy: give none")
    method, solvers = method or method_for(kind, config, measurement), choices_of(config)
    outlines = outlines_of(config, measurement.measurement_plan)
    spent = spent_line(config, measurement)
    reporter.line(spent)
    for look in measurement.unread_looks:
        reporter.line(
            f"The queries were chosen by a look for {look.cost}, whose measurement is missing: its cost counts, and "
            "its answers are not used. If you have it, give both: coco-opt estimate MEASUREMENT LOOK"
        )
    partial_results = None if scratch is None else scratch / f"method-{method_digest(config)}"
    workers = config.engine.workers
    work = Work(solvers, workers, scratch=partial_results, executor=Threads(workers) if executor is None else executor)
    with reporter.stage("Estimating") as progress:
        result = kind.estimate(measurement, method, replace(work, progress=progress, note=reporter.line))
    released = kind.release(measurement, method, result, config)
    for note in released.notes:
        reporter.line(note)
    manifest = manifest_of(config, measurement, solvers.certificates, released, outlines)
    shown = Shown(manifest, spent, measurement, method, result, truth, released.for_page, outlines)
    return Estimated(
        kind, shown, released.files, config.output.directory / name, partial_results, numbers=released.numbers
    )


def method_for(kind: AnyKind, config: Config, measurement: Measurement) -> Any:
    """Return the configured post-processing; InputError where it takes one measurement only."""
    also = [part.measurement_plan for part in measurement.also]
    if also and not kind.takes_several:
        message = f"{kind.name} are estimated from one measurement at a time: give one"
        raise InputError("one-measurement", message)
    return kind.method(config, measurement.measurement_plan, *also)


def kind_for(config: Config, measurement: Measurement) -> AnyKind:
    """Return the kind of a measurement; ConfigError where the configuration is of another."""
    kind = kind_named(measurement.measurement_plan.kind)
    if config.kind != kind.name:
        message = f"the measurement is of the kind {kind.name!r}: use a [{kind.section}] section"
        raise config.error(config.section, message)
    return kind


def method_digest(config: Config) -> str:
    """Return a digest of everything but the measurement that an estimation depends on."""
    plain = {name: section for name, section in config.as_dict().items() if name not in ("data", "privacy")}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]
