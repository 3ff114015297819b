"""What an experiment leaves: tables, statements of the paper next to what was measured, files, and failures."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

Cell = str | int | float | bool | None
Record = dict[str, Any]
"""A row of a table, its cells by column."""
Verdict = Literal["reproduced", "refuted", "not comparable"]


@dataclass(frozen=True, slots=True)
class Table:
    """A titled table; every row has one cell a column, None where there is no value."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, title: str, records: Iterable[Mapping[str, Any]], notes: Iterable[str] = ()) -> Table:
        """Return a table of records: its columns are their keys, in the order in which they first occur."""
        listed = list(records)
        columns = tuple(dict.fromkeys(name for record in listed for name in record))
        rows = tuple(tuple(record.get(name) for name in columns) for record in listed)
        return cls(title, columns, rows, tuple(notes))

    def records(self) -> list[Record]:
        """Return one dictionary a row, keyed by column."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def plain(self) -> dict[str, object]:
        """Return title, notes and rows as JSON states them, numbers that are not finite as null."""
        rows = [
            {name: None if isinstance(cell, float) and not math.isfinite(cell) else cell for name, cell in row.items()}
            for row in self.records()
        ]
        return {"title": self.title, "notes": list(self.notes), "rows": rows}

    def texts(self) -> list[tuple[str, ...]]:
        """Return the cells as people read them: four digits, thousands separated, yes and no."""
        return [tuple(readable(cell) for cell in row) for row in self.rows]


def readable(cell: Cell) -> str:
    """Return a cell as people read it."""
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, str):
        return cell
    if isinstance(cell, float) and not math.isfinite(cell):
        return str(cell)
    if isinstance(cell, int) or abs(cell) >= 1000:
        return f"{cell:,.0f}"
    return f"{cell:.4g}"


@dataclass(frozen=True, slots=True)
class Statement:
    """What a paper says, in short, and what was measured: whether it ``holds`` here, None where they do not compare.

    ``where`` is the figure, table, theorem or section, ``why`` the cause where it does not hold or compare.
    """

    where: str
    published: str
    measured: str
    holds: bool | None
    why: str = ""

    @property
    def verdict(self) -> Verdict:
        """Return the statement's fate in a word or two."""
        return "not comparable" if self.holds is None else "reproduced" if self.holds else "refuted"

    @property
    def line(self) -> str:
        """Return the statement as one line for people."""
        cause = f" ({self.why})" if self.why else ""
        return f"{self.verdict}: {self.where}: published: {self.published}; measured: {self.measured}{cause}"


def statements_table(statements: Sequence[Statement], figure: str = "") -> Table:
    """Return statements as a table; ``figure`` is the file that shows what was measured."""
    names = ("where", "published", "measured", "verdict", "why")
    records = ({name: getattr(statement, name) for name in names} for statement in statements)
    return Table.of("What the paper says", ({**record, "figure": figure} for record in records))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an experiment leaves: its tables, the files written, and one line for every check that did not hold.

    ``statements`` are what the paper says next to what was measured.
    """

    tables: tuple[Table, ...]
    files: tuple[Path, ...] = ()
    failures: tuple[str, ...] = ()
    statements: tuple[Statement, ...] = ()

    @property
    def ok(self) -> bool:
        """Return whether every check held."""
        return not self.failures

    @property
    def figure(self) -> str:
        """Return the name of the first picture, of a table where nothing is drawn, "" without files."""
        names = [path.name for path in self.files]
        return next((name for name in names if name.endswith(".png")), names[0] if names else "")

    def record(self, name: str) -> dict[str, object]:
        """Return what JSON says of the experiment ``name``."""
        return {
            "name": name,
            "statements": [
                {**asdict(item), "verdict": item.verdict, "figure": self.figure} for item in self.statements
            ],
            "tables": [item.plain() for item in self.tables],
            "files": [str(path) for path in self.files],
            "failures": list(self.failures),
        }


class Reporter(Protocol):
    """Where an experiment shows what it does while it runs."""

    def progress(self, label: str, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` steps of the task ``label`` are finished."""

    def table(self, table: Table) -> None:
        """Show a finished table with its notes."""

    def note(self, text: str) -> None:
        """Show one line of text."""


def write_csv(path: Path, table: Table) -> Path:
    """Write a table with full precision, creating its folder; return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(table.columns)
        writer.writerows(["" if cell is None else cell for cell in row] for row in table.rows)
    return path


def publish(
    name: str,
    tables: Mapping[str, Table],
    out: Path,
    reporter: Reporter,
    *,
    files: Iterable[Path] = (),
    failures: Iterable[str] = (),
    statements: Iterable[Statement] = (),
) -> Outcome:
    """Show tables, write each under the experiment's name and its own ending, and return what the experiment leaves.

    ``files`` are the figures and whatever else was written; statements are written as a table of their own.
    """
    written, said = [], tuple(statements)
    for ending, table in tables.items():
        reporter.table(table)
        written.append(write_csv(out / f"{name}{ending}.csv", table))
    outcome = Outcome(tuple(tables.values()), (*written, *files), tuple(failures), said)
    if said:
        path = write_csv(out / f"{name}_statements.csv", statements_table(said, outcome.figure))
        return replace(outcome, files=(*outcome.files, path))
    return outcome
