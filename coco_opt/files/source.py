"""Bring CSV and Parquet files and frames into an isolated DuckDB as text, column by column, and find bad rows there."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from coco_opt.errors import InputError, Place
from coco_opt.files.batches import Batches, batches_of, column_types, is_id
from coco_opt.files.csv_text import SHOWN_ROWS, Rows, check_file, csv_header, csv_rows, literal, load_csv, quoted
from coco_opt.files.foreign_errors import is_interrupt, quietly
from coco_opt.files.inputs import Columns, Input, all_columns, check_columns, parts_of

if TYPE_CHECKING:
    import duckdb

T = TypeVar("T")
_SETTINGS = (
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET python_enable_replacements = false",
    "SET preserve_insertion_order = true",
    # DuckDB does not know how many rows a stream has, and would keep them all to look up each of the few it joins.
    "SET disabled_optimizers = 'build_side_probe_side'",
    "SET threads = 2",
)
_MEMORY = "256MB"  # where DuckDB may write to disk; with more it is hardly faster


@dataclass(frozen=True, slots=True)
class LoadedPart:
    """A file, or a frame, of a loaded table: the rowid of its first row, and what separates its columns."""

    source: Input
    start: int
    delimiter: str = ","

    def numbers(self, rowids: Sequence[int]) -> tuple[int, ...]:
        """Return the numbers of rows, given by rising rowids, as its user counts them; O(rows)."""
        inside = [rowid - self.start for rowid in rowids]
        if self.source.is_csv:
            return csv_rows(self.source.file, inside, self.delimiter)
        return tuple(rowid + 1 for rowid in inside)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A table of the user's in DuckDB: text columns c0, c1, ... in its own order, and where its rows came from.

    ``names`` are what the columns are called here, in the order of c0, c1, ...; ``shown`` what they are called there.
    ``parts`` are its files, in the order of their rows.
    """

    con: duckdb.DuckDBPyConnection
    table: str
    source: Input
    names: tuple[str, ...]
    shown: tuple[str, ...]
    parts: tuple[LoadedPart, ...]

    def value(self, query: str) -> Any:
        """Return the single value of a query, in which {t} stands for the table."""
        return self.fetch(query)[0][0]

    def fetch(self, query: str) -> list[tuple[Any, ...]]:
        """Return all rows of a query, in which {t} stands for the table."""
        # fetchall, not fetchone: a result left open blocks the connection's next relation.
        return quietly(self.source, lambda: self.con.execute(query.replace("{t}", self.table)).fetchall())

    def texts(self, column: int) -> list[Any]:
        """Return a column as Arrow arrays of strings, in the table's order."""
        query = f"SELECT c{column} FROM {self.table} ORDER BY rowid"
        return quietly(self.source, lambda: self.con.sql(query).to_arrow_table().column(0).chunks)

    def rows(self) -> int:
        """Return the number of rows, the header not counted."""
        return int(self.value("SELECT count(*) FROM {t}"))

    def rows_where(self, condition: str, source: str = "{t}") -> Rows:
        """Return the rows that meet a condition; ``source`` is the table, perhaps joined to others."""
        return self.listed_rows(f"SELECT {{t}}.rowid AS row FROM {source} WHERE {condition}")

    def listed_rows(self, query: str) -> Rows:
        """Return the rows whose rowids a query returns as ``row``, those of each file by themselves."""
        starts = ", ".join(f"({part.start})" for part in self.parts[1:])
        # An empty file begins where the next file does: its place is passed over.
        part = f"(SELECT count(*) FROM (VALUES {starts}) AS parts(first) WHERE first <= row)" if starts else "0"
        grouped = f"SELECT {part} AS part, count(*), min(row, {SHOWN_ROWS}) FROM ({query}) GROUP BY part ORDER BY part"
        rows = [Rows(tuple(map(int, first)), int(count), int(part)) for part, count, first in self.fetch(grouped)]
        return replace(rows[0], further=tuple(rows[1:])) if rows else Rows((), 0)

    def rows_at(self, rowids: Sequence[int]) -> Rows:
        """Return rows by their rising rowids, at least one; those of each file by themselves."""
        by_part: dict[int, list[int]] = {}
        for rowid in rowids:
            by_part.setdefault(self._part_of(rowid), []).append(rowid)
        first, *further = (Rows(tuple(each[:SHOWN_ROWS]), len(each), part) for part, each in by_part.items())
        return replace(first, further=tuple(further))

    def _part_of(self, rowid: int) -> int:
        return bisect_right([part.start for part in self.parts], rowid) - 1

    def place(self, rows: int | Rows | None = None, column: int | None = None) -> Place:
        """Return the place of one row, by its rowid, or of some in the user's files; O(rows), for errors only."""
        shown = None if column is None else self.shown[column]
        if rows is None:
            return Place(self.source.name, None, shown)
        first, *further = (
            self._place_in(each, shown) for each in (rows if isinstance(rows, Rows) else self.rows_at((rows,)))
        )
        return replace(first, further=tuple(further))

    def _place_in(self, rows: Rows, shown: str | None) -> Place:
        part = self.parts[rows.part]
        numbers = part.numbers(rows.first)
        return Place(part.source.name, numbers[0], shown, numbers if rows.count > 1 else (), rows.count)


class Faults:
    """Collects errors in rows of a table, so that all can be corrected at once.

    They are those that checks raise, in a ``with`` block each, and noted ones; ``check`` raises them as one.

    An error that lies in no row stops the checks: what comes after it could not be trusted.
    """

    def __init__(self) -> None:
        self._errors: list[InputError] = []

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, InputError) or error.place is None or error.place.row is None:
            return False
        alone = (type(each)(each.code, each.message, each.place) for each in (error, *error.more))
        self._errors += alone
        return True

    def note(
        self,
        table: Loaded,
        rows: Rows | Sequence[int],
        column: int | None,
        code: str,
        message: str,
        kind: type[InputError] = InputError,
    ) -> None:
        """Note an error of some rows of a table, by their rising rowids, and of a column, None for the whole rows."""
        if rows:
            found = rows if isinstance(rows, Rows) else table.rows_at(rows)
            self._errors.append(kind(code, message, table.place(found, column)))

    def __bool__(self) -> bool:
        return bool(self._errors)

    def check(self) -> None:
        """Raise the first error, with the others in ``more``, where there is any."""
        if self._errors:
            first, *more = self._errors
            raise type(first)(first.code, first.message, first.place, tuple(more))


@contextmanager
def isolated(inputs: Sequence[Input], spill: Path | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open an in-memory DuckDB that can read the files among ``inputs`` and nothing else, and writes nowhere.

    Given a private folder (``files.scratch``), it takes little memory and writes there what does not fit, rows as
    they are. Ctrl-C in any of its queries is a KeyboardInterrupt.
    """
    import duckdb

    con, interrupted = duckdb.connect(":memory:"), False
    try:
        # A bar is on by default where Python runs no script file. Notebooks that can draw none refuse the word, too.
        with suppress(duckdb.InvalidInputException):
            con.execute("SET enable_progress_bar = false")
        for setting in _SETTINGS:
            con.execute(setting)
        con.execute(f"SET temp_directory = {quoted('' if spill is None else str(spill))}")
        if spill is not None:
            con.execute(f"SET memory_limit = '{_MEMORY}'")
        # A name with * ? or [ is looked up by its escaped form first, then opened by its own.
        files = [part.path for source in inputs for part in parts_of(source) if part.path is not None]
        allowed = ", ".join(quoted(name) for path in files for name in (str(path), literal(path)))
        con.execute(f"SET allowed_paths = [{allowed}]")
        con.execute("SET enable_external_access = false")
        con.execute("SET lock_configuration = true")
        yield con
    except RuntimeError as error:
        interrupted = is_interrupt(error)
        if not interrupted:
            raise
    finally:
        con.close()
    if interrupted:
        raise KeyboardInterrupt


def load(
    con: duckdb.DuckDBPyConnection, table: str, source: Input, columns: Columns, only: Sequence[str] = ()
) -> Loaded:
    """Check a table's columns and bring it into DuckDB as text; a CSV file may use commas, semicolons or tabs.

    ``only`` names those to bring where not all are wanted, as they are called here.
    Texts are brought into one Unicode normal form (NFC), so that what looks the same is the same.

    Raises InputError: file-not-found, unknown-format, empty-file, unreadable-file, malformed-row,
    out-of-memory, unlike-parts and the codes of ``parts_of`` and ``Columns.check``.
    """
    opened = batches_of(source, columns)
    if opened is None:
        headers = [_csv_columns(part, columns) for part in parts_of(source)]
        names, expected = headers[0].names, columns.renamed(columns.called(source, headers[0].names, 1))
        for header in headers:
            expected.check(header.names, header.part.name, 1)
            check_columns(expected, header.names, header.part.name, names, headers[0].part.name)
    else:
        names = list(opened.schema.names)
        expected = columns.renamed(columns.called(source, names, 1))
    own = {there: name for name, there in columns.called(source, names, 1).items()}
    shown = [names[k] for k in expected.selected(names)]
    shown = [name for name in shown if not only or own.get(name, name) in only]
    con.execute(f"CREATE TABLE {table} ({', '.join(f'c{k} VARCHAR' for k in range(len(shown)))})")
    if opened is None:
        parts = tuple(_append_csv(con, table, headers, shown))
    else:
        some = replace(opened, columns=tuple(names.index(name) for name in shown))
        parts = tuple(_append_batches(con, table, some))
    return Loaded(con, table, source, tuple(own.get(name, name) for name in shown), tuple(shown), parts)


@dataclass(frozen=True, slots=True)
class _CsvColumns:
    """A CSV file, its columns and those of its sub-folders behind them, and what separates them in the file."""

    part: Input
    names: list[str]
    delimiter: str


def _csv_columns(part: Input, columns: Columns) -> _CsvColumns:
    check_file(part)
    required = [name for name in columns.renamed(part.called()).required if name not in part.partition]
    names, delimiter = csv_header(part, required)
    return _CsvColumns(part, all_columns(part, names), delimiter)


def _append_csv(
    con: duckdb.DuckDBPyConnection, table: str, headers: Sequence[_CsvColumns], shown: Sequence[str]
) -> Iterator[LoadedPart]:
    """Append columns of CSV files to a table; yield the files with the rowids of their first rows."""
    start = 0
    for header in headers:
        yield LoadedPart(header.part, start, header.delimiter)
        start += load_csv(con, table, header.part, header.delimiter, header.names, shown)


def _append_batches(con: duckdb.DuckDBPyConnection, table: str, opened: Batches) -> Iterator[LoadedPart]:
    """Append columns of Parquet files or a frame to a table; yield them with the rowids of their first rows."""
    start = 0
    for part in opened.by_part():
        source = part.parts[0]
        yield LoadedPart(source, start)
        start += quietly(source, partial(_append_texts, con, table, part.texts(), len(part.columns)))


def names_of(source: Input) -> tuple[str, ...]:
    """Return the column names of a file, a frame, or the first file of a folder; nothing below a header is read.

    Raises InputError: file-not-found, unknown-format, empty-file, unreadable-file, no-header.
    """
    part = parts_of(source)[0]
    if not part.is_csv:
        return tuple(column_types(part))
    check_file(part)
    return tuple(all_columns(part, csv_header(part)[0]))


def unfit_columns(path: Path) -> dict[str, str]:
    """Return what columns of a Parquet file hold that can be no names: decimal numbers, dates; none for a CSV file.

    Raises InputError as ``names_of`` does.
    """
    part = parts_of(Input(path))[0]
    types = {} if part.is_csv else column_types(part)
    return {name: f"of the type {kind}" for name, kind in types.items() if not is_id(kind)}


def _append_texts(con: duckdb.DuckDBPyConnection, table: str, arrays: Iterable[tuple[Any, ...]], columns: int) -> int:
    """Append batches of Arrow strings to a table, in their order and NFC; return the number of rows.

    What stops the batches, Ctrl-C too, is raised as it is; DuckDB would wrap it.
    """
    import pyarrow as pa

    schema = pa.schema([(f"c{k}", pa.string()) for k in range(columns)])
    chosen = ", ".join(f"nfc_normalize({name})" for name in schema.names)
    query = f"INSERT INTO {table} SELECT {chosen} FROM arrow_source"
    return int(streamed(con, "arrow_source", schema, arrays, lambda: con.execute(query).fetchall()[0][0]))


def streamed(
    con: duckdb.DuckDBPyConnection,
    name: str,
    schema: Any,
    arrays: Iterable[tuple[Any, ...]],
    action: Callable[[], T],
) -> T:
    """Run ``action`` while the connection has a relation of batches of Arrow arrays, which one query can read.

    What stops the batches, Ctrl-C too, is raised as it is; DuckDB would wrap it.
    """
    import pyarrow as pa

    stopped: list[BaseException] = []

    def batches() -> Iterator[Any]:
        try:
            for batch in arrays:
                yield pa.record_batch(list(batch), schema=schema)
        except (Exception, KeyboardInterrupt) as error:
            stopped.append(error)
            raise

    con.register(name, pa.RecordBatchReader.from_batches(schema, batches()))
    try:
        return action()
    except Exception:  # of DuckDB's, or of Arrow's where it reads a result
        if not stopped:
            raise
    finally:
        con.unregister(name)
    raise stopped[0]  # here, where nothing of DuckDB's error is left in its context
