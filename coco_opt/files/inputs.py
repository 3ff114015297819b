"""A table as its owner has it, a file or folder by its path or a frame, and what its columns are called there."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from coco_opt.errors import InputError, Place

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
    ``root`` is the name of the region above them all, where no column has it. A file of a folder (``files.parts``) is
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
