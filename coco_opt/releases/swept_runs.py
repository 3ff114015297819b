"""What stopped commands left of runs: the ledger decides what is erased, and on any doubt nothing is deleted.

Cleaning up is a duty of whichever command opens the private folder next, not only of the one that made the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from coco_opt.errors import BudgetError, CocoOptError, InputError, Place
from coco_opt.files.measurement import read_measurement
from coco_opt.files.scratch import remove_spilled
from coco_opt.privacy.ledger import Ledger
from coco_opt.privacy.ledger_chain import Run
from coco_opt.privacy.measurement import Measurement
from coco_opt.privacy.private_files import FREE, foreign
from coco_opt.privacy.run_folder import RunFolder

RUNS = "runs"
_WAYS_ON = (
    ". If there is no copy, move the folder runs/{0}/measurement away and measure again: the key draws the same noise, "
    "for free. Or give the run up with 'coco-opt ledger CONFIG --abandon {0}': what it paid stays spent"
)


@dataclass(frozen=True, slots=True)
class Swept:
    """Sentences on the keys of runs: those that were ``erased``, those that are ``left`` though nothing needs them.

    Where it is in ``doubt`` whether a run needs its key, nothing was erased.
    """

    erased: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    doubt: tuple[str, ...] = ()


def erase_spent_keys(ledger: Ledger, private: Path) -> Swept:
    """Erase the noise key and the input's fingerprint of every run that measured or was given up; see ``Swept``.

    Only where the ledger's chain, head and witnesses hold, and it knows every run that measured: otherwise nothing is
    erased. A run that another process works on is left to that process.
    """
    root = private / RUNS
    if not root.is_dir() or foreign(private) or foreign(root):
        return Swept()
    with suppress(InputError):  # of a read-only folder: the next command that can write removes it
        remove_spilled(private)
    folders = [folder for folder in _run_folders(root) if folder.has_secrets]
    if not folders:
        return Swept()
    try:
        unknown_runs(ledger, root)
        runs = ledger.books().runs
    except CocoOptError as error:
        keys = ", ".join(folder.name for folder in folders if folder.has_key)
        return Swept(doubt=(_doubt(keys, error),) if keys else ())
    erased, left, doubt = list[str](), list[str](), list[str]()
    for folder in folders:
        try:
            finished = folder.name in runs and _is_finished(folder, runs[folder.name])
        except CocoOptError as error:
            doubt += [_doubt(folder.name, error, _WAYS_ON.format(folder.name))] if folder.has_key else []
            continue
        try:
            if finished and _erased(folder):
                erased.append(folder.name)
        except InputError as error:
            if folder.has_key:
                left.append(
                    f"The noise key of run {folder.name}, which nothing needs any more, is left ({error.message}). "
                    "Whoever reads it takes the noise off: make the folder writable, and run the same again"
                )
    line = f"Erased noise key and input, which earlier commands had left, of run {', '.join(erased)}"
    return Swept((line,) if erased else (), tuple(left), tuple(doubt))


def _doubt(runs: str, error: CocoOptError, ways_on: str = "") -> str:
    return f"The noise key of run {runs} is left, since it is in doubt whether it is needed: {error}{ways_on}"


def _run_folders(root: Path) -> Iterator[RunFolder]:
    names = (path.name for path in sorted(root.iterdir()) if path.is_dir() and not path.name.startswith("."))
    return (RunFolder(root, name) for name in names)


def _is_finished(folder: RunFolder, run: Run) -> bool:
    """Return whether a run needs no key; InputError where its measurement is not what it was paid for, to the byte."""
    if run.state == "RESERVED" and folder.is_sealed:
        read_paid(folder, run)
    return run.state != "RESERVED" or folder.is_sealed


def _erased(folder: RunFolder) -> bool:
    """Erase what a finished run needs no longer; False where another process works on it."""
    if not folder.claim():
        return False
    try:
        folder.erase_secrets()
        return True
    finally:
        folder.release()


def read_paid(folder: RunFolder, run: Run) -> tuple[Measurement, str]:
    """Return the sealed measurement of a run, and its digest; InputError where it is not what the run was paid for."""
    measurement, digest = read_measurement(folder.measurement, run.sealed or None)
    paid = run.sealed or (measurement.receipt, measurement.measurement_plan.digest) == (run.receipt, run.charge.digest)
    if not paid:
        message = f"is not what run {run.name} was paid for: restore the folder of this run. {FREE}"
        raise InputError("damaged-measurement", message, Place(f"{run.name}/{folder.measurement.name}"))
    return measurement, digest


def discard_unpaid(ledger: Ledger, root: Path) -> None:
    """Remove the folders of runs that died before they paid, if the ledger knows every run that measured.

    The caller holds the lock under which runs begin.
    """
    ledger_path = ledger.path.resolve()
    for folder in unknown_runs(ledger, root):
        if _ledger_of_run(folder, ledger_path) == ledger_path and folder.claim():
            folder.discard()


def unknown_runs(ledger: Ledger, root: Path) -> list[RunFolder]:
    """Return the folders of runs that the ledger does not know; BudgetError where one of them measured.

    In that case the ledger is missing, or an older copy, and nothing is deleted.
    """
    paid, ledger_path, unknown = ledger.books().runs, ledger.path.resolve(), []
    for folder in _run_folders(root):
        if folder.name in paid:
            continue
        # The run of another ledger may have paid: its folder names that ledger, which is written before paying.
        recorded = _ledger_of_run(folder, ledger_path)
        if recorded != ledger_path and recorded.exists():
            continue
        if folder.is_bound or folder.is_sealed:
            raise BudgetError(
                f"the ledger {ledger.path.name} does not know run {folder.name}, which measured: it is missing, or an "
                f"older copy. Restore it, or state its path as privacy.ledger; nothing was deleted. {FREE}"
            )
        unknown.append(folder)
    return unknown


def _ledger_of_run(folder: RunFolder, default: Path) -> Path:
    """Return the ledger that a run was reserved in; InputError where the record is damaged, and nothing is deleted."""
    return Path(folder.stored_values("ledger").get("path", default))
