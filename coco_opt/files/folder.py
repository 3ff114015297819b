"""A release folder as files: it appears complete by one rename or not at all, and the same release is the same bytes.

Fixed order, fixed row groups, no time and no foreign metadata.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import InputError, Place, system_errors_as
from coco_opt.files.arrow_texts import arrow_texts_at, distinct
from coco_opt.files.foreign_errors import quietly
from coco_opt.files.in_threads import ahead, cores, in_threads
from coco_opt.privacy.private_files import building, remove_leftovers, sync_folder

MANIFEST = "manifest.json"
REPORT = "report.html"
SIGNATURE = "signature.json"

ROWS_PER_GROUP = 1 << 18
_FILES = 2  # that are written at a time

SEAL = "seal"
_NAMES = ("region", "parent")  # columns that hold texts, in all files but a measurement's answers


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest; raise InputError file-not-found, unreadable-file or bad-manifest."""
    place = Place(MANIFEST)
    if not os.path.isfile(folder / MANIFEST):  # noqa: PTH113 - False too for a name that no file system takes
        raise InputError("file-not-found", "this is no release folder", Place(f"{folder.name}/{MANIFEST}"))
    text = quietly(folder / MANIFEST, lambda: (folder / MANIFEST).read_text(encoding="utf-8"))
    manifest = parsed_json(text)
    if manifest is None:
        raise InputError("bad-manifest", "is not a JSON object: restore it", place)
    return manifest


def parsed_json(text: str | bytes) -> dict[str, Any] | None:
    """Return a JSON object, None where the text is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_columns(path: Path, columns: Sequence[str], only: Sequence[str] | None = None) -> Any:
    """Return an Arrow table; ``columns`` must be there, ``only`` are read; raise InputError."""
    import pyarrow.parquet as pq

    def read() -> tuple[Any, Any]:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            rows = file.read(columns=None if only is None else list(only))
            return with_strings(file.schema_arrow.empty_table()), with_strings(rows)

    _check_there(path)
    empty, rows = quietly(path, read)
    _check_columns(empty, path, columns)
    return rows


def read_parts(
    path: Path,
    columns: Sequence[str],
    *,
    only: Sequence[str] | None = None,
    coded: bool = False,
    texts: Sequence[str] = _NAMES,
) -> Iterator[Any]:
    """Yield Arrow tables, a row group at a time; ``columns`` must be there, ``only`` are read; raise InputError.

    ``coded`` gives texts as places in a dictionary, as files that repeat them hold them. Those of the columns that are
    among ``texts`` must hold some.
    """
    import pyarrow.parquet as pq

    def opened(strings: Sequence[str] | None = None) -> Any:
        return quietly(path, lambda: pq.ParquetFile(path, page_checksum_verification=True, read_dictionary=strings))

    _check_there(path)
    selected = None if only is None else list(only)
    with opened() as plain:
        _check_columns(quietly(path, lambda: with_strings(plain.schema_arrow.empty_table())), path, columns, texts)
        strings = [field.name for field in plain.schema_arrow if coded and is_text(field.type)]
    with opened(strings) as file:
        for group in range(file.num_row_groups):
            rows = quietly(path, partial(file.read_row_group, group, columns=selected))
            yield quietly(path, partial(with_strings, rows, coded=coded))


def is_text(kind: Any) -> bool:
    """Return whether an Arrow type is one of its texts: pandas and Polars write the large ones and the views."""
    import pyarrow.types as kinds

    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))


def with_strings(table: Any, *, coded: bool = False) -> Any:
    """Return an Arrow table whose texts, of any of Arrow's types, are plain strings; ``coded`` ones stay so."""
    import pyarrow as pa
    import pyarrow.types as kinds

    for place, field in enumerate(table.schema):
        is_coded = kinds.is_dictionary(field.type)
        if is_text(field.type.value_type if is_coded else field.type):
            kind = pa.dictionary(pa.int32(), pa.string()) if coded and is_coded else pa.string()
            if field.type != kind:
                table = table.set_column(place, field.name, table.column(place).cast(kind))
    return table


def number_of_rows(path: Path) -> int:
    """Return the number of rows that a Parquet file states; raise InputError."""
    import pyarrow.parquet as pq

    _check_there(path)
    return int(quietly(path, lambda: pq.read_metadata(path)).num_rows)


def file_digest(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file, "" where there is none."""
    if not path.is_file():
        return ""
    code = hashlib.sha256()

    def read() -> str:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                code.update(chunk)
        return code.hexdigest()

    return quietly(path, read)


def _check_there(path: Path) -> None:
    if not path.is_file():
        raise InputError("file-not-found", "is missing from the release folder", Place(path.name))


def _check_columns(table: Any, path: Path, columns: Sequence[str], texts: Sequence[str] = _NAMES) -> Any:
    for name in columns:
        if table.column_names.count(name) != 1:
            raise InputError("missing-column", "must occur once", Place(path.name, None, name))
        if name in texts and not is_text(table.schema.field(name).type):
            raise InputError("wrong-type", "must hold strings", Place(path.name, None, name))
    return table


@dataclass(frozen=True, eq=False, slots=True)
class FileTable:
    """A table to be written: rows in parts of the same columns, and the types of those that are no strings.

    Values of a part are arrays, also Arrow's, lists or ``Coded``; types are int32, int64, double or binary. Columns of
    integers named in ``delta`` are stored as differences, and those in ``plain``, whose values hardly repeat, without a
    list of what occurs. Only one part is held at a time; the next is made meanwhile unless ``ahead`` is False.
    """

    parts: Iterable[Mapping[str, Any]]
    types: Mapping[str, str]
    delta: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    ahead: bool = True

    @classmethod
    def of(cls, columns: Mapping[str, Any], types: Mapping[str, str]) -> FileTable:
        """Return the table of columns held in memory."""
        return cls((columns,), types)


@dataclass(frozen=True, eq=False, slots=True)
class Again:
    """The parts of a table, made anew by ``parts`` whenever they are read."""

    parts: Callable[[], Iterator[Mapping[str, Any]]]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return self.parts()


@dataclass(frozen=True, eq=False, slots=True)
class Coded:
    """A column of texts by their places in a list: ``texts[codes[k]]``, without one object a row.

    A part of a file knows those of the list that its rows hold.
    """

    texts: Sequence[str | None]
    codes: Ints


Content = bytes | FileTable | Callable[[], bytes]
"""The bytes of a file, what makes them when it is written, or a table."""

Index = Callable[[Mapping[str, str]], bytes]
Describe = Callable[[Path, Mapping[str, str]], Mapping[str, bytes]]
Further = Callable[[Path], Mapping[str, str]]


def write_folder(
    folder: Path,
    files: Mapping[str, Content],
    name: str,
    index: Index,
    *,
    private: bool = False,
    numbered: bool = False,
    describe: Describe | None = None,
    further: Further | None = None,
) -> tuple[Path, str]:
    """Write a new folder that appears complete or not at all; return where it lies, and the SHA-256 of its index.

    The index, the file ``name``, is written last, from the SHA-256 of every other file by file name. ``private``
    keeps the folder and its files to their owner (0700, 0600). A ``numbered`` folder has the first name of NAME,
    NAME-2, ... that is free or holds the same; several processes may write under one name, each builds under its own.
    ``describe`` returns further files, which are written before the index, from the folder and the digests of the rest;
    ``further`` writes more files into the unfinished folder meanwhile, by ``write_new``, and returns their digests.
    Raises InputError: folder-exists, cannot-write.
    """
    remove_leftovers(folder.parent, folder.name)
    mode = 0o600 if private else 0o644
    others = (folder.with_name(f"{folder.name}-{number}") for number in count(2)) if numbered else ()
    refusal = partial(_cannot_write, "the files could not be written", folder.parent)
    with building(folder) as unfinished:
        with system_errors_as(refusal):
            unfinished.parent.mkdir(parents=True, exist_ok=True)
            unfinished.mkdir(mode=0o700)
            digests = _written(unfinished, files, mode, further)
            described = {} if describe is None else describe(unfinished, digests)
            digests |= {file: write_new(unfinished / file, content, mode) for file, content in described.items()}
            digest = write_new(unfinished / name, index(digests), mode)
            unfinished.chmod(0o700 if private else 0o755)
            sync_folder(unfinished)
        for place in chain([folder], others):
            if _published(unfinished, place, digest, name):
                return place, digest
    message = "exists already and holds something else: give another name"
    raise InputError("folder-exists", message, Place(folder.name))


def _cannot_write(what: str, path: Path, reason: str) -> InputError:
    return InputError("cannot-write", f"{what}: {reason}", Place(path.name))


def _written(building: Path, files: Mapping[str, Content], mode: int, further: Further | None) -> dict[str, str]:
    """Write files, some at a time: one is compressed while another's rows are made, or workers write further files."""
    if further is not None:
        with ThreadPoolExecutor(1) as pool:
            own = pool.submit(_written, building, files, mode, None)
            return {**further(building), **own.result()}
    digests = in_threads(lambda file: write_new(building / file, files[file], mode), files, min(_FILES, cores()))
    return dict(zip(files, digests, strict=True))


def _published(unfinished: Path, folder: Path, digest: str, name: str) -> bool:
    """Give a built folder its name, and return whether it has it; a folder that is there with its index is the same."""
    with system_errors_as(partial(_cannot_write, "could not be written", folder)):
        if not os.path.lexists(folder):
            with suppress(FileExistsError, NotADirectoryError):  # another process was faster
                _rename(unfinished, folder)
                return True
        return (folder / name).is_file() and hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def _rename(building: Path, folder: Path) -> None:
    """Rename durably; FileExistsError where something is in the way."""
    try:
        building.rename(folder)
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            raise FileExistsError(errno.EEXIST, "exists already", str(folder)) from None
        raise
    sync_folder(folder.parent)


def parquet(table: FileTable) -> bytes:
    """Return a table as the bytes of a Parquet file."""
    sink = io.BytesIO()
    _write_parquet(sink, table)
    return sink.getvalue()


def arrow_table(table: FileTable) -> Any:
    """Return all rows of a table as an Arrow table, of the types that reading its file gives."""
    import pyarrow as pa
    import pyarrow.types as kinds

    rows = pa.concat_tables(list(_arrow_parts(table)))
    plain = [
        pa.field(column.name, column.type.value_type if kinds.is_dictionary(column.type) else column.type)
        for column in rows.schema
    ]
    return rows.cast(pa.schema(plain))


def _arrow_parts(table: FileTable) -> Iterator[Any]:
    import pyarrow as pa

    for columns in table.parts:
        yield pa.table({name: _array(data, table.types.get(name, "string")) for name, data in columns.items()})


def _write_parquet(sink: Any, table: FileTable) -> None:
    """Write a table's parts as row groups: fixed options, no time and no foreign metadata."""
    import pyarrow.parquet as pq

    writer = None
    parts = _arrow_parts(table)
    for rows in ahead(parts) if table.ahead else parts:
        if writer is None:
            writer = pq.ParquetWriter(sink, rows.schema, **_options(rows.schema, table))
        writer.write_table(rows, row_group_size=ROWS_PER_GROUP)
    if writer is None:
        raise InputError("no-columns", "a Parquet file needs at least one part, if only an empty one")
    writer.close()


def _options(schema: Any, table: FileTable) -> dict[str, Any]:
    """Return how columns are written; those of ``delta`` as differences, which compresses noisy counts best."""
    shared = {"compression": "zstd", "store_schema": False, "write_page_checksum": True}
    once = {*table.delta, *table.plain}
    repeated = [field.name for field in schema if field.name not in once and str(field.type) != "binary"]
    if len(repeated) == len(schema):
        return shared
    differences = dict.fromkeys(table.delta, "DELTA_BINARY_PACKED")
    return {**shared, "use_dictionary": repeated, "column_encoding": differences or None}


def _array(data: Any, kind: str) -> Any:
    import pyarrow as pa

    if isinstance(data, Coded):
        return _dictionary_array(data)
    return data if isinstance(data, pa.Array) else pa.array(data, pa.type_for_alias(kind))


def _dictionary_array(column: Coded) -> Any:
    """Return a column of texts as a dictionary of those that occur, and places in it; O(rows + texts)."""
    import pyarrow as pa

    places, codes = distinct(column.codes)
    texts = arrow_texts_at(column.texts, places)
    if not texts.null_count:
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), texts)
    missing = np.asarray(texts.is_null())  # null is no entry of a dictionary
    moved = (np.cumsum(~missing) - 1).astype(np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(moved[codes], mask=missing[codes]), texts.drop_null())


def sealed(index: Mapping[str, Any]) -> dict[str, Any]:
    """Return an index with its seal: the SHA-256 of its file without it, hexadecimal."""
    plain = {name: value for name, value in index.items() if name != SEAL}
    return {**plain, SEAL: hashlib.sha256(as_json(plain)).hexdigest()}


def is_as_sealed(content: bytes, index: Mapping[str, Any]) -> bool:
    """Return whether an index's file is, to the byte, what the seal in it covers."""
    with suppress(InputError):
        return content == as_json(sealed(index))
    return False


def as_json(manifest: Mapping[str, Any]) -> bytes:
    """Return a manifest as a file; raise InputError (bad-manifest) where it is no JSON."""
    reason = ""
    try:
        text = json.dumps(dict(manifest), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        reason = str(error)
    if reason:
        raise InputError("bad-manifest", f"the manifest cannot be written as JSON: {reason}")
    return (text + "\n").encode("utf-8")


def write_file(path: Path, content: bytes) -> None:
    """Write a new public file into a folder that is there, complete or not at all.

    Raises InputError: folder-exists (the file is there already), cannot-write.
    """
    if os.path.lexists(path):
        raise InputError("folder-exists", "exists already: remove it first", Place(path.name))
    with system_errors_as(partial(_cannot_write, "could not be written", path)), building(path) as unfinished:
        write_new(unfinished, content, 0o644)
        _rename(unfinished, path)


def write_new(path: Path, content: Content, mode: int) -> str:
    """Write a new file durably and return the SHA-256 of its bytes."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), mode)
        hashed = _Hashed(file)
        if isinstance(content, FileTable):
            _write_parquet(hashed, content)
        else:
            hashed.write(content() if callable(content) else content)
        file.flush()
        os.fsync(file.fileno())
    return hashed.digest.hexdigest()


class _Hashed(io.RawIOBase):
    """A file that is written from start to end, and the SHA-256 of what was written."""

    def __init__(self, file: BinaryIO) -> None:
        self.digest = hashlib.sha256()
        self._file, self._position = file, 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        self.digest.update(data)
        written = self._file.write(data)
        self._position += written
        return written
