"""Write and read a release folder: histograms, hierarchy, manifest and report, all public."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coco_opt.errors import InputError, Place
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.histograms.arrays import Int64Array, as_int64
from coco_opt.tables.folder import (
    MANIFEST,
    REPORT,
    as_json,
    parquet,
    read_columns,
    read_manifest,
    write_folder,
)
from coco_opt.tables.persons import FORMAT as TABLES_FORMAT
from coco_opt.tables.source import quietly

if TYPE_CHECKING:
    import pandas as pd

HISTOGRAMS = "histograms.parquet"
HIERARCHY = "hierarchy.parquet"
HISTOGRAM_COLUMNS = ("level", "region", "size", "groups")
HIERARCHY_COLUMNS = ("region", "parent", "level", "groups")

_TYPES = {"level": "int32", "size": "int64", "groups": "int64"}


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
        HISTOGRAMS: parquet(_histogram_columns(hierarchy, histograms), _TYPES),
        HIERARCHY: parquet(_hierarchy_columns(hierarchy, counts), _TYPES),
        MANIFEST: as_json(manifest),
    }
    if report_html is not None:
        files[REPORT] = report_html.encode("utf-8")
    return write_folder(folder, files)


def read_release(folder: str | Path) -> Release:
    """Read a release folder; use ``verify_release`` to judge its content.

    Raises InputError: file-not-found, unreadable-file, bad-manifest, missing-column, unknown-region, null-value,
    or what ``Hierarchy`` and ``CountOfCounts`` say of their content.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    if manifest.get("format") == TABLES_FORMAT:
        raise InputError("other-release", "is a release of tables: use read_tables_release", Place(folder.name))
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
