"""Runs that spend budget: paid when everything is checked, measured once, and resumed for free wherever they stop.

The steps: RESERVED in the ledger, the input bound to the run, noise under the run's own key, the seal, the key erased,
MEASURED. A run that stopped anywhere is resumed by the next call with the same queries on the same data.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from coco_opt.array_types import Ints
from coco_opt.config.load import nearby_configs
from coco_opt.config.model import Config
from coco_opt.errors import BudgetError, CocoOptError, InputError
from coco_opt.files.measurement import read_measurement, write_measurement
from coco_opt.privacy.ledger import Ledger, check_name, check_total
from coco_opt.privacy.ledger_chain import Books, Charge, CommandWitness, FileWitness, Run
from coco_opt.privacy.measurement import Drawing, Measurement, MeasurementPlan
from coco_opt.privacy.private_files import FREE, FileLock, make_private_folder, remove_leftovers
from coco_opt.privacy.run_folder import RunFolder, noise_key
from coco_opt.privacy.run_key import RunKey
from coco_opt.releases.kind import promise_of
from coco_opt.releases.storage import new_run_id, open_private_folder
from coco_opt.releases.swept_runs import RUNS, Swept, discard_unpaid, erase_spent_keys, read_paid, unknown_runs

LEDGER = "ledger.sqlite"
_SHOWN = 3

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
        """Return whether the measurement exists: then nothing private is needed any more."""
        return self.folder.is_sealed or self._run.state != "RESERVED"

    def measurement(self, fingerprint: str, draw: Draw) -> Measurement:
        """Return the sealed measurement as read back from disk; if it is not sealed yet, draw and write it first.

        ``draw`` takes the key of this run's noise on this input: any other input would have other noise. The key is
        erased once the sealed measurement was read back, before the ledger calls the run measured: no measured run has
        a key, wherever a process dies. Raises InputError (lost-key, file-not-found, damaged-measurement) where a
        resumed run's files are not what it left.
        """
        if self.measured:
            measurement, digest = read_paid(self.folder, self._run)
        else:
            measurement, digest = read_measurement(self.folder.measurement, *self._seal(fingerprint, draw))
        self.folder.erase_secrets()
        self._ledger.measured(self.name, digest)
        return measurement

    def _seal(self, fingerprint: str, draw: Draw) -> tuple[str, MeasurementPlan]:
        """Draw the noise and seal the measurement; return the digest of its index, and its plan."""
        if not self.folder.has_key:
            raise InputError(
                "lost-key",
                f"the noise key of run {self.name} is gone and nothing was sealed: restore the private folder, or "
                f"give the run up with 'coco-opt ledger CONFIG --abandon {self.name}' (what it paid stays spent)",
            )
        self.folder.bind(fingerprint.encode())
        key = self.folder.key()
        noise = noise_key(key, self._run.charge.digest, fingerprint)
        try:
            drawn = replace(draw(noise), receipt=self._run.receipt)
            return write_measurement(self.folder.measurement, drawn, private=True), drawn.measurement_plan
        finally:
            noise.erase()
            key.erase()


def ledger_path(config: Config) -> Path:
    """Return where the configured ledger lies, by default in the private folder."""
    return config.privacy.ledger or config.output.private / LEDGER


def ledger_of(config: Config) -> Ledger:
    """Return the configured ledger, with the witness of its head."""
    witness = config.privacy.witness
    remote = FileWitness(witness) if isinstance(witness, Path) else None if witness is None else CommandWitness(witness)
    return Ledger(ledger_path(config), remote)


def dataset_of(config: Config) -> str:
    """Return the ledger's name of the data."""
    return config.privacy.dataset or config.name


def new_account(config: Config, fingerprint: str, *, renamed: bool) -> str:
    """Return the message for a payment that opens an account, which no other ledger may have; "" elsewhere.

    Where the ledger knows the data by another name, an account is opened only if they are ``renamed``.
    """
    ledger, dataset = ledger_of(config), dataset_of(config)
    books = ledger.books()
    accounts = books.accounts
    if dataset in accounts or (fingerprint in books.fingerprints and not renamed):
        return ""
    _check_one_ledger(config)
    return f"This opens the account of dataset {dataset!r} in {ledger.path.name}: {elsewhere(accounts)}"


def _check_one_ledger(config: Config) -> None:
    """Refuse to open an account that the ledger of a configuration nearby has: losses would add up in neither."""
    if config.privacy.ledger is not None or config.privacy.noise == "seeded":
        return
    here, dataset = ledger_path(config).resolve(), dataset_of(config)
    for path, other in nearby_configs(config.output.private.parent).items():
        there = ledger_path(other)
        if dataset_of(other) != dataset or there.resolve() == here or not there.is_file():
            continue
        # Without its witness: that may be a command, and nobody asked to run one of another configuration.
        if dataset in Ledger(there).books().accounts:
            raise BudgetError(
                f"dataset {dataset!r} has an account in the ledger of {path}: state {there} as privacy.ledger, or, if "
                "these are other persons, another privacy.dataset"
            )


def elsewhere(accounts: Collection[str]) -> str:
    """Return what to do if a new account, next to others, is not the first of its people."""
    words = "if these data were released before, by another ledger, state that as privacy.ledger"
    if not accounts:
        return words
    names = ", ".join(map(repr, sorted(accounts)[:_SHOWN])) + (", ..." if len(accounts) > _SHOWN else "")
    return (
        f"{words}; if they are of the same people as {names}, state that name as privacy.dataset: losses add up by name"
    )


def charge_for(config: Config, measurement_plan: MeasurementPlan, fingerprint: str) -> Charge:
    """Return what a measurement spends on which data, bound to its queries, its private table and its promise."""
    cost, promise, weaker = measurement_plan.cost, promise_of(measurement_plan), config.privacy.weaker_promise
    dataset, digest = dataset_of(config), measurement_plan.digest
    return Charge(dataset, cost.unit, cost.amount, promise.neighbours, digest, fingerprint, promise, weaker)


def fingerprint_of(config: Config, private: Iterable[Ints]) -> str:
    """Return the ledger's keyed digest of a private table's canonical form, hexadecimal; see ``Ledger.fingerprint``.

    Raises InputError and BudgetError where the ledger or its key were changed.
    """
    with _start_lock(open_private_folder(config.output.private) / RUNS) as root:
        ledger = ledger_of(config)
        unknown_runs(ledger, root)
        return ledger.fingerprint(private)


def sweep(config: Config, report: Callable[[str], None]) -> Swept:
    """Erase the keys that stopped commands left of finished runs, and report that; see ``erase_spent_keys``."""
    swept = erase_spent_keys(ledger_of(config), config.output.private)
    for line in (*swept.erased, *swept.left, *swept.doubt):
        report(line)
    return swept


@contextmanager
def _start_lock(root: Path) -> Iterator[Path]:
    """Hold the lock under which runs begin, and create the folder of runs."""
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
    config: Config, measurement_plan: MeasurementPlan, fingerprint: str, *, again: bool = False, renamed: bool = False
) -> Iterator[PaidRun]:
    """Resume the run of these queries on this data, or start and pay for one.

    With ``again``, a run that was measured already is left alone and another run is paid for; with ``renamed``, data
    that the ledger knows by another name are paid for under this name too. Raises BudgetError where the budget does not
    allow it, and InputError (input-changed) where the same queries were measured on other data under this dataset's
    name; both before anything is spent.
    """
    ledger, charge = ledger_of(config), charge_for(config, measurement_plan, fingerprint)
    with _start_lock(open_private_folder(config.output.private) / RUNS) as root:
        discard_unpaid(ledger, root)
        if left := erase_spent_keys(ledger, root.parent).left:
            raise InputError("cannot-write", f"{left[0]}. {FREE}")
        folder = _earlier_run(ledger, root, charge, again=again)
        resumed = folder is not None
        if folder is None:
            folder = _new_run(ledger, root, charge, config, renamed=renamed)
    try:
        # Another process may have continued it before we had the lock: the ledger says how far it got.
        yield PaidRun(ledger, folder, ledger.books().runs[folder.name], resumed=resumed)
    finally:
        folder.release()


def _earlier_run(ledger: Ledger, root: Path, charge: Charge, *, again: bool) -> RunFolder | None:
    """Return the claimed folder of a run of the same queries on this data, None without one.

    If a run that was paid for cannot be resumed, an error says what to restore: only ``again`` may pay for the same
    twice. A reservation for other data that was never bound to them is voided: its amount comes back.
    """
    same, others = _runs_of(ledger.books(), root, charge, again=again)
    if same is None:
        changed = [run for run in others if not void_run(ledger, RunFolder(root, run.name), run)]
        if changed and not again:
            raise _input_changed(changed[-1].name, charge.dataset)
        return None
    folder = RunFolder(root, same.name)
    if not folder.claim():
        raise BudgetError(f"run {same.name} measures the same and is in progress: wait for it, then go on for free")
    return folder


def _runs_of(books: Books, root: Path, charge: Charge, *, again: bool) -> tuple[Run | None, list[Run]]:
    """Return the run to resume of the same queries on this data, None without one, and their runs on other data.

    With ``again``, runs that measured are left alone. Raises InputError (measurement-gone) where files are missing.
    """
    others: list[Run] = []
    for run in books.runs.values():
        folder = RunFolder(root, run.name)
        same = (run.charge.dataset, run.charge.digest) == (charge.dataset, charge.digest) and run.counts
        if not same or (again and _is_measured(run, folder)):
            continue
        if run.charge.fingerprint != charge.fingerprint:
            others.append(run)
        elif _is_measured(run, folder) and not folder.is_sealed:
            raise InputError(
                "measurement-gone",
                f"run {run.name} was paid to measure these queries, and its files are gone: restore the private "
                "folder, or measure again with 'coco-opt measure CONFIG --again', which pays",
            )
        else:
            return run, others
    return None, others


def refuse_other_data(
    config: Config, measurement_plan: MeasurementPlan, fingerprint: str, *, again: bool = False, renamed: bool = False
) -> None:
    """Raise what ``opened_run`` would raise about the data; the ledger is only read.

    Raises InputError (input-changed, measurement-gone), and BudgetError where the ledger knows the data by another
    name.
    """
    books, charge = ledger_of(config).books(), charge_for(config, measurement_plan, fingerprint)
    root = config.output.private / RUNS
    same, others = _runs_of(books, root, charge, again=again)
    if same is not None:
        return
    # Where a key was bound to no data, the reservation is voided, and the amount comes back.
    folders = [(run, RunFolder(root, run.name)) for run in others]
    changed = [run for run, folder in folders if _is_measured(run, folder) or folder.is_bound]
    if changed and not again:
        raise _input_changed(changed[-1].name, charge.dataset)
    if not renamed:
        check_name(charge, books)


def _input_changed(run: str, dataset: str) -> InputError:
    return InputError(
        "input-changed",
        f"these queries were measured already, on other data, in run {run} of dataset {dataset!r}. Restore the private "
        "table and go on for free; or, if it was meant to change, measure it with 'coco-opt measure CONFIG --again', "
        "which pays; or give the data of other people another privacy.dataset",
    )


def void_run(ledger: Ledger, folder: RunFolder, run: Run) -> bool:
    """Return the reserved amount of a run whose key was bound to no data, and erase the key; False where it may be.

    The binding is written before the first noise: without a binding, no noise was drawn.
    """
    if run.state != "RESERVED" or not folder.path.is_dir() or not folder.claim():
        return False
    try:
        if folder.is_bound or folder.is_sealed:
            return False
        folder.erase_secrets()
        ledger.void(run.name)
        return True
    finally:
        folder.release()


def _is_measured(run: Run, folder: RunFolder) -> bool:
    """Return whether noise was drawn and sealed: then it is estimated for free, and never drawn again."""
    return run.state != "RESERVED" or folder.is_sealed or not folder.path.is_dir()


def _new_run(ledger: Ledger, root: Path, charge: Charge, config: Config, *, renamed: bool) -> RunFolder:
    """Draw a key, pay, and return the claimed folder; where the budget does not allow it, leave nothing behind.

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


@dataclass(frozen=True, slots=True)
class PaymentStatus:
    """Whether the budget allows the measurement (``fits``), and in ``words`` why; ``left`` of ``total`` before it.

    Both are exact amounts of the account's ``unit``, None where no account is open or nothing private is paid. ``run``
    was paid to measure the same before; None without one. ``promise`` says for what the sum, this payment included, is
    a guarantee.
    """

    fits: bool
    words: str
    promise: str
    unit: str | None = None
    left: str | None = None
    total: str | None = None
    run: str | None = None

    def as_dict(self) -> dict[str, bool | str | None]:
        """Return plain values, without the run."""
        return {name: value for name, value in asdict(self).items() if name != "run"}


def payment_status_of(
    config: Config, measurement_plan: MeasurementPlan, fingerprint: str | None = None
) -> PaymentStatus:
    """Return the state of the budget before these queries are paid for.

    They are free where the same was measured of the same data. Only the ``fingerprint`` of the private table shows
    that; without it, a run of the same queries is named. Raises BudgetError where the ledger is damaged.
    """
    promise = promise_of(measurement_plan)
    if config.privacy.noise == "seeded":
        words = "nothing: seeded noise is NOT PRIVATE and pays nothing"
        return PaymentStatus(fits=True, words=words, promise=promise.words)
    books, name, total = ledger_of(config).books(), dataset_of(config), config.privacy.total
    charge, account = charge_for(config, measurement_plan, ""), books.accounts.get(name)
    promised = books.promise_words(name, promise) or books.promise_words(name)
    if account is None:
        try:
            _check_one_ledger(config)
        except BudgetError as error:
            return PaymentStatus(fits=False, words=f"DOES NOT FIT: {error} [{BudgetError.code}]", promise=promised)
        granted = charge.amount if total is None else total
        words = f"fits: dataset {name!r} has no account yet, and this opens one of {charge.unit} = {granted}; "
        words += elsewhere(books.accounts)
        return PaymentStatus(fits=True, words=words, promise=promised)
    amounts = {"promise": promised, "unit": account.unit, "left": str(account.remaining), "total": str(account.total)}
    earlier = [run for run in books.runs.values() if (run.charge.dataset, run.charge.digest) == (name, charge.digest)]
    earlier = [run for run in earlier if run.counts and fingerprint in (None, run.charge.fingerprint)]
    left = f"{account.remaining} of {account.unit} = {account.total} is left of dataset {name!r}"
    if earlier:
        unless, run = ", unless the data changed" if fingerprint is None else "", earlier[-1].name
        words = f"nothing{unless}: run {run} was paid to measure the same. {left}"
        return PaymentStatus(fits=True, words=words, run=run, **amounts)
    try:
        cost = account.cost(charge)
        books.check_promise(charge)
        if total is not None:
            check_total(account, charge.unit, total)
    except BudgetError as error:
        return PaymentStatus(fits=False, words=f"DOES NOT FIT: {error} [{BudgetError.code}]", **amounts)
    if cost <= account.remaining:
        return PaymentStatus(fits=True, words=f"fits: {left}", **amounts)
    advice = "measure less, or allow more with  coco-opt ledger CONFIG --grant AMOUNT"
    words = f"DOES NOT FIT: {left}, a spent budget does not come back: {advice} [{BudgetError.code}]"
    return PaymentStatus(fits=False, words=words, **amounts)
