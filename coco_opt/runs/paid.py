"""A run that spends budget: paid before private data is opened, measured once, finished however often it stops.

RESERVED in the ledger, then noise under the run's own key, then the seal, MEASURED, the key erased, and from there on
post-processing of the sealed file alone, until RELEASED. A run that stopped anywhere is taken up by the next one with
the same configuration and public tables, and pays nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import BudgetError, InputError
from coco_opt.privacy import Neighbours, RunKey
from coco_opt.privacy.ledger import Ledger
from coco_opt.privacy.ledger_chain import Charge, Run
from coco_opt.privacy.mechanism import Mechanism, unit_of
from coco_opt.privacy.private_files import FileLock, make_private_folder
from coco_opt.privacy.run_folder import RunFolder
from coco_opt.privacy.sealed_file import SealedT, Sealing
from coco_opt.runs.records import open_private_folder
from coco_opt.runs.settings import RunSettings

LEDGER = "ledger.sqlite"
RUNS = "runs"


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
    def target(self) -> Path | None:
        """Return the release folder the run was started for."""
        kept = self.folder.kept("target")
        return Path(kept["folder"]) if kept else None

    def measurements(self, measure: Callable[[RunKey], SealedT], sealing: Sealing[SealedT]) -> SealedT:
        """Return the sealed measurements, from ``measure`` if they are not sealed yet; then the key is gone.

        Raises InputError (lost-key, file-not-found, damaged-seal) where a resumed run's files are not what it left.
        """
        if not self.folder.is_sealed and self._run.state == "RESERVED":
            self._measure(measure, sealing)
        measurements, digest = self.folder.unseal(sealing, self._run.sealed or None)
        self._ledger.measured(self.name, digest)
        self.folder.erase_key()
        return measurements

    def _measure(self, measure: Callable[[RunKey], SealedT], sealing: Sealing[SealedT]) -> None:
        if not self.folder.has_key:
            raise InputError(
                "lost-key",
                f"the noise key of run {self.name} is gone and nothing was sealed: restore the private folder, or "
                f"give the run up with 'coco-opt ledger CONFIG --abandon {self.name}' (what it paid stays spent)",
            )
        key = self.folder.key()
        try:
            self.folder.seal(measure(key), sealing)
        finally:
            key.erase()

    def released(self, output: str) -> None:
        """Record the digest of the release; the run is finished."""
        self._ledger.released(self.name, output)


def dataset_of(settings: RunSettings) -> str:
    """Return the ledger's name for the data: as configured, or the private table's file name."""
    data = settings.data
    table = data.entities or data.sizes or data.records
    return settings.privacy.dataset or (table.name if table is not None else settings.name)


def ledger_of(settings: RunSettings) -> Ledger:
    """Return the configured ledger, by default the one in the private folder."""
    return Ledger(settings.privacy.ledger or settings.output.private / LEDGER)


def charge_for(
    settings: RunSettings, mechanism: Mechanism, amount: Fraction, neighbours: Neighbours, public: Iterable[bytes]
) -> Charge:
    """Return what a release spends, on what, and the digest of all that shapes its noise and its answer.

    The digest covers the configuration without its output folders, and the ``public`` input.
    """
    config = {name: section for name, section in settings.as_dict().items() if name != "output"}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    for part in public:
        digest.update(len(part).to_bytes(8, "little") + part)
    return Charge(dataset_of(settings), unit_of(mechanism), amount, neighbours, digest.hexdigest())


def keyed_digest(key: RunKey, private: Iterable[NDArray[np.int64]]) -> bytes:
    """Return an HMAC of private counts under the run's key: it says nothing to who lacks the key."""
    code = hmac.new(key.derive("coco-opt input"), digestmod="sha256")
    for array in private:
        code.update(array.size.to_bytes(8, "little") + array.astype("<i8", copy=False).tobytes())
    return code.digest()


@contextmanager
def resumed_run(settings: RunSettings, charge: Charge) -> Iterator[PaidRun | None]:
    """Take up an unfinished run of this configuration and data that no other process works on; None without one."""
    ledger, root = ledger_of(settings), settings.output.private / RUNS
    found = [run.name for run in ledger.unfinished(charge.dataset) if run.charge.digest == charge.digest]
    for name in found:
        folder = RunFolder(root, name)
        if not folder.path.is_dir() or not folder.claim():
            continue
        try:
            # Another process may have finished it before the lock was ours.
            if ledger.books().runs[name].unfinished:
                yield PaidRun(ledger, folder, ledger.reserve(name, charge), resumed=True)
                return
        finally:
            folder.release()
    yield None


@contextmanager
def started_run(settings: RunSettings, charge: Charge, name: str, target: Path) -> Iterator[PaidRun]:
    """Draw a key, pay, and yield the run; BudgetError where the budget does not allow it, and nothing is left.

    The key and the target are on disk before the payment, so that a payment always has them.
    """
    ledger, root = ledger_of(settings), open_private_folder(settings.output.private) / RUNS
    make_private_folder(root)
    starting = FileLock(root / "lock")
    starting.acquire(wait=True)
    try:
        _check_not_lost(ledger, root)
        _sweep(ledger, root)
        folder = RunFolder(root, name)
        folder.claim()
        try:
            folder.key().erase()
            folder.keep("target", {"folder": str(target.absolute()), "ledger": str(ledger.path.absolute())})
            run = ledger.reserve(name, charge, settings.privacy.total)
        except BudgetError:
            folder.release()
            _sweep(ledger, root)
            raise
    finally:
        starting.release()
    try:
        yield PaidRun(ledger, folder, run, resumed=False)
    finally:
        folder.release()


def _sweep(ledger: Ledger, root: Path) -> None:
    """Remove the folders of starts that died before they paid; nobody starts meanwhile."""
    paid = ledger.books().runs
    for path in root.iterdir():
        if not path.is_dir() or path.name in paid:
            continue
        folder = RunFolder(root, path.name)
        # Another ledger's run may have paid: then its target names that ledger, for it is written before.
        if folder.kept("target").get("ledger", str(ledger.path.absolute())) == str(ledger.path.absolute()):
            folder.discard()


def _check_not_lost(ledger: Ledger, root: Path) -> None:
    if not ledger.path.exists() and any(root.glob("*/sealed")):
        raise BudgetError(
            f"the ledger {ledger.path.name} is missing, but runs in {root.parent.name}/{root.name} were paid from one: "
            "restore it, or state its path as privacy.ledger"
        )


def abandon_run(settings: RunSettings, name: str) -> None:
    """Give an unfinished run up and erase its noise key; BudgetError where it is in progress, finished or unknown."""
    folder = RunFolder(settings.output.private / RUNS, name)
    there = folder.path.is_dir()
    if there and not folder.claim():
        raise BudgetError(f"run {name} is in progress: it cannot be given up")
    try:
        ledger_of(settings).abandon(name)
        folder.erase_key()
    finally:
        folder.release()
