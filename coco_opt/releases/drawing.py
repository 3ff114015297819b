"""How the noise of a measurement is drawn: by which source, in order or by an executor; paying is done elsewhere.

Of a large measurement the configured executor draws parts, where the kind and the noise allow it. What is private
reaches its workers by files alone, in a folder of the private folder that is removed at the end: the counts, which are
read anew for each part, and the run's key, where it lies. The workers are not those that estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from coco_opt.config.model import Config
from coco_opt.config.sections import EngineConfig
from coco_opt.errors import ProblemError, WorkerError
from coco_opt.execution import Executor, Threads, executor_row
from coco_opt.files.scratch import Scratch
from coco_opt.privacy.blocks import BlockNoise, Division, NoiseKey, drawn_anywhere, parts_of, shared_exact
from coco_opt.privacy.measurement import Drawing, Measurement, MeasurementPlan
from coco_opt.privacy.noise import NoiseSource
from coco_opt.privacy.queries import NoisyPart
from coco_opt.privacy.seeded import SeededNoise
from coco_opt.privacy.sources import resolve_noise
from coco_opt.releases.kind import Plan, kind_of
from coco_opt.releases.reporter import Reporter, default_reporter

_WARMING = 4  # draws that load the samplers' tables and packages


def source_of(config: Config) -> NoiseSource:
    """Return a fresh noise source of the configured kind; MissingPackageError where its package is absent."""
    return resolve_noise(config.privacy.noise, config.privacy.seed)


def check_noise(measurement_plan: MeasurementPlan, source: NoiseSource) -> None:
    """Raise ProblemError where a source cannot draw the noise distribution of some query."""
    for distribution in {query.distribution for query in measurement_plan.queries if not query.exact}:
        if not distribution.available_from(source):
            raise ProblemError(
                f"noise {source.name!r} draws no {distribution.name.replace('_', ' ')}: use another source"
            )


def warm(measurement_plan: MeasurementPlan, source: NoiseSource) -> None:
    """Draw a little noise under a separate key, so that a missing or broken package fails before anything is paid."""
    probe: NoiseSource = SeededNoise(0) if isinstance(source, SeededNoise) else type(source)()
    for number, distribution in enumerate(
        {query.distribution for query in measurement_plan.queries if not query.exact}
    ):
        distribution.opened(probe, measurement="warming up", region=str(number)).draw(_WARMING)


@dataclass(frozen=True, eq=False, slots=True)
class Measured:
    """A measurement and where it is stored; ``paid`` says that this call paid for it.

    ``run`` is its id, ``folder`` where it is sealed (None where it is in memory only), ``identity`` the counts of the
    rows that were measured, for the private record. ``config`` is its configuration, which says how to estimate it.
    """

    config: Config = field(repr=False)
    measurement: Measurement
    run: str
    folder: Path | None
    paid: bool
    identity: Mapping[str, int] = field(repr=False)


def noisy(plan: Plan, private: object, source: NoiseSource, reporter: Reporter | None = None) -> Measurement:
    """Return the noisy measurement of a plan, in memory; paying for it is the caller's responsibility."""
    return drawing(plan, private, source, reporter).measurement()


def drawing(plan: Plan, private: object, source: NoiseSource, reporter: Reporter | None = None) -> Drawing:
    """Return the answers to a plan's queries, whose noise is drawn as they are consumed, region after region."""
    reporter, measurement_plan = default_reporter(reporter), plan.measurement_plan

    def parts() -> Iterator[NoisyPart]:
        with reporter.stage("Measuring") as progress:
            exact = kind_of(plan.config).exact_answers(plan, private)
            yield from Drawing.of(measurement_plan, exact, source, progress).parts()

    return Drawing(measurement_plan, parts(), source.name, source.private)


Divide = Callable[[NoiseKey], Division | None]
"""Returns how answers are drawn in parts under a run's key; None where they are drawn in order."""

_ENCRYPTED = ("tls://", "wss://")


@contextmanager
def dividing(plan: Plan, private: Any, source: NoiseSource, reporter: Reporter) -> Iterator[Divide]:
    """Open the executor of a large measurement until the block ends; it has been tried when the block begins.

    Raises WorkerError, MissingPackageError, InputError.
    """
    kind = kind_of(plan.config)
    parts = parts_of(kind.blocks(plan)) if drawn_anywhere(plan.measurement_plan.queries, source) else []
    if len(parts) < 2:
        yield lambda key: None
        return
    with Scratch(plan.config.output.private) as scratch, _measuring(plan.config.engine, scratch, reporter) as executor:

        def divide(key: NoiseKey) -> Division:
            folder = scratch.folder if not isinstance(executor, Threads) else Path()
            exact = shared_exact(executor, kind.exact_blocks(plan, private), folder)
            return Division(executor, parts, BlockNoise(exact, key), partial(reporter.stage, "Measuring"))

        yield divide


def _measuring(engine: EngineConfig, scratch: Scratch, reporter: Reporter) -> Executor:
    """Return the configured executor with its files in a private folder, tried; processes in place of an open cluster.

    Whoever reaches the scheduler of a cluster can run anything as its workers' user, who can read the private folder.
    """
    if engine.executor == "threads":
        return Threads(engine.workers)
    name, address = engine.executor, engine.address
    if address is not None and not address.startswith(_ENCRYPTED):
        reporter.line("Anybody who reaches this cluster can use it, so private answers are drawn by processes here")
        name, address = "processes", None
    if "scratch" not in executor_row(name).options:
        return Threads(engine.workers)
    chosen = engine.model_copy(update={"executor": name, "address": address, "scratch": scratch.folder})
    executor = chosen.open()
    try:
        executor.map(_Sees(scratch.folder), range(2))
    except BaseException:
        executor.close()
        raise
    return executor


@dataclass(frozen=True, slots=True)
class _Sees:
    """A task that fails where a worker does not see a folder."""

    folder: Path

    def __call__(self, _: int) -> None:
        if not self.folder.is_dir():
            raise WorkerError(
                "a worker does not see the private folder (output.private): workers need it under the same path"
            )
