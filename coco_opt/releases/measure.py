"""Check and measure: the only steps that open private data, and the only one that pays.

Everything that can be refused is refused before the payment: configuration, files, contradictions among public facts,
the private table's every value, folders, memory and the packages that draw noise. Then the run is paid, noise is drawn
and the measurement sealed (``releases.runs``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from coco_opt.config.model import Config
from coco_opt.errors import InputError, Place, ProblemError
from coco_opt.files.measurement import read_measurement, write_measurement
from coco_opt.files.spill import Scratch
from coco_opt.kinds import kind_row
from coco_opt.privacy.answers import DENSE, NoisyPart, noisy_parts, offsets_of
from coco_opt.privacy.composition import Composition, bought, shares_of
from coco_opt.privacy.measurement import Asked, Drawing, Measurement
from coco_opt.privacy.noise import NoiseSource
from coco_opt.privacy.private_files import temporary_name
from coco_opt.privacy.run_folder import RunFolder
from coco_opt.privacy.run_key import RunKey
from coco_opt.privacy.secure import SecureNoise
from coco_opt.privacy.seeded import SeededNoise
from coco_opt.privacy.sources import resolve_noise
from coco_opt.releases.clock import Clock
from coco_opt.releases.kept import SEEDED
from coco_opt.releases.kind import AnyKind, Plan, Private
from coco_opt.releases.records import new_run_id, open_private_folder
from coco_opt.releases.reporter import Reporter, Silent
from coco_opt.releases.runs import PaidRun, fingerprint_of, new_account, opened_run
from coco_opt.releases.solvers import rehearse
from coco_opt.releases.standing import Standing, standing_of

_BYTES = 8
_WARMING = 4  # draws that bring the samplers' tables and packages in


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Checked:
    """What a check read: the public plan, and the identity of the private rows, for their owner's eyes only.

    ``standing`` says what would be paid, and whether the dataset's account allows it.
    """

    plan: Plan
    identity: Mapping[str, int]
    standing: Standing

    def __repr__(self) -> str:
        asked = self.plan.asked
        levels = ", ".join(asked.levels)
        return (
            f"Checked: every row is fine; {asked.kind} by {levels} for {asked.cost}. Would pay: {self.standing.words}"
        )


@dataclass(frozen=True, eq=False, slots=True)
class Measured:
    """A measurement and where it lies; ``paid`` says that this call paid for it.

    ``run`` is its id, ``folder`` where it is sealed (None where it is kept in memory only), ``identity`` the counts of
    the rows it was made of, for the private record. ``config`` asked for it, and says how to estimate it.
    """

    config: Config = field(repr=False)
    measurement: Measurement
    run: str
    folder: Path | None
    paid: bool
    identity: Mapping[str, int] = field(repr=False)


def kind_of(config: Config) -> AnyKind:
    """Return the kind of release that a configuration asks for."""
    kind: AnyKind = kind_row(config.kind).load()
    return kind


def planned(config: Config, reporter: Reporter, *, outline: bool = False) -> Plan:
    """Read the public tables and check everything that does not need the private one; ``outline`` is for predictions.

    Raises ConfigError, InputError, ProblemError, MissingPackageError.
    """
    kind = kind_of(config)
    with reporter.stage("Reading the public tables"):
        read = kind.outline if outline else kind.plan
        plan = _bought(read(config), read)
    for note in (*plan.notes, *_doubled(plan.asked)):
        reporter.line(note)
    check_noise(plan.asked, source_of(config))
    return plan


def _doubled(asked: Asked) -> Iterator[str]:
    """Say which levels have the regions of the level above once more: often a column that is no level."""
    counts = np.diff(asked.hierarchy.level_start)
    for level in np.flatnonzero(counts[1:] == counts[:-1]) + 1:
        above, name = asked.levels[level - 1], asked.levels[level]
        yield (
            f"Note: every region of level {above!r} has one region of {name!r} below it, which says nothing new for "
            f"its share of the budget: if {name!r} is no level, leave its column out of the hierarchy"
        )


def _bought(plan: Plan, read: Callable[[Config], Plan]) -> Plan:
    """Return a plan that spends all that (epsilon, delta) buys for its questions, where the budget is stated so.

    It is planned again: what is asked may depend on the budget, so that other questions are held to the pair again. The
    public tables are not, where the plan knows how; else ``read`` does all of it.
    """
    pair, config = plan.config.privacy.pair, with_bought(plan.config, plan.asked)
    if pair is None or config.privacy.cost == plan.asked.cost:
        return plan
    more = (plan.again or read)(config)
    return more if Composition.of(more.asked.questions).delta(pair[0]) <= pair[1] else plan


def with_bought(config: Config, asked: Asked) -> Config:
    """Return a configuration that knows what its (epsilon, delta) buys for these questions; as it is without a pair."""
    pair = config.privacy.pair
    if pair is None or config.privacy.mechanism == "geometric":
        return config
    return replace(config, privacy=config.privacy.buying(bought(*pair, shares_of(asked.questions))))


def check(config: Config, *, reporter: Reporter | None = None) -> Checked:
    """Read and check all input, the private table too, and try the solvers; draws nothing and pays nothing.

    What it says is private: who varies public files and reads refusals learns who is in the private one.
    """
    told = Silent() if reporter is None else reporter
    rehearse(config)
    plan = planned(config, told)
    kind_of(config).method(config, plan.asked)
    private = _read(plan, told)
    check_memory(plan.asked)
    return Checked(plan, private.identity(), standing_of(config, plan.asked))


def measure(
    config: Config,
    *,
    publish: Path | None = None,
    again: bool = False,
    renamed: bool = False,
    reporter: Reporter | None = None,
) -> Measured:
    """Check everything, pay, draw the noise and seal; the measurement can be estimated as often as wanted.

    The same questions of the same data are paid once: a later call returns the first measurement, unless ``again``. A
    run that was interrupted goes on for free. Data that the ledger knows as another dataset are refused, unless
    ``renamed``. ``publish`` writes the measurement to a new folder too. Seeded
    noise pays nothing. Raises ConfigError, InputError, ProblemError, MissingPackageError and BudgetError before
    anything is paid.
    """
    told = Silent() if reporter is None else reporter
    if publish is not None:
        check_target(publish)
    plan = planned(config, told)
    measured = measured_of(plan, again=again, renamed=renamed, reporter=told, clock=Clock())
    if publish is not None:
        write_measurement(publish, measured.measurement, private=False)
    return measured


def measured_of(
    plan: Plan,
    *,
    again: bool = False,
    renamed: bool = False,
    scratch: Scratch | None = None,
    reporter: Reporter,
    clock: Clock,
) -> Measured:
    """Return the measurement of a plan, paid for where its noise is private; see ``measure``.

    With a ``scratch`` folder a seeded measurement lies there, or in memory where it is small, and is not kept.
    """
    config, source = plan.config, source_of(plan.config)
    private = _read(plan, reporter)
    clock.lap("read_private")
    check_memory(plan.asked)
    if not source.private:
        measured = _seeded(plan, private, source, reporter, scratch)
        clock.lap("measure")
        return measured
    warm(plan.asked, source)
    fingerprint = fingerprint_of(config, private.arrays)
    message = new_account(config)
    with opened_run(config, plan.asked, fingerprint, again=again, renamed=renamed) as run:
        paid = not run.resumed
        if message:
            reporter.line(message)
        measurement = _of_run(run, plan, private, fingerprint, source, reporter)
        clock.lap("measure")
        return Measured(config, measurement, run.name, run.folder.measurement, paid, run.folder.kept("identity"))


def _of_run(
    run: PaidRun, plan: Plan, private: Private, fingerprint: str, source: NoiseSource, reporter: Reporter
) -> Measurement:
    def draw(key: RunKey) -> Drawing:
        run.folder.keep("identity", private.identity())
        own = SecureNoise(key) if isinstance(source, SecureNoise) else source
        return drawing(plan, private, own, reporter)

    return run.measurement(fingerprint, draw)


def _seeded(plan: Plan, private: Private, source: NoiseSource, reporter: Reporter, scratch: Scratch | None) -> Measured:
    drawn, run = drawing(plan, private, source, reporter), new_run_id()
    if scratch is not None and answers_of(plan.asked) <= DENSE:
        return Measured(plan.config, drawn.measurement(), run, None, paid=False, identity=private.identity())
    root = open_private_folder(plan.config.output.private) / SEEDED if scratch is None else scratch.folder
    folder = RunFolder(root, run).measurement
    folder.parent.mkdir(mode=0o700, parents=True)
    digest = write_measurement(folder, drawn, private=True)
    measurement, _ = read_measurement(folder, digest, plan.asked)
    kept = folder if scratch is None else None
    return Measured(plan.config, measurement, run, kept, paid=False, identity=private.identity())


def noisy(plan: Plan, private: object, source: NoiseSource, reporter: Reporter | None = None) -> Measurement:
    """Return the answers to a plan's questions with noise, in memory; what pays for it is the caller's concern."""
    return drawing(plan, private, source, reporter).measurement()


def drawing(plan: Plan, private: object, source: NoiseSource, reporter: Reporter | None = None) -> Drawing:
    """Return the answers to a plan's questions, whose noise is drawn as they are taken, region after region."""
    told, asked = Silent() if reporter is None else reporter, plan.asked

    def parts() -> Iterator[NoisyPart]:
        with told.stage("Measuring") as progress:
            exact = kind_of(plan.config).ask(plan, private)
            yield from noisy_parts(asked.questions, exact, asked.hierarchy, asked.per_region, source, progress)

    return Drawing(asked, parts(), source.name, source.private)


def _read(plan: Plan, reporter: Reporter) -> Private:
    with reporter.stage("Reading the private table"):
        private: Private = kind_of(plan.config).read(plan)
    return private


def source_of(config: Config) -> NoiseSource:
    """Return a fresh noise source of the configured kind; MissingPackageError where its package is absent."""
    return resolve_noise(config.privacy.noise, config.privacy.seed)


def check_noise(asked: Asked, source: NoiseSource) -> None:
    """Raise ProblemError where a source draws no noise of some question's law."""
    for law in {question.law for question in asked.questions if not question.exact}:
        if not law.drawn_by(source):
            raise ProblemError(f"noise {source.name!r} draws no {law.name.replace('_', ' ')}: use another source")


def warm(asked: Asked, source: NoiseSource) -> None:
    """Draw a little noise under a key of its own: what is missing or breaks does so before anything is paid."""
    other: NoiseSource = SeededNoise(0) if isinstance(source, SeededNoise) else type(source)()
    for number, law in enumerate({question.law for question in asked.questions if not question.exact}):
        law.opened(other, measurement="warming up", region=str(number)).draw(_WARMING)


def answers_of(asked: Asked) -> int:
    """Return how many answers there are to all questions, from public facts."""
    return sum(int(offsets_of(question, asked.hierarchy, asked.per_region)[-1]) for question in asked.questions)


def check_memory(asked: Asked) -> None:
    """Raise InputError (out-of-memory) where the answers do not fit into memory; nothing is paid by then."""
    answers = answers_of(asked)
    short = False
    try:
        np.empty(2 * answers, np.int64)
    except MemoryError:
        short = True
    if short:
        size = 2 * answers * _BYTES / 1e9
        raise InputError("out-of-memory", f"{answers:,} answers need about {size:.1f} GB: lower the domain's bound")


def check_target(folder: Path) -> None:
    """Raise InputError where a folder cannot be made: it exists, its name is too long, its parent not writable."""
    if os.path.lexists(folder):
        message = "exists already: a folder is never overwritten, give another name"
        raise InputError("folder-exists", message, Place(folder.name))
    reason = ""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(folder.parent, os.W_OK):
            reason = "permission denied"
        probe = temporary_name(folder)
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        reason = error.strerror or "unknown reason"
    if reason:
        raise InputError("cannot-write", f"cannot be made in {folder.parent.name or '.'}: {reason}", Place(folder.name))
