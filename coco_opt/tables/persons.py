"""Write and read a release of tables of persons: cells that are not zero, estimates beside them, perhaps microdata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coco_opt.errors import InputError
from coco_opt.histograms import Hierarchy
from coco_opt.histograms.arrays import Int64Array
from coco_opt.tables.folder import (
    MANIFEST,
    REPORT,
    ROWS_PER_GROUP,
    Coded,
    as_json,
    parquet,
    parquet_parts,
    read_columns,
    read_manifest,
    write_folder,
)
from coco_opt.topdown.plain import schema_of
from coco_opt.topdown.schema import Schema
from coco_opt.topdown.sparse_tables import SparseTables

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "coco-opt tables release 1"
TABLES = "tables.parquet"
REGIONS = "hierarchy.parquet"
EXACT = "invariants.parquet"
ESTIMATES = "estimates.parquet"
MICRODATA = "microdata.parquet"
REGION_COLUMNS = ("region", "parent", "level")
EXACT_COLUMNS = ("level", "region", "query", "answer", "lower", "upper")
ESTIMATE_COLUMNS = ("level", "region", "query", "answer", "estimate", "standard_error")
PERSONS = "persons"
RESERVED = ("level", "region", "region_id", PERSONS, "count")
"""Names of columns, which no attribute may have."""

# By file, for an attribute may have the name of another file's column.
_REGION_TYPES = {"level": "int32"}
_TABLE_TYPES = {"level": "int32", PERSONS: "int64"}
_EXACT_TYPES = {"level": "int32", "lower": "int64", "upper": "int64"}
_ESTIMATE_TYPES = {"level": "int32", "estimate": "double", "standard_error": "double"}


@dataclass(frozen=True, eq=False, slots=True)
class CellRuns:
    """Cells of regions that are not zero: ``counts[k]`` persons in cell ``cells[k]`` of region ``regions[k]``.

    Regions by their number in the hierarchy, cells by their place among the allowed ones; both sorted.
    """

    regions: Int64Array
    cells: Int64Array
    counts: Int64Array

    @classmethod
    def of(cls, levels: Sequence[SparseTables]) -> CellRuns:
        """Return the runs of the tables of all levels, root first."""
        regions = np.cumsum([0, *(level.regions for level in levels)])
        owners = [
            np.repeat(np.arange(first, first + level.regions), np.diff(level.offsets))
            for first, level in zip(regions.tolist(), levels, strict=False)
        ]
        cells, counts = ([getattr(level, name) for level in levels] for name in ("cells", "counts"))
        return cls(np.concatenate(owners), np.concatenate(cells), np.concatenate(counts))


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class TablesRelease:
    """A release of tables as read from its folder: everything in it is public."""

    hierarchy: Hierarchy
    schema: Schema
    runs: CellRuns
    manifest: Mapping[str, Any]

    def table(self, region: str) -> Int64Array:
        """Return a region's table, int64[schema.size], by its path. Raises HierarchyError."""
        number = self.hierarchy.index(region)
        start, stop = np.searchsorted(self.runs.regions, [number, number + 1])
        table = np.zeros(self.schema.size, np.int64)
        table[self.runs.cells[start:stop]] = self.runs.counts[start:stop]
        return table

    def to_pandas(self) -> pd.DataFrame:
        """Return a frame with the columns level, region, the attributes and persons, as in the folder."""
        import pandas as pd

        columns = _table_columns(self.hierarchy, self.schema, self.runs)
        texts = {
            name: np.array(one.texts, object)[one.codes] for name, one in columns.items() if isinstance(one, Coded)
        }
        return pd.DataFrame({**columns, **texts})

    def __repr__(self) -> str:
        return f"TablesRelease({self.hierarchy!r}, {self.schema!r})"


def write_tables(
    folder: str | Path,
    hierarchy: Hierarchy,
    schema: Schema,
    runs: CellRuns,
    manifest: Mapping[str, Any],
    *,
    exact: Mapping[str, Any] | None = None,
    estimates: Mapping[str, Any] | None = None,
    microdata: bool = False,
    report_html: str | None = None,
) -> Path:
    """Write a release of tables and return its folder; it appears complete or not at all.

    ``manifest`` must hold ``schema`` (see ``topdown.plain``) and ``promises`` (see ``verify_tables``). ``exact`` are
    the columns of what holds exactly or within public bounds, ``estimates`` those of unbiased estimates with their
    standard errors; ``microdata`` adds one row a person of the leaves. Raises InputError: folder-exists, bad-manifest,
    cannot-write.
    """
    files = {
        TABLES: parquet(_table_columns(hierarchy, schema, runs), _TABLE_TYPES),
        REGIONS: parquet(_region_columns(hierarchy), _REGION_TYPES),
        MANIFEST: as_json(manifest),
    }
    if exact is not None:
        files[EXACT] = parquet({name: exact[name] for name in EXACT_COLUMNS}, _EXACT_TYPES)
    if estimates is not None:
        files[ESTIMATES] = parquet({name: estimates[name] for name in ESTIMATE_COLUMNS}, _ESTIMATE_TYPES)
    if microdata:
        files[MICRODATA] = parquet_parts(_person_parts(hierarchy, schema, runs), {})
    if report_html is not None:
        files[REPORT] = report_html.encode("utf-8")
    return write_folder(Path(folder), files)


def read_tables_release(folder: str | Path) -> TablesRelease:
    """Read a release of tables; use ``verify_release`` to judge its content.

    Raises InputError: file-not-found, unreadable-file, bad-manifest, missing-column, unknown-region, unknown-value.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    if manifest.get("format") != FORMAT:
        raise InputError("bad-manifest", "is a release of groups: use read_release, or no release")
    schema = schema_of(manifest.get("schema", {}))
    regions = read_columns(folder / REGIONS, REGION_COLUMNS)
    paths, levels = regions.column("region").to_pylist(), regions.column("level").to_pylist()
    deepest = max(levels, default=0)
    hierarchy = Hierarchy.from_paths(
        [path.split("/") for path, level in zip(paths, levels, strict=True) if level == deepest]
    )
    table = read_columns(folder / TABLES, ("level", "region", *schema.names, PERSONS))
    region = np.array([hierarchy.index(path) for path in table.column("region").to_pylist()], np.int64)
    cells = schema.encode({name: _codes(table, name, schema) for name in schema.names})
    counts = np.asarray(table.column(PERSONS).to_numpy(), np.int64)
    order = np.lexsort((cells, region))
    return TablesRelease(hierarchy, schema, CellRuns(region[order], cells[order], counts[order]), manifest)


def _codes(table: Any, name: str, schema: Schema) -> Int64Array:
    where = {value: code for code, value in enumerate(schema.attributes[name])}
    encoded = table.column(name).combine_chunks().dictionary_encode()
    known = np.array([where.get(value, -1) for value in encoded.dictionary.to_pylist()], np.int64)
    codes = known[np.asarray(encoded.indices.to_numpy(), np.int64)] if len(known) else np.zeros(0, np.int64)
    if (codes < 0).any():
        raise InputError("unknown-value", f"{TABLES}, column {name!r} holds a value that the attribute does not have")
    return codes


def _table_columns(hierarchy: Hierarchy, schema: Schema, runs: CellRuns) -> dict[str, Any]:
    return {
        "level": hierarchy.level[runs.regions].astype(np.int32),
        "region": Coded(hierarchy.paths, runs.regions),
        **_value_columns(schema, runs.cells),
        PERSONS: runs.counts,
    }


def _value_columns(schema: Schema, cells: Int64Array) -> dict[str, Coded]:
    codes = schema.decode(cells)
    return {name: Coded(values, codes[name]) for name, values in schema.attributes.items()}


def _region_columns(hierarchy: Hierarchy) -> dict[str, Any]:
    paths = np.array(hierarchy.paths, dtype=object)
    parents = paths[np.maximum(hierarchy.parent, 0)]
    parents[0] = None
    return {"region": paths, "parent": parents, "level": hierarchy.level.astype(np.int32)}


def _person_parts(hierarchy: Hierarchy, schema: Schema, runs: CellRuns) -> Iterator[dict[str, Coded]]:
    """Return one row for each person of a leaf, in the order of regions and cells, a row group at a time."""
    leaf = np.flatnonzero(runs.regions >= hierarchy.leaves.start)
    ends = np.cumsum(runs.counts[leaf])
    persons = int(ends[-1]) if ends.size else 0
    for start in range(0, max(1, persons), ROWS_PER_GROUP):
        rows = np.arange(start, min(start + ROWS_PER_GROUP, persons))
        run = leaf[np.searchsorted(ends, rows, side="right")]
        regions, codes = np.unique(runs.regions[run], return_inverse=True)
        region = Coded([hierarchy.paths[number] for number in regions.tolist()], codes)
        yield {"region": region, **_value_columns(schema, runs.cells[run])}
