"""Read CSV files as text: their header, their rows into DuckDB, and which rows of a file are wrong.

Some rows of a loaded table, with the same error.
"""

from __future__ import annotations

import csv
import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from coco_opt.errors import InputError, Place
from coco_opt.files.foreign_errors import MISQUOTED, NOT_UTF8, UNEVEN, quietly
from coco_opt.files.inputs import SUFFIXES, Input

if TYPE_CHECKING:
    import duckdb


T = TypeVar("T")

_HEADER_LIMIT = 1 << 20
_START = 1 << 12  # bytes that tell what a file is
_FOREIGN = {
    b"PK\x03\x04": "a workbook (.xlsx, .ods) or a zip archive",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an Excel workbook (.xls)",
    b"%PDF": "a PDF document",
    b"\x1f\x8b": "a compressed file (.gz): unpack it",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}
"""What other programs write, by how it begins."""
_SAVE = "open it in its program and save the sheet as CSV UTF-8"
# Python's own limit of 131,072 characters a field would refuse what DuckDB reads: lines of up to 2 MB.
csv.field_size_limit(max(csv.field_size_limit(), 1 << 21))
_DELIMITERS = (",", ";", "\t")
_ENDS = {"\n": "LF (Unix)", "\r\n": "CRLF (Windows)", "\r": "CR (old Mac)"}
_CSV_OPTIONS = (
    "header = true, quote = '\"', escape = '\"', comment = '', nullstr = '', "
    "null_padding = false, ignore_errors = false, auto_detect = false, strict_mode = true, "
    "encoding = 'utf-8', compression = 'none'"
)


def _naming_rows(source: Input, delimiter: str, width: int, action: Callable[[], T]) -> T:
    """Run ``action`` quietly; where it failed, name the rows of a CSV file that do not fit, or another line end."""
    failure: InputError
    try:
        return quietly(source, action)
    except InputError as error:
        failure = error
    path, name = source.file, source.name
    malformed = failure.code == "malformed-row"
    unclosed = quietly(source, lambda: _misquoted_row(path, delimiter)) if malformed else None
    changed = quietly(source, lambda: _changed_line_end(path)) if malformed and unclosed is None else None
    if unclosed is not None:
        failure = InputError("malformed-row", MISQUOTED, Place(name, unclosed))
    elif changed is not None:
        row, before, after = changed
        message = f"ends in {after}, and the rows before it in {before}: save the file with one kind of line ends"
        failure = InputError("malformed-row", message, Place(name, row))
    elif failure.message == UNEVEN:
        rows, count = quietly(source, lambda: _uneven_rows(path, delimiter, width))
        if count > 1:
            failure = InputError("malformed-row", UNEVEN, Place(name, rows[0], None, rows, count))
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
    """Return the first line that ends otherwise than line 1, and both ends in words; quoted line ends are text."""
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


def check_file(source: Input) -> None:
    """Raise InputError (unknown-format, file-not-found, unreadable-file, empty-file) for what is no table's file."""
    path, place = source.file, Place(source.name or str(source.file))
    if path.suffix.lower() not in SUFFIXES:
        message = f"must be a .csv, .tsv or .parquet file, or a folder of such: {_SAVE}"
        raise InputError("unknown-format", message, place)
    if not os.path.exists(path):  # noqa: PTH110 - False too for a name that no file system takes
        raise InputError("file-not-found", f"no such file in {path.parent.absolute()}", place)
    if not path.is_file():
        raise InputError("unreadable-file", "is not a file", place)
    start = quietly(source, lambda: _start(path))
    if not start.removeprefix(b"\xef\xbb\xbf").strip():
        raise InputError("empty-file", "is empty", place)
    if (what := next((name for mark, name in _FOREIGN.items() if start.startswith(mark)), None)) is not None:
        raise InputError("unreadable-file", f"is {what}, whatever its name says: {_SAVE}", place)


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_START)


def csv_header(source: Input, required: Sequence[str] = ()) -> tuple[list[str], str]:
    """Return the names in the first row and what separates them: what gives the required names, or else most names."""

    def names(line: str, delimiter: str) -> list[str] | None:
        try:
            return next(csv.reader([line], strict=True, delimiter=delimiter), [])
        except csv.Error:  # quoted names end at another delimiter
            return None

    def read() -> list[tuple[list[str], str]]:
        with source.file.open("rb") as file:
            line = file.readline(_HEADER_LIMIT).decode("utf-8-sig")
        line = unicodedata.normalize("NFC", line)
        headers = [(names(line, mark), mark) for mark in _DELIMITERS]
        return [(header, mark) for header, mark in headers if header is not None]

    bad = Place(source.name, 1)
    try:
        headers = quietly(source, read)
    except InputError as error:
        failure = InputError(error.code, NOT_UTF8, bad)
    else:
        if headers:
            # max returns the first of equals: the comma, where nothing else decides.
            return max(headers, key=lambda header: (sum(name in header[0] for name in required), len(header[0])))
        failure = InputError("no-header", "the first row is not a row of column names", bad)
    raise failure


def load_csv(
    con: duckdb.DuckDBPyConnection,
    table: str,
    source: Input,
    delimiter: str,
    names: Sequence[str],
    chosen: Sequence[str],
) -> int:
    """Append the ``chosen`` columns of a file to a table; return the number of rows.

    ``names`` are all columns: the file's, then those of its sub-folders. Raises InputError: malformed-row,
    unreadable-file, out-of-memory.
    """
    width = len(names) - len(source.partition)
    columns = ", ".join(f"'f{k}': 'VARCHAR'" for k in range(width))
    options = f"delim = {quoted(delimiter)}, {_CSV_OPTIONS}"
    rows = f"read_csv({quoted(literal(source.file))}, columns = {{{columns}}}, {options})"
    fixed = ["NULL" if value is None else quoted(value) for value in source.partition.values()]
    texts = [*(f"f{k}" for k in range(width)), *fixed]
    normal = ", ".join(f"nfc_normalize({texts[names.index(name)]})" for name in chosen)
    query = f"INSERT INTO {table} SELECT {normal} FROM {rows}"
    return int(_naming_rows(source, delimiter, width, lambda: con.execute(query).fetchall()[0][0]))


def csv_rows(path: Path, rowids: Sequence[int], delimiter: str) -> tuple[int, ...]:
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


def literal(path: Path) -> str:
    """Return a DuckDB pattern that matches this path only."""
    return re.sub(r"([*?\[])", r"[\1]", str(path))


def quoted(text: str) -> str:
    """Return a text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


SHOWN_ROWS = 10
"""The rows of a file with one error that a message lists."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of one file: the first of them by rowid, at most ``SHOWN_ROWS``, and how many there are.

    ``part`` is the file's place among the files of the table, and ``further`` are the rows of its next files.
    """

    first: tuple[int, ...]
    count: int
    part: int = 0
    further: tuple[Rows, ...] = ()

    def __bool__(self) -> bool:
        return self.count > 0

    def __iter__(self) -> Iterator[Rows]:
        """Yield the rows of each file."""
        yield self
        yield from self.further
