"""Runs that spend budget: paid when everything is checked, measured once, taken up again for free however they stop.

RESERVED in the ledger, the input bound to the run, noise under the run's own key, the seal, MEASURED, the key erased.
A run that stopped anywhere is taken up by the next call that asks the same questions of the same data.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coco_opt.config.model import Config
from coco_opt.errors import BudgetError, InputError
from coco_opt.files.measurement import read_measurement, write_measurement
from coco_opt.privacy.ledger import Ledger
from coco_opt.privacy.ledger_chain import Charge, Run
from coco_opt.privacy.measurement import Asked, Drawing, Measurement
from coco_opt.privacy.private_files import FileLock, make_private_folder, readable_by_others, write_private
from coco_opt.privacy.run_folder import RunFolder
from coco_opt.privacy.run_key import KEY_BYTES, RunKey
from coco_opt.releases.records import new_run_id, open_private_folder

LEDGER = "ledger.sqlite"
RUNS = "runs"
_FINGERPRINT_KEY = "fingerprint.key"

Draw = Callable[[RunKey], Drawing]


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
        """Return the sealed measurement as read back from disk, written as ``draw`` draws it if it is not sealed yet.

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

    Whoever holds that key can test guesses of the table: it is private like the data. Raises InputError (open-key,
    lost-key) where others can read the key, or it is gone beside runs that were bound by it.
    """
    code = hmac.new(_fingerprint_key(open_private_folder(config.output.private)), digestmod="sha256")
    for array in arrays:
        code.update(array.size.to_bytes(8, "little") + array.astype("<i8", copy=False).tobytes())
    return code.digest()


def _fingerprint_key(private: Path) -> bytes:
    path = private / _FINGERPRINT_KEY
    with _starting(private / RUNS) as root:
        bound = any(RunFolder(root, run.name).is_bound for run in root.iterdir() if run.is_dir())
        if not path.exists() and not bound:
            write_private(path, [os.urandom(KEY_BYTES)])
    if path.exists() and readable_by_others(path):
        raise InputError("open-key", f"others can read {path.name} in the private folder: run chmod 600 on it")
    key = path.read_bytes() if path.exists() else b""
    if len(key) != KEY_BYTES:
        message = f"{path.name} of the private folder, which tells its data apart, is lost: restore it"
        raise InputError("lost-key", message)
    return key


@contextmanager
def _starting(root: Path) -> Iterator[Path]:
    """Hold the lock under which runs begin, and make the folder of runs."""
    make_private_folder(root)
    lock = FileLock(root / "lock")
    lock.acquire(wait=True)
    try:
        yield root
    finally:
        lock.release()


@contextmanager
def opened_run(config: Config, asked: Asked, fingerprint: bytes, *, again: bool = False) -> Iterator[PaidRun]:
    """Take up the run that asked these questions of this data, or start and pay one.

    With ``again`` a run that was measured already is left alone, and another one is paid for. Raises BudgetError where
    the budget does not allow it, and InputError (input-changed) where the same questions were asked of other data under
    this dataset's name: before anything is spent.
    """
    ledger, charge = ledger_of(config), charge_for(config, asked)
    with _starting(open_private_folder(config.output.private) / RUNS) as root:
        _sweep(ledger, root)
        folder = _known_run(ledger, root, charge, fingerprint, again=again)
        resumed = folder is not None
        if folder is None:
            folder = _started(ledger, root, charge, config)
    try:
        # Another process may have gone on with it before the lock was ours: the ledger says how far.
        yield PaidRun(ledger, folder, ledger.books().runs[folder.name], resumed=resumed)
    finally:
        folder.release()


def _known_run(ledger: Ledger, root: Path, charge: Charge, fingerprint: bytes, *, again: bool) -> RunFolder | None:
    """Return the claimed folder of a run of the same questions on this data, None without one.

    Whatever stands in the way of a run that was paid for is an error that says what to restore: only ``again`` may pay
    for the same twice.
    """
    changed: list[str] = []
    for run in ledger.books().runs.values():
        same = (run.charge.dataset, run.charge.digest) == (charge.dataset, charge.digest)
        folder = RunFolder(root, run.name)
        if not same or run.state == "ABANDONED" or (again and _is_measured(run, folder)):
            continue
        if folder.is_bound and not folder.holds(fingerprint):
            changed.append(run.name)
        elif not folder.path.is_dir() or (_is_measured(run, folder) and not folder.is_sealed):
            raise InputError(
                "measurement-gone",
                f"run {run.name} was paid to ask these questions, and what it left is gone: restore the private "
                "folder, or measure again with 'coco-opt measure CONFIG --again', which pays",
            )
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


def _is_measured(run: Run, folder: RunFolder) -> bool:
    """Tell whether noise was drawn and sealed: then it is estimated for free, and never drawn again."""
    return run.state != "RESERVED" or folder.is_sealed or not folder.path.is_dir()


def _started(ledger: Ledger, root: Path, charge: Charge, config: Config) -> RunFolder:
    """Draw a key, pay, and return the claimed folder; where the budget does not allow it nothing is left.

    The key is on disk before the payment, so that a payment always has one.
    """
    folder = RunFolder(root, new_run_id())
    if not folder.claim():
        raise BudgetError(f"the folder of run {folder.name} cannot be locked: nothing was paid")
    try:
        folder.key().erase()
        folder.keep("ledger", {"path": str(ledger.path.resolve())})
        ledger.reserve(folder.name, charge, config.privacy.total)
    except BudgetError:
        # A commit may report an error after it became durable: a key that was paid for is never thrown away.
        if folder.name in ledger.books().runs:
            folder.release()
        else:
            folder.discard()
        raise
    except BaseException:
        folder.release()
        raise
    return folder


def _sweep(ledger: Ledger, root: Path) -> None:
    """Remove the folders of starts that died before they paid; refuse a ledger that forgot what was measured."""
    paid, own = ledger.books().runs, ledger.path.resolve()
    for path in root.iterdir():
        if not path.is_dir() or path.name in paid or path.name.startswith("."):
            continue
        folder = RunFolder(root, path.name)
        # Another ledger's run may have paid: then its folder names that ledger, for it is written before.
        recorded = Path(folder.kept("ledger").get("path", own))
        if recorded != own and recorded.exists():
            continue
        if folder.is_bound or folder.is_sealed:
            raise BudgetError(
                f"the ledger {ledger.path.name} does not know run {path.name}, which measured: it is missing, or an "
                f"older copy. Restore it, or state its path as privacy.ledger; nothing was deleted"
            )
        if recorded == own and folder.claim():
            folder.discard()
