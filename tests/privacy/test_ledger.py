"""The budget ledger: paid once, never refunded, tamper-evident, and one winner among many starts."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from coco_opt.errors import BudgetError
from coco_opt.privacy import Ledger
from coco_opt.privacy import ledger as module
from coco_opt.privacy.budget import sequential, split
from coco_opt.privacy.ledger_chain import START, Books, Charge, Entry, FileWitness, Head
from coco_opt.privacy.promise import Promise

ROOT = Path(__file__).resolve().parents[2]
KEY = bytes(32)
ONE = Charge("taxi", "epsilon", Fraction(1), "add_remove", "config", promise=Promise("add_remove", "entity"))


def charge(amount: str, **changes: str) -> Charge:
    return replace(ONE, amount=Fraction(amount), **changes)  # type: ignore[arg-type]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


def test_a_run_pays_once_and_gets_nothing_back(ledger: Ledger) -> None:
    first = ledger.reserve("a", ONE)
    assert ledger.reserve("a", ONE) == first
    ledger.measured("a", "seal")
    ledger.measured("a", "seal")
    assert ledger.reserve("a", ONE).state == "MEASURED"
    ledger.released("a", "out")
    ledger.released("a", "out")
    account = ledger.books().accounts["taxi"]
    assert (account.total, account.spent, account.remaining) == (1, 1, 0)
    assert [entry.kind for entry in ledger.entries()] == ["GRANTED", "RESERVED", "MEASURED", "RELEASED"]
    with pytest.raises(BudgetError, match="0 of 1 is left"):
        ledger.reserve("b", charge("1/1000000"))
    assert len(ledger.entries()) == 4


def test_a_second_release_needs_what_is_left(ledger: Ledger) -> None:
    ledger.reserve("a", charge("2/3"), total=Fraction(1))
    with pytest.raises(BudgetError, match=r"1/3 of 1 is left.* at most 1/3, or .* paid for and not yet released: a"):
        ledger.reserve("b", charge("1/2"))
    ledger.reserve("b", charge("1/3"), total=Fraction(1))
    assert [run.name for run in ledger.books().runs.values() if run.unfinished] == ["a", "b"]
    ledger.abandon("a")
    assert [run.name for run in ledger.books().runs.values() if run.unfinished] == ["b"]
    with pytest.raises(BudgetError, match="abandoned"):
        ledger.reserve("a", charge("2/3"))
    with pytest.raises(BudgetError, match="0 of 1 is left"):
        ledger.reserve("c", charge("1/9"))
    assert ledger.grant("taxi", Fraction(1, 9)).remaining == Fraction(1, 9)
    ledger.reserve("c", charge("1/9"))
    ledger.reserve("other", charge("5", dataset="census"))


def test_a_stated_total_must_be_the_granted_one(ledger: Ledger) -> None:
    with pytest.raises(BudgetError, match="1/2 of 1/2 is left"):
        ledger.reserve("a", ONE, total=Fraction(1, 2))
    assert ledger.entries() == []
    ledger.reserve("a", charge("1/2"), total=Fraction(1))
    with pytest.raises(BudgetError, match=r"privacy\.total says epsilon = 9.*grants.*epsilon = 1.*--grant"):
        ledger.reserve("b", charge("1/2"), total=Fraction(9))


def test_steps_out_of_order_are_refused(ledger: Ledger) -> None:
    with pytest.raises(BudgetError, match="no reservation"):
        ledger.measured("a", "seal")
    ledger.reserve("a", ONE)
    with pytest.raises(BudgetError, match="cannot become RELEASED"):
        ledger.released("a", "out")
    ledger.measured("a", "seal")
    with pytest.raises(BudgetError, match="another content"):
        ledger.measured("a", "second noise")
    ledger.released("a", "out")
    with pytest.raises(BudgetError, match="cannot become ABANDONED"):
        ledger.abandon("a")
    with pytest.raises(BudgetError, match="other queries"):
        ledger.reserve("a", replace(ONE, digest="changed"))
    with pytest.raises(BudgetError, match="other queries"):
        ledger.reserve("a", charge("1/2"))


def test_units_and_neighbours_never_mix_unsoundly(ledger: Ledger) -> None:
    ledger.reserve("a", charge("1/4"), total=Fraction(1))
    with pytest.raises(BudgetError, match="rho-zCDP implies none"):
        ledger.reserve("b", charge("1/100", unit="rho"))
    with pytest.raises(BudgetError, match=r"'add_remove' as before, and leave out what is exact .* from the first"):
        ledger.reserve("b", charge("1/4", neighbours="replace"))
    with pytest.raises(BudgetError, match="does not know dataset 'census' yet"):
        ledger.grant("census", Fraction(1))
    ledger.reserve("c", charge("1/2", dataset="census", unit="rho"), total=Fraction(1))
    assert ledger.reserve("d", charge("1", dataset="census")).cost == Fraction(1, 2)
    assert ledger.reserve("d", charge("1", dataset="census")).cost == Fraction(1, 2)
    assert ledger.books().accounts["census"].remaining == 0
    with pytest.raises(BudgetError, match="above zero"):
        charge("0")


def test_the_chain_shows_every_change(ledger: Ledger, tmp_path: Path) -> None:
    for number in range(4):
        ledger.reserve(f"r{number}", charge("1/7"), total=Fraction(1))
    ledger.measured("r2", "seal")
    entries = ledger.entries()
    assert entries[0].previous == START
    key = ledger.chain()._key
    assert Books(entries, key).head == ledger.books().head == entries[-1].hash
    with pytest.raises(BudgetError):
        Books(entries, b"another key")
    with pytest.raises(BudgetError):
        Books(entries)
    changes = {
        "kind": "RELEASED", "dataset": "other", "run": "x", "unit": "rho", "amount": Fraction(1, 8),
        "neighbours": "replace", "digest": "x", "time": "x", "previous": "x", "hash": "x", "sequence": 9,
        "fingerprint": "x", "promise": "x",
    }  # fmt: skip
    for place in range(len(entries)):
        for field, value in (*changes.items(), ("promise", "")):
            if getattr(entries[place], field) == value:
                continue
            forged = [*entries[:place], replace(entries[place], **{field: value}), *entries[place + 1 :]]  # type: ignore[arg-type]
            with pytest.raises(BudgetError):
                Books(forged, key)
    for place in range(len(entries) - 1):
        with pytest.raises(BudgetError, match="removed or changed"):
            Books([*entries[:place], *entries[place + 1 :]], key)
        with pytest.raises(BudgetError, match="removed or changed"):
            Books([*entries[:place], entries[place + 1], entries[place], *entries[place + 2 :]], key)
    overdrawn = Entry(1, "RESERVED", "taxi", "r", "epsilon", Fraction(1), "add_remove", "", "", START).keyed(KEY)
    with pytest.raises(BudgetError, match="not granted"):
        Books([overdrawn], KEY)


def test_an_entry_of_another_history_does_not_follow(ledger: Ledger, tmp_path: Path) -> None:
    """Two copies of a ledger that grew apart: every entry has its MAC, and its place, and still they do not mix."""
    ledger.reserve("a", charge("1/3"), total=Fraction(1))
    for path in ledger.path.parent.glob("ledger*"):
        shutil.copy(path, tmp_path / path.name.replace("ledger", "other", 1))
    other = Ledger(tmp_path / "other.sqlite")
    for one, run in ((ledger, "b"), (other, "c")):
        one.reserve(run, charge("1/3"))
        one.reserve("d", charge("1/9"))
    ours, theirs, key = ledger.entries(), other.entries(), ledger.chain()._key
    assert Books(theirs, key).length == Books(ours, key).length == 4
    with pytest.raises(BudgetError, match="entry 4 of the ledger does not follow"):
        Books([*ours[:3], theirs[3]], key)


def test_an_overdrawn_history_is_refused() -> None:
    """However well its entries are chained and keyed."""
    granted = Entry(1, "GRANTED", "taxi", "", "epsilon", Fraction(1), "add_remove", "", "", START).keyed(KEY)
    constraints = ("epsilon", Fraction(2, 3), "add_remove", "", "")
    one = Entry(2, "RESERVED", "taxi", "one", *constraints, granted.hash).keyed(KEY)
    two = Entry(3, "RESERVED", "taxi", "two", *constraints, one.hash).keyed(KEY)
    assert Books([granted, one], KEY).accounts["taxi"].remaining == Fraction(1, 3)
    with pytest.raises(BudgetError, match="not granted"):
        Books([granted, one, two], KEY)


def test_a_head_is_compared_by_its_hash_and_not_only_by_its_place(tmp_path: Path) -> None:
    witness = FileWitness(tmp_path / "head")
    witness.remember(Head(2, "b"))
    assert witness.contradicts(3, ["a", "b", "c"]) == ""
    assert "entry 2 is not the one" in witness.contradicts(3, ["a", "x", "c"])
    witness.remember(Head(1, "a"))
    assert "remembers 2" in witness.contradicts(1, ["a"])


def test_a_reservation_holds_the_ledger_before_it_reads_it(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever decided on what it read before others wrote could pay what is no longer left."""
    ledger.reserve("a", charge("1/3"), total=Fraction(1))
    read, held = module._read, []

    def reading(connection: sqlite3.Connection) -> list[Entry]:
        with closing(sqlite3.connect(ledger.path, timeout=0, isolation_level=None)) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
                held.append(False)
            except sqlite3.OperationalError:
                held.append(True)
        return read(connection)

    monkeypatch.setattr(module, "_read", reading)
    with ledger._writing() as page:
        assert page.books.length == 2
    assert held == [True]


def test_a_fingerprint_needs_the_ledgers_key_and_tells_tables_apart(ledger: Ledger, tmp_path: Path) -> None:
    one, two = np.arange(5), np.arange(5, 9)
    found = ledger.fingerprint([one, two])
    assert ledger.fingerprint([one.copy(), two.copy()]) == found
    (tmp_path / "elsewhere").mkdir()
    assert Ledger(tmp_path / "elsewhere" / "ledger.sqlite").fingerprint([one, two]) != found
    others = ([two, one], [np.arange(4), np.arange(4, 9)], [np.arange(9)], [one, two, two[:0]], [one, two + 1])
    assert len({found, *(ledger.fingerprint(arrays) for arrays in others)}) == 1 + len(others)


def test_the_table_refuses_changes_and_a_changed_one_is_not_spent_on(ledger: Ledger) -> None:
    ledger.reserve("a", charge("1/2"), total=Fraction(1))
    connection = sqlite3.connect(ledger.path)
    for statement in ("UPDATE entries SET amount = '1/9'", "DELETE FROM entries"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(statement)
    connection.execute("DROP TRIGGER no_update")
    connection.execute("UPDATE entries SET amount = '1/0' WHERE sequence = 2")
    connection.commit()
    connection.close()
    with pytest.raises(BudgetError, match="entry 2 of the ledger does not match its hash"):
        ledger.reserve("b", charge("1/2"))
    assert len(ledger.entries()) == 2


def test_no_flipped_bit_of_the_first_page_is_unexpected(ledger: Ledger) -> None:
    ledger.reserve("a", ONE)
    whole = ledger.path.read_bytes()
    for byte in range(100, 4096, 3):  # among them the names of tables, which SQLite's messages quote
        changed = bytearray(whole)
        changed[byte] ^= 1 << 7
        ledger.path.write_bytes(changed)
        with suppress(BudgetError):  # anything else fails the test
            ledger.books()
    ledger.path.write_bytes(whole)


def test_files_that_are_no_private_ledger_are_refused(ledger: Ledger, tmp_path: Path) -> None:
    assert ledger.entries() == []
    assert not ledger.path.exists()
    with pytest.raises(BudgetError, match="cannot be made"):
        Ledger(tmp_path / "absent" / "ledger").reserve("a", ONE)
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"no database, but long enough to be one" * 100)
    garbage.chmod(0o600)
    with pytest.raises(BudgetError, match="SQLITE_NOTADB"):
        Ledger(garbage).reserve("a", ONE)
    other = tmp_path / "other"
    for statement in ("CREATE TABLE t (x)", "PRAGMA user_version = 2"):  # something else, an earlier format
        connection = sqlite3.connect(other)
        connection.execute(statement)
        connection.commit()
        connection.close()
        other.chmod(0o600)
        with pytest.raises(BudgetError, match="not a ledger of the format 3"):
            Ledger(other).reserve("a", ONE)
    if os.name == "posix":
        other.chmod(0o644)
        with pytest.raises(BudgetError, match="chmod 600"):
            Ledger(other).reserve("a", ONE)


FIFTY = """
import os, sys
from coco_opt.errors import BudgetError
from coco_opt.privacy.ledger import Ledger
from coco_opt.privacy.ledger_chain import Charge
from fractions import Fraction
ledger = Ledger(sys.argv[1])
gate, start = os.pipe()
children = []
for number in range(50):
    child = os.fork()
    if not child:
        os.close(start)
        os.read(gate, 1)
        code = 9
        try:
            ledger.reserve(f"run{number}", Charge("taxi", "epsilon", Fraction(1), "add_remove", "config"))
            code = 0
        except BudgetError:
            code = 3
        finally:
            os._exit(code)
    children.append(child)
os.close(start)
print(*(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks its starts")
def test_fifty_concurrent_starts_one_wins(ledger: Ledger) -> None:
    for _ in range(3):
        for path in ledger.path.parent.glob("ledger*"):
            path.unlink()
        done = subprocess.run(
            [sys.executable, "-c", FIFTY, str(ledger.path)], cwd=ROOT, capture_output=True, text=True, check=True
        )
        codes = [int(code) for code in done.stdout.split()]
        assert sorted(codes) == [0] + [3] * 49
        account = ledger.books().accounts["taxi"]
        assert (account.total, account.spent) == (1, 1)
        assert [entry.run for entry in ledger.entries() if entry.kind == "RESERVED"] == [f"run{codes.index(0)}"]


KILLED = """
import os, signal, sys
from coco_opt.privacy.ledger import Ledger
from coco_opt.privacy.ledger_chain import Charge
from fractions import Fraction
import coco_opt.privacy.ledger as module
if sys.argv[2] == "inside":
    real = module._Page.append
    def append(self, *rest):
        real(self, *rest)
        if rest[0] == "RESERVED":
            os.kill(os.getpid(), signal.SIGKILL)
    module._Page.append = append
Ledger(sys.argv[1]).reserve("a", Charge("taxi", "epsilon", Fraction(1), "add_remove", "config"))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is POSIX")
@pytest.mark.parametrize("when", ["inside", "after"])
def test_a_killed_reservation_is_whole_or_absent(ledger: Ledger, when: str) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(ledger.path), when], cwd=ROOT, check=False)
    assert done.returncode == -9
    assert len(ledger.entries()) == (0 if when == "inside" else 2)
    assert ledger.reserve("a", ONE).state == "RESERVED"
    assert [entry.kind for entry in ledger.entries()] == ["GRANTED", "RESERVED"]


@pytest.mark.slow
def test_sums_are_exact_on_a_hundred_thousand_random_splits() -> None:
    rng = np.random.default_rng(3)
    books, previous = Books(key=KEY), START
    parts = rng.integers(1, 10**6, size=(100_000, 3))
    total = Fraction(100_000, 7)

    def add(kind: str, amount: Fraction, run: str) -> None:
        nonlocal previous
        constraints = ("taxi", run, "epsilon", amount, "add_remove", "", "", previous)
        entry = Entry(books.length + 1, kind, *constraints).keyed(KEY)  # type: ignore[arg-type]
        books.add(entry)
        previous = entry.hash

    add("GRANTED", total, "")
    for number, row in enumerate(parts.tolist()):
        shares = [Fraction(part, sum(row)) for part in row]
        levels = split(Fraction(1, 7), shares)
        add("RESERVED", sequential(levels), str(number))
    account = books.accounts["taxi"]
    assert account.spent == total
    assert account.remaining == 0
    with pytest.raises(BudgetError):
        add("RESERVED", Fraction(1, 10**30), "more")


def test_a_ledger_of_many_odd_parts_is_spent_to_the_last_fraction(ledger: Ledger) -> None:
    rng = np.random.default_rng(4)
    row = rng.integers(1, 10**9, size=60).tolist()
    for number, part in enumerate(row):
        ledger.reserve(str(number), charge(str(Fraction(part, sum(row)))), total=Fraction(1))
    assert ledger.books().accounts["taxi"].remaining == 0
    with pytest.raises(BudgetError, match="0 of 1 is left"):
        ledger.reserve("more", charge(f"1/{10**18}"))


STEPS = """
import sys
from coco_opt.privacy.ledger import Ledger
from coco_opt.privacy.ledger_chain import Charge
from fractions import Fraction
ledger = Ledger(sys.argv[1])
ledger.reserve("a", Charge("taxi", "epsilon", Fraction(1), "add_remove", "config"))
ledger.measured("a", "seal")
ledger.released("a", "out")
"""


def killed_at(ledger: Ledger, call: str, number: int) -> bool:
    """Kill a run's ledger steps at the ``number``-th system call of a kind; False where there are fewer."""
    for path in ledger.path.parent.glob("ledger*"):
        path.unlink()
    inject = ["-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={number}"]
    command = ["strace", "-f", "-qq", "-o", os.devnull, *inject, sys.executable, "-c", STEPS, str(ledger.path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if done.returncode not in (0, -9, 137):
        pytest.skip("this machine does not let strace inject faults")
    return done.returncode != 0


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize(
    ("call", "step"),
    [
        ("fdatasync", 4),
        ("unlink", 1),
        *(pytest.param(call, 1, marks=pytest.mark.slow) for call in ("pwrite64", "fdatasync", "fsync")),
    ],
)
def test_killed_at_any_system_call_the_ledger_is_paid_once(ledger: Ledger, call: str, step: int) -> None:
    number, last = 1, ["GRANTED", "RESERVED", "MEASURED", "RELEASED"]
    while killed_at(ledger, call, number):
        kinds = [entry.kind for entry in ledger.entries()]
        assert kinds == last[: len(kinds)]
        assert len(kinds) != 1
        ledger.reserve("a", ONE)
        ledger.measured("a", "seal")
        ledger.released("a", "out")
        assert [entry.kind for entry in ledger.entries()] == last
        assert ledger.books().accounts["taxi"].spent == 1
        number += step
    assert number > 1
