"""Turn errors of DuckDB, Arrow and the file system, which hold rows of the file, into errors that show no data.

A clean error is raised after the handler has ended: nothing of the original is left, not even in ``__context__``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol, TypeVar

from coco_opt.errors import InputError, Place

T = TypeVar("T")

MISQUOTED = 'has an unclosed or misplaced quote (")'
NOT_UTF8 = (
    "is not UTF-8 text: save it as CSV UTF-8 in the spreadsheet, or convert it with  "
    "iconv -f CODE -t UTF-8 FILE > NEW,  where CODE is that of the program that wrote it: of Windows CP1252 in Western "
    "Europe, CP1250 in Central Europe, CP1251 of Cyrillic, CP1253 of Greek, CP1254 of Turkish, CP1258 of Vietnamese; "
    "UTF-16 of Excel's Unicode text. Then look at the names: a wrong code changes them"
)
UNEVEN = "has more or fewer fields than the header"
_DISK_FULL = "the table does not fit in memory, nor on the disk of the private folder: free some of it"


class Named(Protocol):
    """A file, or a table of the user's."""

    @property
    def name(self) -> str:
        """Return what errors call it."""


def quietly(source: Named, action: Callable[[], T]) -> T:
    """Run ``action``; turn any error of DuckDB, Arrow or the file system into an error that shows no data.

    DuckDB answers Ctrl-C by a RuntimeError: it becomes the KeyboardInterrupt it was.
    """
    failure: BaseException
    try:
        return action()
    except _foreign_errors() as error:
        failure = _classified(source.name, type(error).__name__, str(error))
    except RuntimeError as error:
        if not is_interrupt(error):
            raise
        failure = KeyboardInterrupt()
    raise failure


def is_interrupt(error: BaseException) -> bool:
    """Return whether an error is what DuckDB makes of Ctrl-C."""
    return isinstance(error, RuntimeError) and str(error) == "Query interrupted"


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
        return InputError("unreadable-file", NOT_UTF8, place)
    if "Expected Number of Columns" in text:
        return InputError("malformed-row", UNEVEN, place)
    if "Maximum line size" in text:
        return InputError("malformed-row", "is longer than 2 MB: is a quote or a line end missing?", place)
    if "unterminated quote" in text:
        return InputError("malformed-row", MISQUOTED, place)
    if "reached an invalid state" in text:
        return InputError("malformed-row", "mixes kinds of line ends, or has a misplaced quote", place)
    return InputError("unreadable-file", "is damaged, truncated or not of its format", place)
