"""A table as its owner has it, a file or folder by its path or a frame, and the columns that it must have.

Columns go by name, by what they are called in the user's table, and in the stated order.

A table may be a folder: one file a part, such as a state's, perhaps in sub-folders called column=value. Spark, DuckDB
and Arrow write and read such folders. Names that begin with a dot or an underscore are what they put next to the parts
(``_SUCCESS``, ``.part-0.crc``); they are passed over, as those programs do. Whatever else is no table is an error: a
part must not be missed in silence. The order of parts is that of their names.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable
from unicodedata import normalize
from urllib.parse import unquote

from coco_opt.errors import InputError, Place
from coco_opt.files.foreign_errors import quietly

CSV_SUFFIXES = (".csv", ".tsv", ".tab")
SUFFIXES = (*CSV_SUFFIXES, ".parquet")
"""The ends of names of tables that are read; what separates the columns of a text file is seen in its header."""


@runtime_checkable
class ArrowStream(Protocol):
    """A frame of pandas, Polars, Arrow or DuckDB: whatever exports itself as an Arrow C stream."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the capsule of an Arrow stream."""


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Frame:
    """A frame read into an Arrow table; its name stands where a file's would, and its repr shows none of its data."""

    name: str
    table: Any

    @classmethod
    def of(cls, key: str, frame: ArrowStream) -> Frame:
        """Return the frame given for a key of [data]; InputError bad-frame where Arrow cannot read it."""
        import pyarrow as pa

        name, failed = f"the {key} frame", False
        pandas = sys.modules.get("pandas")
        try:
            is_pandas = pandas is not None and isinstance(frame, pandas.DataFrame)
            table = _of_pandas(frame) if is_pandas else pa.table(frame)
        except (pa.ArrowException, TypeError, ValueError):  # its text may hold values
            failed = True
        if failed:
            raise InputError("bad-frame", "cannot be read as columns: use a frame of strings and integers", Place(name))
        return cls(name, table)

    def __repr__(self) -> str:
        return f"Frame({self.name})"


@dataclass(frozen=True, slots=True)
class Input:
    """Where a table is, and what some of its columns are called there, by the name that they have here.

    A column with several names has the first of them that occurs: tables that share keys may call them differently.
    ``levels`` name the columns of a hierarchy that are levels, root first, by their names there; none: all columns.
    ``root`` is the name of the region above them all, where no column has it. A file of a folder is
    ``shown`` with the folder's name, and ``partition`` has the columns that the names of its sub-folders give it.
    """

    where: Path | Frame
    columns: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    levels: tuple[str, ...] = ()
    root: str | None = None
    shown: str = ""
    partition: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def of(cls, table: InputLike, key: str = "table") -> Input:
        """Return the input of a path or a frame, whose key of [data] errors name; an input as it is."""
        if isinstance(table, Input):
            return table
        if isinstance(table, str | Path):
            return cls(Path(table))
        return cls(Frame.of(key, table))

    @property
    def name(self) -> str:
        """Return what errors call it: the file's name without the folder where it lies, or the frame's."""
        return self.shown or self.where.name

    @property
    def path(self) -> Path | None:
        """Return the file or the folder, None for a frame."""
        return self.where if isinstance(self.where, Path) else None

    @property
    def file(self) -> Path:
        """Return the path of a table that is no frame."""
        assert isinstance(self.where, Path)
        return self.where

    def called(self, names: Collection[str] = ()) -> dict[str, str]:
        """Return what columns are called in a table with these ``names``, by the name that they have here."""
        several = {own: (there,) if isinstance(there, str) else there for own, there in self.columns.items()}
        return {own: next((name for name in each if name in names), each[0]) for own, each in several.items()}

    @property
    def is_csv(self) -> bool:
        """Whether it is a text file of columns, whose rows count from its header line."""
        return isinstance(self.where, Path) and self.where.suffix.lower() in CSV_SUFFIXES


UNREADABLE = {b"coco_opt": b"unreadable"}
"""The metadata of a column that Arrow could not read. Only a column that is needed makes this an error."""


def _of_pandas(frame: Any) -> Any:
    """Return an Arrow table: of the index what has a name comes first, row numbers are dropped.

    Columns are converted one by one, for any may be of several types, sparse, or have the name of another.
    """
    import pyarrow as pa

    frame = frame.reset_index() if any(frame.index.names) else frame.reset_index(drop=True)
    fields, arrays = [], []
    for place, label in enumerate(frame.columns):
        column, metadata = frame.iloc[:, place], None
        try:
            array = pa.Array.from_pandas(column.sparse.to_dense() if hasattr(column, "sparse") else column)
        except (pa.ArrowException, TypeError, ValueError, ArithmeticError):
            array, metadata = pa.nulls(len(frame)), UNREADABLE
        fields.append(pa.field(str(label), array.type, metadata=metadata))
        arrays.append(array)
    return pa.table(arrays, schema=pa.schema(fields))


InputLike: TypeAlias = "str | Path | ArrowStream | Input"


_SHOWN = 12  # names of columns in a message


@dataclass(frozen=True, slots=True)
class Columns:
    """Name the first and last columns of a table; ``levels`` allows columns of any name in between (``middle``: what).

    ``blank`` names columns of integers that may be empty, which pandas then stores as decimal numbers.
    With ``others`` columns go by name in any order, counts named in ``optional`` may be there, and more are ignored.
    Errors on a private table name no column that the table alone knows: without a header, its first row of
    data looks like names.
    """

    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    levels: bool = False
    middle: str = "one column a level, root first"
    min_levels: int = 0
    private: bool = True
    optional: tuple[str, ...] = ()
    others: bool = False
    blank: tuple[str, ...] = ()

    @property
    def required(self) -> tuple[str, ...]:
        """The names that must occur."""
        return self.first + self.last

    @property
    def counts(self) -> tuple[str, ...]:
        """The names of columns that hold counts."""
        return self.last + self.optional

    def renamed(self, names: Mapping[str, str]) -> Columns:
        """Return the same table with some columns called otherwise, by the name that they have here."""
        first, last, optional, blank = (
            tuple(names.get(name, name) for name in group)
            for group in (self.first, self.last, self.optional, self.blank)
        )
        return replace(self, first=first, last=last, optional=optional, blank=blank)

    def called(self, source: Input, names: Collection[str], row: int | None = None) -> dict[str, str]:
        """Return what the columns of this table are called there, by their names here. Raises InputError.

        Two of them cannot be one column: then one of them is missing.
        """
        called = source.called(names)
        own = {name: called[name] for name in (*self.required, *self.optional) if name in called}
        for there in set(own.values()) & set(names):
            same = [name for name, each in own.items() if each == there]
            if len(same) > 1:
                message = f"{' and '.join(same)} would both be this column: it has no other of their names"
                raise InputError("missing-column", message, Place(source.name, row, there))
        return own

    def selected(self, names: Sequence[str]) -> list[int]:
        """Return the places of the columns that are read, in the order in which they are named here."""
        if not self.others:
            return list(range(len(names)))
        return [names.index(name) for name in (*self.required, *self.optional) if name in names]

    def describe(self) -> str:
        """Return the expected header in words."""
        middle = (self.middle,) if self.levels else ()
        return ", ".join((*self.first, *middle, *self.last))

    def check(self, names: Sequence[str], file: str, header_row: int | None) -> None:
        """Raise InputError unless ``names`` is a header of this kind.

        Codes: no-header, missing-column, duplicate-column, unexpected-column, swapped-columns.
        """
        self._check_present(names, file, header_row)
        read = (*self.required, *self.optional)
        repeated = [name for name, times in Counter(names).items() if times > 1 and (not self.others or name in read)]
        if repeated:
            place = Place(file, header_row, self._shown(names, names.index(repeated[0])))
            raise InputError("duplicate-column", "two columns have this name", place)
        if self.others:
            return
        extra = [k for k, name in enumerate(names) if name not in self.required]
        unwanted = [k for k in extra if not self.levels or not names[k].strip()]
        if unwanted:
            place = Place(file, header_row, self._shown(names, unwanted[0]))
            raise InputError("unexpected-column", f"the columns must be {self.describe()}", place)
        if len(extra) < self.min_levels:
            raise InputError("missing-column", "no level column: name every level, root first", Place(file))
        split = len(names) - len(self.last)
        if tuple(names[: len(self.first)]) != self.first or tuple(names[split:]) != self.last:
            where = Place(file, header_row)
            raise InputError("swapped-columns", f"the columns must be, in this order, {self.describe()}", where)

    def _check_present(self, names: Sequence[str], file: str, header_row: int | None) -> None:
        missing = [name for name in self.required if name not in names]
        if header_row is not None and len(missing) == len(self.required):
            message = f"the first row must hold the column names {self.describe()}"
            raise InputError("no-header", message, Place(file, header_row))
        spaced = [name for name in names if name.strip() in missing]
        if spaced:
            place = Place(file, header_row, spaced[0].strip())
            raise InputError("missing-column", f"the table has {spaced[0]!r}: remove the spaces around the name", place)
        if missing:
            place = Place(file, header_row, missing[0])
            raise InputError("missing-column", f"the columns must be {self.describe()}; {self._listed(names)}", place)

    def shown(self, name: str) -> str | None:
        """Return the name of a column for a message; None for a column that a private table alone has."""
        return None if self.private and name not in (*self.required, *self.optional) else name

    def _shown(self, names: Sequence[str], position: int) -> str:
        hidden = self.private and names[position] not in self.required
        return f"#{position + 1}" if hidden else names[position]

    def _listed(self, names: Sequence[str]) -> str:
        """Say what columns a table has; of a private table, only the required columns."""
        named = [name for name in names if not self.private or name in self.required]
        unseen = len(names) - len(named[:_SHOWN])
        shown = ", ".join([*map(repr, named[:_SHOWN]), *([f"{unseen} not shown"] if unseen else [])])
        return (
            f"the table has {shown}: say what a column is called there by columns = "
            '{ name = "its name there" } in [data]'
        )


ENTITIES = Columns(first=("entity_id", "group_id"), others=True)
GROUPS = Columns(first=("group_id", "region_id"), private=False, others=True)
HIERARCHY = Columns(first=("region_id",), levels=True, min_levels=1, private=False)
SIZES = Columns(last=("size", "groups"), levels=True)


def hierarchy_columns(levels: Sequence[str] = ()) -> Columns:
    """Return the columns of a hierarchy with these levels; the rest is ignored. Without any, all columns are levels."""
    return Columns(first=("region_id", *levels), others=True, private=False) if levels else HIERARCHY


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
