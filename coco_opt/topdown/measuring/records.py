"""Read private records of persons, one column an attribute.

A record is one person, or, in a table with a ``count`` column, as many persons alike. Everything is counted in DuckDB.
Ambiguous input raises a typed error with file, row and column that shows no private value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import InputError
from coco_opt.files import column_checks
from coco_opt.files.columns import GROUPS, Columns
from coco_opt.files.group_rows import UNKNOWN_GROUP, UNKNOWN_REGION, check_groups
from coco_opt.files.inputs import Input, InputLike
from coco_opt.files.regions import PublicRegions, register_leaves
from coco_opt.files.scratch import spilling
from coco_opt.files.source import Loaded, isolated, load, quietly
from coco_opt.histograms.arrays import Int64Array
from coco_opt.topdown.bins import Bins
from coco_opt.topdown.measuring.batched_records import bin_codes, count_batches
from coco_opt.topdown.measuring.counts import TableCounts
from coco_opt.topdown.schema import Schema

COUNT = "count"
PERSON = "person_id"
RECORDS = Columns(first=("region_id", PERSON), optional=(COUNT,), others=True)
"""All columns that may have other names; the configuration determines which of them a table must have."""


def read_records(
    public: PublicRegions,
    records: InputLike,
    schema: Schema,
    rows_a_person: int | None = None,
    spill: Path | None = None,
    *,
    bins: Mapping[str, Bins] | None = None,
    groups: InputLike | None = None,
) -> TableCounts:
    """Count private records by leaf and cell.

    The file has the columns region_id, one for each attribute and perhaps count, in any order; others are ignored. With
    ``rows_a_person`` it has a column person_id too, no count, and at most so many rows of one person: too-many-rows.
    An attribute with ``bins`` has integers there. With ``groups`` (group_id, region_id) it has group_id, not region_id.

    Raises InputError: empty-file (no record), unknown-region, unknown-value (a value that the attribute does not have),
    structural-zero, null-id, space-in-id, missing-column, not-an-integer, negative-count, too-large, too-many-rows;
    unknown-group, duplicate-group, group-in-two-leaves; and the codes of ``source.load``.

    O(rows). Parquet files and frames are counted batch by batch unless there are person ids or groups; else DuckDB
    holds all rows, and ``spill``, a private folder, is temporary storage for rows that do not fit in memory.
    """
    source, bins = Input.of(records, "records"), bins or {}
    homes = None if groups is None else Input.of(groups, "groups")
    place = "region_id" if homes is None else "group_id"
    columns = _columns(place, schema.attributes, persons=rows_a_person is not None)
    by_batches = rows_a_person is None and homes is None
    counts = count_batches(public, source, schema, columns, bins) if by_batches else None
    if counts is not None:
        return counts
    inputs = [source] if homes is None else [source, homes]
    with spilling(spill, inputs) as folder, isolated(inputs, folder) as con:
        table = load(con, "records", source, columns)
        column_checks.check_rows(table)
        where = {name: k for k, name in enumerate(table.names)}
        counted = COUNT in where and COUNT not in schema.attributes
        if counted:
            _check_counts(table, where[COUNT])
        if rows_a_person is not None:
            _check_persons(table, where[PERSON], rows_a_person, counted=counted)
        _relate_places(table, homes, public)
        _check_places(table, where[place], homes)
        for k, (name, values) in enumerate(schema.attributes.items()):
            _relate_values(table, where[name], f"values{k}", values, bins.get(name))
            _check_values(table, where[name], f"values{k}", values)
        query = _query(where[place], where, schema, counted=counted)
        fetched = quietly(source, lambda: con.execute(query).fetchnumpy())
        names = ("leaf", "cell", "persons", "first", "rows")
        leaf, cell, persons, first, rows = (np.asarray(fetched[name], np.int64) for name in names)
        if int(rows.sum()) != table.rows():
            raise InputError("rows-lost", "not every row was counted once", table.place())
        some = persons > 0
        _check_zeros(table, schema.position[cell[some]] < 0, first[some])
    cells = schema.position[cell[some]]
    counts = TableCounts.from_microdata(public.hierarchy, schema, leaf[some], cells, persons[some])
    return replace(counts, rows_read=int(rows.sum()))


def _query(place: int, where: Mapping[str, int], schema: Schema, *, counted: bool) -> str:
    """Return the query for persons and rows by leaf and cell of the product, and the first row with a person."""
    persons = f"c{where[COUNT]}::BIGINT" if counted else "1"
    codes = " + ".join(f"values{k}.code * {prod(schema.shape[k + 1 :])}" for k in range(len(schema.shape)))
    joins = " ".join(
        f"JOIN values{k} ON records.c{where[name]} = values{k}.value" for k, name in enumerate(schema.names)
    )
    return f"""
        SELECT leaf, ({codes})::BIGINT AS cell, sum({persons})::BIGINT AS persons, count(*) AS rows,
               coalesce(min(records.rowid) FILTER ({persons} > 0), 0) AS first
        FROM records JOIN places ON c{place} = places.id {joins} GROUP BY ALL ORDER BY leaf, cell"""


def _columns(place: str, attributes: Mapping[str, Sequence[str]], *, persons: bool) -> Columns:
    optional = () if COUNT in attributes else (COUNT,)
    first = (place, PERSON, *attributes) if persons else (place, *attributes)
    return Columns(first=first, optional=optional, others=True)


def _check_persons(table: Loaded, column: int, most: int, *, counted: bool) -> None:
    """Raise InputError unless every row is of one person, and no person has more than ``most``."""
    if counted:
        message = f"a row of several persons has no {PERSON}: remove the column {COUNT!r} or topdown.rows_a_person"
        raise InputError("unexpected-column", message, table.place())
    column_checks.check_ids(table, (column,))
    if table.value(f"SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM {{t}} GROUP BY c{column})") > most:
        row, _ = column_checks.second_row(table, f"c{column}", times=most)
        message = f"this person has more than {most} rows, the public maximum (topdown.rows_a_person)"
        raise InputError("too-many-rows", message, table.place(row, column))


def _check_counts(table: Loaded, column: int) -> None:
    column_checks.check_count(table, column, "negative-count")
    if table.value(f"SELECT coalesce(sum(c{column}::DOUBLE), 0) > {column_checks.MAX_TOTAL} FROM {{t}}"):
        raise InputError("too-large", "there are too many persons in all", table.place())


def _relate_places(table: Loaded, homes: Input | None, public: PublicRegions) -> None:
    """Give the connection a relation ``places`` of (id, leaf): of the regions, or of the groups in them."""
    con = table.con
    register_leaves(table, public)
    if homes is None:
        con.execute("CREATE VIEW places AS SELECT region AS id, leaf FROM leaves")
        return
    groups = load(con, "groups", homes, GROUPS)
    check_groups(groups, f"{groups.shown[1]!r} of the hierarchy")
    con.execute("CREATE VIEW places AS SELECT c0 AS id, leaf FROM groups JOIN leaves ON c1 = region")


def _check_places(table: Loaded, column: int, homes: Input | None) -> None:
    column_checks.check_present(table, column)
    listed = "the hierarchy" if homes is None else homes.name
    code, message = UNKNOWN_REGION if homes is None else UNKNOWN_GROUP
    where = f"{table.shown[column]!r} of {listed}"
    column_checks.check_listed(table, column, "places.id", code, message, where)


def _relate_values(table: Loaded, column: int, name: str, values: Sequence[str], bins: Bins | None) -> None:
    """Give the connection a relation of (value, code): of the values, or of the integers in the column by their bin."""
    import pyarrow as pa

    texts, codes = pa.array(values, pa.string()), np.arange(len(values), dtype=np.int64)
    if bins is not None:
        distinct = f"SELECT DISTINCT c{column} AS value FROM records"
        texts = quietly(table.source, lambda: table.con.sql(distinct).to_arrow_table())["value"].combine_chunks()
        codes = bin_codes(bins, texts)
    inside = codes >= 0
    relation: dict[str, Any] = {"value": texts.filter(pa.array(inside)), "code": pa.array(codes[inside], pa.int64())}
    table.con.register(name, pa.table(relation))


def _check_values(table: Loaded, column: int, name: str, values: Sequence[str]) -> None:
    column_checks.check_present(table, column)
    shown = ", ".join(values[:6]) + (", ..." if len(values) > 6 else "")
    message = f"is not a value of this attribute, whose values are {shown}"
    column_checks.check_listed(table, column, f"{name}.value", "unknown-value", message, "the values listed")


def _check_zeros(table: Loaded, forbidden: NDArray[np.bool_], first: Int64Array) -> None:
    if forbidden.any():
        place = table.place(int(first[forbidden].min()))
        raise InputError("structural-zero", "is ruled out by the structural zeros of the configuration", place)
