"""Runs that spend budget: paid when everything is checked, measured once, taken up again for free however they stop.

RESERVED in the ledger, the input bound to the run, noise under the run's own key, the seal, MEASURED, the key erased.
A run that stopped anywhere is taken up by the next call that asks the same questions of the same data.
"""

from __future__ import annotations

import hmac
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coco_opt.config.model import Config
from coco_opt.errors import BudgetError, InputError
from coco_opt.files.measurement import read_measurement, write_measurement
from coco_opt.privacy.ledger import Ledger
from coco_opt.privacy.ledger_chain import Charge, Run
from coco_opt.privacy.measurement import Asked, Measurement
from coco_opt.privacy.private_files import FileLock, make_private_folder, readable_by_others, write_private
from coco_opt.privacy.run_folder import RunFolder
from coco_opt.privacy.run_key import RunKey
from coco_opt.releases.records import new_run_id, open_private_folder

LEDGER = "ledger.sqlite"
RUNS = "runs"
SEEDED = "seeded"
_FINGERPRINT_KEY = "fingerprint.key"

Draw = Callable[[RunKey], Measurement]


class PaidRun:
    """A reservation and the locked private folder that belongs to it."""

    def __init__(self, ledger: Ledger, folder: RunFolder, run: Run, *, resumed: bool) -> None:
        self.folder = folder
        self.resumed = resumed
        self._ledger = ledger
        self._run = run

    @property
    def name(self) -> str:
        """Return the run's id."""
        return self._run.name

    @property
    def measured(self) -> bool:
        """Tell whether the measurement is there: nothing private is needed any more."""
        return self.folder.is_sealed or self._run.state != "RESERVED"

    def measurement(self, fingerprint: bytes, draw: Draw) -> Measurement:
        """Return the sealed measurement as read back from disk, from ``draw`` if it is not sealed yet.

        ``draw`` is given the key of this run's noise on this input: any other input would have other noise. Afterwards
        the key is gone. Raises InputError (lost-key, file-not-found, damaged-measurement) where a resumed run's files
        are not what it left.
        """
        if not self.measured:
            self._seal(fingerprint, draw)
        measurement, digest = read_measurement(self.folder.measurement, self._run.sealed or None)
        self._ledger.measured(self.name, digest)
        self.folder.erase_key()
        return measurement

    def _seal(self, fingerprint: bytes, draw: Draw) -> None:
        if not self.folder.has_key:
            raise InputError(
                "lost-key",
                f"the noise key of run {self.name} is gone and nothing was sealed: restore the private folder, or "
                f"give the run up with 'coco-opt ledger CONFIG --abandon {self.name}' (what it paid stays spent)",
            )
        self.folder.bind(fingerprint)
        key = self.folder.key()
        noise = RunKey(key.derive("coco-opt noise", self._run.charge.digest, fingerprint.hex()))
        try:
            write_measurement(self.folder.measurement, draw(noise), private=True)
        finally:
            noise.erase()
            key.erase()

    def released(self, output: str) -> None:
        """Record the digest of a release made of this run's measurement; the first one finishes the run."""
        self._ledger.released(self.name, output)


def ledger_of(config: Config) -> Ledger:
    """Return the configured ledger, by default the one in the private folder."""
    return Ledger(config.privacy.ledger or config.output.private / LEDGER)


def dataset_of(config: Config) -> str:
    """Return the ledger's name of the data."""
    return config.privacy.dataset or config.name


def charge_for(config: Config, asked: Asked) -> Charge:
    """Return what a measurement spends, on what, bound to its questions."""
    return Charge(dataset_of(config), asked.cost.unit, asked.cost.amount, asked.neighbours, asked.digest)


def fingerprint_of(config: Config, arrays: Iterable[NDArray[np.int64]]) -> bytes:
    """Return a keyed digest of a private table's canonical form: who lacks the private folder's key learns nothing.

    Whoever holds that key can test guesses of the table: it is private like the data.
    """
    path = open_private_folder(config.output.private) / _FINGERPRINT_KEY
    if not path.exists():
        write_private(path, [os.urandom(32)])
    if readable_by_others(path):
        raise InputError("open-key", f"others can read {path.name} in the private folder: run chmod 600 on it")
    code = hmac.new(path.read_bytes(), digestmod="sha256")
    for array in arrays:
        code.update(array.size.to_bytes(8, "little") + array.astype("<i8", copy=False).tobytes())
    return code.digest()


@contextmanager
def opened_run(config: Config, asked: Asked, fingerprint: bytes, *, again: bool = False) -> Iterator[PaidRun]:
    """Take up the run that asked these questions of this data, or start and pay one.

    With ``again`` a run that was measured already is left alone, and another one is paid for. Raises BudgetError where
    the budget does not allow it, and InputError (input-changed) where the same questions were asked of other data under
    this dataset's name: before anything is spent.
    """
    ledger, charge = ledger_of(config), charge_for(config, asked)
    root = open_private_folder(config.output.private) / RUNS
    make_private_folder(root)
    starting = FileLock(root / "lock")
    starting.acquire(wait=True)
    folder = None
    try:
        _sweep(ledger, root)
        folder = _known_run(ledger, root, charge, fingerprint, again=again)
        resumed = folder is not None
        if folder is None:
            folder = _started(ledger, root, charge, config)
    finally:
        starting.release()
    try:
        # Another process may have gone on with it before the lock was ours: the ledger says how far.
        yield PaidRun(ledger, folder, ledger.books().runs[folder.name], resumed=resumed)
    finally:
        folder.release()


def _known_run(ledger: Ledger, root: Path, charge: Charge, fingerprint: bytes, *, again: bool) -> RunFolder | None:
    """Return the claimed folder of a run of the same questions on this data, None without one."""
    changed: list[str] = []
    for run in ledger.books().runs.values():
        same = (run.charge.dataset, run.charge.digest) == (charge.dataset, charge.digest)
        if not same or run.state == "ABANDONED":
            continue
        folder = RunFolder(root, run.name)
        if not folder.path.is_dir() or (again and (run.state != "RESERVED" or folder.is_sealed)):
            continue
        if folder.is_bound and not folder.holds(fingerprint):
            changed.append(run.name)
        elif run.state != "RESERVED" and not folder.is_sealed:
            message = (
                f"run {run.name} asked these questions of this data, and its measurement is gone: restore the private "
                "folder, or measure again with 'coco-opt measure CONFIG --again', which pays"
            )
            raise InputError("measurement-gone", message)
        elif folder.claim():
            return folder
        else:
            raise BudgetError(f"run {run.name} asks the same and is in progress: wait for it, then go on for free")
    if changed and not again:
        raise InputError(
            "input-changed",
            f"these questions were asked already, of other data, in run {changed[-1]} of dataset {charge.dataset!r}. "
            "Restore the private table and go on for free; or, if it was meant to change, measure it with "
            "'coco-opt measure CONFIG --again', which pays; or give other data another privacy.dataset",
        )
    return None


def _started(ledger: Ledger, root: Path, charge: Charge, config: Config) -> RunFolder:
    """Draw a key, pay, and return the claimed folder; where the budget does not allow it nothing is left.

    The key is on disk before the payment, so that a payment always has one.
    """
    folder = RunFolder(root, new_run_id())
    folder.claim()
    try:
        folder.key().erase()
        folder.keep("ledger", {"path": str(ledger.path.absolute())})
        ledger.reserve(folder.name, charge, config.privacy.total)
    except BudgetError:
        folder.discard()
        raise
    return folder


def _sweep(ledger: Ledger, root: Path) -> None:
    """Remove the folders of starts that died before they paid; refuse a ledger that forgot what was measured."""
    paid = ledger.books().runs
    for path in root.iterdir():
        if not path.is_dir() or path.name in paid or path.name.startswith("."):
            continue
        folder = RunFolder(root, path.name)
        # Another ledger's run may have paid: then its folder names that ledger, for it is written before.
        if folder.kept("ledger").get("path", str(ledger.path.absolute())) != str(ledger.path.absolute()):
            continue
        if folder.is_bound or folder.is_sealed:
            raise BudgetError(
                f"the ledger {ledger.path.name} does not know run {path.name}, which measured: it is missing, or an "
                f"older copy. Restore it, or state its path as privacy.ledger; nothing was deleted"
            )
        if folder.claim():
            folder.discard()


def abandon_run(config: Config, name: str) -> None:
    """Give an unfinished run up and erase its noise key; BudgetError where it is in progress, finished or unknown."""
    folder = RunFolder(config.output.private / RUNS, name)
    there = folder.path.is_dir()
    if there and not folder.claim():
        raise BudgetError(f"run {name} is in progress: it cannot be given up")
    try:
        ledger_of(config).abandon(name)
        folder.erase_key()
    finally:
        folder.release()


def forget_run(config: Config, name: str) -> None:
    """Delete the measurement of a finished run; what it paid stays spent, and it cannot be estimated again.

    Raises BudgetError where the run is unknown, in progress or not measured yet.
    """
    seeded = RunFolder(config.output.private / SEEDED, name)
    if Path(name).name == name and seeded.is_sealed:
        shutil.rmtree(seeded.path)
        return
    run = ledger_of(config).books().runs.get(name)
    folder = RunFolder(config.output.private / RUNS, name)
    if run is None or not folder.path.is_dir() or not folder.is_sealed:
        raise BudgetError(f"there is no measurement of a run {name} in {config.output.private.name}")
    if not folder.claim():
        raise BudgetError(f"run {name} is in progress: its measurement is needed")
    try:
        if run.state == "RESERVED":
            raise BudgetError(f"run {name} is not finished: go on with it first, which is free")
        folder.forget()
    finally:
        folder.release()


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run that the ledger knows, or a seeded one (``run`` is None); ``folder`` is its measurement, None without."""

    name: str
    run: Run | None
    folder: Path | None


def known_runs(config: Config) -> tuple[KnownRun, ...]:
    """Return the runs of a configuration's ledger in its order, then the seeded measurements that are kept.

    Raises BudgetError where the ledger's chain is broken.
    """
    paid = ledger_of(config).books().runs
    seeded = config.output.private / SEEDED
    names = sorted(path.name for path in seeded.iterdir()) if seeded.is_dir() else []
    found = [KnownRun(name, run, kept_measurement(config, name)) for name, run in paid.items()]
    return (*found, *(KnownRun(name, None, kept_measurement(config, name)) for name in names))


def kept_measurement(config: Config, name: str) -> Path | None:
    """Return where the measurement of a run lies, None where there is none of this name."""
    for root in (RUNS, SEEDED):
        path = RunFolder(config.output.private / root, name).measurement
        if path.is_dir():
            return path
    return None
