"""Bring CSV and Parquet files and frames into an isolated DuckDB as text, column by column, and find bad rows in them.

DuckDB and Arrow put rows of the file into their messages. So their errors are classified where they are
caught and a clean one is raised after the handler has ended: nothing of the original is left, not even in
``__context__``.
"""

from __future__ import annotations

import csv
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from coco_opt.errors import InputError, Place
from coco_opt.files.columns import Columns
from coco_opt.files.inputs import SUFFIXES, Frame, Input
from coco_opt.histograms.arrays import Int64Array

if TYPE_CHECKING:
    import duckdb

T = TypeVar("T")

SHOWN_ROWS = 10
"""The rows with one error that a message lists."""
_HEADER_LIMIT = 1 << 20
_START = 1 << 12  # bytes that tell what a file is
_WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")  # .xlsx and .ods are zip archives; .xls
_BATCH = 1 << 20  # rows
_BUFFER = 1 << 20  # bytes of a file
# Python's own limit of 131,072 characters a field would refuse what DuckDB reads: lines of up to 2 MB.
csv.field_size_limit(max(csv.field_size_limit(), 1 << 21))
_SETTINGS = (
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET python_enable_replacements = false",
    "SET preserve_insertion_order = true",
    "SET threads = 2",
)
_MEMORY = "1GB"  # where DuckDB may write to disk: a process then stays below 2 GB
_DISK_FULL = "the table does not fit in memory, nor on the disk of the private folder: free some of it"
_MISQUOTED = 'has an unclosed or misplaced quote (")'
_UNEVEN = "has more or fewer fields than the header"
_DELIMITERS = (",", ";", "\t")
_ENDS = {"\n": "LF (Unix)", "\r\n": "CRLF (Windows)", "\r": "CR (old Mac)"}
_CSV_OPTIONS = (
    "header = true, quote = '\"', escape = '\"', comment = '', nullstr = '', "
    "null_padding = false, ignore_errors = false, auto_detect = false, strict_mode = true, "
    "encoding = 'utf-8', compression = 'none'"
)


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a table: the first of them by rowid, at most ``SHOWN_ROWS``, and how many there are."""

    first: tuple[int, ...]
    count: int

    def __bool__(self) -> bool:
        return self.count > 0


@dataclass(frozen=True, slots=True)
class Loaded:
    """A table of the user's in DuckDB: text columns c0, c1, ... in its own order, and where its rows came from.

    ``names`` are what the columns are called here, in the order of c0, c1, ...; ``shown`` what they are called there.
    """

    con: duckdb.DuckDBPyConnection
    table: str
    source: Input
    names: tuple[str, ...]
    shown: tuple[str, ...]
    delimiter: str = ","

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
        """Return the rows whose rowids a query returns as ``row``."""
        count, first = self.fetch(f"SELECT count(*), min(row, {SHOWN_ROWS}) FROM ({query})")[0]
        return Rows(tuple(map(int, first or ())), int(count))

    def place(self, rows: int | Rows | None = None, column: int | None = None) -> Place:
        """Return the place of one row, by its rowid, or of some in the user's file; O(rows), for errors only."""
        shown = None if column is None else self.shown[column]
        if rows is None:
            return Place(self.source.name, None, shown)
        bad = rows if isinstance(rows, Rows) else Rows((rows,), 1)
        numbers = tuple(rowid + 1 for rowid in bad.first)
        if self.source.path is not None and self.source.is_csv:
            numbers = _csv_rows(self.source.path, bad.first, self.delimiter)
        return Place(self.source.name, numbers[0], shown, numbers if bad.count > 1 else (), bad.count)


@contextmanager
def isolated(inputs: Sequence[Input], spill: Path | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open an in-memory DuckDB that can read the files among ``inputs`` and nothing else, and writes nowhere.

    Given a private folder (``files.scratch``), it takes little memory and writes there what does not fit, rows as
    they are.
    """
    import duckdb

    con = duckdb.connect(":memory:")
    try:
        # A bar is on by default where Python runs no script file. Notebooks that can draw none refuse the word, too.
        with suppress(duckdb.InvalidInputException):
            con.execute("SET enable_progress_bar = false")
        for setting in _SETTINGS:
            con.execute(setting)
        con.execute(f"SET temp_directory = {_quoted('' if spill is None else str(spill))}")
        if spill is not None:
            con.execute(f"SET memory_limit = '{_MEMORY}'")
        # A name with * ? or [ is looked up by its escaped form first, then opened by its own.
        files = [source.path for source in inputs if source.path is not None]
        allowed = ", ".join(_quoted(name) for path in files for name in (str(path), _literal(path)))
        con.execute(f"SET allowed_paths = [{allowed}]")
        con.execute("SET enable_external_access = false")
        con.execute("SET lock_configuration = true")
        yield con
    finally:
        con.close()


def load(
    con: duckdb.DuckDBPyConnection, table: str, source: Input, columns: Columns, only: Sequence[str] = ()
) -> Loaded:
    """Check a table's columns and bring it into DuckDB as text; a CSV file may use commas, semicolons or tabs.

    ``only`` names those to bring where not all are wanted, as they are called here.
    Texts are brought into one Unicode normal form (NFC), so that what looks the same is the same.

    Raises InputError: file-not-found, unknown-format, empty-file, unreadable-file, malformed-row,
    out-of-memory and the codes of ``Columns.check``.
    """
    delimiter = ","

    def ours(names: Sequence[str]) -> dict[str, str]:
        return {user: own for own, user in columns.called(source, names, 1).items()}

    def selection(names: Sequence[str]) -> list[int]:
        own = ours(names)
        selected = columns.renamed(columns.called(source, names, 1)).selected(names)
        return [k for k in selected if not only or own.get(names[k], names[k]) in only]

    opened = batches_of(source, columns)
    if opened is None:
        where = cast("Path", source.where)
        _check_file(where)
        names, delimiter = _csv_header(where, columns.renamed(source.called()).required)
        columns.renamed(columns.called(source, names, 1)).check(names, source.name, 1)
        selected = selection(names)
        _naming_rows(
            where, delimiter, len(names), lambda: _load_csv(con, table, where, delimiter, len(names), selected)
        )
    else:
        names = list(opened.schema.names)
        selected = selection(names)
        some = replace(opened, columns=tuple(selected))
        quietly(source, lambda: load_texts(con, table, some.texts(), len(selected)))
    shown = tuple(names[k] for k in selected)
    own = ours(names)
    return Loaded(con, table, source, tuple(own.get(name, name) for name in shown), shown, delimiter)


@dataclass(frozen=True, eq=False, slots=True)
class Batches:
    """A Parquet file or a frame with the columns it must have, in batches of their own types; see ``batches_of``."""

    source: Input
    schema: Any
    columns: tuple[int, ...]
    own: Mapping[str, str]

    def is_integer(self, column: int) -> bool:
        """Return whether a column holds integers of at most 63 bits and a sign."""
        import pyarrow.types as kinds

        kind = self.schema.types[self.columns[column]]
        return bool(kinds.is_integer(kind) and not kinds.is_uint64(kind))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield the Arrow arrays of the columns, a million rows at a time; any number of times. Texts are coded."""
        return self._read([self._names[k] for k in range(len(self.columns)) if not self.is_integer(k)])

    def texts(self) -> Iterator[tuple[Any, ...]]:
        """Yield the same as Arrow arrays of strings."""
        import pyarrow as pa

        return (tuple(array.cast(pa.string()) for array in arrays) for arrays in self._read())

    @property
    def names(self) -> tuple[str, ...]:
        """Return what the columns are called here."""
        return tuple(self.own.get(name, name) for name in self._names)

    @property
    def _names(self) -> list[str]:
        return [self.schema.names[k] for k in self.columns]

    def _read(self, coded: Sequence[str] = ()) -> Iterator[tuple[Any, ...]]:
        import pyarrow.parquet as pq

        names, where = self._names, self.source.where
        if isinstance(where, Frame):
            for batch in where.table.select(list(self.columns)).to_batches(max_chunksize=_BATCH):
                yield tuple(batch.columns)
            return
        # By default Arrow reads a whole file ahead, and a whole column of a row group in one piece.
        options = {"page_checksum_verification": True, "pre_buffer": False, "buffer_size": _BUFFER}
        with pq.ParquetFile(where, read_dictionary=list(coded), **options) as file:
            for batch in file.iter_batches(batch_size=_BATCH, columns=list(dict.fromkeys(names))):
                # By name: for a column x, Arrow's reader also returns one called "x.y".
                yield tuple(batch.column(batch.schema.get_field_index(name)) for name in names)

    def integers(self, array: Any) -> Any:
        """Return a column of integers as one of int64."""
        import pyarrow as pa

        return array.cast(pa.int64())

    def numbers(self, array: Any) -> Int64Array:
        """Return a column of integers without empty entries as int64."""
        return np.asarray(self.integers(array).to_numpy(zero_copy_only=False), np.int64)

    def place(self, row: int | None = None, column: int | None = None) -> Place:
        """Return the place of a row, from 0, in the user's table."""
        name = None if column is None else self.schema.names[self.columns[column]]
        return Place(self.source.name, None if row is None else row + 1, name)


def batches_of(source: Input, columns: Columns) -> Batches | None:
    """Check the columns of a Parquet file or a frame as ``load`` does; None for a CSV file, whose columns have no type.

    Raises InputError: file-not-found, unknown-format, empty-file, unreadable-file, wrong-type and the codes of
    ``Columns.check``.
    """
    import pyarrow.parquet as pq

    if source.is_csv:
        return None
    where = source.where
    if isinstance(where, Frame):
        schema = where.table.schema
    else:
        _check_file(where)
        schema = quietly(source, lambda: pq.read_schema(where))
    own = columns.called(source, schema.names)
    called = columns.renamed(own)
    called.check(list(schema.names), source.name, None)
    _check_types(schema, source.name, called)
    selected = tuple(called.selected(schema.names))
    return Batches(source, schema, selected, {there: name for name, there in own.items()})


def header(path: Path) -> tuple[str, ...]:
    """Return a file's column names; nothing below its header is read.

    Raises InputError: file-not-found, unknown-format, empty-file, unreadable-file, no-header.
    """
    _check_file(path)
    source = Input(path)
    names = _csv_header(path)[0] if source.is_csv else quietly(source, lambda: _parquet_names(path))
    return tuple(names)


def names_of(source: Input) -> tuple[str, ...]:
    """Return the column names of a file or a frame; raises InputError as ``header`` does."""
    return tuple(source.where.table.schema.names) if isinstance(source.where, Frame) else header(source.where)


def unfit_columns(path: Path) -> dict[str, str]:
    """Return what columns of a Parquet file hold that can be no names: decimal numbers, dates; none for a CSV file.

    Raises InputError as ``header`` does.
    """
    import pyarrow.parquet as pq

    if Input(path).is_csv:
        return {}
    _check_file(path)
    schema = quietly(path, lambda: pq.read_schema(path))
    types = zip(schema.names, schema.types, strict=True)
    return {name: f"of the type {kind}" for name, kind in types if not _is_id(kind)}


def quietly(source: Path | Input, action: Callable[[], T]) -> T:
    """Run ``action``; turn any error of DuckDB, Arrow or the file system into one that shows no data.

    DuckDB answers Ctrl-C by a RuntimeError: it becomes the KeyboardInterrupt it was.
    """
    failure: BaseException
    try:
        return action()
    except _foreign_errors() as error:
        failure = _classified(source.name, type(error).__name__, str(error))
    except RuntimeError as error:
        if str(error) != "Query interrupted":
            raise
        failure = KeyboardInterrupt()
    raise failure


def _foreign_errors() -> tuple[type[Exception], ...]:
    """Return what ``quietly`` turns into errors of its own; their packages are loaded where something failed."""
    import duckdb
    import pyarrow as pa

    return (duckdb.Error, pa.ArrowException, OSError, UnicodeError, MemoryError, ValueError)


def _classified(name: str, kind: str, text: str) -> InputError:
    """Choose a code and a row number from a foreign error; nothing else of its text is used."""
    if kind in ("OutOfMemoryException", "ArrowMemoryError", "MemoryError"):
        full = "max_temp_directory_size" in text
        return InputError("out-of-memory", _DISK_FULL if full else "the table does not fit in memory", Place(name))
    if "No space left" in text:
        return InputError("out-of-memory", _DISK_FULL, Place(name))
    if kind in ("BinderException", "CatalogException", "ParserException", "ResourceInUseException"):
        return InputError("internal", f"could not be read, a bug here ({kind}): please report it", Place(name))
    line = re.search(r"CSV Error on Line: (\d+)", text)
    place = Place(name, int(line.group(1)) if line else None)
    if "not utf-8 encoded" in text or kind == "UnicodeDecodeError":
        return InputError("unreadable-file", "is not UTF-8 text: convert it", place)
    if "Expected Number of Columns" in text:
        return InputError("malformed-row", _UNEVEN, place)
    if "Maximum line size" in text:
        return InputError("malformed-row", "is longer than 2 MB: is a quote or a line end missing?", place)
    if "unterminated quote" in text:
        return InputError("malformed-row", _MISQUOTED, place)
    if "reached an invalid state" in text:
        return InputError("malformed-row", "mixes kinds of line ends, or has a misplaced quote", place)
    return InputError("unreadable-file", "is damaged, truncated or not of its format", place)


def _naming_rows(path: Path, delimiter: str, width: int, action: Callable[[], None]) -> None:
    """Run ``action`` quietly; where it failed, name the rows of a CSV file that do not fit, or another line end."""
    failure: InputError
    try:
        quietly(path, action)
        return
    except InputError as error:
        failure = error
    malformed = failure.code == "malformed-row"
    unclosed = quietly(path, lambda: _misquoted_row(path, delimiter)) if malformed else None
    changed = quietly(path, lambda: _changed_line_end(path)) if malformed and unclosed is None else None
    if unclosed is not None:
        failure = InputError("malformed-row", _MISQUOTED, Place(path.name, unclosed))
    elif changed is not None:
        row, before, after = changed
        message = f"ends in {after}, and the rows before it in {before}: save the file with one kind of line ends"
        failure = InputError("malformed-row", message, Place(path.name, row))
    elif failure.message == _UNEVEN:
        rows, count = quietly(path, lambda: _uneven_rows(path, delimiter, width))
        if count > 1:
            failure = InputError("malformed-row", _UNEVEN, Place(path.name, rows[0], None, rows, count))
    raise failure


def _uneven_rows(path: Path, delimiter: str, width: int) -> tuple[tuple[int, ...], int]:
    """Return the first rows with fewer or more fields than the header, and the number of all; none if it is unclear.

    Empty fields after the last column do no harm.
    """
    rows: list[int] = []
    count = 0
    with path.open(encoding="utf-8-sig", newline="") as file, suppress(csv.Error):
        for row, record in enumerate(csv.reader(file, delimiter=delimiter), start=1):
            if record and (len(record) < width or any(record[width:])):
                count += 1
                rows += [row] if count <= SHOWN_ROWS else []
        return tuple(rows), count
    return (), 0


def _misquoted_row(path: Path, delimiter: str) -> int | None:
    """Return the row in which a quote opens a text that is not closed, or closes one amid it; None without any.

    After such a quote, what is text and what is not are exchanged, line ends too: it is looked for first.
    """
    row = 0
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        try:
            for _ in csv.reader(file, delimiter=delimiter, strict=True):
                row += 1
        except csv.Error as error:
            return None if "limit" in str(error) else row + 1  # a text beyond the limit may be as it should be
    return None


def _changed_line_end(path: Path) -> tuple[int, str, str] | None:
    """Return the first row that ends otherwise than the first one, and both ends in words; quoted ones are text."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        ends, quoted_now, row = "", False, 0
        for line in file:  # at \n, \r and \r\n, which stay as they are
            quoted_now ^= line.count('"') % 2 == 1
            end = line[len(line.rstrip("\r\n")) :]
            if quoted_now or not end:
                continue
            row += 1
            if ends and end != ends and end in _ENDS:
                return row, _ENDS[ends], _ENDS[end]
            ends = ends or end
    return None


def _check_file(path: Path) -> None:
    if path.suffix.lower() not in SUFFIXES:
        raise InputError("unknown-format", "must be a .csv, .tsv or .parquet file", Place(path.name))
    if not os.path.exists(path):  # noqa: PTH110 - False too for a name that no file system takes
        raise InputError("file-not-found", f"no such file in {path.parent}", Place(path.name))
    if not path.is_file():
        raise InputError("unreadable-file", "is not a file", Place(path.name))
    start = quietly(path, lambda: _start(path))
    if not start.removeprefix(b"\xef\xbb\xbf").strip():
        raise InputError("empty-file", "is empty", Place(path.name))
    if start.startswith(_WORKBOOKS):
        message = "is an Excel workbook or a zip archive, whatever its name says: save the table as CSV"
        raise InputError("unreadable-file", message, Place(path.name))


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_START)


def _csv_header(path: Path, required: Sequence[str] = ()) -> tuple[list[str], str]:
    """Return the names in the first row and what separates them: what gives the required ones, or else most names."""

    def names(line: str, delimiter: str) -> list[str] | None:
        try:
            return next(csv.reader([line], strict=True, delimiter=delimiter), [])
        except csv.Error:  # quoted names end at another delimiter
            return None

    def read() -> list[tuple[list[str], str]]:
        with path.open("rb") as file:
            line = file.readline(_HEADER_LIMIT).decode("utf-8-sig")
        line = unicodedata.normalize("NFC", line)
        headers = [(names(line, mark), mark) for mark in _DELIMITERS]
        return [(header, mark) for header, mark in headers if header is not None]

    bad = Place(path.name, 1)
    try:
        headers = quietly(path, read)
    except InputError as error:
        failure = InputError(error.code, "is not UTF-8 text: convert it", bad)
    else:
        if headers:
            # max returns the first of equals: the comma, where nothing else decides.
            return max(headers, key=lambda header: (sum(name in header[0] for name in required), len(header[0])))
        failure = InputError("no-header", "the first row is not a row of column names", bad)
    raise failure


def _load_csv(
    con: duckdb.DuckDBPyConnection, table: str, path: Path, delimiter: str, width: int, selected: Sequence[int]
) -> None:
    columns = ", ".join(f"'f{k}': 'VARCHAR'" for k in range(width))
    options = f"delim = {_quoted(delimiter)}, {_CSV_OPTIONS}"
    source = f"read_csv({_quoted(_literal(path))}, columns = {{{columns}}}, {options})"
    chosen = ", ".join(f"nfc_normalize(f{k}) AS c{place}" for place, k in enumerate(selected))
    con.execute(f"CREATE TABLE {table} AS SELECT {chosen} FROM {source}")


def _parquet_names(path: Path) -> list[str]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        return list(file.schema_arrow.names)


def load_texts(con: duckdb.DuckDBPyConnection, table: str, arrays: Iterable[tuple[Any, ...]], columns: int) -> None:
    """Fill a new table with text columns c0, c1, ... from batches of Arrow strings, in their order and NFC.

    What stops the batches, Ctrl-C too, is raised as it is; DuckDB would wrap it.
    """
    import duckdb
    import pyarrow as pa

    schema = pa.schema([(f"c{k}", pa.string()) for k in range(columns)])
    stopped: list[BaseException] = []

    def batches() -> Iterator[Any]:
        try:
            for batch in arrays:
                yield pa.record_batch(list(batch), schema=schema)
        except (Exception, KeyboardInterrupt) as error:
            stopped.append(error)
            raise

    con.register("arrow_source", pa.RecordBatchReader.from_batches(schema, batches()))
    chosen = ", ".join(f"nfc_normalize({name}) AS {name}" for name in schema.names)
    try:
        con.execute(f"CREATE TABLE {table} AS SELECT {chosen} FROM arrow_source")
    except duckdb.Error:
        if not stopped:
            raise
    finally:
        con.unregister("arrow_source")
    if stopped:
        raise stopped[0]


def _check_types(schema: Any, name: str, columns: Columns) -> None:
    """Raise InputError unless counts are integers and ids are strings or integers."""
    import pyarrow.types as kinds

    for k in columns.selected(schema.names):
        column, kind = schema.names[k], schema.types[k]
        kind = kind.value_type if kinds.is_dictionary(kind) else kind
        place = Place(name, None, column if column in columns.required or not columns.private else None)
        if column in columns.counts:
            if not kinds.is_integer(kind):
                raise InputError("not-an-integer", f"must have an integer type, and has {kind}", place)
        elif not _is_id(kind):
            message = f"names and ids must be strings or integers, and this column has the type {kind}"
            raise InputError("wrong-type", message, place)


def _is_id(kind: Any) -> bool:
    """Return whether a type of Arrow's can hold names and ids: integers or strings, coded or not."""
    import pyarrow.types as kinds

    kind = kind.value_type if kinds.is_dictionary(kind) else kind
    return bool(
        kinds.is_integer(kind) or kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind)
    )


def _csv_rows(path: Path, rowids: Sequence[int], delimiter: str) -> tuple[int, ...]:
    """Return the rows in the file of records, in rising order: DuckDB skips blank lines, people count them."""
    rows, seen = {rowid: rowid + 2 for rowid in rowids}, -2
    with path.open(encoding="utf-8", newline="") as file:
        for row, record in enumerate(csv.reader(file, delimiter=delimiter), start=1):
            seen += bool(record)
            if record and seen in rows:
                rows[seen] = row
            if seen >= rowids[-1]:
                break
    return tuple(rows.values())


def _literal(path: Path) -> str:
    """Return a DuckDB pattern that matches this path only."""
    return re.sub(r"([*?\[])", r"[\1]", str(path))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
