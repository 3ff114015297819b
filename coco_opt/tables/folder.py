"""A release folder as files: it appears complete by one rename or not at all, and the same release is the same bytes.

Fixed order, fixed row groups, no time and no foreign metadata.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coco_opt.errors import InputError, Place
from coco_opt.tables.source import quietly

MANIFEST = "manifest.json"
REPORT = "report.html"

_ROWS_PER_GROUP = 1 << 20


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
    import pyarrow.types as kinds

    if not path.is_file():
        raise InputError("file-not-found", "is missing from the release folder", Place(path.name))

    def read() -> Any:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            return file.read()

    table: Any = quietly(path, read)
    for name in columns:
        if table.column_names.count(name) != 1:
            raise InputError("missing-column", "must occur once", Place(path.name, None, name))
        if name in ("region", "parent") and not kinds.is_string(table.schema.field(name).type):
            raise InputError("wrong-type", "must hold strings", Place(path.name, None, name))
    return table


def parquet(columns: Mapping[str, Any], types: Mapping[str, str]) -> bytes:
    """Return a Parquet file of columns; ``types`` names those that are no strings (int32, int64, double)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = {name: pa.array(data, pa.type_for_alias(types.get(name, "string"))) for name, data in columns.items()}
    sink = io.BytesIO()
    pq.write_table(
        pa.table(arrays),
        sink,
        row_group_size=_ROWS_PER_GROUP,
        compression="zstd",
        store_schema=False,
        write_page_checksum=True,
    )
    return sink.getvalue()


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
