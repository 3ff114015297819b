"""Write and read a release folder: histograms, hierarchy, manifest and report, all public.

The folder is built beside its target and appears by one rename, so that nobody ever sees half of it. Files are
the same bytes for the same release: fixed order, fixed row groups, no time and no foreign metadata.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coco_opt.errors import InputError, Place
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.histograms.arrays import Int64Array, as_int64
from coco_opt.tables.source import quietly

if TYPE_CHECKING:
    import pandas as pd

HISTOGRAMS = "histograms.parquet"
HIERARCHY = "hierarchy.parquet"
MANIFEST = "manifest.json"
REPORT = "report.html"
HISTOGRAM_COLUMNS = ("level", "region", "size", "groups")
HIERARCHY_COLUMNS = ("region", "parent", "level", "groups")

_ROWS_PER_GROUP = 1 << 20


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Release:
    """A release as read from its folder: everything in it is public.

    ``group_counts`` int64[regions] and ``histograms``, one a region, in the order of ``hierarchy``.
    """

    hierarchy: Hierarchy
    group_counts: Int64Array
    histograms: tuple[CountOfCounts, ...]
    manifest: Mapping[str, Any]

    def to_pandas(self) -> pd.DataFrame:
        """Return a frame with the columns level, region, size and groups, as in the folder."""
        import pandas as pd

        return pd.DataFrame(_histogram_columns(self.hierarchy, self.histograms))

    def __repr__(self) -> str:
        return f"Release({self.hierarchy!r}, {int(self.group_counts[0]):,} groups)"


def write_release(
    folder: str | Path,
    hierarchy: Hierarchy,
    group_counts: Int64Array,
    histograms: Sequence[CountOfCounts],
    manifest: Mapping[str, Any],
    report_html: str | None = None,
) -> Path:
    """Write a release folder and return its path; it appears complete or not at all.

    ``group_counts`` int64[regions] are the public numbers of groups and ``histograms`` the released ones, in the
    order of ``hierarchy``. ``manifest`` must be JSON and tell its ``promises`` and ``max_size`` (see
    ``verify_release``). Raises InputError: folder-exists, bad-shape, bad-manifest, cannot-write.
    """
    folder = Path(folder)
    counts = as_int64(group_counts, "group_counts")
    if counts.size != hierarchy.regions or len(histograms) != hierarchy.regions:
        raise InputError("bad-shape", "a release needs one number of groups and one histogram a region")
    files = {
        HISTOGRAMS: _parquet(_histogram_columns(hierarchy, histograms)),
        HIERARCHY: _parquet(_hierarchy_columns(hierarchy, counts)),
        MANIFEST: _json(manifest),
    }
    if report_html is not None:
        files[REPORT] = report_html.encode("utf-8")
    _refuse_existing(folder)
    try:
        _publish(folder, files)
        return folder
    except OSError as error:
        reason = error.strerror or "unknown reason"
    _refuse_existing(folder)
    raise InputError("cannot-write", f"the release could not be written: {reason}", Place(folder.name))


def read_release(folder: str | Path) -> Release:
    """Read a release folder; use ``verify_release`` to judge its content.

    Raises InputError: file-not-found, unreadable-file, bad-manifest, missing-column, unknown-region, null-value,
    or what ``Hierarchy`` and ``CountOfCounts`` say of their content.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    regions = read_columns(folder / HIERARCHY, HIERARCHY_COLUMNS)
    histograms = read_columns(folder / HISTOGRAMS, HISTOGRAM_COLUMNS)
    paths: list[str] = regions.column("region").to_pylist()
    hierarchy = _tree(folder, paths, regions)
    at = [hierarchy.index(path) for path in paths]
    if len(set(at)) != hierarchy.regions or len(at) != hierarchy.regions:
        raise InputError("duplicate-region", "must hold every region once", Place(HIERARCHY, None, "region"))
    counts = np.zeros(hierarchy.regions, np.int64)
    counts[at] = _integers(folder / HIERARCHY, regions, "groups")
    return Release(hierarchy, counts, _split(folder, hierarchy, histograms), manifest)


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


def _histogram_columns(hierarchy: Hierarchy, histograms: Sequence[CountOfCounts]) -> dict[str, Any]:
    runs = np.array([histogram.distinct for histogram in histograms], np.int64)
    region = np.repeat(np.arange(hierarchy.regions), runs)
    return {
        "level": hierarchy.level[region].astype(np.int32),
        "region": np.array(hierarchy.paths, dtype=object)[region],
        "size": np.concatenate([histogram.sizes for histogram in histograms]),
        "groups": np.concatenate([histogram.counts for histogram in histograms]),
    }


def _hierarchy_columns(hierarchy: Hierarchy, group_counts: Int64Array) -> dict[str, Any]:
    paths = np.array(hierarchy.paths, dtype=object)
    parents = paths[np.maximum(hierarchy.parent, 0)]
    parents[0] = None
    return {
        "region": paths,
        "parent": parents,
        "level": hierarchy.level.astype(np.int32),
        "groups": group_counts,
    }


def _parquet(columns: Mapping[str, Any]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"level": pa.int32(), "size": pa.int64(), "groups": pa.int64()}
    arrays = {name: pa.array(data, types.get(name, pa.string())) for name, data in columns.items()}
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


def _json(manifest: Mapping[str, Any]) -> bytes:
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


def _tree(folder: Path, paths: list[str], table: Any) -> Hierarchy:
    levels = _integers(folder / HIERARCHY, table, "level")
    if table.column("region").null_count:
        raise InputError("null-value", "must have no empty entry", Place(HIERARCHY, None, "region"))
    deepest = levels.max(initial=0)
    return Hierarchy.from_paths(
        path.split("/") for path, level in zip(paths, levels.tolist(), strict=True) if level == deepest
    )


def _integers(path: Path, table: Any, column: str) -> Int64Array:
    import pyarrow.types as kinds

    data = table.column(column)
    place = Place(path.name, None, column)
    if not kinds.is_integer(data.type):
        raise InputError("not-an-integer", "must have an integer type", place)
    if data.null_count:
        raise InputError("null-value", "must have no empty entry", place)
    return as_int64(data.to_numpy(), column)


def _split(folder: Path, hierarchy: Hierarchy, table: Any) -> tuple[CountOfCounts, ...]:
    import pyarrow as pa
    import pyarrow.compute as pc

    path = folder / HISTOGRAMS
    known = pa.array(hierarchy.paths, pa.string())
    found: Any = quietly(path, lambda: pc.index_in(table.column("region"), known))
    if found.null_count:
        row = int(np.flatnonzero(found.is_null().to_numpy())[0]) + 1
        message = "this region is not in the hierarchy"
        raise InputError("unknown-region", message, Place(HISTOGRAMS, row, "region"))
    region = as_int64(found.to_numpy(), "region")
    order = np.argsort(region, kind="stable")
    sizes, counts = (_integers(path, table, name)[order] for name in ("size", "groups"))
    cuts = np.searchsorted(region[order], np.arange(hierarchy.regions + 1)).tolist()
    return tuple(CountOfCounts(sizes[a:b], counts[a:b]) for a, b in pairwise(cuts))
