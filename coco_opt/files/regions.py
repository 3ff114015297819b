"""The public hierarchy as files: read from the user's table, written beside measurements and releases, read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.errors import HierarchyError, InputError, Place
from coco_opt.files import checks
from coco_opt.files.checked import Check, Regions, coded, int64_column, positions, tree_check
from coco_opt.files.columns import HIERARCHY
from coco_opt.files.folder import Coded, FileTable, read_columns
from coco_opt.files.inputs import Input, InputLike
from coco_opt.files.source import Loaded, isolated, load
from coco_opt.histograms import Hierarchy
from coco_opt.histograms.arrays import Int64Array
from coco_opt.histograms.hierarchy_build import unescaped
from coco_opt.privacy.measurement import Asked

REGIONS = "hierarchy.parquet"
REGION_COLUMNS = ("region", "region_id", "parent", "level", "level_name")


@dataclass(frozen=True, eq=False, slots=True)
class PublicRegions:
    """A public hierarchy, the names of its levels (columns, root first), ids in the user's files and their leaves.

    ``ids[k]`` is the id of leaf ``leaf[k]`` (int64), counted from 0 within ``hierarchy.leaves``; each occurs once.
    """

    hierarchy: Hierarchy
    levels: tuple[str, ...]
    ids: tuple[str, ...]
    leaf: Int64Array

    @property
    def leaf_of(self) -> dict[str, int]:
        """Return the leaf of every id."""
        return dict(zip(self.ids, self.leaf.tolist(), strict=True))

    @property
    def region_ids(self) -> tuple[str | None, ...]:
        """Return the id of every region in the user's files; None for a region that has none."""
        ids: list[str | None] = [None] * self.hierarchy.regions
        for name, leaf in zip(self.ids, self.leaf.tolist(), strict=True):
            ids[self.hierarchy.leaves.start + leaf] = name
        return tuple(ids)


def read_regions(hierarchy: InputLike) -> PublicRegions:
    """Read a hierarchy (region_id, then one column a level, root first).

    Raises HierarchyError where the regions form no tree, InputError: null-id, space-in-id, empty-file and the codes of
    ``source.load``.
    """
    source = Input.of(hierarchy, "hierarchy")
    with isolated([source]) as con:
        table = load(con, "hierarchy", source, HIERARCHY)
        return read_tree(table)


def read_tree(table: Loaded) -> PublicRegions:
    """Return the regions of a loaded hierarchy table."""
    levels = range(1, len(table.names))
    checks.check_rows(table)
    checks.check_ids(table, (0,))
    checks.check_levels(table, levels)
    columns = ", ".join(f"c{k}" for k in levels)
    if table.value("SELECT count(*) - count(DISTINCT c0) FROM {t}"):
        row, moved = checks.second_row(table, "c0", f"concat_ws('/', {columns})")
        code, what = ("two-parents", "lies at two places") if moved else ("duplicate-region", "occurs twice")
        raise HierarchyError(code, f"this region {what} in the hierarchy: give each one row", table.place(row, 0))
    ids: list[str] = []
    numbers: list[dict[str, int]] = [{} for _ in levels]
    codes: list[list[Int64Array]] = [[] for _ in levels]
    for rows in table.pieces(f"SELECT c0, {columns} FROM {{t}} ORDER BY rowid"):
        own, *names = zip(*rows, strict=True)
        ids += own
        for known, places, column in zip(numbers, codes, names, strict=True):
            places.append(np.array([known.setdefault(name, len(known)) for name in column], np.int64))
    texts = [(np.concatenate(places), list(known)) for places, known in zip(codes, numbers, strict=True)]
    tree, leaf = Hierarchy.from_columns(texts, table.place)
    return PublicRegions(tree, tuple(table.names[1:]), tuple(ids), leaf - tree.leaves.start)


def register_leaves(table: Loaded, public: PublicRegions) -> None:
    """Give the table's connection a relation ``leaves`` of (region, leaf)."""
    import pyarrow as pa

    arrays: dict[str, Any] = {"region": pa.array(public.ids, pa.string()), "leaf": pa.array(public.leaf)}
    table.con.register("leaves", pa.table(arrays))


def region_table(asked: Asked, released: Mapping[str, Int64Array] | None = None) -> FileTable:
    """Return hierarchy.parquet: region, region_id, parent, level, level_name, and the kind's numbers a region.

    They are those that are public beforehand, and those ``released``.
    """
    numbers = {**asked.per_region, **(released or {})}
    tree = asked.hierarchy
    paths = np.array(tree.paths, dtype=object)
    parents = paths[np.maximum(tree.parent, 0)]
    parents[0] = None
    columns = {
        "region": paths,
        "region_id": list(asked.region_ids),
        "parent": parents,
        "level": tree.level.astype(np.int32),
        "level_name": np.array(asked.levels, dtype=object)[tree.level],
        **numbers,
    }
    return FileTable.of(columns, {"level": "int32", **dict.fromkeys(numbers, "int64")})


def stored_regions(folder: Path) -> tuple[Hierarchy, tuple[str, ...], tuple[str | None, ...], dict[str, Int64Array]]:
    """Return the hierarchy, the names of its levels, the regions' ids and the numbers of a folder's hierarchy.parquet.

    Rows must be in the hierarchy's own order, as ``region_table`` writes them. Raises InputError.
    """
    table = read_columns(folder / REGIONS, REGION_COLUMNS)
    paths = table.column("region").to_pylist()
    parent = positions(table.column("parent"), paths)
    parts = [path if up < 0 else path[len(paths[up]) + 1 :] for path, up in zip(paths, parent.tolist(), strict=True)]
    names = [unescaped(part) for part in parts]
    hierarchy = Hierarchy(parent, tuple(names))
    if list(hierarchy.paths) != paths:
        raise InputError("bad-order", "must hold regions in the order of the tree", Place(REGIONS, None, "region"))
    level_names = table.column("level_name").to_pylist()
    levels = tuple(level_names[hierarchy.level_range(level).start] for level in range(hierarchy.levels))
    return hierarchy, levels, tuple(table.column("region_id").to_pylist()), _numbers(table)


def checked_regions(folder: Path) -> tuple[Regions | None, Check]:
    """Return the regions of a release folder for verification, None where they are no sound tree, and the check."""
    import pyarrow.types as kinds

    table = read_columns(folder / REGIONS, REGION_COLUMNS)
    for name in ("level", *(name for name in table.column_names if name not in REGION_COLUMNS)):
        column = table.column(name)
        if not kinds.is_signed_integer(column.type) or column.null_count:
            detail = f"{REGIONS}, column {name!r} does not hold integers only"
            return None, Check("hierarchy", passed=False, detail=detail)
    names = table.column("region").to_pylist()
    parent = positions(table.column("parent"), names)
    level = int64_column(table, "level")
    check = tree_check(names, parent, level)
    if check.passed and not _one_name_a_level(level, table.column("level_name").to_pylist()):
        check = Check("hierarchy", passed=False, detail="a level has no name, or two")
    texts = {name: coded(table.column(name)) for name in ("level_name", "region_id")}
    return (Regions(names, parent, level, _numbers(table), texts) if check.passed else None), check


def _one_name_a_level(level: Int64Array, names: Sequence[str | None]) -> bool:
    named = set(zip(level.tolist(), names, strict=True))
    return len(named) == level.max() + 1 and all(name for _, name in named)


def _numbers(table: Any) -> dict[str, Int64Array]:
    return {name: int64_column(table, name) for name in table.column_names if name not in REGION_COLUMNS}


def region_columns(asked: Asked, regions: Int64Array) -> dict[str, Any]:
    """Return the columns level, level_name, region and region_id of rows that belong to regions, by their numbers."""
    tree = asked.hierarchy
    level = tree.level[regions]
    return {
        "level": level.astype(np.int32),
        "level_name": Coded(asked.levels, level),
        "region": Coded(tree.paths, regions),
        "region_id": Coded(asked.region_ids, regions),
    }
