"""Run the command line on a table, then on its neighbour under noise that makes the same noisy answers of it.

Who compares two tables that give the same noisy answers sees all that leaks beside the noise: whatever public byte
differs. What the noise itself lets through is added up from the exact answers that were sent to it, under the laws by
which it was really drawn. The shipped program has no way to inject noise: the last step of its sampler is replaced
here, and all that would draw at random (run id, keys) or tell the time is held fixed. The ledger's fingerprint of the
table is held fixed too: it enters what is public only as an input of a MAC under a key that nobody outside has.
"""

from __future__ import annotations

import io
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.cli import main
from coco_opt.cli.console import Heartbeat
from coco_opt.privacy import DiscreteGaussian, Geometric, NoiseDistribution, RunKey, ledger, run_folder, secure
from coco_opt.privacy.private_files import write_record
from coco_opt.releases import runs
from tests.cli.helpers import ROOT, environment_of

Labels = tuple[str, str, str, str]
"""Of a stream of noise: the law's name, its parameter, the measurement and the region."""
Files = Mapping[str, str]
Command = Sequence[str]

FINGERPRINT = "f" * 64
_TIME = "2026-01-01T00:00:00+00:00"
_LAWS: Mapping[str, Callable[[Fraction], NoiseDistribution]] = {"laplace": Geometric, "gaussian": DiscreteGaussian}
_WARMING = "warming up"  # drawn under a key of its own, and thrown away
_PRIVATE = "private"


@dataclass
class Noise:
    """What was sent to each stream of noise and what came back; with ``answers`` what comes back is what stands there.

    ``strange`` are streams that ``answers`` does not hold so; ``runs`` is how many runs there were.
    """

    answers: Mapping[Labels, Ints] | None = None
    sent: dict[Labels, Ints] = field(default_factory=dict)
    given: dict[Labels, Ints] = field(default_factory=dict)
    strange: list[Labels] = field(default_factory=list)
    runs: int = 0

    def new_run(self) -> str:
        """Return the id of the next run."""
        self.runs += 1
        return f"20260101T000000Z-{self.runs:08x}"

    def add(self, labels: Labels, out: Ints, draw: Callable[[], None]) -> None:
        """Put noise on ``out``: drawn, or such that the answers are those that were recorded."""
        before = self.sent.get(labels, np.empty(0, np.int64))
        self.sent[labels] = np.concatenate([before, out])
        recorded = None if self.answers is None else self.answers.get(labels)
        place = slice(before.size, before.size + out.size)
        if recorded is not None and recorded[place].size == out.size:
            out[:] = recorded[place]
        else:
            if self.answers is not None:
                self.strange.append(labels)
            draw()
        self.given[labels] = np.concatenate([self.given.get(labels, np.empty(0, np.int64)), out])


@dataclass(frozen=True)
class Ran:
    """All that commands on one table made public, by name for each command, and what went through the noise."""

    public: tuple[dict[str, bytes], ...]
    noise: Noise

    def file(self, name: str) -> bytes:
        """Return a public file by its path, as the last command that wrote it left it."""
        return next(made[name] for made in reversed(self.public) if name in made)

    @property
    def codes(self) -> list[bytes]:
        """Return the exit codes."""
        return [made["exit code"] for made in self.public]


@dataclass(frozen=True)
class Change:
    """By how much one noisy answer differs between neighbours, the law of its noise, and where."""

    distribution: NoiseDistribution
    amount: int
    where: str


@dataclass(frozen=True)
class Reading:
    """What the meter shows of one pair: the names of public things that differ, and the answers that noise must hide.

    ``realised`` is the log-ratio of the two tables' probabilities of the recorded answers, for geometric noise.
    """

    differing: tuple[str, ...]
    changes: tuple[Change, ...]
    realised: Fraction

    @property
    def epsilon(self) -> Fraction:
        """Return the exact loss of geometric noise: the largest log-ratio of any answers, which some reach."""
        return sum((abs(one.amount) / one.distribution.parameter for one in self.of(Geometric)), Fraction(0))

    @property
    def rho(self) -> Fraction:
        """Return the exact loss of discrete Gaussian noise in rho, reached by Renyi divergences of whole orders."""
        return sum((one.amount**2 / (2 * one.distribution.parameter) for one in self.of(DiscreteGaussian)), Fraction(0))

    def of(self, distribution: type[NoiseDistribution]) -> Iterator[Change]:
        """Yield the changes under one law."""
        return (one for one in self.changes if isinstance(one.distribution, distribution))


def read(first: Ran, second: Ran) -> Reading:
    """Compare what two tables made public by the commands that both ran, and add up what went through the noise."""
    differing = [f"noise {labels}" for labels in second.noise.strange]
    for number, (one, two) in enumerate(zip(first.public, second.public, strict=False)):
        names = sorted({*one, *two})
        differing += [f"command {number}: {name}" for name in names if one.get(name) != two.get(name)]
    changes: list[Change] = []
    realised = Fraction(0)
    for labels in sorted({*first.noise.sent, *second.noise.sent}):
        one, two = (ran.noise.sent.get(labels, np.empty(0, np.int64)) for ran in (first, second))
        if one.size != two.size:
            differing.append(f"answers {labels}")
            continue
        distribution = _LAWS[labels[0]](Fraction(labels[1]))
        for place in np.flatnonzero(one != two).tolist():
            change = Change(distribution, int(two[place] - one[place]), f"{labels[2]}, {labels[3]}, answer {place}")
            changes.append(change)
            if isinstance(distribution, Geometric):
                answer = int(first.noise.given[labels][place])
                realised += (abs(answer - int(two[place])) - abs(answer - int(one[place]))) / distribution.scale
    return Reading(tuple(differing), tuple(changes), realised)


Streams = dict[str, bytes]
Execute = Callable[[Command, Noise, Path], Streams]
"""Runs a command in a folder under a noise; returns its output, errors and exit code."""


def in_this_process(command: Command, noise: Noise, folder: Path) -> Streams:
    """Run a command here."""
    out, err = io.StringIO(), io.StringIO()
    with frozen(noise), inside(folder), redirect_stdout(out), redirect_stderr(err):
        code = main(list(command))
    texts = {"output": out.getvalue(), "errors": err.getvalue(), "exit code": str(code)}
    return {name: text.encode() for name, text in texts.items()}


def in_a_process(command: Command, noise: Noise, folder: Path) -> Streams:
    """Run a command in a process of its own (``tests.loss_meter.process``)."""
    state = folder.with_name("noise.pickle")
    state.write_bytes(pickle.dumps(noise))
    started = [sys.executable, "-m", "tests.loss_meter.process", str(state), *command]
    done = subprocess.run(started, cwd=folder, env=environment_of(ROOT), capture_output=True, check=False)
    noise.__dict__.update(pickle.loads(state.read_bytes()).__dict__)
    return {"output": done.stdout, "errors": done.stderr, "exit code": str(done.returncode).encode()}


def run(
    folder: Path,
    files: Files,
    commands: Sequence[Command],
    answers: Mapping[Labels, Ints] | None = None,
    execute: Execute = in_this_process,
) -> Ran:
    """Run commands in a fresh folder that holds ``files``; return all that became public.

    That is every file they made outside the private folder, their streams and exit codes. With ``answers`` the noisy
    answers are those.
    """
    prepare(folder, files)
    noise, known = Noise(answers), dict[str, bytes]()
    public: list[dict[str, bytes]] = []
    for command in commands:
        streams = execute(command, noise, folder)
        made = made_public(folder, files)
        changed = {name: content for name, content in made.items() if known.get(name) != content}
        public.append({**streams, **changed})
        known = made
    return Ran(tuple(public), noise)


def prepare(folder: Path, files: Files) -> None:
    """Make a fresh folder of files, and the key under which its ledger will be written."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / _PRIVATE).mkdir(parents=True, mode=0o700)
    write_record(folder / _PRIVATE / "ledger.sqlite.key", bytes(32))
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def made_public(folder: Path, files: Files) -> dict[str, bytes]:
    """Return every file below a folder that is neither input nor private, by its path."""
    found = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        name: path.read_bytes()
        for name, path in found.items()
        if name not in files and not name.startswith(f"{_PRIVATE}{os.sep}")
    }


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Make a folder the working one."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def frozen(noise: Noise) -> Iterator[None]:
    """Send all secure noise through ``noise``, and hold fixed what else is random or tells the time."""
    really = secure.CellStream._add

    def add(stream: secure.CellStream, out: Ints, start: int | None) -> None:
        labels: Any = stream._labels
        if labels[2] == _WARMING:
            really(stream, out, start)
        else:
            noise.add(labels, out, lambda: really(stream, out, start))

    replaced: Sequence[tuple[Any, str, Any]] = (
        (secure.CellStream, "_add", add),
        (ledger, "now", lambda: _TIME),
        (ledger.Ledger, "fingerprint", lambda self, arrays: FINGERPRINT),
        (runs, "new_run_id", noise.new_run),
        (run_folder.RunKey, "generate", classmethod(lambda cls: cls(bytes(range(32))))),
        (Heartbeat, "beat", lambda self: None),  # says how long a step has taken
    )
    before = [(owner, name, owner.__dict__[name]) for owner, name, _ in replaced]
    assert run_folder.RunKey is RunKey
    for owner, name, value in replaced:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
