"""A release folder as files: it appears complete by one rename or not at all, and the same release is the same bytes.

Fixed order, fixed row groups, no time and no foreign metadata.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.errors import InputError, Place
from coco_opt.histograms.arrays import Int64Array
from coco_opt.tables.source import quietly

MANIFEST = "manifest.json"
REPORT = "report.html"

ROWS_PER_GROUP = 1 << 20


def write_folder(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write a new folder of files and return its path. Raises InputError: folder-exists, cannot-write."""
    _refuse_existing(folder)
    try:
        _publish(folder, files)
        return folder
    except OSError as error:
        reason = error.strerror or "unknown reason"
    _refuse_existing(folder)
    raise InputError("cannot-write", f"the release could not be written: {reason}", Place(folder.name))


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest; raise InputError file-not-found, unreadable-file or bad-manifest."""
    place = Place(MANIFEST)
    if not (folder / MANIFEST).is_file():
        raise InputError("file-not-found", "this is no release folder", Place(f"{folder.name}/{MANIFEST}"))
    text = quietly(folder / MANIFEST, lambda: (folder / MANIFEST).read_text(encoding="utf-8"))
    try:
        manifest = json.loads(text)
    except ValueError:
        manifest = None
    if not isinstance(manifest, dict):
        raise InputError("bad-manifest", "is not a JSON object", place)
    return manifest


def read_columns(path: Path, columns: Sequence[str]) -> Any:
    """Return an Arrow table with the named columns; raise InputError."""
    import pyarrow.parquet as pq

    def read() -> Any:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            return file.read()

    _check_there(path)
    return _checked(quietly(path, read), path, columns)


def read_parts(path: Path, columns: Sequence[str]) -> Iterator[Any]:
    """Yield Arrow tables with the named columns, a row group at a time; raise InputError."""
    import pyarrow.parquet as pq

    _check_there(path)
    file = quietly(path, lambda: pq.ParquetFile(path, page_checksum_verification=True))
    with file:
        yield _checked(quietly(path, file.schema_arrow.empty_table), path, columns)
        for group in range(file.num_row_groups):
            yield quietly(path, partial(file.read_row_group, group))


def _check_there(path: Path) -> None:
    if not path.is_file():
        raise InputError("file-not-found", "is missing from the release folder", Place(path.name))


def _checked(table: Any, path: Path, columns: Sequence[str]) -> Any:
    import pyarrow.types as kinds

    for name in columns:
        if table.column_names.count(name) != 1:
            raise InputError("missing-column", "must occur once", Place(path.name, None, name))
        if name in ("region", "parent") and not kinds.is_string(table.schema.field(name).type):
            raise InputError("wrong-type", "must hold strings", Place(path.name, None, name))
    return table


@dataclass(frozen=True, eq=False, slots=True)
class Coded:
    """A column of texts by their places in a list: ``texts[codes[k]]``, without one object a row."""

    texts: Sequence[str | None]
    codes: Int64Array


def parquet(columns: Mapping[str, Any], types: Mapping[str, str]) -> bytes:
    """Return a Parquet file of columns; ``types`` names those that are no strings (int32, int64, double)."""
    return parquet_parts([columns], types)


def parquet_parts(parts: Iterable[Mapping[str, Any]], types: Mapping[str, str]) -> bytes:
    """Return a Parquet file of rows given in parts of the same columns, of which only one is held at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    writer = None
    for columns in parts:
        table = pa.table({name: _array(data, types.get(name, "string")) for name, data in columns.items()})
        if writer is None:
            options = {"compression": "zstd", "store_schema": False, "write_page_checksum": True}
            writer = pq.ParquetWriter(sink, table.schema, **options)
        writer.write_table(table, row_group_size=ROWS_PER_GROUP)
    if writer is None:
        raise InputError("no-columns", "a Parquet file needs at least one part, if only an empty one")
    writer.close()
    return sink.getvalue()


def _array(data: Any, kind: str) -> Any:
    import pyarrow as pa

    if not isinstance(data, Coded):
        return pa.array(data, pa.type_for_alias(kind))
    codes = pa.array(data.codes.astype(np.int32))
    return pa.DictionaryArray.from_arrays(codes, pa.array(list(data.texts), pa.string()))


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


def _refuse_existing(folder: Path) -> None:
    if os.path.lexists(folder):
        raise InputError("folder-exists", "exists already: a release is never overwritten", Place(folder.name))


def _publish(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    building = folder.parent / f".{folder.name}.{secrets.token_hex(8)}.partial"
    building.mkdir(mode=0o700)
    try:
        for name, content in files.items():
            _write_new(building / name, content)
        building.chmod(0o755)
        _sync_folder(building)
        building.rename(folder)
        _sync_folder(folder.parent)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _write_new(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
