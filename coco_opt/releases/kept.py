"""Measurements that are kept in the private folder: found again, finished, given up and forgotten."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from coco_opt.config.model import Config
from coco_opt.errors import BudgetError
from coco_opt.files.measurement import read_measurement
from coco_opt.privacy.ledger_chain import Run
from coco_opt.privacy.measurement import Measurement
from coco_opt.privacy.run_folder import RunFolder
from coco_opt.releases.runs import RUNS, ledger_of, void_run

SEEDED = "seeded"


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
        if Path(name).name == name and path.is_dir():
            return path
    return None


def read_kept(config: Config, folder: Path) -> tuple[Measurement, str | None]:
    """Return the measurement of a folder, and the run that paid for it: None where it is no run's of this ledger.

    That of a run must be what was sealed, and its run must not be given up. Where the run stopped before it said that
    it had measured, that is said now, and its key erased. Raises BudgetError, and InputError where files are damaged.
    """
    name = folder.resolve().parent.name
    kept = RunFolder(config.output.private / RUNS, name)
    run = ledger_of(config).books().runs.get(name)
    if run is None or not kept.is_sealed or not kept.measurement.samefile(folder):
        return read_measurement(folder)[0], None
    if run.state == "ABANDONED":
        raise BudgetError(f"run {name} was given up: its measurement is no basis of a release")
    measurement, digest = read_measurement(folder, run.sealed or None)
    if run.state == "RESERVED":
        with _held(kept, "go on with it when it is done, which is free"):
            ledger_of(config).measured(name, digest)
            kept.erase_key()
    return measurement, name


def abandon_run(config: Config, name: str) -> None:
    """Give a run up that measured nothing, and erase its noise key.

    What it paid comes back if its key never met the data, and stays spent otherwise. Raises BudgetError where it is
    unknown, in progress or measured.
    """
    run = ledger_of(config).books().runs.get(name)
    folder = RunFolder(config.output.private / RUNS, name)
    if run is None:
        raise BudgetError(f"run {name} has no reservation in {ledger_of(config).path.name}")
    if run.state != "RESERVED" or folder.is_sealed:
        raise BudgetError(f"run {name} is {run.state}: estimate what it measured for free, or --forget it")
    if void_run(ledger_of(config), folder, run):
        return
    with _held(folder, "it cannot be given up"):
        ledger_of(config).abandon(name)
        folder.erase_key()


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
    if run is None or not folder.is_sealed:
        raise BudgetError(f"there is no measurement of a run {name} in {config.output.private.name}")
    with _held(folder, "its measurement is needed"):
        if run.state == "RESERVED":
            raise BudgetError(f"run {name} is not finished: go on with it first, which is free")
        folder.forget()


def forget_before(config: Config, day: date) -> tuple[str, ...]:
    """Delete the measurements of all finished runs that began before a day (UTC), and return their names.

    Raises BudgetError where one is in progress: what was deleted before it stays so.
    """
    start = f"{day:%Y%m%d}T"
    old = [known for known in known_runs(config) if known.folder is not None and known.name < start]
    forgotten = [known.name for known in old if known.run is None or known.run.state != "RESERVED"]
    for name in forgotten:
        forget_run(config, name)
    return tuple(forgotten)


@contextmanager
def _held(folder: RunFolder, otherwise: str) -> Iterator[None]:
    """Hold the lock of a run's folder, if it is there; BudgetError where another process does."""
    there = folder.path.is_dir()
    if there and not folder.claim():
        raise BudgetError(f"run {folder.name} is in progress: {otherwise}")
    try:
        yield
    finally:
        folder.release()
