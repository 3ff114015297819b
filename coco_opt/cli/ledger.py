"""``coco-opt ledger``: what was spent, on what and when, and which measurements are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coco_opt.cli.console import fraction, write, write_json, write_table
from coco_opt.cli.options import ConfigFile, Json, Version
from coco_opt.errors import BudgetError, InputError, VerificationError

if TYPE_CHECKING:
    from coco_opt.privacy.ledger_chain import Books, Entry
    from coco_opt.releases.stored_runs import StoredRun, Together

_DIGITS = 12  # of a digest, in a table
_SHOWN = 4  # digits of a guarantee, rounded up
_AMOUNTS = ("GRANTED", "RESERVED")
_UNMEASURED = {
    "RESERVED": "not measured yet: going on is free",
    "ABANDONED": "given up",
    "VOIDED": "voided: what it paid came back",
}


def ledger(
    config: ConfigFile,
    grant: Annotated[
        str | None, typer.Option("--grant", metavar="AMOUNT", help="Allow this much more to be spent on the dataset.")
    ] = None,
    abandon: Annotated[
        str | None,
        typer.Option("--abandon", metavar="RUN", help="Give up an unfinished or damaged run, which stays paid."),
    ] = None,
    forget: Annotated[
        str | None, typer.Option("--forget", metavar="RUN", help="Delete the measurement of a finished run for good.")
    ] = None,
    forget_before: Annotated[
        str | None,
        typer.Option("--forget-before", metavar="DATE", help="The same for all finished runs that began before a day."),
    ] = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Show the budget ledger of a configuration, and check its chain. Exit 1 if it is broken."""
    from coco_opt.config import load_config
    from coco_opt.privacy import parse_epsilon
    from coco_opt.releases import stored_runs
    from coco_opt.releases.runs import dataset_of, elsewhere, ledger_of, sweep
    from coco_opt.releases.stored_runs import abandon_run, forget_run, guarantee_of, runs_of_ledger

    settings = load_config(config)
    notes: list[str] = []
    sweep(settings, notes.append if json else write)
    if grant is not None:
        ledger_of(settings).grant(dataset_of(settings), parse_epsilon(grant))
    if abandon is not None:
        abandon_run(settings, abandon)
    if forget is not None:
        forget_run(settings, forget)
    if forget_before is not None:
        stored_runs.forget_before(settings, _day(forget_before))
    book = ledger_of(settings)
    entries = book.entries()
    broken, books = "", book.chain()
    try:
        for entry in entries:
            books.add(entry)
        book.check_witnesses(books, entries)
    except BudgetError as error:
        broken = str(error)
    runs = () if broken else runs_of_ledger(settings)
    combined = [guarantee_of(account, runs) for account in books.accounts.values()] if not broken else []
    guarantees = {guarantee.account.dataset: guarantee for guarantee in combined if guarantee is not None}
    if json:
        write_json({**_as_json(books, entries, runs, guarantees, broken), "notes": notes})
    else:
        _write_tables(books, entries, runs, guarantees)
        if not books.length:
            write(f"{book.path.name} holds no payment: {elsewhere(())}")
        elif not broken:
            write(f"The chain of {books.length} entries holds. Head  {books.head}")
    if broken:
        raise VerificationError(
            f"{broken}. Restore the ledger from a copy: nothing is spent on this copy, nothing was deleted"
        )
    return 0


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        pass
    raise InputError("bad-option", f"--forget-before {text}: write a day, such as 2026-01-31")


def _as_json(
    books: Books, entries: Sequence[Entry], runs: Sequence[StoredRun], guarantees: Mapping[str, Together], broken: str
) -> dict[str, Any]:
    accounts = [
        {
            "dataset": account.dataset,
            "unit": account.unit,
            "neighbours": account.neighbours,
            "promise": books.promise_words(account.dataset),
            "total": str(account.total),
            "spent": str(account.spent),
            "left": str(account.remaining),
            "together": _together_dict(guarantees.get(account.dataset)),
        }
        for account in books.accounts.values()
    ]
    return {
        "verified": not broken,
        "head": books.head,
        "accounts": accounts,
        "runs": [_run_dict(stored) for stored in runs],
        "entries": [entry.as_dict() for entry in entries],
    }


def _together_dict(guarantee: Together | None) -> dict[str, Any] | None:
    """Return what all runs of an account guarantee: epsilon by delta, and how it was computed."""
    if guarantee is None:
        return None
    by = "sum" if guarantee.guaranteed.loss is None else "loss_distributions"
    curve = {str(delta): str(epsilon) for delta, epsilon in guarantee.guaranteed.curve()}
    return {"composition": by, "curve": curve, "unknown_runs": list(guarantee.unknown)}


def _together_line(guarantee: Together) -> str:
    """Return the same as one line."""
    from coco_opt.privacy.cost import DELTA, pair_words

    account = guarantee.account
    compositions = (guarantee.guaranteed, guarantee.by_sum)
    pair, by_sum = (pair_words(composition.epsilon(DELTA), DELTA, _SHOWN) for composition in compositions)
    start = f"All that was spent on {account.dataset!r} is (epsilon, delta)-differentially private, with {pair}"
    if guarantee.unknown:
        return f"{start}, by the sum alone: the queries of run {guarantee.unknown[0]} are not in this private folder"
    if guarantee.guaranteed.loss is None:
        return f"{start}, by the sum alone: its queries are too many to compose"
    if pair == by_sum:
        return f"{start} by the sum of the payments, also if queries were chosen by earlier answers"
    return (
        f"{start}, if no query was chosen by earlier answers: their privacy loss distributions composed. "
        f"The sum of the payments gives {by_sum}, also if some were"
    )


def _run_dict(stored: StoredRun) -> dict[str, Any]:
    """Return the state of a run and whether its measurement can be estimated; a seeded run paid nothing."""
    run, folder = stored.run, stored.folder
    paid = {"dataset": None, "state": "NOT PRIVATE", "unit": None, "amount": None}
    if run is not None:
        paid = {"dataset": run.charge.dataset, "state": run.state, "unit": run.charge.unit, "amount": str(run.cost)}
    return {
        "run": stored.name,
        **paid,
        "estimable": folder is not None,
        "measurement": None if folder is None else str(folder),
    }


def _write_tables(
    books: Books, entries: Sequence[Entry], runs: Sequence[StoredRun], guarantees: Mapping[str, Together]
) -> None:
    accounts = [
        (
            account.dataset,
            account.unit,
            account.neighbours,
            *map(fraction, (account.total, account.spent, account.remaining)),
        )
        for account in books.accounts.values()
    ]
    write_table("Budgets", ("dataset", "unit", "neighbours", "total", "spent", "left"), accounts, numeric=3)
    for name, guarantee in guarantees.items():
        write(f"{_together_line(guarantee)}. This holds where {books.promise_words(name)}")
    run_rows = [
        (
            row["run"],
            row["dataset"] or "-",
            row["state"],
            "-" if row["amount"] is None else f"{row['unit']} = {fraction(row['amount'])}",
            row["measurement"] or _UNMEASURED.get(row["state"], "not in this private folder"),
        )
        for row in map(_run_dict, runs)
    ]
    write_table(
        "Runs", ("run", "dataset", "state", "paid", "measurement, to be estimated for free"), run_rows, numeric=5
    )
    rows = [
        (
            str(entry.sequence),
            entry.time,
            entry.kind,
            entry.dataset,
            entry.run or "-",
            f"{entry.unit} = {fraction(entry.amount)}" if entry.kind in _AMOUNTS else "-",
            entry.digest[:_DIGITS] or "-",
        )
        for entry in entries
    ]
    write_table("Entries", ("", "time", "what", "dataset", "run", "amount", "digest"), rows, numeric=7)
