"""``coco-opt ledger``: what was spent, on what, when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from coco_opt.cli.console import write, write_json, write_table
from coco_opt.cli.options import ConfigFile, Json, Version
from coco_opt.errors import BudgetError, VerificationError

if TYPE_CHECKING:
    from coco_opt.privacy.ledger_chain import Books, Entry
    from coco_opt.runs.settings import RunSettings

_DIGITS = 12  # of a digest, in a table


def ledger(
    config: ConfigFile,
    grant: Annotated[
        str | None, typer.Option("--grant", metavar="AMOUNT", help="Allow this much more to be spent on the dataset.")
    ] = None,
    abandon: Annotated[
        str | None, typer.Option("--abandon", metavar="RUN", help="Give up an unfinished run; its payment stays spent.")
    ] = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Show what the budget ledger of a configuration says, and check its chain. Exit 1 if it is broken."""
    from coco_opt.config import load_any
    from coco_opt.privacy.ledger_chain import Books
    from coco_opt.runs.paid import abandon_run, ledger_of

    settings = load_any(config)
    book = ledger_of(settings)
    if grant is not None:
        _grant(settings, grant)
    if abandon is not None:
        abandon_run(settings, abandon)
    entries = book.entries()
    broken = ""
    books = Books()
    try:
        for entry in entries:
            books.add(entry)
    except BudgetError as error:
        broken = str(error)
    if json:
        write_json(_as_json(books, entries, broken))
    else:
        _write_tables(books, entries)
        if not broken:
            write(f"The chain of {books.length} entries holds. Head  {books.head}")
    if broken:
        raise VerificationError(f"{broken}. Restore the ledger from a copy; nothing is spent on this one")
    return 0


def _grant(settings: RunSettings, amount: str) -> None:
    from coco_opt.privacy import parse_epsilon
    from coco_opt.runs.paid import dataset_of, ledger_of

    book, dataset = ledger_of(settings), dataset_of(settings)
    account = book.books().accounts.get(dataset)
    if account is None:
        raise BudgetError(
            f"the ledger does not know dataset {dataset!r} yet: its first release opens it, with privacy.total"
        )
    book.grant(dataset, parse_epsilon(amount), account.unit, account.neighbours)


def _as_json(books: Books, entries: list[Entry], broken: str) -> dict[str, object]:
    accounts = [
        {
            "dataset": account.dataset,
            "unit": account.unit,
            "neighbours": account.neighbours,
            "total": str(account.total),
            "spent": str(account.spent),
            "left": str(account.left),
        }
        for account in books.accounts.values()
    ]
    return {
        "verified": not broken,
        "head": books.head,
        "accounts": accounts,
        "entries": [entry.as_dict() for entry in entries],
    }


def _write_tables(books: Books, entries: list[Entry]) -> None:
    accounts = [
        (one.dataset, one.unit, one.neighbours, str(one.total), str(one.spent), str(one.left))
        for one in books.accounts.values()
    ]
    write_table("Budgets", ("dataset", "unit", "neighbours", "total", "spent", "left"), accounts, numeric=3)
    rows = [
        (
            str(one.sequence),
            one.time,
            one.kind,
            one.dataset,
            one.run or "-",
            f"{one.unit} = {one.amount}" if one.kind in ("GRANTED", "RESERVED") else "-",
            one.digest[:_DIGITS] or "-",
        )
        for one in entries
    ]
    write_table("Entries", ("", "time", "what", "dataset", "run", "amount", "digest"), rows, numeric=7)
