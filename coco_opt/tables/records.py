"""Read tables of persons: a public hierarchy, and private records with one column an attribute.

A record is one person, or, in a table with a ``count`` column, as many persons alike. Everything is counted in DuckDB;
what could be misread is a typed error with file, row and column that shows no private value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import InputError, Place
from coco_opt.histograms import Hierarchy
from coco_opt.histograms.arrays import Int64Array
from coco_opt.tables import checks
from coco_opt.tables.columns import HIERARCHY, Columns
from coco_opt.tables.reader import StrPath, read_tree, register_leaves
from coco_opt.tables.source import Loaded, isolated, load, quietly

if TYPE_CHECKING:
    import duckdb

COUNT = "count"
_MIDDLE = "one column an attribute"


@dataclass(frozen=True, eq=False, slots=True)
class PublicRegions:
    """The public hierarchy, the names of its levels (columns, root first) and (region_id, leaf) pairs."""

    hierarchy: Hierarchy
    levels: tuple[str, ...]
    leaf_ids: tuple[tuple[str, int], ...]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class CellCounts:
    """Persons by leaf and cell, sorted: ``counts[k]`` > 0 persons in ``cells[k]`` of leaf ``leaves[k]``; all private.

    ``cells`` are those of the product of all attributes, in C order; leaves count from 0 within ``hierarchy.leaves``.
    """

    leaves: Int64Array
    cells: Int64Array
    counts: Int64Array
    rows_read: int

    def __repr__(self) -> str:
        return "CellCounts(private)"


def read_regions(path: StrPath) -> PublicRegions:
    """Read a hierarchy (region_id, then one column a level, root first); raises as ``read_public`` does."""
    path = Path(path)
    with isolated([path]) as con:
        table = load(con, "hierarchy", path, HIERARCHY)
        tree, leaf_ids = read_tree(table)
    return PublicRegions(tree, tuple(table.names[1:]), tuple(leaf_ids))


def read_records(
    public: PublicRegions,
    path: StrPath,
    attributes: Mapping[str, Sequence[str]],
    forbidden: NDArray[np.bool_],
) -> CellCounts:
    """Count private records by leaf and cell.

    The file has the columns region_id, one for each of ``attributes`` (in any order) and perhaps count, the last;
    ``forbidden`` bool[cells] marks structural zeros. Raises InputError: unknown-region, unknown-value (a value that the
    attribute does not have), structural-zero, null-id, space-in-id, missing-column, unexpected-column, not-an-integer,
    negative-count, too-large and the codes of ``source.load``. O(rows).
    """
    path, shape = Path(path), tuple(len(values) for values in attributes.values())
    if forbidden.shape != (prod(shape),):
        raise InputError("bad-shape", f"{prod(shape)} cells need as many marks of structural zeros")
    with isolated([path]) as con:
        table, counted = _open(con, path, attributes)
        where = {name: table.names.index(name) for name in attributes}
        _check_regions(table, public)
        for k, (name, values) in enumerate(attributes.items()):
            _check_values(table, where[name], f"values{k}", values)
        persons = f"c{len(table.names) - 1}::BIGINT" if counted else "1"
        codes = " + ".join(f"values{k}.code * {prod(shape[k + 1 :])}" for k in range(len(shape)))
        joins = " ".join(
            f"JOIN values{k} ON records.c{where[name]} = values{k}.value" for k, name in enumerate(attributes)
        )
        query = f"""
            SELECT leaf, ({codes})::BIGINT AS cell, sum({persons})::BIGINT AS persons, count(*) AS rows,
                   coalesce(min(records.rowid) FILTER ({persons} > 0), 0) AS first
            FROM records JOIN leaves ON c0 = region {joins} GROUP BY ALL ORDER BY leaf, cell"""
        found = quietly(path, lambda: con.execute(query).fetchnumpy())
        names = ("leaf", "cell", "persons", "first", "rows")
        leaves, cells, persons_, first, counted_rows = (np.asarray(found[name], np.int64) for name in names)
        rows = table.rows()
        if int(counted_rows.sum()) != rows:
            raise InputError("rows-lost", "not every row was counted once", table.place())
        _check_zeros(table, forbidden, cells, persons_, first)
    some = persons_ > 0
    return CellCounts(leaves[some], cells[some], persons_[some], rows)


def _open(con: duckdb.DuckDBPyConnection, path: Path, attributes: Mapping[str, Sequence[str]]) -> tuple[Loaded, bool]:
    """Load the records and tell whether they have a count column."""
    counted = False
    try:
        table = load(con, "records", path, Columns(first=("region_id",), last=(COUNT,), levels=True, middle=_MIDDLE))
        counted = True
    except InputError as error:
        if error.code not in ("missing-column", "swapped-columns"):
            raise
    if not counted:
        table = load(con, "records", path, Columns(first=("region_id",), levels=True, middle=_MIDDLE))
    names = table.names[1 : -1 if counted else None]
    for name in attributes:
        if name not in names:
            raise InputError("missing-column", "this attribute has no column", Place(path.name, None, name))
    for position, name in enumerate(names, start=2):
        if name not in attributes:
            place = Place(path.name, None, f"#{position}")
            raise InputError("unexpected-column", "is no attribute of the configuration", place)
    if counted:
        column = len(table.names) - 1
        checks.check_count(table, column, "negative-count")
        if table.value(f"SELECT coalesce(sum(c{column}::DOUBLE), 0) > {checks.MAX_TOTAL} FROM {{t}}"):
            raise InputError("too-large", "there are too many persons in all", table.place())
    return table, counted


def _check_regions(table: Loaded, public: PublicRegions) -> None:
    register_leaves(table, public.leaf_ids)
    checks.check_present(table, 0)
    checks.check_known(table, 0, "leaves.region", "unknown-region", "this region is not in the hierarchy")


def _check_values(table: Loaded, column: int, name: str, values: Sequence[str]) -> None:
    import pyarrow as pa

    codes: dict[str, Any] = {"value": pa.array(values, pa.string()), "code": pa.array(range(len(values)), pa.int64())}
    table.con.register(name, pa.table(codes))
    checks.check_present(table, column)
    known = ", ".join(values[:6]) + (", ..." if len(values) > 6 else "")
    message = f"is not a value of this attribute, whose values are {known}"
    checks.check_known(table, column, f"{name}.value", "unknown-value", message)


def _check_zeros(
    table: Loaded, forbidden: NDArray[np.bool_], cells: Int64Array, persons: Int64Array, first: Int64Array
) -> None:
    violating = forbidden[cells] & (persons > 0)
    if violating.any():
        place = table.place(int(first[violating].min()))
        raise InputError("structural-zero", "is ruled out by the structural zeros of the configuration", place)
