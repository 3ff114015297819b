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
from coco_opt.files.columns import Columns
from coco_opt.files.inputs import Input, InputLike
from coco_opt.files.regions import PublicRegions, register_leaves
from coco_opt.files.scratch import spilling
from coco_opt.files.source import Loaded, isolated, load, quietly
from coco_opt.histograms.arrays import Int64Array
from coco_opt.topdown.measuring.batched_records import count_batches
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
) -> TableCounts:
    """Count private records by leaf and cell.

    The file has the columns region_id, one for each attribute and perhaps count, in any order; others are ignored. With
    ``rows_a_person`` it has a column person_id too, no count, and at most so many rows of one person: too-many-rows.
    Raises InputError: empty-file (no record), unknown-region, unknown-value (a value that the attribute does not have),
    structural-zero, null-id, space-in-id, missing-column, not-an-integer, negative-count, too-large and the codes of
    ``source.load``. O(rows). Parquet files and frames are counted batch by batch unless there are person ids; else
    DuckDB holds all rows, and ``spill``, a private folder, is temporary storage for rows that do not fit in memory.
    """
    source = Input.of(records, "records")
    columns = _columns(schema.attributes, persons=rows_a_person is not None)
    counts = None if rows_a_person is not None else count_batches(public, source, schema, columns)
    if counts is not None:
        return counts
    with spilling(spill, [source]) as folder, isolated([source], folder) as con:
        table = load(con, "records", source, columns)
        column_checks.check_rows(table)
        where = {name: k for k, name in enumerate(table.names)}
        counted = COUNT in where and COUNT not in schema.attributes
        if counted:
            _check_counts(table, where[COUNT])
        if rows_a_person is not None:
            _check_persons(table, where[PERSON], rows_a_person, counted=counted)
        _check_regions(table, where["region_id"], public)
        for k, (name, values) in enumerate(schema.attributes.items()):
            _check_values(table, where[name], f"values{k}", values)
        fetched = quietly(source, lambda: con.execute(_query(where, schema, counted=counted)).fetchnumpy())
        names = ("leaf", "cell", "persons", "first", "rows")
        leaf, cell, persons, first, rows = (np.asarray(fetched[name], np.int64) for name in names)
        if int(rows.sum()) != table.rows():
            raise InputError("rows-lost", "not every row was counted once", table.place())
        some = persons > 0
        _check_zeros(table, schema.position[cell[some]] < 0, first[some])
    cells = schema.position[cell[some]]
    counts = TableCounts.from_microdata(public.hierarchy, schema, leaf[some], cells, persons[some])
    return replace(counts, rows_read=int(rows.sum()))


def _query(where: Mapping[str, int], schema: Schema, *, counted: bool) -> str:
    """Return the query for persons and rows by leaf and cell of the product, and the first row with a person."""
    persons = f"c{where[COUNT]}::BIGINT" if counted else "1"
    codes = " + ".join(f"values{k}.code * {prod(schema.shape[k + 1 :])}" for k in range(len(schema.shape)))
    joins = " ".join(
        f"JOIN values{k} ON records.c{where[name]} = values{k}.value" for k, name in enumerate(schema.names)
    )
    return f"""
        SELECT leaf, ({codes})::BIGINT AS cell, sum({persons})::BIGINT AS persons, count(*) AS rows,
               coalesce(min(records.rowid) FILTER ({persons} > 0), 0) AS first
        FROM records JOIN leaves ON c{where["region_id"]} = leaves.region {joins} GROUP BY ALL ORDER BY leaf, cell"""


def _columns(attributes: Mapping[str, Sequence[str]], *, persons: bool) -> Columns:
    optional = () if COUNT in attributes else (COUNT,)
    first = ("region_id", PERSON, *attributes) if persons else ("region_id", *attributes)
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


def _check_regions(table: Loaded, column: int, public: PublicRegions) -> None:
    register_leaves(table, public)
    column_checks.check_present(table, column)
    message, where = "this region is not in the hierarchy", f"{table.shown[column]!r} of the hierarchy"
    column_checks.check_listed(table, column, "leaves.region", "unknown-region", message, where)


def _check_values(table: Loaded, column: int, name: str, values: Sequence[str]) -> None:
    import pyarrow as pa

    codes: dict[str, Any] = {"value": pa.array(values, pa.string()), "code": pa.array(range(len(values)), pa.int64())}
    table.con.register(name, pa.table(codes))
    column_checks.check_present(table, column)
    shown = ", ".join(values[:6]) + (", ..." if len(values) > 6 else "")
    message = f"is not a value of this attribute, whose values are {shown}"
    column_checks.check_listed(table, column, f"{name}.value", "unknown-value", message, "the values listed")


def _check_zeros(table: Loaded, forbidden: NDArray[np.bool_], first: Int64Array) -> None:
    if forbidden.any():
        place = table.place(int(first[forbidden].min()))
        raise InputError("structural-zero", "is ruled out by the structural zeros of the configuration", place)
