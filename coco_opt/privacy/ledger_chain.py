"""The entries of a budget ledger, their keyed chain, what they add up to, and the head of the chain, stored elsewhere.

An entry's hash is an HMAC under the ledger's key over all its fields and the hash before it: who can write the file and
does not hold the key can neither change an entry nor add one. Payments carry the promise that they were made for.
Whoever restores an older ledger must restore every newer head, too.
"""

from __future__ import annotations

import hmac
import json
import os
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from coco_opt.errors import BudgetError
from coco_opt.privacy.accounting import rho_of_epsilon
from coco_opt.privacy.budget import Neighbours, Unit
from coco_opt.privacy.private_files import FREE, read_values, write_values
from coco_opt.privacy.promise import Promise, joint

Kind = Literal["GRANTED", "RESERVED", "MEASURED", "RELEASED", "ABANDONED", "VOIDED"]
KINDS: tuple[Kind, ...] = get_args(Kind)
START = "0" * 64  # what the first entry names as its predecessor's hash

_BEFORE: dict[Kind, tuple[Kind, ...]] = {
    "MEASURED": ("RESERVED",),
    "RELEASED": ("MEASURED", "RELEASED"),
    "ABANDONED": ("RESERVED", "MEASURED"),
    "VOIDED": ("RESERVED",),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a ledger; ``hash`` covers all other fields, ``previous`` is the hash of the line before.

    GRANTED: ``amount`` more may be spent on ``dataset``. RESERVED: ``run`` spends ``amount``, ``digest`` is that of its
    queries, ``fingerprint`` the keyed one of its private table, ``promise`` the text of what the measurement promises.
    MEASURED: ``digest`` of the sealed measurement. RELEASED, as often as it is estimated: ``digest`` of the output.
    ABANDONED: the run will not be finished, and what it reserved stays spent. VOIDED: its key met no data and is
    destroyed, and what it reserved comes back.
    """

    sequence: int
    kind: Kind
    dataset: str
    run: str
    unit: Unit
    amount: Fraction
    neighbours: Neighbours
    digest: str
    time: str
    previous: str
    fingerprint: str = ""
    promise: str = ""
    hash: str = ""

    def keyed(self, key: bytes) -> Entry:
        """Return the entry with its hash filled in."""
        return replace(self, hash=self.keyed_hash(key))

    def keyed_hash(self, key: bytes) -> str:
        """Return the HMAC-SHA256 of all fields but the hash, and of the promise where there is one, hexadecimal."""
        absent = ("hash",) if self.promise else ("hash", "promise")
        names = [column.name for column in fields(self) if column.name not in absent]
        content = json.dumps({name: str(getattr(self, name)) for name in names}, separators=(",", ":"))
        return hmac.new(key, content.encode(), "sha256").hexdigest()

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, the amount as an exact fraction in a string."""
        return {**asdict(self), "amount": str(self.amount)}


@dataclass(frozen=True, slots=True)
class Charge:
    """What a run is about to spend: ``amount`` of epsilon or rho on a dataset, under the digest of the queries.

    ``fingerprint`` is the keyed one of the private table, hexadecimal, and ``promise`` what the measurement promises;
    "" and None where nothing is measured. ``weaker`` accepts that the account promises less than it did, or
    than this run does.
    """

    dataset: str
    unit: Unit
    amount: Fraction
    neighbours: Neighbours
    digest: str
    fingerprint: str = ""
    promise: Promise | None = None
    weaker: bool = False

    def __post_init__(self) -> None:
        if not self.dataset.strip() or self.amount <= 0:
            raise BudgetError("a reservation needs the name of a dataset and a budget above zero")


@dataclass(frozen=True, slots=True)
class Account:
    """What may be spent on a dataset and what was: exact sums in one unit, for one kind of neighbours."""

    dataset: str
    unit: Unit
    neighbours: Neighbours
    total: Fraction = Fraction(0)
    spent: Fraction = Fraction(0)

    @property
    def remaining(self) -> Fraction:
        """Return what is left; never negative."""
        return self.total - self.spent

    def cost(self, charge: Charge) -> Fraction:
        """Return a charge in this account's unit: pure epsilon is epsilon^2 / 2 of rho.

        Raises BudgetError where no conversion is sound: rho in an account of pure epsilon, other neighbours.
        """
        if charge.neighbours != self.neighbours:
            raise BudgetError(_other_neighbours(self, charge))
        if charge.unit == self.unit:
            return charge.amount
        if self.unit == "epsilon":
            raise BudgetError(
                f"the ledger counts dataset {self.dataset!r} in pure epsilon, and rho-zCDP implies none: "
                "use a pure mechanism, or a dataset whose total is a rho"
            )
        return rho_of_epsilon(charge.amount)


def _other_neighbours(account: Account, charge: Charge) -> str:
    """Return why a charge for other neighbours than an account's is refused, and what can be done."""
    exact = ', and leave out what is exact (topdown.invariants, constraints of source = "data")'
    later = 'Where exact totals are to be published, state neighbours = "replace" from the first release on'
    replace = charge.neighbours == "replace"
    return (
        f"the ledger counts dataset {account.dataset!r} for neighbours {account.neighbours!r}, this run spends for "
        f"{charge.neighbours!r}, and the two do not add up. Set privacy.neighbours = {account.neighbours!r} as before"
        f"{exact if replace else ''}; or name another privacy.dataset, which is counted on its own, so that no account "
        f"says what both cost together{f'. {later}' if replace else ''}"
    )


def _other_promise(dataset: str, paid: Promise, new: Promise, weaker: Promise | None) -> str:
    """Return why a charge that promises something else than its account is refused, and what can be done."""
    accepting = "; or set privacy.weaker_promise = true: the sum of all payments, earlier ones too, then holds where"
    return (
        f"dataset {dataset!r} was paid for where {paid.words}. This run is for another promise: {new.words}. One sum "
        "cannot state both. Promise the same as before; or name another privacy.dataset, which is counted on its own, "
        f"so that no account says what both cost together{'' if weaker is None else f'{accepting} {weaker.words}'}"
    )


@dataclass(frozen=True, slots=True)
class Run:
    """How far a run got: ``state`` is the kind of its last entry; digests are "" until they are known.

    ``receipt`` is the hash of its reservation: whoever has it cannot make it up without the ledger's key.
    """

    name: str
    charge: Charge
    cost: Fraction
    state: Kind = "RESERVED"
    sealed: str = ""
    outputs: tuple[str, ...] = ()
    receipt: str = ""

    @property
    def unfinished(self) -> bool:
        """Return whether the run was paid for and may still be finished."""
        return self.state in ("RESERVED", "MEASURED")

    @property
    def counts(self) -> bool:
        """Return whether the run is neither given up nor voided."""
        return self.state not in ("ABANDONED", "VOIDED")


class Books:
    """The accounts and runs that entries verified under ``key`` add up to; they are appended in order, or refused.

    Without a key no entry holds.
    """

    def __init__(self, entries: Iterable[Entry] = (), key: bytes | None = None) -> None:
        self.accounts: dict[str, Account] = {}
        self.runs: dict[str, Run] = {}
        self.length = 0
        self.head = START
        self._key = key
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Check an entry against the chain and the books and take it in; raise BudgetError where it does not fit."""
        where = f"entry {entry.sequence} of the ledger"
        if entry.sequence != self.length + 1 or entry.previous != self.head:
            raise BudgetError(
                f"{where} does not follow from the one before it: entries were removed or changed; restore the ledger"
            )
        if self._key is None or not hmac.compare_digest(entry.hash.encode(), entry.keyed_hash(self._key).encode()):
            raise BudgetError(
                f"{where} does not match its hash: it was changed after it was written; restore the ledger"
            )
        self._enter(entry, where)
        self.length, self.head = entry.sequence, entry.hash

    @property
    def fingerprints(self) -> dict[str, set[str]]:
        """Return under which names of datasets every private table was paid for, by its keyed fingerprint."""
        names: dict[str, set[str]] = {}
        for run in self.runs.values():
            if run.charge.fingerprint and run.state != "VOIDED":
                names.setdefault(run.charge.fingerprint, set()).add(run.charge.dataset)
        return names

    def promises(self, dataset: str) -> list[Promise]:
        """Return what the payments of an account promise; runs that were voided measured nothing."""
        charges = (run.charge for run in self.runs.values() if run.state != "VOIDED")
        return [each.promise for each in charges if each.dataset == dataset and each.promise is not None]

    def promise_words(self, dataset: str, *further: Promise) -> str:
        """Return for what the sum of an account's payments is a guarantee, also with ``further`` ones."""
        promise = joint((*self.promises(dataset), *further))
        return "" if promise is None else promise.words

    def check_promise(self, charge: Charge) -> None:
        """Raise BudgetError where a charge does not promise what its account does, unless it accepts the weaker."""
        paid, new = joint(self.promises(charge.dataset)), charge.promise
        if paid is None or new is None or paid.admits(new):
            return
        weaker = joint((paid, new))
        if weaker is None or not charge.weaker:
            raise BudgetError(_other_promise(charge.dataset, paid, new, weaker))

    def _enter(self, entry: Entry, where: str) -> None:
        if entry.kind == "GRANTED":
            account = self.accounts.get(entry.dataset, Account(entry.dataset, entry.unit, entry.neighbours))
            self.accounts[entry.dataset] = replace(account, total=account.total + entry.amount)
        elif entry.kind == "RESERVED":
            self._reserve(entry, where)
        elif entry.run not in self.runs or entry.kind not in KINDS:
            raise BudgetError(f"{where} is of a run without a reservation")
        else:
            run = self.runs[entry.run] = advance(self.runs[entry.run], entry.kind, entry.digest)
            if entry.kind == "VOIDED":
                account = self.accounts[run.charge.dataset]
                self.accounts[account.dataset] = replace(account, spent=account.spent - run.cost)

    def _reserve(self, entry: Entry, where: str) -> None:
        account = self.accounts.get(entry.dataset)
        if account is None or entry.run in self.runs or entry.unit != account.unit or entry.amount > account.remaining:
            raise BudgetError(f"{where} reserves what was not granted, or twice for one run")
        self.accounts[entry.dataset] = replace(account, spent=account.spent + entry.amount)
        promise = Promise.of(json.loads(entry.promise)) if entry.promise else None
        fields = (entry.dataset, entry.unit, entry.amount, entry.neighbours, entry.digest, entry.fingerprint, promise)
        self.runs[entry.run] = Run(entry.run, Charge(*fields), entry.amount, receipt=entry.hash)


def advance(run: Run, kind: Kind, digest: str) -> Run:
    """Return a run one state further; raise BudgetError for a step out of order or back."""
    if run.state not in _BEFORE.get(kind, ()):
        raise BudgetError(f"run {run.name} is {run.state}: it cannot become {kind}")
    sealed = digest if kind == "MEASURED" else run.sealed
    outputs = (*run.outputs, digest) if kind == "RELEASED" else run.outputs
    return replace(run, state=kind, sealed=sealed, outputs=outputs)


_WAIT = 60.0  # seconds that a witness's command may take


@dataclass(frozen=True, slots=True)
class Head:
    """How many entries a ledger had, and the hash of the last."""

    entries: int
    head: str


class Witness(Protocol):
    """Remembers how far a ledger got."""

    def remember(self, head: Head) -> None:
        """Keep a head, durably; BudgetError where that cannot be done."""

    def contradicts(self, entries: int, hashes: Sequence[str]) -> str:
        """Return what speaks against a ledger of so many entries with these hashes, "" for nothing."""


@dataclass(frozen=True, slots=True)
class FileWitness:
    """Keeps the last head in a file; what it knows must be part of the ledger, which may have got further since."""

    path: Path

    def remember(self, head: Head) -> None:
        """Replace the head in the file, unless a later head is there."""
        stored = self._stored_head()
        if stored is None or stored.entries < head.entries:
            write_values(self.path, asdict(head), replace=True)

    def contradicts(self, entries: int, hashes: Sequence[str]) -> str:
        """Compare with the head in the file."""
        stored = self._stored_head()
        if stored is None or (stored.entries <= entries and hashes[stored.entries - 1] == stored.head):
            return ""
        if stored.entries > entries:
            return f"it has {entries} entries, and {self.path.name} remembers {stored.entries}"
        return f"its entry {stored.entries} is not the one that {self.path.name} remembers"

    def _stored_head(self) -> Head | None:
        return Head(**read_values(self.path)) if os.path.lexists(self.path) else None


@dataclass(frozen=True, slots=True)
class CommandWitness:
    """A command that is given {"event": "check" or "grown", "entries", "head"} as JSON on standard input.

    What it does with it is its own: append it to a log elsewhere, compare it with the last head. An exit code other
    than 0 refuses the ledger.
    """

    command: tuple[str, ...]

    def remember(self, head: Head) -> None:
        """Notify the command that the ledger has grown."""
        if problem := self._run_command("grown", head):
            raise BudgetError(f"{problem}. The ledger has its entry. {FREE}")

    def contradicts(self, entries: int, hashes: Sequence[str]) -> str:
        """Ask the command whether it refuses this head."""
        return self._run_command("check", Head(entries, hashes[-1] if hashes else ""))

    def _run_command(self, event: str, head: Head) -> str:
        text = json.dumps({"event": event, **asdict(head)}) + "\n"
        try:
            done = subprocess.run(self.command, input=text, text=True, timeout=_WAIT, check=False, capture_output=True)
        except (OSError, subprocess.SubprocessError) as error:
            return f"the witness {self.command[0]!r} cannot be run ({type(error).__name__})"
        return f"the witness {self.command[0]!r} refuses it (exit code {done.returncode})" if done.returncode else ""
