"""The budget ledger on disk: append-only, hash-chained, paid before private data is opened, and never refunded.

One SQLite file. A reservation is a transaction that holds the only write lock while it checks and pays, so of many
concurrent starts on one budget one succeeds. The chain shows entries that were changed, or removed from the middle;
that the last ones were cut off, or the file replaced by an older copy, shows only to who kept a later ``head``.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from coco_opt.errors import BudgetError
from coco_opt.privacy.budget import Neighbours, Unit
from coco_opt.privacy.ledger_chain import Account, Books, Charge, Entry, Kind, Run, advance
from coco_opt.privacy.private_files import readable_by_others, sync_folder

_WAIT = 60.0  # seconds to wait for another process's transaction of some milliseconds
_FORMAT = 1
_COLUMNS = "sequence, kind, dataset, run, unit, amount, neighbours, digest, time, previous, hash"
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS entries (sequence INTEGER PRIMARY KEY, kind TEXT NOT NULL, dataset TEXT NOT NULL, "
    "run TEXT NOT NULL, unit TEXT NOT NULL, amount TEXT NOT NULL, neighbours TEXT NOT NULL, digest TEXT NOT NULL, "
    "time TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL UNIQUE) STRICT",
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

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def reserve(self, run: str, charge: Charge, total: Fraction | None = None) -> Run:
        """Pay for a run, durably, and return it; the same run with the same charge is returned and pays nothing.

        The first reservation on a dataset grants it ``total`` (its own amount unless given), in the charge's
        unit; afterwards ``total`` must be what the ledger says.
        """
        with self._writing() as page:
            known = page.books.runs.get(run)
            if known is not None:
                return _same(known, charge, page.books.accounts[charge.dataset])
            account = page.books.accounts.get(charge.dataset)
            if account is None:
                account = page.grant(charge, charge.amount if total is None else total)
            elif total is not None:
                _check_total(account, charge.unit, total)
            cost = account.cost(charge)
            if cost > account.left:
                raise BudgetError(_refusal(account, cost, page.books))
            page.append("RESERVED", replace(charge, unit=account.unit, amount=cost), run, charge.digest)
            return page.books.runs[run]

    def grant(self, dataset: str, amount: Fraction, unit: Unit, neighbours: Neighbours) -> Account:
        """Allow ``amount`` more to be spent on a dataset, and return its account."""
        with self._writing() as page:
            charge = Charge(dataset, unit, amount, neighbours, "")
            account = page.books.accounts.get(dataset)
            if account is not None and (account.unit, account.neighbours) != (unit, neighbours):
                raise BudgetError(
                    f"the ledger counts dataset {dataset!r} in {account.unit} for neighbours {account.neighbours!r}"
                )
            return page.grant(charge, amount)

    def measured(self, run: str, sealed: str) -> None:
        """Record the digest of a run's sealed measurement; twice is once, another digest is refused."""
        self._advance(run, "MEASURED", sealed)

    def released(self, run: str, output: str) -> None:
        """Record the digest of a release made of a run's measurement; each is recorded once."""
        self._advance(run, "RELEASED", output)

    def abandon(self, run: str) -> None:
        """Record that a run will not be finished; what it paid stays spent."""
        self._advance(run, "ABANDONED", "")

    def entries(self) -> list[Entry]:
        """Return all entries as they lie in the file, unchecked; none where there is no file."""
        if not self.path.exists():
            return []
        with self._connected() as connection:
            return _read(connection) if _has_table(connection) else []

    def books(self) -> Books:
        """Return verified accounts and runs; BudgetError where the chain is broken."""
        return Books(self.entries())

    def _advance(self, run: str, kind: Kind, digest: str) -> None:
        with self._writing() as page:
            known = page.books.runs.get(run)
            if known is None:
                raise BudgetError(f"run {run} has no reservation in {self.path.name}")
            if kind == "MEASURED" and known.sealed and known.sealed != digest:
                raise BudgetError(f"run {run} was {kind} with another content: noise is drawn once for a payment")
            recorded = {"MEASURED": (known.sealed,), "RELEASED": known.outputs, "ABANDONED": ()}[kind]
            if digest not in recorded or kind == "ABANDONED":
                advance(known, kind, digest)
                page.append(kind, known.charge, run, digest)

    @contextmanager
    def _writing(self) -> Iterator[_Page]:
        _create(self.path)
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            if not _has_table(connection):
                for statement in _SCHEMA:
                    connection.execute(statement)
            yield _Page(connection, Books(_read(connection)))
            connection.execute("COMMIT")

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction, which is rolled back unless it was committed."""
        if readable_by_others(self.path):
            raise BudgetError(f"others can read the ledger {self.path.name}: run chmod 600 on it")
        failure = ""
        try:
            uri = f"{self.path.resolve().as_uri()}?mode=rw"
            with closing(sqlite3.connect(uri, uri=True, timeout=_WAIT, isolation_level=None)) as connection:
                # EXTRA is FULL that also makes the end of the journal durable: a payment never comes undone.
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.execute("PRAGMA journal_mode = DELETE")
                yield connection
        except sqlite3.Error as error:
            failure = type(error).__name__ if error.sqlite_errorname is None else error.sqlite_errorname
        if failure:
            message = f"the ledger {self.path.name} cannot be used ({failure}): try again, nothing is paid twice"
            raise BudgetError(message)

    def __repr__(self) -> str:
        return f"Ledger({self.path.name!r})"


class _Page:
    """A transaction's connection, and the books it may append to."""

    def __init__(self, connection: sqlite3.Connection, books: Books) -> None:
        self._connection = connection
        self.books = books

    def grant(self, charge: Charge, amount: Fraction) -> Account:
        self.append("GRANTED", replace(charge, amount=amount), "", "")
        return self.books.accounts[charge.dataset]

    def append(self, kind: Kind, charge: Charge, run: str, digest: str) -> None:
        time = datetime.now(UTC).isoformat(timespec="seconds")
        facts = (charge.dataset, run, charge.unit, charge.amount, charge.neighbours, digest, time, self.books.head)
        entry = Entry(self.books.length + 1, kind, *facts).hashed()
        self.books.add(entry)
        values = tuple(entry.as_dict()[name] for name in _COLUMNS.split(", "))
        marks = ", ".join("?" * len(values))
        self._connection.execute(f"INSERT INTO entries ({_COLUMNS}) VALUES ({marks})", values)


def _create(path: Path) -> None:
    """Make an empty file only its owner can read, before SQLite makes one that others can."""
    failure = ""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        sync_folder(path.parent)
    except FileExistsError:
        return
    except OSError as error:
        failure = error.strerror or "unknown reason"
    if failure:
        raise BudgetError(f"the ledger {path.name} cannot be made in {path.parent}: {failure}")


def _has_table(connection: sqlite3.Connection) -> bool:
    """Tell whether the file holds a ledger; BudgetError where it holds something else."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if version == _FORMAT:
        return True
    if tables or version:
        raise BudgetError("this file is not a ledger of this version of coco-opt")
    return False


def _read(connection: sqlite3.Connection) -> list[Entry]:
    rows = connection.execute(f"SELECT {_COLUMNS} FROM entries ORDER BY sequence").fetchall()
    return [_entry(row) for row in rows]


def _entry(row: tuple[Any, ...]) -> Entry:
    fields = dict(zip(_COLUMNS.split(", "), row, strict=True))
    try:
        amount = Fraction(fields.pop("amount"))
    except (ValueError, ZeroDivisionError):
        amount = Fraction(-1)  # no amount that was ever written: the hash will not match
    return Entry(amount=amount, **fields)


def _same(run: Run, charge: Charge, account: Account) -> Run:
    """Return a run that is resumed; BudgetError where another charge goes by its name."""
    if run.state == "ABANDONED":
        raise BudgetError(f"run {run.name} was abandoned and cannot be resumed")
    if (run.charge.dataset, run.charge.digest) != (charge.dataset, charge.digest) or run.cost != account.cost(charge):
        raise BudgetError(f"run {run.name} was reserved for other questions or another budget")
    return run


def _check_total(account: Account, unit: Unit, total: Fraction) -> None:
    if unit != account.unit or total != account.total:
        raise BudgetError(
            f"privacy.total says {unit} = {total}, but the ledger grants dataset {account.dataset!r} "
            f"{account.unit} = {account.total}: correct it, or grant more with 'coco-opt ledger CONFIG --grant AMOUNT'"
        )


def _refusal(account: Account, cost: Fraction, books: Books) -> str:
    waiting = [run.name for run in books.runs.values() if run.unfinished and run.charge.dataset == account.dataset]
    hint = f"; unfinished and paid for: {', '.join(waiting)}" if waiting else ""
    return (
        f"{account.unit} = {cost} was asked of dataset {account.dataset!r}, and {account.left} of "
        f"{account.total} is left: a spent budget does not come back{hint}"
    )
