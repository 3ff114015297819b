"""Releases in forked children that are killed, or whose disk is full, at a chosen step; run as a script.

Arguments: a folder with ``run.toml`` in ``template``; "kill" or "full"; of how many steps one is tried. Prints one JSON
line a step: the exit codes of the interrupted run and of the next one, what the ledger then says, and digests of noise
and release.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coco_opt.config import load_config
from coco_opt.errors import CocoOptError
from coco_opt.privacy import ledger
from coco_opt.privacy.bookkeeping import write_record
from coco_opt.privacy.run_key import RunKey
from coco_opt.releases import release, render_report, runs

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
NO_FAULT = 100  # the exit code of a run that ended before its fault
NEVER = 10**9
_EVENTS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir"}


class Fault:
    """Stops the process, or fails the call, at the ``at``-th change to the file system below ``folder``."""

    def __init__(self) -> None:
        self.at = -1
        self.seen = 0
        self.mode = "kill"
        self.folder = ""
        self._fsync = os.fsync
        os.fsync = self._sync
        sys.addaudithook(self._hear)

    def arm(self, folder: Path, at: int, mode: str) -> None:
        self.folder, self.at, self.mode, self.seen = str(folder), at, mode, 0

    def _sync(self, descriptor: Any) -> None:
        self._step()
        self._fsync(descriptor)

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
        raise OSError(28, "No space left on device")


FAULT = Fault()


def released(folder: Path, at: int, mode: str) -> int:
    """Run one release with a fault armed; return an exit code, NO_FAULT where no fault was met."""
    FAULT.arm(folder, at, mode)
    config = load_config(folder / "run.toml")
    try:
        release(config, folder / "out", page=render_report)
    except CocoOptError as error:
        return error.exit_code
    except OSError:
        return 5
    return NO_FAULT if FAULT.seen < at else 0


def in_a_child(folder: Path, at: int, mode: str) -> int:
    """Return the exit code of a release in a forked child, negative for a signal."""
    child = os.fork()
    if not child:
        code = 99
        try:
            code = released(folder, at, mode)
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
        "partial": [path.name for path in folder.rglob("*.partial")],
    }


def main(base: Path, mode: str, stride: int) -> None:
    # The same keys in every round, so that all of them must draw the same noise.
    private = base / "template" / "private"
    private.mkdir(mode=0o700)
    write_record(private / "ledger.sqlite.key", bytes(32))
    # Nor may a receipt tell one round from another.
    ledger.now = lambda: "2026-01-01T00:00:00+00:00"  # type: ignore[assignment]
    runs.new_run_id = lambda: "20260101T000000Z-00000000"  # type: ignore[assignment]
    RunKey.generate = classmethod(lambda cls: cls(bytes(range(32))))  # type: ignore[assignment, method-assign]
    # The first round has no fault, and compiles in this process what its children then find compiled.
    print_round(base, 0, mode, released)
    at = 1
    while print_round(base, at, mode, in_a_child) != NO_FAULT:
        at += stride


def print_round(base: Path, at: int, mode: str, first: Callable[[Path, int, str], int]) -> int:
    """Interrupt a release at one step, run the next one, print what happened, and return the first one's code."""
    folder = base / f"step{at}"
    shutil.copytree(base / "template", folder)
    code = first(folder, at or NEVER, mode)
    before = report(folder)
    second = code if code == NO_FAULT else in_a_child(folder, NEVER, mode)
    line = {"at": at, "code": code, "second": second, "before": before, "after": report(folder)}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
    shutil.rmtree(folder)
    return code


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
