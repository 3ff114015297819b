"""A table that is a folder: one file a part, such as a state's, perhaps in sub-folders called column=value.

Spark, DuckDB and Arrow write and read such folders. Names that begin with a dot or an underscore are what they put next
to the parts (``_SUCCESS``, ``.part-0.crc``); they are passed over, as those programs do. Whatever else is no table is
an error: a part must not be missed in silence. The order of parts is that of their names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from unicodedata import normalize
from urllib.parse import unquote

from coco_opt.errors import InputError, Place
from coco_opt.files.foreign_errors import quietly
from coco_opt.files.inputs import SUFFIXES, Columns, Input

_HIDDEN = (".", "_")
_UNFINISHED = ("_temporary", "_delta_log", ".hoodie")
"""Next to them lie files that are no rows of the table: half written files, and those of its earlier states."""
_NULL = "__HIVE_DEFAULT_PARTITION__"  # the value of rows that have none
_EXPECTED = "files that end in .csv, .tsv, .tab or .parquet, and sub-folders called column=value"


def parts_of(source: Input) -> tuple[Input, ...]:
    """Return the files of a table: itself, unless it is a folder.

    A sub-folder called column=value gives the rows in it a column, whose value is the text as it stands there.

    Raises InputError: empty-file (a folder without a table), unknown-format (a file that is no table, or CSV files next
    to Parquet files), unlike-parts (sub-folders of other columns), duplicate-column (one twice in a path).
    """
    folder = source.path
    if folder is None or not os.path.isdir(folder):  # noqa: PTH112 - False too for a name that no file system takes
        return (source,)
    parts = quietly(source, lambda: tuple(_listed(source, folder, source.name, {})))
    if not parts:
        raise InputError("empty-file", f"is a folder without a table: it must hold {_EXPECTED}", Place(source.name))
    _check_alike(parts)
    return parts


def _listed(source: Input, folder: Path, name: str, partition: Mapping[str, str | None]) -> Iterator[Input]:
    """Yield the files in a folder and in its sub-folders, by name."""
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        shown = f"{name}/{path.name}"
        if path.name in _UNFINISHED:
            message = "shows that the folder is still written, or holds more than the rows of one table: export it"
            raise InputError("unknown-format", message, Place(shown))
        if path.name.startswith(_HIDDEN):
            continue
        column, equals, value = path.name.partition("=")
        if path.is_dir() and column and equals:
            text, named = None if value == _NULL else unquote(value), normalize("NFC", unquote(column))
            if named in partition:
                raise InputError("duplicate-column", "lies in a sub-folder of the same column", Place(shown))
            yield from _listed(source, path, shown, {**partition, named: text})
        elif path.is_dir() or path.suffix.lower() not in SUFFIXES:
            message = f"is not part of a table: move it elsewhere. The folder of a table holds {_EXPECTED}"
            raise InputError("unknown-format", message, Place(shown))
        else:
            yield replace(source, where=path, shown=shown, partition=partition)


def _check_alike(parts: tuple[Input, ...]) -> None:
    first = parts[0]
    for part in parts:
        if part.is_csv != first.is_csv:
            message = f"is of another format than {first.name}: the files of a folder are all CSV or all Parquet"
            raise InputError("unknown-format", message, Place(part.name))
        if list(part.partition) != list(first.partition):
            message = f"lies in sub-folders of other columns than {first.name}"
            raise InputError("unlike-parts", message, Place(part.name))


def passed_over(folder: Path) -> int:
    """Return the number of names in a folder of files that are no parts: those that begin with a dot or an underscore.

    What lies below such a name does not count by itself.
    """
    hidden = [path.name.startswith(_HIDDEN) for path in folder.iterdir()]
    below = (path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(_HIDDEN))
    return sum(hidden) + sum(map(passed_over, below))


def all_columns(part: Input, own: Sequence[str]) -> list[str]:
    """Return the columns of a part: its ``own``, and those of its sub-folders. Raises InputError duplicate-column."""
    for column in part.partition:
        if column in own:
            message = "is a column of the file and of the names of its folders: remove one of them"
            raise InputError("duplicate-column", message, Place(part.name, None, column))
    return [*own, *part.partition]


def check_columns(columns: Columns, names: Sequence[str], file: str, expected: Sequence[str], first: str) -> None:
    """Raise InputError (unlike-parts) unless a file has the columns of the first file, where they go by order in it."""
    if list(names) == list(expected) or (columns.others and sorted(names) == sorted(expected)):
        return
    unlike = next((name for name in (*expected, *names) if (name in names) != (name in expected)), None)
    message = f"has other columns than {first}, or has them in another order: all files of a folder have the same"
    raise InputError("unlike-parts", message, Place(file, None, None if unlike is None else columns.shown(unlike)))
