"""Read the three tables of the paper: entities (private), groups and hierarchy (public).

The public tables are read and checked before the private table is opened. Nothing is guessed: CSV is read as
text, columns go by name, and whatever could be misread is a typed error that shows no private value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import InputError
from coco_opt.files import column_checks
from coco_opt.files.batches import batches_of
from coco_opt.files.column_checks import (
    REGION,
    UNKNOWN_GROUP,
    UNKNOWN_REGION,
    check_groups,
    check_regions,
    states_regions,
)
from coco_opt.files.columns import ENTITIES, GROUPS, hierarchy_columns
from coco_opt.files.foreign_errors import quietly
from coco_opt.files.inputs import Input, InputLike
from coco_opt.files.regions import PublicRegions, read_tree, register_leaves
from coco_opt.files.scratch import spilling
from coco_opt.files.source import Loaded, isolated, load, load_texts
from coco_opt.groups.measuring.integer_ids import (
    REPEATED,
    GroupTable,
    Runs,
    count_entities,
    read_group_table,
    regions_agree,
)
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.groups.measuring.text_ids import count_texts, distinct_entities, read_text_groups
from coco_opt.histograms import Hierarchy

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class PublicGroups:
    """The public half of the input: the regions, every region's number of groups, and each group's leaf.

    ``group_counts`` int64[regions]. ``groups`` is the leaves by id where ids are integers. Where ids are texts, it is
    the checked table, which may be as large as the entities' and is read again with it. It is None where groups have no
    ids, or were only counted. A group no entity names has size 0. ``listed`` is the groups' table, where it was read.
    """

    regions: PublicRegions
    group_counts: Ints
    groups: GroupTable | Input | None = None
    listed: Input | None = None

    @property
    def integer_ids(self) -> bool:
        """Return whether the groups' ids are integers, which are counted much faster than texts."""
        return isinstance(self.groups, GroupTable)

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
    with spilling(spill, [listed]) as folder, isolated([tree_of, listed], folder) as con:
        table = load(con, "hierarchy", tree_of, hierarchy_columns(tree_of.levels))
        regions = read_tree(table)
        tree = regions.hierarchy
        integer_groups = read_group_table(listed, regions.leaf_of, len(tree.leaves))
        if integer_groups is not None:
            return PublicGroups(regions, tree.aggregate(integer_groups[1]), integer_groups[0], listed)
        if (packed := read_text_groups(listed, regions.leaf_of)) is not None:
            leaf_counts = np.bincount(packed.leaf, minlength=len(tree.leaves))
            return PublicGroups(regions, tree.aggregate(leaf_counts), listed, listed)
        register_leaves(con, regions)
        loaded = load(con, "groups", listed, GROUPS)
        check_groups(loaded, _listed_in(table))
        counts = _groups_of_leaves(loaded, 1, len(tree.leaves))
    return PublicGroups(regions, tree.aggregate(counts), listed, listed)


def read_group_counts(groups: InputLike, hierarchy: InputLike) -> PublicGroups:
    """Read every region's number of groups: what a prediction needs; ids that are texts are not looked at.

    Raises what ``read_public`` does, but for what is wrong with ids.
    """
    listed, tree_of = Input.of(groups, "groups"), Input.of(hierarchy, "hierarchy")
    opened = batches_of(listed, GROUPS)
    if opened is not None and opened.is_integer(0):
        return read_public(groups, hierarchy)  # integers are read as fast as they are counted
    with isolated([tree_of, listed]) as con:
        table = load(con, "hierarchy", tree_of, hierarchy_columns(tree_of.levels))
        regions = read_tree(table)
        tree = regions.hierarchy
        register_leaves(con, regions)
        loaded = load(con, "groups", listed, GROUPS, only=("region_id",))
        column_checks.check_rows(loaded)
        column_checks.check_known(loaded, 0, "leaves.region", *UNKNOWN_REGION, _listed_in(table))
        counts = _groups_of_leaves(loaded, 0, len(tree.leaves))
    return PublicGroups(regions, tree.aggregate(counts))


def read_private(public: PublicGroups, entities: InputLike, spill: Path | None = None) -> PrivateCounts:
    """Read entities (entity_id, group_id) and count every leaf's groups by size; O(rows).

    Integer ids are counted batch by batch, texts of large tables by their bytes, and anything else by DuckDB. ``spill``
    is a private folder: what DuckDB reads is read in little memory, and what has no room lies there meanwhile.

    A region_id that entities have all the same must be that of their group. Raises InputError: empty-file, null-id,
    space-in-id, duplicate-entity, unknown-group, region-differs and the codes of ``source.load``.
    """
    source, groups = Input.of(entities, "entities"), public.groups
    stated = public.listed is not None and states_regions(source, public.listed)
    in_memory = _counted_in_memory(public, source, stated=stated)
    if in_memory is not None:
        runs, rows = in_memory
        return from_runs(public.hierarchy, public.group_counts, runs, rows, int((runs[1] * runs[2]).sum()))
    read = [source, groups] if isinstance(groups, Input) else [source]
    with spilling(spill, read) as folder, isolated(read, folder) as con:
        columns = replace(ENTITIES, first=(*ENTITIES.first, REGION)) if stated else ENTITIES
        table = load(con, "entities", source, columns)
        faults = column_checks.check_members(table)
        with faults:
            column_checks.check_unique(table, (0,), *REPEATED, 0)
        _relate_groups(con, public)
        if stated:
            if isinstance(groups, GroupTable):
                register_leaves(con, public.regions)
            with faults:
                _check_regions(table, public)
        runs = quietly(source, lambda: _count_sizes(con))
        rows, counted = table.rows(), int((runs[1] * runs[2]).sum())
        if counted < rows:
            where = f"{table.shown[1]!r} of the groups table"
            with faults:
                column_checks.check_listed(table, 1, "group_leaf.id", *UNKNOWN_GROUP, where)
        faults.check()
    return from_runs(public.hierarchy, public.group_counts, runs, rows, counted)


def _check_regions(table: Loaded, public: PublicGroups) -> None:
    """Raise InputError (region-differs) for the entities that state another region than that of their group."""
    assert public.listed is not None
    source = "{t} JOIN group_leaf ON {t}.c1 = group_leaf.id LEFT JOIN leaves ON {t}.c2 = leaves.region"
    check_regions(table, 2, "leaves.leaf IS DISTINCT FROM group_leaf.leaf", source, public.listed)


def _counted_in_memory(public: PublicGroups, source: Input, *, stated: bool) -> tuple[Runs, int] | None:
    """Return the runs and the number of rows of a table that needs no DuckDB; None for others, and for wrong tables.

    ``stated`` says that entities name a region, which must be that of their group.
    """
    groups = public.groups
    if isinstance(groups, GroupTable):
        counted = count_entities(groups, source)
        return counted if not stated or regions_agree(groups, source, public.regions.leaf_of) else None
    return None if stated else _counted_texts(public, source)


def _counted_texts(public: PublicGroups, source: Input) -> tuple[Runs, int] | None:
    """Return the runs and the number of rows of a large table of texts; None where DuckDB must count."""
    tree, groups = public.hierarchy, public.groups
    if not isinstance(groups, Input):
        return None
    # Entities first: their hashes and the groups are never in memory together.
    entities = distinct_entities(source)
    packed = None if entities is None else read_text_groups(groups, public.regions.leaf_of)
    if entities is None or packed is None:
        return None
    counts = np.bincount(packed.leaf, minlength=len(tree.leaves))
    # Groups that were changed since they were checked are refused where DuckDB reads them.
    unchanged = np.array_equal(counts, public.group_counts[tree.leaves.start :])
    runs = count_texts(packed, entities) if unchanged else None
    return None if runs is None else (runs, entities.rows())


def _relate_groups(con: duckdb.DuckDBPyConnection, public: PublicGroups) -> None:
    """Give the connection a relation ``group_leaf`` (id, leaf), one row a group.

    Raises InputError unreadable-file where the table is no longer what was checked.
    """
    groups = public.groups
    if isinstance(groups, GroupTable):
        load_texts(con, "groups", groups.texts(), 2)
        con.execute("CREATE VIEW group_leaf AS SELECT c0 AS id, c1::BIGINT AS leaf FROM groups")
        return
    assert groups is not None
    table, tree = load(con, "groups", groups, GROUPS), public.hierarchy
    register_leaves(con, public.regions)
    counts = _groups_of_leaves(table, 1, len(tree.leaves))
    leaf_counts = public.group_counts[tree.leaves.start :]
    if (
        table.rows() != leaf_counts.sum()
        or not np.array_equal(counts, leaf_counts)
        or column_checks.repeats(table, "c0")
    ):
        raise InputError("unreadable-file", "was changed while it was read", table.place())
    con.execute("CREATE VIEW group_leaf AS SELECT c0 AS id, leaf FROM groups JOIN leaves ON c1 = region")


def from_runs(tree: Hierarchy, group_counts: Ints, runs: Runs, read: int, counted: int) -> PrivateCounts:
    """Build the private counts from (leaf, size, groups) runs sorted by leaf and size."""
    leaf, sizes, counts = runs
    offsets = np.searchsorted(leaf, np.arange(len(tree.leaves) + 1)).astype(np.int64)
    return PrivateCounts(tree, group_counts, offsets, sizes, counts, read, counted)


def fetch_runs(con: duckdb.DuckDBPyConnection, query: str) -> Runs:
    """Run a query for (leaf, size, groups) and return its columns as int64 arrays."""
    runs = con.execute(query).fetchnumpy()
    leaf, size, groups = (np.asarray(runs[name], np.int64) for name in ("leaf", "size", "groups"))
    return leaf, size, groups


def _listed_in(tree: Loaded) -> str:
    """Return in words where regions are listed."""
    return f"{tree.shown[0]!r} of {tree.source.name}"


def _groups_of_leaves(table: Loaded, region: int, leaves: int) -> Ints:
    """Return the number of groups of each leaf, whose region's id is in a column; int64[leaves]."""
    counts = np.zeros(leaves, np.int64)
    for leaf, number in table.fetch(
        f"SELECT leaf, count(*) FROM {{t}} JOIN leaves ON c{region} = region GROUP BY leaf"
    ):
        counts[leaf] = number
    return counts


def _count_sizes(con: duckdb.DuckDBPyConnection) -> Runs:
    query = """
        WITH filled AS (SELECT c1 AS id, count(*) AS size FROM entities GROUP BY c1)
        SELECT leaf, coalesce(size, 0) AS size, count(*) AS groups
        FROM group_leaf LEFT JOIN filled USING (id) GROUP BY ALL ORDER BY ALL"""
    return fetch_runs(con, query)
