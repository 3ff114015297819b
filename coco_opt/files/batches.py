"""Parquet files and frames in batches of their own types, and the check of these types."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from coco_opt.errors import InputError, Place
from coco_opt.files.csv_text import check_file
from coco_opt.files.foreign_errors import quietly
from coco_opt.files.inputs import UNREADABLE, Columns, Frame, Input, all_columns, check_columns, parts_of

_BATCH = 1 << 20  # rows
_BUFFER = 1 << 20  # bytes of a file


@dataclass(frozen=True, eq=False, slots=True)
class Batches:
    """Parquet files or a frame with the columns they must have, in batches of their own types; see ``batches_of``.

    ``parts`` are what is read: the files of a folder, or a file or a frame. ``schema`` is that of the first part, with
    a column of texts for each column of its sub-folders; ``integers_in`` names the columns that hold integers of at
    most 63 bits and a sign in every part. A batch has at most
    ``at_once`` rows (None: a million).
    """

    source: Input
    parts: tuple[Input, ...]
    schema: Any
    columns: tuple[int, ...]
    own: Mapping[str, str]
    integers_in: frozenset[str]
    at_once: int | None = None

    def is_integer(self, column: int) -> bool:
        """Return whether a column holds integers of at most 63 bits and a sign."""
        return self._names[column] in self.integers_in

    def rows(self) -> int:
        """Return the number of rows, as files state it."""
        return sum(quietly(part, partial(_rows_of, part)) for part in self.parts)

    def only(self, column: int) -> Batches:
        """Return the same batches of one column."""
        return replace(self, columns=self.columns[column : column + 1])

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield the Arrow arrays of the columns, some rows at a time; any number of times. Texts are coded.

        A batch lies in one part, and parts may have columns of texts, and of integers, of several types.
        """
        return self._read([self._names[k] for k in range(len(self.columns)) if not self.is_integer(k)])

    def texts(self) -> Iterator[tuple[Any, ...]]:
        """Yield the same as Arrow arrays of strings."""
        return (tuple(map(strings, arrays)) for arrays in self._read())

    def stream(self, coded: Collection[str] = ()) -> tuple[Any, Iterator[tuple[Any, ...]]]:
        """Return the Arrow schema of columns c0, c1, ..., and their batches: integers, and texts.

        Texts of the columns ``coded``, by their names here, are coded: those with few values, or in long runs.
        """
        import pyarrow as pa

        texts = {True: pa.dictionary(pa.int32(), pa.string()), False: pa.string()}
        kinds = [pa.int64() if self.is_integer(k) else texts[name in coded] for k, name in enumerate(self.names)]
        read = self._read([there for there, name in zip(self._names, self.names, strict=True) if name in coded])
        schema = pa.schema([(f"c{k}", kind) for k, kind in enumerate(kinds)])
        return schema, (tuple(map(_of_type, arrays, kinds)) for arrays in read)

    def by_part(self) -> tuple[Batches, ...]:
        """Return the batches of each part."""
        return tuple(replace(self, parts=(part,)) for part in self.parts)

    @property
    def integers_here(self) -> frozenset[str]:
        """Return the names here of the columns of integers."""
        return frozenset(name for k, name in enumerate(self.names) if self.is_integer(k))

    @property
    def names(self) -> tuple[str, ...]:
        """Return what the columns are called here."""
        return tuple(self.own.get(name, name) for name in self._names)

    @property
    def _names(self) -> list[str]:
        return [self.schema.names[k] for k in self.columns]

    def _read(self, coded: Sequence[str] = ()) -> Iterator[tuple[Any, ...]]:
        for part in self.parts:
            batches = self._read_part(part, coded)
            while (batch := quietly(part, partial(next, batches, None))) is not None:
                yield batch

    def _read_part(self, part: Input, coded: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        import pyarrow.parquet as pq

        if isinstance(part.where, Frame):
            for batch in part.where.table.select(list(self.columns)).to_batches(max_chunksize=self.at_once or _BATCH):
                yield tuple(batch.columns)
            return
        names, at_once = [name for name in self._names if name not in part.partition], self.at_once or _BATCH
        coded = [name for name in coded if name in names]
        # By default Arrow reads a whole file ahead, and a whole column of a row group in one piece.
        options = {"page_checksum_verification": True, "pre_buffer": False, "buffer_size": _BUFFER}
        with pq.ParquetFile(part.where, read_dictionary=coded, **options) as file:
            for batch in file.iter_batches(at_once, columns=list(dict.fromkeys(names))):
                # By name: for a column x, Arrow's reader also returns one called "x.y".
                columns = {name: batch.column(batch.schema.get_field_index(name)) for name in names}
                fixed = {name: _repeated(value, batch.num_rows) for name, value in part.partition.items()}
                yield tuple((columns | fixed)[name] for name in self._names)

    def place(self, row: int | None = None, column: int | None = None) -> Place:
        """Return the place of a row, from 0, in the user's table."""
        import pyarrow.parquet as pq

        name = None if column is None else self.schema.names[self.columns[column]]
        part = self.source if row is None else self.parts[0]
        for earlier, later in pairwise(self.parts):
            rows = pq.read_metadata(earlier.file).num_rows
            if row is None or row < rows:
                break
            row, part = row - rows, later
        return Place(part.name, None if row is None else row + 1, name)


def batches_of(source: Input, columns: Columns) -> Batches | None:
    """Check the columns of Parquet files or a frame as ``load`` does; None for CSV files, whose columns have no type.

    Raises InputError: file-not-found, unknown-format, empty-file, unreadable-file, wrong-type, the codes of
    ``parts_of`` and ``Columns.check``, and unlike-parts where files of a folder have other columns or other types.
    """
    parts = parts_of(source)
    if parts[0].is_csv:
        return None
    schemas = [_schema_of(part) for part in parts]
    first = schemas[0]
    own = columns.called(source, first.names)
    called = columns.renamed(own)
    for part, schema in zip(parts, schemas, strict=True):
        called.check(list(schema.names), part.name, None)
        check_columns(called, schema.names, part.name, first.names, parts[0].name)
        _check_types(schema, part.name, called)
    selected = tuple(called.selected(first.names))
    names = [first.names[k] for k in selected]
    _check_kinds(schemas, parts, [name for name in names if name not in called.blank])
    integers = frozenset(name for name in names if all(is_int64(schema.field(name).type) for schema in schemas))
    return Batches(source, tuple(parts), first, selected, {there: name for name, there in own.items()}, integers)


def strings(array: Any) -> Any:
    """Return an Arrow array as strings: decimal numbers without a fraction as integers, NaN as an empty entry."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if kinds.is_floating(array.type):
        numbers = [None if number is None or number != number else number for number in array.to_pylist()]
        texts = (None if each is None else f"{each:.0f}" if each.is_integer() else str(each) for each in numbers)
        return pa.array(texts, pa.string())
    if kinds.is_dictionary(array.type) and kinds.is_string_view(array.type.value_type):  # Arrow has no cast for these
        array = array.cast(pa.dictionary(pa.int64(), pa.string()))
    return array.cast(pa.string())


def _of_type(array: Any, kind: Any) -> Any:
    """Return an Arrow array as integers, strings, or coded strings."""
    import pyarrow.types as kinds

    if array.type == kind:
        return array
    if kinds.is_integer(kind):
        return array.cast(kind)
    return strings(array).dictionary_encode() if kinds.is_dictionary(kind) else strings(array)


def column_types(part: Input) -> dict[str, Any]:
    """Return the types of a Parquet file's columns by name; raises InputError as ``batches_of`` does."""
    schema = _schema_of(part)
    return dict(zip(schema.names, schema.types, strict=True))


def _schema_of(part: Input) -> Any:
    """Return the columns of a Parquet file or a frame, and those that the names of sub-folders give it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if isinstance(part.where, Frame):
        return part.where.table.schema
    check_file(part)
    schema = quietly(part, lambda: pq.read_schema(part.file))
    fixed = all_columns(part, schema.names)[len(schema.names) :]
    return pa.schema([*schema, *((name, pa.string()) for name in fixed)])


def _rows_of(part: Input) -> int:
    """Return the number of rows of a frame, or those that a Parquet file states."""
    import pyarrow.parquet as pq

    return int(part.where.table.num_rows if isinstance(part.where, Frame) else pq.read_metadata(part.file).num_rows)


def _repeated(value: str | None, rows: int) -> Any:
    """Return a column of one text, coded."""
    import pyarrow as pa

    codes = pa.array(np.zeros(rows, np.int32), mask=np.full(rows, value is None))
    return pa.DictionaryArray.from_arrays(codes, pa.array([value or ""], pa.string()))


def _check_types(schema: Any, name: str, columns: Columns) -> None:
    """Raise InputError unless counts are integers and ids are strings or integers; ``blank`` columns may have none."""
    import pyarrow.types as kinds

    for k in columns.selected(schema.names):
        column, kind = schema.names[k], schema.types[k]
        kind = kind.value_type if kinds.is_dictionary(kind) else kind
        place = Place(name, None, column if column in columns.required or not columns.private else None)
        if schema.field(k).metadata == UNREADABLE:
            message = "has values of several types, or of a type that Arrow does not know: use strings or integers"
            raise InputError("bad-frame", message, Place(name, None, column))
        if column in columns.counts:
            if not kinds.is_integer(kind):
                raise InputError("not-an-integer", f"must have an integer type, and has {kind}", place)
        elif not is_id(kind) and not (column in columns.blank and (kinds.is_floating(kind) or kinds.is_null(kind))):
            message = f"names and ids must be strings or integers, and this column has the type {kind}"
            if kinds.is_floating(kind):
                message += ": in pandas integers get it from an empty entry, and a column without rows may"
            raise InputError("wrong-type", message, place)


def _check_kinds(schemas: Sequence[Any], parts: Sequence[Input], names: Sequence[str]) -> None:
    """Raise InputError (unlike-parts) where a column holds texts in one file and integers in another: 06 is not 6."""
    import pyarrow.types as kinds

    for name in names:
        held = [schema.field(name).type for schema in schemas]
        is_text = [not kinds.is_integer(kind.value_type if kinds.is_dictionary(kind) else kind) for kind in held]
        if (other := is_text.index(not is_text[0]) if not all(is_text) and any(is_text) else None) is not None:
            ours, theirs = ("texts", "integers") if is_text[other] else ("integers", "texts")
            message = f"holds {ours}, and this column of {parts[0].name} {theirs}: write it as one of them in all files"
            raise InputError("unlike-parts", message, Place(parts[other].name, None, name))


def is_int64(kind: Any) -> bool:
    """Return whether a type of Arrow's holds integers of at most 63 bits and a sign."""
    import pyarrow.types as kinds

    return bool(kinds.is_integer(kind) and not kinds.is_uint64(kind))


def is_id(kind: Any) -> bool:
    """Return whether a type of Arrow's can hold names and ids: integers or strings, coded or not."""
    import pyarrow.types as kinds

    kind = kind.value_type if kinds.is_dictionary(kind) else kind
    return bool(
        kinds.is_integer(kind) or kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind)
    )
