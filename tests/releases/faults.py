"""Releases in forked children that are stopped at a chosen operation or time, and taken up again; run as a script.

``python -m tests.releases.faults FOLDER MODE POINTS [SEED [VERB]]``: a folder with ``run.toml`` in ``template``; a
mode; how many points are tried, drawn by the seed, or "all"; a verb that runs before the release is taken up. Modes:
"kill" (SIGKILL), "full" (ENOSPC) and "broken" (EIO) at one change to the file system; "timed" (killed by a signal) and
"interrupt" (as by Ctrl-C) at a time. Prints one JSON line a point: the exit codes of the interrupted run and of the
next one, what the ledger then says, and digests of noise and release.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any, Literal, get_args

from coco_opt.cli import main as cli
from coco_opt.config import load_config
from coco_opt.errors import CocoOptError
from coco_opt.privacy import RunKey, ledger
from coco_opt.privacy.private_files import write_record
from coco_opt.releases import release, render_report, runs

Mode = Literal["kill", "full", "broken", "timed", "interrupt"]
MODES: tuple[Mode, ...] = get_args(Mode)
RUN = "20260101T000000Z-00000000"
TIMES = 100  # a release's duration is cut into so many

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
NO_FAULT = 100  # the exit code of a run that ended before its fault
INTERRUPTED = 130
NEVER = 10**9
_EVENTS = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.chmod"}
_ERRORS = {"full": errno.ENOSPC, "broken": errno.EIO}


class Steps(io.RawIOBase):
    """A new file, each write to which is a step."""

    def __init__(self, file: Any, step: Callable[[], None]) -> None:
        self._file, self._step = file, step

    def write(self, data: Any) -> int:
        self._step()
        return int(self._file.write(data))

    def flush(self) -> None:
        if not self._file.closed:
            self._file.flush()

    def fileno(self) -> int:
        return int(self._file.fileno())

    def close(self) -> None:
        self._file.close()
        super().close()


class Fault:
    """Stops the process, or fails the call, at the ``at``-th change to the file system below ``folder``."""

    def __init__(self) -> None:
        self.at = -1
        self.seen = 0
        self.mode: Mode = "kill"
        self.folder = ""
        self._fsync, self._fdopen = os.fsync, os.fdopen
        os.fsync = self._sync
        os.fdopen = self._open  # type: ignore[assignment]
        sys.addaudithook(self._hear)

    def arm(self, folder: Path, at: int, mode: Mode) -> None:
        self.folder, self.at, self.mode, self.seen = str(folder), at, mode, 0

    def _sync(self, descriptor: Any) -> None:
        self._step()
        self._fsync(descriptor)

    def _open(self, descriptor: int, mode: str = "r", *options: Any, **named: Any) -> Any:
        file = self._fdopen(descriptor, mode, *options, **named)
        return Steps(file, self._step) if self.folder and mode == "wb" else file

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.folder:
            return
        written = event == "open" and isinstance(arguments[2], int) and bool(arguments[2] & _WRITING)
        if (written or event in _EVENTS) and str(arguments[0]).startswith(self.folder):
            self._step()

    def _step(self) -> None:
        self.seen += 1
        if not self.folder or self.seen != self.at:
            return
        if self.mode == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.mode in _ERRORS:
            raise OSError(_ERRORS[self.mode], os.strerror(_ERRORS[self.mode]))


FAULT = Fault()


def set_timer(mode: Mode, seconds: float) -> None:
    """Stop this process after so many seconds, in whatever it is doing."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt if mode == "interrupt" else signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def released(folder: Path, at: int, mode: Mode, seconds: float = 0.0) -> int:
    """Run one release with a fault armed; return an exit code, NO_FAULT where no fault was met."""
    FAULT.arm(folder, at, mode)
    config = load_config(folder / "run.toml")
    try:
        if seconds:
            set_timer(mode, seconds)
        release(config, folder / "out", page=render_report)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except CocoOptError as error:
        return error.exit_code
    except OSError:
        return 5
    except KeyboardInterrupt:
        return INTERRUPTED
    return NO_FAULT if FAULT.seen < at else 0


def in_a_child(folder: Path, at: int, mode: Mode, seconds: float = 0.0) -> int:
    """Return the exit code of a release in a forked child, negative for a signal; take over how much it saw."""
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        code = 99
        try:
            code = released(folder, at, mode, seconds)
            os.write(tell, str(FAULT.seen).encode())
        finally:
            os._exit(code)
    os.close(tell)
    seen = os.read(told, 20)
    os.close(told)
    FAULT.seen = int(seen or 0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run_verb(folder: Path, verb: str) -> int:
    """Run a verb in a forked child, without its output; return its exit code."""
    config = str(folder / "run.toml")
    commands = {"ledger": ["ledger", config], "estimate": ["estimate", RUN, config, "--out", str(folder / "estimate")]}
    child = os.fork()
    if not child:
        code = 99
        try:
            FAULT.arm(folder, NEVER, "kill")
            with Path(os.devnull).open("w") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):
                code = cli([*commands[verb]])
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def digest_of(folder: Path) -> str:
    """Return the SHA-256 of a folder's file names and contents."""
    content = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def report(folder: Path) -> dict[str, Any]:
    """Return what a run left: ledger kinds, digests of the sealed noise and of the release, key files."""
    entries = ledger.Ledger(folder / "private" / "ledger.sqlite").entries()
    seals = [digest_of(path) for path in folder.glob("private/runs/*/measurement")]
    return {
        "kinds": [entry.kind for entry in entries],
        "seals": seals,
        "release": digest_of(folder / "out") if (folder / "out").is_dir() else None,
        "keys": len(list(folder.glob("private/runs/*/key"))),
        "partial": [path.name for left in ("*.partial", "method-*") for path in folder.rglob(left)],
    }


def main(base: Path, mode: Mode, points: int | None, seed: int = 0, verb: str = "") -> None:
    """Try ``points`` points, all where it is None, each followed by a ``verb`` where there is one."""
    # The same keys in every round, so that all of them must draw the same noise.
    private = base / "template" / "private"
    private.mkdir(mode=0o700)
    write_record(private / "ledger.sqlite.key", bytes(32))
    # Nor may a receipt tell one round from another.
    ledger.now = lambda: "2026-01-01T00:00:00+00:00"  # type: ignore[assignment]
    runs.new_run_id = lambda: RUN  # type: ignore[assignment]
    RunKey.generate = classmethod(lambda cls: cls(bytes(range(32))))  # type: ignore[assignment, method-assign]
    # The first round has no fault, and compiles in this process what its children then find compiled.
    print_round(base, 0, mode, 0.0, released)
    start = time.monotonic()
    print_round(base, NEVER, mode, 0.0, in_a_child)
    # Of a child: the first round does more, for it compiles.
    duration, operations = time.monotonic() - start, FAULT.seen
    timed = mode in ("timed", "interrupt")
    every = range(1, 1 + (TIMES if timed else operations))
    chosen = every if points is None or points >= len(every) else random.Random(seed).sample(every, points)
    for at in sorted(chosen):
        print_round(base, NEVER if timed else at, mode, duration * at / TIMES if timed else 0.0, in_a_child, verb)


def print_round(
    base: Path, at: int, mode: Mode, seconds: float, first: Callable[[Path, int, Mode, float], int], verb: str = ""
) -> None:
    """Interrupt a release at one step or time, run a verb and the next release, and print what happened."""
    folder = base / f"step{at}"
    shutil.copytree(base / "template", folder)
    code = first(folder, at or NEVER, mode, seconds)
    before = report(folder)
    if verb:
        between = {"verb": run_verb(folder, verb), "between": report(folder)}
    second = code if code == NO_FAULT else in_a_child(folder, NEVER, "kill")
    line = {"at": seconds or at, "code": code, "second": second, "before": before, "after": report(folder)}
    line |= between if verb else {}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
    shutil.rmtree(folder)


if __name__ == "__main__":
    if sys.argv[2] not in MODES:
        sys.exit(f"unknown mode {sys.argv[2]!r}: use one of {', '.join(MODES)}")
    wanted = None if sys.argv[3] == "all" else int(sys.argv[3])
    main(Path(sys.argv[1]), sys.argv[2], wanted, *map(int, sys.argv[4:5]), *sys.argv[5:6])
