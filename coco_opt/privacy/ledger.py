"""The budget ledger on disk: append-only, a keyed chain, paid before any noise is drawn.

One SQLite file. A reservation is a transaction that holds the only write lock while it checks and pays, so of many
concurrent starts on one budget one succeeds. Next to it lie its key, under which entries carry a MAC, and its head: the
number and hash of the last entry, stored a second time, so that an older or emptied file is refused. Who can write all
three can restore all three: only a witness elsewhere notices that.
"""

from __future__ import annotations

import hmac
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import fields, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import BudgetError, InputError, system_errors_as
from coco_opt.privacy.budget import Unit, stated_fraction
from coco_opt.privacy.ledger_chain import Account, Books, Charge, Entry, FileWitness, Head, Kind, Run, Witness, advance
from coco_opt.privacy.private_files import FREE, foreign, read_record, sync_folder, write_record
from coco_opt.privacy.run_key import KEY_BYTES

_WAIT = 60.0  # seconds to wait for another process's transaction of some milliseconds
_FORMAT = 3
_COLUMNS = tuple(column.name for column in fields(Entry))
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS entries (sequence INTEGER PRIMARY KEY, kind TEXT NOT NULL, dataset TEXT NOT NULL, "
    "run TEXT NOT NULL, unit TEXT NOT NULL, amount TEXT NOT NULL, neighbours TEXT NOT NULL, digest TEXT NOT NULL, "
    "time TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL UNIQUE, fingerprint TEXT NOT NULL DEFAULT '', "
    "promise TEXT NOT NULL DEFAULT '') STRICT",
    "CREATE TRIGGER IF NOT EXISTS no_update BEFORE UPDATE ON entries "
    "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
    "CREATE TRIGGER IF NOT EXISTS no_delete BEFORE DELETE ON entries "
    "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
    f"PRAGMA user_version = {_FORMAT}",
)


class Ledger:
    """What was spent on which dataset, in a private file.

    Every method raises BudgetError where the budget does not allow it, and where the file cannot be read or
    written or its chain is broken: nothing is spent on a doubtful ledger. Safe between processes and threads,
    and after fork: a connection lives for one transaction.
    """

    def __init__(self, path: str | Path, witness: Witness | None = None) -> None:
        self.path = Path(path)
        self._key_path = self.path.with_name(f"{self.path.name}.key")
        own = FileWitness(self.path.with_name(f"{self.path.name}.head"))
        self._witnesses: tuple[Witness, ...] = (own,) if witness is None else (own, witness)

    def fingerprint(self, arrays: Iterable[Ints]) -> str:
        """Return a keyed digest of a private table's canonical form: who lacks the ledger's key learns nothing.

        Whoever holds that key can test guesses of the table: it is private like the data.
        """
        code = hmac.new(self._key("fingerprint"), digestmod="sha256")
        for array in arrays:
            code.update(array.size.to_bytes(8, "little"))
            code.update(np.ascontiguousarray(array, "<i8").data)
        return code.hexdigest()

    def reserve(self, run: str, charge: Charge, total: Fraction | None = None, *, renamed: bool = False) -> Run:
        """Pay for a run, durably, and return it; the same run with the same charge is returned and pays nothing.

        The first reservation on a dataset grants it ``total`` (its own amount unless given), in the charge's
        unit; afterwards ``total`` must be what the ledger says. Data that were paid for under another dataset's name
        are refused unless ``renamed``: their losses would add up in no account. So is a charge of another promise than
        the account's, unless it accepts the weaker of both.
        """
        with self._writing() as page:
            existing = page.books.runs.get(run)
            if existing is not None:
                return _same(existing, charge, page.books.accounts[charge.dataset])
            if not renamed:
                check_name(charge, page.books)
            account = page.books.accounts.get(charge.dataset)
            if account is None:
                account = page.grant(charge, charge.amount if total is None else total)
            elif total is not None:
                check_total(account, charge.unit, total)
            cost = account.cost(charge)
            page.books.check_promise(charge)
            if cost > account.remaining:
                raise BudgetError(_refusal(account, cost, page.books))
            page.append("RESERVED", replace(charge, unit=account.unit, amount=cost), run, charge.digest)
            return page.books.runs[run]

    def grant(self, dataset: str, amount: Fraction) -> Account:
        """Allow ``amount`` more to be spent on a dataset, in the unit of its account, and return the account."""
        if dataset not in self.books().accounts:
            raise BudgetError(
                f"the ledger does not know dataset {dataset!r} yet: its first measurement opens it, with privacy.total"
            )
        with self._writing() as page:
            account = page.books.accounts[dataset]
            return page.grant(Charge(dataset, account.unit, amount, account.neighbours, ""), amount)

    def measured(self, run: str, sealed: str) -> None:
        """Record the digest of a run's sealed measurement; twice is once, another digest is refused."""
        self._advance(run, "MEASURED", sealed)

    def released(self, run: str, output: str) -> None:
        """Record the digest of a release made of a run's measurement; each is recorded once."""
        self._advance(run, "RELEASED", output)

    def abandon(self, run: str) -> None:
        """Record that a run will not be finished; what it paid stays spent."""
        self._advance(run, "ABANDONED", "")

    def void(self, run: str) -> None:
        """Record that a run's key met no data and is destroyed; what it paid comes back, its name is used up."""
        self._advance(run, "VOIDED", "")

    def entries(self) -> list[Entry]:
        """Return all entries as they lie in the file, their chain unchecked; none where there is no file."""
        if not os.path.lexists(self.path):
            return []
        with self._connection_to_file() as connection:
            return _read(connection)

    def chain(self) -> Books:
        """Return empty books that verify this ledger's entries as they are added; see ``check_witnesses``."""
        begun = os.path.lexists(self._key_path) or self.entries()
        return Books(key=self._key("entries") if begun else None)

    def check_witnesses(self, books: Books, entries: list[Entry]) -> Books:
        """Return books that every entry was added to; BudgetError where a stored head shows that some are gone.

        Nothing was deleted then, and nothing is: an older copy is put right by restoring the newest copy.
        """
        for witness in self._witnesses:
            if problem := witness.contradicts(books.length, [entry.hash for entry in entries]):
                raise BudgetError(
                    f"the ledger {self.path.name} is missing, emptied or an older copy: {problem}. Restore the newest "
                    f"one; nothing was deleted. {FREE}"
                )
        return books

    def books(self) -> Books:
        """Return verified accounts and runs; BudgetError where the chain is broken, or a part of it is gone."""
        while True:
            entries = self.entries()
            try:
                return self._verified(entries)
            except BudgetError:
                # Another process may have written, and updated the witnesses, since the entries were read.
                if len(self.entries()) == len(entries):
                    raise

    def _verified(self, entries: list[Entry]) -> Books:
        books = self.chain()
        for entry in entries:
            books.add(entry)
        return self.check_witnesses(books, entries)

    def _key(self, purpose: str) -> bytes:
        """Return a key of the ledger for one purpose, from one secret that is drawn at the first call."""
        if not os.path.lexists(self._key_path):
            if self.entries():
                name = self._key_path.name
                raise BudgetError(
                    f"{name}, the key under which the ledger was written, is gone: restore it from a backup. {FREE}. "
                    "If it is lost for good, state a new file as privacy.ledger, and as privacy.total what is left of "
                    "the budget: each measurement in private/runs states its cost (see docs/howto/ledger.md)"
                )
            _draw_key(self._key_path)
        return hmac.digest(read_record(self._key_path), f"coco-opt ledger {purpose}".encode(), "sha256")

    def _advance(self, run: str, kind: Kind, digest: str) -> None:
        with self._writing() as page:
            existing = page.books.runs.get(run)
            if existing is None:
                raise BudgetError(f"run {run} has no reservation in {self.path.name}")
            if kind == "MEASURED" and existing.sealed and existing.sealed != digest:
                raise BudgetError(f"run {run} was {kind} with another content: noise is drawn once for a payment")
            recorded = {"MEASURED": (existing.sealed,), "RELEASED": existing.outputs}.get(kind, ())
            if digest not in recorded:
                advance(existing, kind, digest)
                page.append(kind, existing.charge, run, digest)

    @contextmanager
    def _writing(self) -> Iterator[_Page]:
        """Open the books for one transaction; the witnesses receive its new head once it is on disk."""
        key = self._key("entries")
        if not os.path.lexists(self.path):
            self._verified([])
        _create(self.path)
        with self._connection_to_file() as connection:
            connection.execute("BEGIN IMMEDIATE")
            entries = _read(connection)
            for statement in _SCHEMA:
                connection.execute(statement)
            page = _Page(connection, self._verified(entries), key)
            before = page.books.length
            yield page
            connection.execute("COMMIT")
        if page.books.length > before:
            for witness in self._witnesses:
                witness.remember(Head(page.books.length, page.books.head))

    @contextmanager
    def _connection_to_file(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction, which is rolled back unless it was committed."""
        if reason := foreign(self.path):
            raise BudgetError(f"the ledger {self.path.name} {reason}")
        failure = ""
        try:
            uri = f"{self.path.resolve().as_uri()}?mode=rw"
            with closing(sqlite3.connect(uri, uri=True, timeout=_WAIT, isolation_level=None)) as connection:
                # EXTRA is FULL that also makes the end of the journal durable: a payment never comes undone.
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.execute("PRAGMA journal_mode = DELETE")
                yield connection
        except (sqlite3.Error, UnicodeDecodeError) as error:
            # Errors of the module itself, as for text that is no UTF-8, have no name of SQLite's. A damaged name of a
            # table, which SQLite's message would quote, raises a bare UnicodeDecodeError.
            failure = getattr(error, "sqlite_errorname", None) or type(error).__name__
        if failure:
            raise BudgetError(f"the ledger {self.path.name} cannot be used ({failure}): {_way_on(failure)}. {FREE}")

    def __repr__(self) -> str:
        return f"Ledger({self.path.name!r})"


class _Page:
    """A transaction's connection, the books it may append to, and the key of their entries."""

    def __init__(self, connection: sqlite3.Connection, books: Books, key: bytes) -> None:
        self._connection = connection
        self.books = books
        self._key = key

    def grant(self, charge: Charge, amount: Fraction) -> Account:
        self.append("GRANTED", replace(charge, amount=amount), "", "")
        return self.books.accounts[charge.dataset]

    def append(self, kind: Kind, charge: Charge, run: str, digest: str) -> None:
        charged = charge.dataset, run, charge.unit, charge.amount, charge.neighbours
        paying = kind == "RESERVED"
        fingerprint = charge.fingerprint if paying else ""
        promise = json.dumps(charge.promise.as_dict()) if paying and charge.promise is not None else ""
        written = digest, now(), self.books.head, fingerprint, promise
        entry = Entry(self.books.length + 1, kind, *charged, *written).keyed(self._key)
        self.books.add(entry)
        marks = ", ".join(f":{name}" for name in _COLUMNS)
        self._connection.execute(f"INSERT INTO entries ({', '.join(_COLUMNS)}) VALUES ({marks})", entry.as_dict())


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _draw_key(path: Path) -> None:
    """Draw a key and keep it; of several processes the first one's key counts."""
    try:
        write_record(path, os.urandom(KEY_BYTES))
        return
    except InputError as error:
        if error.code == "file-exists":
            return
        failure = error.message
    raise BudgetError(f"the key of a ledger, {path.name}, cannot be made in {path.parent}: {failure}")


def _create(path: Path) -> None:
    """Make an empty file only its owner can read, before SQLite makes a file that others can read."""
    with (
        system_errors_as(
            lambda reason: BudgetError(f"the ledger {path.name} cannot be made in {path.parent}: {reason}")
        ),
        suppress(FileExistsError),
    ):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        sync_folder(path.parent)


def _read(connection: sqlite3.Connection) -> list[Entry]:
    """Return the entries, none of an empty file; BudgetError where it holds something else, such as another format."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == _FORMAT:
        rows = connection.execute(f"SELECT {', '.join(_COLUMNS)} FROM entries ORDER BY sequence")
        return [_entry(row) for row in rows.fetchall()]
    if version or connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise BudgetError(
            f"this file is not a ledger of the format {_FORMAT}, which this version of coco-opt reads, and no new one "
            "is begun in its place. If it is one of an earlier format, state a new file as privacy.ledger, and as "
            "privacy.total what is left of the budget"
        )
    return []


def _way_on(failure: str) -> str:
    """Return what to do about an error of SQLite."""
    if failure in ("SQLITE_BUSY", "SQLITE_LOCKED"):
        return "another process holds it, try again"
    if failure == "SQLITE_FULL" or failure.startswith("SQLITE_IOERR"):
        return "free space on its disk, or repair it"
    return "if trying again does not help, restore it from a copy"


def _entry(row: tuple[Any, ...]) -> Entry:
    stated = dict(zip(_COLUMNS, row, strict=True))
    amount = stated_fraction(stated.pop("amount"))
    # No amount that was ever written: the hash will not match.
    return Entry(amount=Fraction(-1) if amount is None else amount, **stated)


def _same(run: Run, charge: Charge, account: Account) -> Run:
    """Return a run that is resumed; BudgetError where another charge goes by its name."""
    if run.state in ("ABANDONED", "VOIDED"):
        raise BudgetError(f"run {run.name} was {run.state.lower()} and cannot be resumed")
    if (run.charge.dataset, run.charge.digest) != (charge.dataset, charge.digest) or run.cost != account.cost(charge):
        raise BudgetError(f"run {run.name} was reserved for other queries or another budget")
    return run


def check_name(charge: Charge, books: Books) -> None:
    """Raise BudgetError where the same data were paid for under other names, and never under this name."""
    names = books.fingerprints.get(charge.fingerprint, set())
    if names and charge.dataset not in names:
        raise BudgetError(
            f"the ledger knows these data as dataset {min(names)!r}: state that as privacy.dataset. Under the name "
            f"{charge.dataset!r} what they lose would be counted in two accounts; if that is meant, measure them with "
            "'coco-opt measure CONFIG --renamed'"
        )


def check_total(account: Account, unit: Unit, total: Fraction) -> None:
    """Raise BudgetError where a stated total is not what the ledger grants."""
    if unit != account.unit or total != account.total:
        raise BudgetError(
            f"privacy.total says {unit} = {total}, but the ledger grants dataset {account.dataset!r} "
            f'{account.unit} = {account.total}: write total = "{account.total}", or leave it out; \'coco-opt ledger '
            "CONFIG --grant AMOUNT' grants more"
        )


def _refusal(account: Account, cost: Fraction, books: Books) -> str:
    waiting = [run.name for run in books.runs.values() if run.unfinished and run.charge.dataset == account.dataset]
    hint = f"; paid for and not yet released: {', '.join(waiting)}" if waiting else ""
    instead = f"request at most {account.remaining}, or " if account.remaining > 0 else ""
    return (
        f"{account.unit} = {cost} was requested of dataset {account.dataset!r}, and {account.remaining} of "
        f"{account.total} is left: a spent budget does not come back; {instead}allow more with "
        f"'coco-opt ledger CONFIG --grant AMOUNT'{hint}"
    )
