"""Measurements that are stored in the private folder: find, finish, abandon and forget them; what they guarantee.

The ledger adds up epsilon or rho, and of a run's queries it knows only the digest. The queries stand in the sealed
measurement, whose digest the ledger holds too: while that is kept, their privacy loss distributions compose to less
than what the sum implies. This holds for queries that were fixed beforehand. The sum, below a total that was fixed
beforehand, also holds where later queries were chosen by earlier answers (Feldman and Zrnic 2021; Whitehouse, Ramdas,
Rogers and Wu 2023); therefore a payment is checked against the sum.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from coco_opt.config.model import Config
from coco_opt.errors import BudgetError, InputError
from coco_opt.files.folder import file_digest
from coco_opt.files.measurement import INDEX, query_from_dict, read_index, read_measurement
from coco_opt.privacy.combined_measurements import together
from coco_opt.privacy.composition import Composition
from coco_opt.privacy.cost import COSTS
from coco_opt.privacy.ledger_chain import Account, Run
from coco_opt.privacy.measurement import Measurement
from coco_opt.privacy.queries import LevelQuery
from coco_opt.privacy.run_folder import RunFolder
from coco_opt.releases.runs import ledger_of, void_run
from coco_opt.releases.swept_runs import RUNS, read_paid, unknown_runs

SEEDED = "seeded"
_FINISH = "'coco-opt estimate {0} CONFIG' goes on with it for free, and 'ledger CONFIG --forget {0}' then deletes it"
_DAMAGED = ("damaged-measurement", "unknown-format", "file-not-found")
CHOSEN = "chosen"
"""Under which name a run keeps what its configuration left open and what was chosen from public numbers."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run that the ledger knows, or a seeded run (``run`` is None); ``folder`` is its measurement, None without."""

    name: str
    run: Run | None
    folder: Path | None


def runs_of_ledger(config: Config) -> tuple[StoredRun, ...]:
    """Return the runs of a configuration's ledger in its order, then the stored seeded measurements.

    Raises BudgetError where the ledger's chain is broken.
    """
    paid = ledger_of(config).books().runs
    seeded = config.output.private / SEEDED
    names = sorted(path.name for path in seeded.iterdir()) if seeded.is_dir() else []
    runs = [StoredRun(name, run, stored_measurement(config, name)) for name, run in paid.items()]
    return (*runs, *(StoredRun(name, None, stored_measurement(config, name)) for name in names))


def stored_measurement(config: Config, name: str) -> Path | None:
    """Return where the measurement of a run lies, None where there is none of this name."""
    for root in (RUNS, SEEDED):
        path = RunFolder(config.output.private / root, name).measurement
        if Path(name).name == name and path.is_dir():
            return path
    return None


def read_stored(config: Config, folder: Path) -> tuple[Measurement, str | None]:
    """Return the measurement of a folder, and the run that paid for it: None where no run of this ledger did.

    The measurement of a run must be what was sealed, and the run must not be given up. If the run stopped before it was
    recorded as measured, record that now and erase its key. Raises BudgetError, and InputError where files are damaged.
    """
    name = folder.resolve().parent.name
    run_folder = RunFolder(config.output.private / RUNS, name)
    run = ledger_of(config).books().runs.get(name)
    if run is None or not run_folder.is_sealed or not run_folder.measurement.samefile(folder):
        return read_measurement(folder)[0], None
    if run.state == "ABANDONED":
        raise BudgetError(f"run {name} was given up: its measurement is no basis of a release")
    measurement, digest = read_paid(run_folder, run)
    if run.state == "RESERVED":
        with _locked(run_folder, "go on with it when it is done, which is free"):
            run_folder.erase_secrets()
            ledger_of(config).measured(name, digest)
    # What a look chose is estimated with it: its cost belongs to every release of the run.
    looks = [(RunFolder(config.output.private / RUNS, look.name), look) for look in looks_of(config, name)]
    return together([measurement, *(read_paid(looked, look)[0] for looked, look in looks if looked.is_sealed)]), name


def looks_of(config: Config, name: str) -> tuple[Run, ...]:
    """Return the runs of the looks that chose a run's queries; its sealed measurement names them by their receipt.

    Raises InputError where the measurement is damaged.
    """
    index = read_index(RunFolder(config.output.private / RUNS, name).measurement)
    runs = ledger_of(config).books().runs.values() if "look" in index else ()
    return tuple(run for run in runs if run.receipt == index["look"]["receipt"])


def record_release(config: Config, run: str, digest: str) -> None:
    """Record in the ledger a release that was made of a run's measurement, and of the looks that chose its queries."""
    ledger = ledger_of(config)
    for name in (run, *(look.name for look in looks_of(config, run))):
        ledger.released(name, digest)


def abandon_run(config: Config, name: str) -> None:
    """Give up a run that measured nothing, or whose measurement is damaged beyond use, and erase its noise key.

    Its payment comes back if its key was never bound to data, and stays spent otherwise. Nothing but the key and the
    input's fingerprint is erased. Raises BudgetError where the run is unknown, in progress or measured, and where the
    ledger does not know another run that measured.
    """
    unknown_runs(ledger_of(config), config.output.private / RUNS)
    run = ledger_of(config).books().runs.get(name)
    folder = RunFolder(config.output.private / RUNS, name)
    if run is None:
        raise BudgetError(f"run {name} has no reservation in {ledger_of(config).path.name}")
    if not run.counts:
        raise BudgetError(f"run {name} is given up already")
    if run.state != "RESERVED" or _is_intact(folder, run):
        raise BudgetError(f"run {name} has measured: {_FINISH.format(name)}")
    if void_run(ledger_of(config), folder, run):
        return
    with _locked(folder, "it cannot be given up"):
        folder.erase_secrets()
        ledger_of(config).abandon(name)


def _is_intact(folder: RunFolder, run: Run) -> bool:
    """Return whether a folder has the sealed measurement of its run; InputError where that cannot be seen."""
    try:
        return folder.is_sealed and bool(read_paid(folder, run))
    except InputError as error:
        if error.code not in _DAMAGED:
            raise
    return False


def forget_run(config: Config, name: str) -> None:
    """Delete the measurement of a finished run; its payment stays spent, and it cannot be estimated again.

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
    with _locked(folder, "its measurement is needed"):
        if run.state == "RESERVED":
            raise BudgetError(f"run {name} is not recorded as measured yet: {_FINISH.format(name)}")
        folder.forget()


def forget_before(config: Config, day: date) -> tuple[str, ...]:
    """Delete the measurements of all finished runs that began before a day (UTC), and return their names.

    Raises BudgetError where a run is in progress; measurements deleted before it stay deleted.
    """
    start = f"{day:%Y%m%d}T"
    old = [stored for stored in runs_of_ledger(config) if stored.folder is not None and stored.name < start]
    forgotten = [stored.name for stored in old if stored.run is None or stored.run.state != "RESERVED"]
    for name in forgotten:
        forget_run(config, name)
    return tuple(forgotten)


@contextmanager
def _locked(folder: RunFolder, otherwise: str) -> Iterator[None]:
    """Hold the lock of a run's folder, if the folder exists; BudgetError where another process holds it."""
    exists = folder.path.is_dir()
    if exists and not folder.claim():
        raise BudgetError(f"run {folder.name} is in progress: {otherwise}")
    try:
        yield
    finally:
        folder.release()


@dataclass(frozen=True, slots=True)
class Together:
    """The guarantee of all that was spent on a data set; ``unknown`` are runs whose queries are not stored.

    If there are any of these, only the sum of epsilon or rho counts.
    """

    account: Account
    guaranteed: Composition
    by_sum: Composition
    unknown: tuple[str, ...]


def guarantee_of(account: Account, runs: Iterable[StoredRun]) -> Together | None:
    """Return what the runs of an account guarantee together, None where nothing was spent.

    Runs that were given up count, because noise may have been drawn. Runs that were voided drew none.
    """
    if not account.spent:
        return None
    spent = COSTS[account.unit](account.spent)
    queries: list[LevelQuery] = []
    unknown: list[str] = []
    for stored in runs:
        if stored.run is None or stored.run.state == "VOIDED" or stored.run.charge.dataset != account.dataset:
            continue
        run_queries = _run_queries(stored)
        queries.extend(run_queries or ())
        unknown.extend(() if run_queries else (stored.name,))
    by_sum = Composition(spent, None)
    guaranteed = by_sum if unknown else Composition.of_spent(spent, queries)
    return Together(account, guaranteed, by_sum, tuple(unknown))


def _run_queries(stored: StoredRun) -> Sequence[LevelQuery] | None:
    """Return the queries of a run whose measurement is stored as it was sealed, None where they are not known.

    A damaged measurement is not known either: the run is named, and the sum that counts instead is never less.
    """
    if stored.run is None or stored.folder is None or not stored.run.sealed:
        return None
    try:
        if file_digest(stored.folder / INDEX) != stored.run.sealed:
            return None
        return [query_from_dict(plain) for plain in read_index(stored.folder)["questions"]]
    except InputError:
        return None
