"""Read the three tables of the paper: entities (private), groups and hierarchy (public).

The public tables are read and checked before the private table is opened. Nothing is guessed: CSV is read as
text, columns go by name, and whatever could be misread is a typed error that shows no private value.

DuckDB counts Parquet files and frames as they are read. Tables with errors, and CSV files, it holds as text: there
errors say what is wrong, and where.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import InputError
from coco_opt.files import column_checks
from coco_opt.files.batches import Batches, batches_of
from coco_opt.files.column_checks import (
    REGION,
    UNKNOWN_GROUP,
    UNKNOWN_REGION,
    check_groups,
    check_regions,
    occur_at_most,
    states_regions,
)
from coco_opt.files.foreign_errors import quietly
from coco_opt.files.inputs import ENTITIES, GROUPS, Columns, Input, InputLike
from coco_opt.files.regions import PublicRegions, read_regions, register_leaves
from coco_opt.files.scratch import spilling
from coco_opt.files.source import Loaded, isolated, load, names_of, streamed
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.histograms import Hierarchy

if TYPE_CHECKING:
    import duckdb


T = TypeVar("T")
REPEATED = ("duplicate-entity", "this entity occurs in an earlier row: one entity belongs to one group, once")
Runs = tuple[Ints, Ints, Ints]
_AT_ONCE = 1 << 17  # rows of a batch, whose columns are joined
_ELSEWHERE = "leaves.leaf IS DISTINCT FROM group_leaf.leaf"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class PublicGroups:
    """The public half of the input: the regions, every region's number of groups, and the table of groups.

    ``group_counts`` int64[regions]. ``groups`` is the checked table, which may be as large as the entities' and is read
    again with it. It is None where groups have no ids, or were only counted. A group no entity names has size 0.
    """

    regions: PublicRegions
    group_counts: Ints
    groups: Input | None = None

    @property
    def integer_ids(self) -> bool:
        """Return whether the groups' ids are integers, which are counted faster than texts."""
        opened = None if self.groups is None else batches_of(self.groups, GROUPS)
        return opened is not None and opened.is_integer(0)

    @property
    def hierarchy(self) -> Hierarchy:
        """Return the regions as a tree."""
        return self.regions.hierarchy

    def __repr__(self) -> str:
        return f"PublicGroups({self.hierarchy!r}, {int(self.group_counts[0]):,} groups)"


def read_tables(
    entities: InputLike, groups: InputLike, hierarchy: InputLike, spill: Path | None = None
) -> PrivateCounts:
    """Read the three tables of the paper (Kuo et al. 2018, section 3), the public two first."""
    return read_private(read_public(groups, hierarchy, spill), entities, spill)


def read_public(groups: InputLike, hierarchy: InputLike, spill: Path | None = None) -> PublicGroups:
    """Read groups (group_id, region_id) and hierarchy (region_id, then one column a level, root first).

    ``spill`` is a private folder: a large table is read in little memory, and what has no room lies there meanwhile.
    Raises HierarchyError where the regions form no tree, and InputError: null-id, space-in-id,
    unknown-region, duplicate-group, group-in-two-leaves, empty-file and the codes of ``source.load``.
    """
    listed, tree_of = Input.of(groups, "groups"), Input.of(hierarchy, "hierarchy")
    regions = read_regions(tree_of)
    tree = regions.hierarchy
    with spilling(spill, [listed]) as folder, isolated([listed], folder) as con:
        register_leaves(con, regions)
        counts = _streamed_groups(con, listed, len(tree.leaves))
        if counts is None:
            loaded = load(con, "groups", listed, GROUPS)
            check_groups(loaded, _listed_in(tree_of))
            counts = _groups_of_leaves(loaded, 1, len(tree.leaves))
    return PublicGroups(regions, tree.aggregate(counts), listed)


def read_group_counts(groups: InputLike, hierarchy: InputLike) -> PublicGroups:
    """Read every region's number of groups: what a prediction needs; ids that are texts are not looked at.

    Raises what ``read_public`` does, but for what is wrong with ids.
    """
    listed, tree_of = Input.of(groups, "groups"), Input.of(hierarchy, "hierarchy")
    opened = batches_of(listed, GROUPS)
    if opened is not None and opened.is_integer(0):
        return read_public(groups, hierarchy)  # integers are read as fast as they are counted
    regions = read_regions(tree_of)
    tree = regions.hierarchy
    with isolated([listed]) as con:
        register_leaves(con, regions)
        loaded = load(con, "groups", listed, GROUPS, only=("region_id",))
        column_checks.check_rows(loaded)
        column_checks.check_known(loaded, 0, "leaves.region", *UNKNOWN_REGION, _listed_in(tree_of))
        counts = _groups_of_leaves(loaded, 0, len(tree.leaves))
    return PublicGroups(regions, tree.aggregate(counts))


def read_private(public: PublicGroups, entities: InputLike, spill: Path | None = None) -> PrivateCounts:
    """Read entities (entity_id, group_id) and count every leaf's groups by size; O(rows).

    Parquet files and frames are counted as they are read; CSV files, and tables with a wrong row, are held in DuckDB.
    ``spill`` is a private folder: a large table is read in little memory, and what has no room lies there meanwhile.

    A region_id that entities have all the same must be that of their group. Raises InputError: empty-file, null-id,
    space-in-id, duplicate-entity, unknown-group, region-differs and the codes of ``source.load``.
    """
    source, groups = Input.of(entities, "entities"), public.groups
    assert groups is not None
    stated = states_regions(source, groups)
    columns = replace(ENTITIES, first=(*ENTITIES.first, REGION)) if stated else ENTITIES
    with spilling(spill, [source, groups]) as folder, isolated([source, groups], folder) as con:
        register_leaves(con, public.regions)
        counted = _streamed_sizes(con, public, source, columns)
        if counted is not None:
            return from_runs(public.hierarchy, public.group_counts, *counted)
        table = load(con, "entities", source, columns)
        faults = column_checks.check_members(table)
        with faults:
            column_checks.check_unique(table, (0,), *REPEATED, 0)
        _relate_groups(con, public)
        if stated:
            with faults:
                homes = "{t} JOIN group_leaf ON {t}.c1 = group_leaf.id LEFT JOIN leaves ON {t}.c2 = leaves.region"
                check_regions(table, 2, _ELSEWHERE, homes, groups)
        runs = quietly(source, lambda: _sizes_of(con, "SELECT c1 AS id, count(*) AS size FROM entities GROUP BY c1"))
        rows = table.rows()
        if _entities_in(runs) < rows:
            where = f"{table.shown[1]!r} of the groups table"
            with faults:
                column_checks.check_listed(table, 1, "group_leaf.id", *UNKNOWN_GROUP, where)
        faults.check()
    return from_runs(public.hierarchy, public.group_counts, runs, rows)


def _ids(opened: Batches, column: int, *, integers: bool = False) -> str:
    """Return a column of a stream as it is compared: as text in NFC, or as ``integers`` where both tables are."""
    if opened.is_integer(column):
        return f"c{column}" if integers else f"c{column}::VARCHAR"
    return f"nfc_normalize(c{column})"


def _from_stream(con: duckdb.DuckDBPyConnection, opened: Batches, action: Callable[[], T]) -> T:
    """Return what ``action`` asks of the relation ``stream``, a table that is not held."""
    columns, arrays = replace(opened, at_once=_AT_ONCE).stream((REGION,))
    return quietly(opened.source, lambda: streamed(con, "stream", columns, arrays, action))


def _streamed_groups(con: duckdb.DuckDBPyConnection, groups: Input, leaves: int) -> Ints | None:
    """Return the number of groups of each leaf of a table that is not held; None where a row is wrong, or may be."""
    opened = batches_of(groups, GROUPS)
    if opened is None or not occur_at_most(opened.only(0)):
        return None
    region = opened.only(1)
    query = f"SELECT leaf, count(*) FROM stream LEFT JOIN leaves ON {_ids(region, 0)} = region GROUP BY leaf"
    numbers = dict(_from_stream(con, region, lambda: con.execute(query).fetchall()))
    return None if not numbers or None in numbers else _by_leaf(numbers, leaves)


def _streamed_sizes(
    con: duckdb.DuckDBPyConnection, public: PublicGroups, source: Input, columns: Columns
) -> tuple[Runs, int] | None:
    """Return the runs and the number of rows of entities that are not held; None where a row is wrong, or may be.

    Groups that were changed since they were checked are refused where DuckDB holds all rows.
    """
    assert public.groups is not None
    groups, opened = batches_of(public.groups, GROUPS), batches_of(source, columns)
    if groups is None or opened is None or not occur_at_most(opened.only(0)):
        return None
    integers, owners = groups.is_integer(0) and opened.is_integer(1), replace(opened, columns=opened.columns[1:])
    home = f"SELECT {_ids(groups, 0, integers=integers)} AS id, leaf FROM stream"
    home += f" JOIN leaves ON {_ids(groups, 1)} = region"
    _from_stream(con, groups, lambda: con.execute(f"CREATE TABLE group_leaf AS {home}"))
    owner, count = f"SELECT {_ids(owners, 0, integers=integers)} AS id", "count(*) AS size FROM stream GROUP BY ALL"
    wrong, rows = False, opened.rows()
    if len(owners.columns) == 1:
        runs = _from_stream(con, owners, lambda: _sizes_of(con, f"{owner}, {count}"))
    else:
        filled = f"CREATE OR REPLACE TABLE filled AS {owner}, {_ids(owners, 1)} AS stated, {count}"
        _from_stream(con, owners, lambda: con.execute(filled))
        homes = "filled JOIN group_leaf USING (id) LEFT JOIN leaves ON stated = region"
        wrong = bool(con.execute(f"SELECT 1 FROM {homes} WHERE stated <> '' AND {_ELSEWHERE} LIMIT 1").fetchall())
        runs = _sizes_of(con, "SELECT id, sum(size) AS size FROM filled GROUP BY id")
    counts = np.bincount(runs[0], runs[2], len(public.hierarchy.leaves)).astype(np.int64)
    unchanged = np.array_equal(counts, public.group_counts[public.hierarchy.leaves.start :])
    if not wrong and unchanged and rows and _entities_in(runs) == rows:
        return runs, rows
    con.execute("DROP TABLE group_leaf")
    return None


def _relate_groups(con: duckdb.DuckDBPyConnection, public: PublicGroups) -> None:
    """Give the connection a relation ``group_leaf`` (id, leaf), one row a group.

    Raises InputError unreadable-file where the table is no longer what was checked.
    """
    assert public.groups is not None
    table, tree = load(con, "groups", public.groups, GROUPS), public.hierarchy
    counts = _groups_of_leaves(table, 1, len(tree.leaves))
    leaf_counts = public.group_counts[tree.leaves.start :]
    if (
        table.rows() != leaf_counts.sum()
        or not np.array_equal(counts, leaf_counts)
        or column_checks.repeats(table, "c0")
    ):
        raise InputError("unreadable-file", "was changed while it was read", table.place())
    con.execute("CREATE VIEW group_leaf AS SELECT c0 AS id, leaf FROM groups JOIN leaves ON c1 = region")


def from_runs(tree: Hierarchy, group_counts: Ints, runs: Runs, read: int, counted: int | None = None) -> PrivateCounts:
    """Build the private counts from sorted (leaf, size, groups) runs; ``counted`` are rows, or the entities."""
    leaf, sizes, counts = runs
    counted = _entities_in(runs) if counted is None else counted
    offsets = np.searchsorted(leaf, np.arange(len(tree.leaves) + 1)).astype(np.int64)
    return PrivateCounts(tree, group_counts, offsets, sizes, counts, read, counted)


def fetch_runs(con: duckdb.DuckDBPyConnection, query: str) -> Runs:
    """Run a query for (leaf, size, groups) and return its columns as int64 arrays."""
    runs = con.execute(query).fetchnumpy()
    leaf, size, groups = (np.asarray(runs[name], np.int64) for name in ("leaf", "size", "groups"))
    return leaf, size, groups


def _listed_in(hierarchy: Input) -> str:
    """Return in words where regions are listed."""
    return f"{hierarchy.called(names_of(hierarchy)).get(REGION, REGION)!r} of {hierarchy.name}"


def _groups_of_leaves(table: Loaded, region: int, leaves: int) -> Ints:
    """Return the number of groups of each leaf, whose region's id is in a column; int64[leaves]."""
    query = f"SELECT leaf, count(*) FROM {{t}} JOIN leaves ON c{region} = region GROUP BY leaf"
    return _by_leaf(dict(table.fetch(query)), leaves)


def _by_leaf(numbers: Mapping[int, int], leaves: int) -> Ints:
    counts = np.zeros(leaves, np.int64)
    counts[list(numbers)] = list(numbers.values())
    return counts


def _entities_in(runs: Runs) -> int:
    return int((runs[1] * runs[2]).sum())


def _sizes_of(con: duckdb.DuckDBPyConnection, filled: str) -> Runs:
    """Return the runs, given the query for the (id, size) of groups that have entities."""
    return fetch_runs(
        con,
        f"WITH filled_groups AS ({filled}) SELECT leaf, coalesce(size, 0) AS size, count(*) AS groups "
        "FROM group_leaf LEFT JOIN filled_groups USING (id) GROUP BY ALL ORDER BY ALL",
    )
