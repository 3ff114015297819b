"""Read a table of counts: level columns root first, then size and groups (of that size)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import HierarchyError, InputError, Place
from coco_opt.files import column_checks
from coco_opt.files.foreign_errors import quietly
from coco_opt.files.inputs import SIZES, Input, InputLike
from coco_opt.files.regions import NAME_THE_ROOT, PublicRegions, root_level
from coco_opt.files.scratch import spilling
from coco_opt.files.source import Faults, Loaded, isolated, load
from coco_opt.groups.measuring.entities import PublicGroups, fetch_runs, from_runs
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.histograms import Hierarchy
from coco_opt.histograms.texts import Texts

if TYPE_CHECKING:
    import duckdb

_ONE_LEVEL = "region"  # the name of the level of a table without level columns


def read_sizes(sizes: InputLike, root: str | None = None, spill: Path | None = None) -> PrivateCounts:
    """Read a table of counts; ``root`` names the region above its level columns, or its only region where it has none.

    ``spill`` is a private folder: a large table is read in little memory, and what has no room lies there meanwhile.

    Raises HierarchyError where the regions form no tree, and InputError: not-an-integer, negative-size,
    negative-count, too-large, duplicate-row, space-in-id, missing-root, empty-file and the codes of
    ``source.load``. Rows with 0 groups keep their region and add nothing.
    """
    source = Input.of(sizes, "sizes")
    with spilling(spill, [source]) as folder, isolated([source], folder) as con:
        table, tree = _open(con, source, root)
        group_counts = _group_counts(table, tree)
        levels = len(table.names) - 2
        faults = Faults()
        with faults:
            column_checks.check_count(table, levels, "negative-size")
        with faults:
            message = "this region and size occur in an earlier row"
            column_checks.check_unique(table, tuple(range(levels + 1)), "duplicate-row", message, None)
        faults.check()
        column_checks.check_totals(table, levels, levels + 1)
        query = f"""
            SELECT leaf, c{levels}::BIGINT AS size, c{levels + 1}::BIGINT AS groups FROM {_join(levels)}
            WHERE c{levels + 1} <> '0' ORDER BY leaf, size"""
        runs = quietly(source, lambda: fetch_runs(con, query))
        read, counted = table.rows(), int(table.value(f"SELECT count(*) FROM {_join(levels)}"))
    return from_runs(tree, group_counts, runs, read, counted)


def read_public_sizes(sizes: InputLike, root: str | None = None, spill: Path | None = None) -> PublicGroups:
    """Read only what is public in a table of counts: its regions and their numbers of groups.

    Raises what ``read_sizes`` does, but for the sizes, which it does not look at.
    """
    source = Input.of(sizes, "sizes")
    with spilling(spill, [source]) as folder, isolated([source], folder) as con:
        table, tree = _open(con, source, root)
        group_counts = _group_counts(table, tree)
    return PublicGroups(_regions(table, tree), group_counts)


def read_sizes_regions(sizes: InputLike, root: str | None = None, spill: Path | None = None) -> PublicRegions:
    """Read only the regions of a table of counts, whose numbers of groups are private too.

    Raises what ``read_sizes`` does of level columns; it looks at nothing else.
    """
    source = Input.of(sizes, "sizes")
    with spilling(spill, [source]) as folder, isolated([source], folder) as con:
        table, tree = _open(con, source, root)
    return _regions(table, tree)


def _regions(table: Loaded, tree: Hierarchy) -> PublicRegions:
    """Return the regions, without ids, and the names of their levels; that of a named root is no column."""
    names = table.names[:-2]
    levels = names if len(names) == tree.levels else (root_level(names) if names else _ONE_LEVEL, *names)
    return PublicRegions(tree, tuple(levels), Texts.of(()), np.zeros(0, np.int64))


def _open(con: duckdb.DuckDBPyConnection, source: Input, root: str | None) -> tuple[Loaded, Hierarchy]:
    table = load(con, "sizes", source, SIZES)
    levels = len(table.names) - 2
    if levels == 0 and root is None:
        raise InputError("missing-root", "has no level column: name its region by root", Place(source.name))
    column_checks.check_rows(table)
    column_checks.check_levels(table, range(levels))
    if levels > 0:
        return table, _tree(table, levels, root)
    con.execute("CREATE TABLE leaves AS SELECT 0::BIGINT AS leaf")
    return table, Hierarchy.from_paths([(root or "",)])


def _tree(table: Loaded, levels: int, root: str | None) -> Hierarchy:
    """Return the regions below the root, sorted by name: the order of rows may come from private data."""
    import pyarrow as pa

    keys = ", ".join(f"c{k}" for k in range(levels))
    rows = table.fetch(f"SELECT {keys}, min(rowid) FROM {{t}} GROUP BY {keys} ORDER BY {keys}")
    in_order = sorted(rows, key=lambda row: int(row[-1])) if root is None else []
    for row in in_order:  # of the file: the first that names a second root is shown
        if row[0] != in_order[0][0]:
            message = f"more than one root: {in_order[0][0]!r} and {row[0]!r}: {NAME_THE_ROOT}"
            raise HierarchyError("several-roots", message, table.place(int(row[-1]), 0))
    paths = [row[:-1] for row in rows]
    above = () if root is None else (root,)
    tree = Hierarchy.from_paths([(*above, *path) for path in paths], lambda k: table.place(int(rows[k][-1])))
    leaves = [tree.index((*above, *path)) - tree.leaves.start for path in paths]
    arrays: dict[str, Any] = {f"p{k}": pa.array([p[k] for p in paths], pa.string()) for k in range(levels)}
    table.con.register("leaves", pa.table({**arrays, "leaf": pa.array(leaves, pa.int64())}))
    return tree


def _join(levels: int) -> str:
    on = " AND ".join(f"c{k} = p{k}" for k in range(levels))
    return f"sizes JOIN leaves ON {on}" if levels else "sizes CROSS JOIN leaves"


def _group_counts(table: Loaded, tree: Hierarchy) -> Ints:
    """Check the groups column and return every region's number of groups, int64[regions]."""
    levels = len(table.names) - 2
    groups = f"c{levels + 1}"
    column_checks.check_count(table, levels + 1, "negative-count")
    if table.value(f"SELECT coalesce(sum({groups}::DOUBLE), 0) > {column_checks.MAX_TOTAL} FROM {{t}}"):
        raise InputError("too-large", "there are too many groups in all", table.place())
    query = f"SELECT leaf, sum({groups}::BIGINT)::BIGINT FROM {_join(levels)} GROUP BY leaf"
    totals = np.zeros(len(tree.leaves), np.int64)
    for leaf, total in table.fetch(query):
        totals[leaf] = total
    return tree.aggregate(totals)
