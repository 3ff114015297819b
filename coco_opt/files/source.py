"""Bring CSV and Parquet files into an isolated DuckDB as text, column by column, and find bad rows in them.

DuckDB and Arrow put rows of the file into their messages. So their errors are classified where they are
caught and a clean one is raised after the handler has ended: nothing of the original is left, not even in
``__context__``.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from coco_opt.errors import InputError, Place
from coco_opt.files.columns import Columns

if TYPE_CHECKING:
    import duckdb

T = TypeVar("T")
StrPath = str | Path

_HEADER_LIMIT = 1 << 20
_SETTINGS = (
    "SET temp_directory = ''",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET python_enable_replacements = false",
    "SET preserve_insertion_order = true",
    "SET threads = 2",
)
_CSV_OPTIONS = (
    "header = true, delim = ',', quote = '\"', escape = '\"', comment = '', nullstr = '', "
    "null_padding = false, ignore_errors = false, auto_detect = false, strict_mode = true, "
    "encoding = 'utf-8', compression = 'none'"
)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A file as a DuckDB table: text columns c0, c1, ... in file order, and where its rows came from."""

    con: duckdb.DuckDBPyConnection
    table: str
    path: Path
    names: tuple[str, ...]

    @property
    def is_csv(self) -> bool:
        """Whether the file is CSV, whose rows count from its header line."""
        return self.path.suffix.lower() == ".csv"

    def value(self, query: str) -> Any:
        """Return the single value of a query, in which {t} stands for the table."""
        return self.fetch(query)[0][0]

    def fetch(self, query: str) -> list[tuple[Any, ...]]:
        """Return all rows of a query, in which {t} stands for the table."""
        # fetchall, not fetchone: a result left open blocks the connection's next relation.
        return quietly(self.path, lambda: self.con.execute(query.replace("{t}", self.table)).fetchall())

    def rows(self) -> int:
        """Return the number of rows, the header not counted."""
        return int(self.value("SELECT count(*) FROM {t}"))

    def first_row(self, condition: str, source: str = "{t}") -> int | None:
        """Return the smallest rowid that meets a condition."""
        found = self.value(f"SELECT min({{t}}.rowid) FROM {source} WHERE {condition}")
        return None if found is None else int(found)

    def place(self, rowid: int | None = None, column: int | None = None) -> Place:
        """Return the place of a row in the user's file; O(rows), for errors only."""
        row = None if rowid is None else _csv_row(self.path, rowid) if self.is_csv else rowid + 1
        return Place(self.path.name, row, None if column is None else self.names[column])


@contextmanager
def isolated(files: Sequence[Path]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open an in-memory DuckDB that can read ``files`` and nothing else, and that never writes to disk."""
    import duckdb

    con = duckdb.connect(":memory:")
    try:
        for setting in _SETTINGS:
            con.execute(setting)
        # A name with * ? or [ is looked up by its escaped form first, then opened by its own.
        allowed = ", ".join(_quoted(name) for path in files for name in (str(path), _literal(path)))
        con.execute(f"SET allowed_paths = [{allowed}]")
        con.execute("SET enable_external_access = false")
        con.execute("SET lock_configuration = true")
        yield con
    finally:
        con.close()


def load(con: duckdb.DuckDBPyConnection, table: str, path: Path, columns: Columns) -> Loaded:
    """Check a file's columns and bring it into DuckDB as text.

    Raises InputError: file-not-found, unknown-format, empty-file, unreadable-file, malformed-row,
    out-of-memory and the codes of ``Columns.check``.
    """
    _check_file(path)
    if path.suffix.lower() == ".csv":
        names = _csv_header(path)
        columns.check(names, path.name, 1)
        kept = columns.kept(names)
        quietly(path, lambda: _load_csv(con, table, path, len(names), kept))
    else:
        names = quietly(path, lambda: _parquet_names(path))
        columns.check(names, path.name, None)
        kept = columns.kept(names)
        quietly(path, lambda: _load_parquet(con, table, path, columns))
    return Loaded(con, table, path, tuple(names[k] for k in kept))


def header(path: Path) -> tuple[str, ...]:
    """Return a file's column names; nothing below its header is read.

    Raises InputError: file-not-found, unknown-format, empty-file, unreadable-file, no-header.
    """
    _check_file(path)
    names = _csv_header(path) if path.suffix.lower() == ".csv" else quietly(path, lambda: _parquet_names(path))
    return tuple(names)


def quietly(path: Path, action: Callable[[], T]) -> T:
    """Run ``action``; turn any error of DuckDB, Arrow or the file system into one that shows no data.

    DuckDB answers Ctrl-C by a RuntimeError: it becomes the KeyboardInterrupt it was.
    """
    import duckdb
    import pyarrow as pa

    failure: BaseException
    try:
        return action()
    except (duckdb.Error, pa.ArrowException, OSError, UnicodeError, MemoryError, ValueError) as error:
        failure = _classified(path, type(error).__name__, str(error))
    except RuntimeError as error:
        if str(error) != "Query interrupted":
            raise
        failure = KeyboardInterrupt()
    raise failure


def _classified(path: Path, kind: str, text: str) -> InputError:
    """Choose a code and a row number from a foreign error; nothing else of its text is used."""
    if kind in ("OutOfMemoryException", "ArrowMemoryError", "MemoryError"):
        return InputError("out-of-memory", "the table does not fit in memory", Place(path.name))
    if kind in ("BinderException", "CatalogException", "ParserException", "ResourceInUseException"):
        return InputError("internal", f"could not be read, a bug here ({kind}): please report it", Place(path.name))
    line = re.search(r"CSV Error on Line: (\d+)", text)
    place = Place(path.name, int(line.group(1)) if line else None)
    if "not utf-8 encoded" in text or kind == "UnicodeDecodeError":
        return InputError("unreadable-file", "is not UTF-8 text: convert it", place)
    if "Expected Number of Columns" in text:
        return InputError("malformed-row", "has more or fewer fields than the header", place)
    if "Maximum line size" in text:
        return InputError("malformed-row", "is longer than 2 MB: is a quote or a line end missing?", place)
    if "unterminated quote" in text:
        return InputError("malformed-row", 'has an unclosed or misplaced quote (")', place)
    if "reached an invalid state" in text:
        return InputError("malformed-row", "mixes kinds of line ends, or has a misplaced quote", place)
    return InputError("unreadable-file", "is damaged, truncated or not of its format", place)


def _check_file(path: Path) -> None:
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise InputError("unknown-format", "must be a .csv or .parquet file", Place(path.name))
    if not os.path.exists(path):  # noqa: PTH110 - False too for a name that no file system takes
        raise InputError("file-not-found", f"no such file in {path.parent}", Place(path.name))
    if not path.is_file():
        raise InputError("unreadable-file", "is not a file", Place(path.name))
    if quietly(path, lambda: path.stat().st_size) == 0:
        raise InputError("empty-file", "holds nothing", Place(path.name))


def _csv_header(path: Path) -> list[str]:
    def read() -> list[str]:
        with path.open("rb") as file:
            line = file.readline(_HEADER_LIMIT).decode("utf-8-sig")
        return next(csv.reader([line], strict=True), [])

    bad = Place(path.name, 1)
    try:
        return quietly(path, read)
    except csv.Error:
        failure = InputError("no-header", "the first row is not a row of column names", bad)
    except InputError as error:
        failure = InputError(error.code, "is not UTF-8 text: convert it", bad)
    raise failure


def _load_csv(con: duckdb.DuckDBPyConnection, table: str, path: Path, width: int, kept: Sequence[int]) -> None:
    columns = ", ".join(f"'f{k}': 'VARCHAR'" for k in range(width))
    source = f"read_csv({_quoted(_literal(path))}, columns = {{{columns}}}, {_CSV_OPTIONS})"
    chosen = ", ".join(f"f{k} AS c{place}" for place, k in enumerate(kept))
    con.execute(f"CREATE TABLE {table} AS SELECT {chosen} FROM {source}")


def _parquet_names(path: Path) -> list[str]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        return list(file.schema_arrow.names)


def _load_parquet(con: duckdb.DuckDBPyConnection, table: str, path: Path, columns: Columns) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        _check_types(file.schema_arrow, path, columns)
        every = file.schema_arrow.names
        names = [every[k] for k in columns.kept(every)]
        data = file.read(names)
    # By name: asked for a column x, Arrow returns one called "x.y" as well.
    texts = {f"c{k}": data.column(name).cast(pa.string()) for k, name in enumerate(names)}
    con.register("arrow_source", pa.table(texts))
    con.execute(f"CREATE TABLE {table} AS SELECT * FROM arrow_source")
    con.unregister("arrow_source")


def _check_types(schema: Any, path: Path, columns: Columns) -> None:
    """Raise InputError unless counts are integers and ids are strings or integers."""
    import pyarrow.types as kinds

    for k in columns.kept(schema.names):
        name, kind = schema.names[k], schema.types[k]
        kind = kind.value_type if kinds.is_dictionary(kind) else kind
        place = Place(path.name, None, name if name in columns.required or not columns.private else None)
        if name in columns.counts:
            if not kinds.is_integer(kind):
                raise InputError("not-an-integer", "must have an integer type", place)
        elif not (kinds.is_integer(kind) or kinds.is_string(kind) or _is_text(kinds, kind)):
            raise InputError("wrong-type", "names and ids must be strings or integers", place)


def _is_text(kinds: Any, kind: Any) -> bool:
    return bool(kinds.is_large_string(kind) or kinds.is_string_view(kind))


def _csv_row(path: Path, rowid: int) -> int:
    """Return the row in the file of a record: DuckDB skips blank lines, people count them."""
    seen = -2
    with path.open(encoding="utf-8", newline="") as file:
        for row, record in enumerate(csv.reader(file), start=1):
            seen += bool(record)
            if seen == rowid:
                return row
    return rowid + 2


def _literal(path: Path) -> str:
    """Return a DuckDB pattern that matches this path only."""
    return re.sub(r"([*?\[])", r"[\1]", str(path))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
