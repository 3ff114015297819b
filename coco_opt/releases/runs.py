"""Runs that spend budget: paid when everything is checked, measured once, taken up again for free however they stop.

RESERVED in the ledger, the input bound to the run, noise under the run's own key, the seal, MEASURED, the key erased.
A run that stopped anywhere is taken up by the next call that asks the same questions of the same data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coco_opt.config.model import Config
from coco_opt.errors import BudgetError, CocoOptError, InputError
from coco_opt.files.measurement import read_measurement, write_measurement
from coco_opt.privacy.ledger import Ledger
from coco_opt.privacy.ledger_chain import Charge, Run
from coco_opt.privacy.ledger_head import CommandWitness, FileWitness
from coco_opt.privacy.measurement import Asked, Drawing, Measurement
from coco_opt.privacy.private_files import FREE, FileLock, make_private_folder, remove_leftovers
from coco_opt.privacy.run_folder import RunFolder
from coco_opt.privacy.run_key import RunKey
from coco_opt.releases.records import new_run_id, open_private_folder

LEDGER = "ledger.sqlite"
RUNS = "runs"

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

    def measurement(self, fingerprint: str, draw: Draw) -> Measurement:
        """Return the sealed measurement as read back from disk, written as ``draw`` draws it if it is not sealed yet.

        ``draw`` is given the key of this run's noise on this input: any other input would have other noise. Afterwards
        the key is gone. Raises InputError (lost-key, file-not-found, damaged-measurement) where a resumed run's files
        are not what it left.
        """
        known = self._seal(fingerprint, draw) if not self.measured else (self._run.sealed or None, None)
        measurement, digest = read_measurement(self.folder.measurement, *known)
        self._ledger.measured(self.name, digest)
        self.folder.erase_key()
        return measurement

    def _seal(self, fingerprint: str, draw: Draw) -> tuple[str, Asked]:
        """Draw the noise and seal the measurement; return the digest of its index, and what was asked."""
        if not self.folder.has_key:
            raise InputError(
                "lost-key",
                f"the noise key of run {self.name} is gone and nothing was sealed: restore the private folder, or "
                f"give the run up with 'coco-opt ledger CONFIG --abandon {self.name}' (what it paid stays spent)",
            )
        self.folder.bind(fingerprint.encode())
        key = self.folder.key()
        noise = RunKey(key.derive("coco-opt noise", self._run.charge.digest, fingerprint))
        try:
            drawn = replace(draw(noise), receipt=self._run.receipt)
            return write_measurement(self.folder.measurement, drawn, private=True), drawn.asked
        finally:
            noise.erase()
            key.erase()


def ledger_of(config: Config) -> Ledger:
    """Return the configured ledger, by default the one in the private folder, and who else remembers its head."""
    witness = config.privacy.witness
    other = FileWitness(witness) if isinstance(witness, Path) else None if witness is None else CommandWitness(witness)
    return Ledger(config.privacy.ledger or config.output.private / LEDGER, other)


def dataset_of(config: Config) -> str:
    """Return the ledger's name of the data."""
    return config.privacy.dataset or config.name


def new_account(config: Config) -> str:
    """Return what to say where a payment would open an account: nobody else knows of another ledger; "" elsewhere."""
    ledger, dataset = ledger_of(config), dataset_of(config)
    if dataset in ledger.books().accounts:
        return ""
    return (
        f"This opened the account of dataset {dataset!r} in {ledger.path.name}: if these data were released before, by "
        "another ledger, state that as privacy.ledger"
    )


def charge_for(config: Config, asked: Asked, fingerprint: str) -> Charge:
    """Return what a measurement spends, on what, bound to its questions and its private table."""
    cost = asked.cost
    return Charge(dataset_of(config), cost.unit, cost.amount, asked.neighbours, asked.digest, fingerprint)


def fingerprint_of(config: Config, private: Iterable[NDArray[np.int64]]) -> str:
    """Return the ledger's keyed digest of a private table's canonical form, hexadecimal; see ``Ledger.fingerprint``.

    Raises InputError and BudgetError where the ledger or its key are not what was left.
    """
    with _starting(open_private_folder(config.output.private) / RUNS) as root:
        ledger = ledger_of(config)
        _refuse_forgotten(ledger, root)
        return ledger.fingerprint(private)


@contextmanager
def _starting(root: Path) -> Iterator[Path]:
    """Hold the lock under which runs begin, and make the folder of runs."""
    make_private_folder(root)
    lock = FileLock(root / "lock")
    lock.acquire(wait=True)
    try:
        remove_leftovers(root.parent)
        yield root
    finally:
        lock.release()


@contextmanager
def opened_run(
    config: Config, asked: Asked, fingerprint: str, *, again: bool = False, renamed: bool = False
) -> Iterator[PaidRun]:
    """Take up the run that asked these questions of this data, or start and pay one.

    With ``again`` a run that was measured already is left alone, and another one is paid for; with ``renamed`` data
    that the ledger knows by another name are paid for under this one too. Raises BudgetError where the budget does not
    allow it, and InputError (input-changed) where the same questions were asked of other data under this dataset's
    name: before anything is spent.
    """
    ledger, charge = ledger_of(config), charge_for(config, asked, fingerprint)
    with _starting(open_private_folder(config.output.private) / RUNS) as root:
        _sweep(ledger, root)
        folder = _known_run(ledger, root, charge, again=again)
        resumed = folder is not None
        if folder is None:
            folder = _started(ledger, root, charge, config, renamed=renamed)
    try:
        # Another process may have gone on with it before the lock was ours: the ledger says how far.
        yield PaidRun(ledger, folder, ledger.books().runs[folder.name], resumed=resumed)
    finally:
        folder.release()


def _known_run(ledger: Ledger, root: Path, charge: Charge, *, again: bool) -> RunFolder | None:
    """Return the claimed folder of a run of the same questions on this data, None without one.

    Whatever stands in the way of a run that was paid for is an error that says what to restore: only ``again`` may pay
    for the same twice. A reservation of other data that never met them is voided: its amount comes back.
    """
    changed: list[str] = []
    for run in ledger.books().runs.values():
        same = (run.charge.dataset, run.charge.digest) == (charge.dataset, charge.digest)
        folder = RunFolder(root, run.name)
        if not same or run.state in ("ABANDONED", "VOIDED") or (again and _is_measured(run, folder)):
            continue
        if run.charge.fingerprint != charge.fingerprint:
            if not void_run(ledger, folder, run):
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


def void_run(ledger: Ledger, folder: RunFolder, run: Run) -> bool:
    """Give back what a run reserved whose key met no data, and destroy the key; False where it may have met some.

    The binding is written before the first noise: without one, none was drawn.
    """
    if run.state != "RESERVED" or not folder.path.is_dir() or not folder.claim():
        return False
    try:
        if folder.is_bound or folder.is_sealed:
            return False
        folder.erase_key()
        ledger.void(run.name)
        return True
    finally:
        folder.release()


def _is_measured(run: Run, folder: RunFolder) -> bool:
    """Tell whether noise was drawn and sealed: then it is estimated for free, and never drawn again."""
    return run.state != "RESERVED" or folder.is_sealed or not folder.path.is_dir()


def _started(ledger: Ledger, root: Path, charge: Charge, config: Config, *, renamed: bool) -> RunFolder:
    """Draw a key, pay, and return the claimed folder; where the budget does not allow it nothing is left.

    The key is on disk before the payment, so that a payment always has one.
    """
    folder = RunFolder(root, new_run_id())
    if not folder.claim():
        raise BudgetError(f"the folder of run {folder.name} cannot be locked: nothing was paid")
    try:
        folder.key().erase()
        folder.keep("ledger", {"path": str(ledger.path.resolve())})
        ledger.reserve(folder.name, charge, config.privacy.total, renamed=renamed)
    except CocoOptError:
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
    """Remove the folders of starts that died before they paid, once the ledger forgot nothing that was measured."""
    own = ledger.path.resolve()
    for folder in _refuse_forgotten(ledger, root):
        if _ledger_of_run(folder, own) == own and folder.claim():
            folder.discard()


def _refuse_forgotten(ledger: Ledger, root: Path) -> list[RunFolder]:
    """Return the folders of runs that the ledger does not know; BudgetError where one of them measured.

    Then the ledger is missing, or an older copy, and nothing is deleted.
    """
    paid, own, unknown = ledger.books().runs, ledger.path.resolve(), []
    for path in root.iterdir():
        if not path.is_dir() or path.name in paid or path.name.startswith("."):
            continue
        folder = RunFolder(root, path.name)
        # Another ledger's run may have paid: then its folder names that ledger, for it is written before.
        recorded = _ledger_of_run(folder, own)
        if recorded != own and recorded.exists():
            continue
        if folder.is_bound or folder.is_sealed:
            raise BudgetError(
                f"the ledger {ledger.path.name} does not know run {path.name}, which measured: it is missing, or an "
                f"older copy. Restore it, or state its path as privacy.ledger; nothing was deleted. {FREE}"
            )
        unknown.append(folder)
    return unknown


def _ledger_of_run(folder: RunFolder, own: Path) -> Path:
    return Path(folder.kept("ledger").get("path", own))
