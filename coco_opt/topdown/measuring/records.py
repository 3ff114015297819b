"""Read private records of persons, one column an attribute.

A record is one person, or, in a table with a ``count`` column, as many persons alike. Everything is counted in DuckDB.
Ambiguous input raises a typed error with file, row and column that shows no private value.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.errors import InputError
from coco_opt.files import column_checks
from coco_opt.files.batches import batches_of
from coco_opt.files.columns import GROUPS, Columns
from coco_opt.files.faults import Faults
from coco_opt.files.foreign_errors import quietly
from coco_opt.files.group_rows import REGION, UNKNOWN_GROUP, UNKNOWN_REGION, check_groups, check_regions, states_regions
from coco_opt.files.inputs import Input, InputLike
from coco_opt.files.packed_texts import all_distinct
from coco_opt.files.regions import PublicRegions, register_leaves
from coco_opt.files.scratch import spilling
from coco_opt.files.source import Loaded, isolated, load, names_of
from coco_opt.topdown.bins import Bins
from coco_opt.topdown.measuring.batched_records import bin_codes, count_batches
from coco_opt.topdown.measuring.counts import TableCounts
from coco_opt.topdown.schema import Schema

_LARGE = 1 << 20  # rows: ids of fewer are compared before the kernels for it are compiled
COUNT = "count"
PERSON = "person_id"
RECORDS = Columns(first=(REGION, PERSON), optional=(COUNT,), others=True)
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
    Without, a person_id that it has, or is said to have, must not occur twice: duplicate-entity.
    An attribute with ``bins`` has integers there. With ``groups`` (group_id, region_id) it has group_id, not region_id,
    and attributes that it lacks are columns of the groups: every member has them. A region_id that it has all the same
    must be that of the row's group: region-differs.

    Raises InputError: empty-file (no record), unknown-region, unknown-value (a value that the attribute does not have),
    structural-zero, null-id, space-in-id, missing-column, not-an-integer, negative-count, too-large, too-many-rows;
    unknown-group, duplicate-group, group-in-two-leaves; and the codes of ``source.load``.

    O(rows). Parquet files and frames are counted batch by batch unless there are groups or persons of several rows.
    Else DuckDB holds all rows, and ``spill``, a private folder, is temporary storage for those that do not fit in
    memory.
    """
    source, bins = Input.of(records, "records"), bins or {}
    homes = None if groups is None else Input.of(groups, "groups")
    place = REGION if homes is None else "group_id"
    shared = () if homes is None else _shared_attributes(source, homes, schema)
    own = [name for name in schema.attributes if name not in shared]
    further = (
        *_person_column(source, schema.attributes, always=rows_a_person is not None),
        *((REGION,) if homes is not None and REGION not in schema.attributes and states_regions(source, homes) else ()),
    )
    by_batches = rows_a_person is None and homes is None
    counts = None
    if by_batches:
        counts = count_batches(public, source, schema, _columns(place, own, schema), bins, spill)
    if counts is not None and not further:
        return counts
    columns = _columns(place, own, schema, further)
    inputs = [source] if homes is None else [source, homes]
    with spilling(spill, inputs) as folder, isolated(inputs, folder) as con:
        if counts is not None:
            if not _persons_differ(source, columns):
                _check_persons(load(con, "ids", source, columns, (PERSON,)), 0, 1)
            return counts
        table = load(con, "records", source, columns)
        column_checks.check_rows(table)
        groups_table = None if homes is None else load(con, "groups", homes, replace(GROUPS, last=shared))
        return _Records(table, schema, bins, groups_table, public, rows_a_person).counts()


@dataclass(frozen=True, eq=False, slots=True)
class _Records:
    """Loaded records, what their columns may hold, and where their groups or regions are listed."""

    table: Loaded
    schema: Schema
    bins: Mapping[str, Bins]
    homes: Loaded | None
    public: PublicRegions
    rows_a_person: int | None

    @property
    def counted(self) -> bool:
        """Return whether a row stands for a count of persons."""
        return COUNT in self.table.names and COUNT not in self.schema.attributes

    def column(self, name: str) -> int:
        """Return the place of a column by its name here."""
        return self.table.names.index(name)

    def holder(self, attribute: str) -> tuple[Loaded, int]:
        """Return the table that has an attribute's column, and the column's place: the records, else the groups."""
        if attribute in self.table.names or self.homes is None:
            return self.table, self.column(attribute)
        return self.homes, self.homes.names.index(attribute)

    @property
    def place(self) -> int:
        """Return the place of the column that says where a row lies."""
        return self.column("region_id" if self.homes is None else "group_id")

    def counts(self) -> TableCounts:
        """Return the persons by leaf and cell. Raises InputError with all bad rows that can be found together."""
        if self.rows_a_person is not None and self.counted:
            message = f"a row of several persons has no {PERSON}: remove the column {COUNT!r} or topdown.rows_a_person"
            raise InputError("unexpected-column", message, self.table.place())
        faults = Faults()
        with faults:
            _relate_places(self.table, self.homes, self.public)
        placed = not faults
        self._check_columns(faults, placed=placed)
        if not placed:  # nothing can be counted
            faults.check()
        if self.counted and not faults:
            _check_total(self.table, self.column(COUNT))
        return self._sums(faults)

    def _check_columns(self, faults: Faults, *, placed: bool) -> None:
        table = self.table
        if self.counted:
            with faults:
                column_checks.check_count(table, self.column(COUNT), "negative-count")
        if PERSON in table.names and PERSON not in self.schema.attributes:
            with faults:
                _check_persons(table, self.column(PERSON), self.rows_a_person or 1)
        if placed or self.homes is not None:
            with faults:
                _check_places(table, self.place, self.homes)
        if placed and self.homes is not None and REGION in table.names and REGION not in self.schema.attributes:
            with faults:
                _check_region(table, self.column(REGION), self.place, self.homes)
        for k, (name, values) in enumerate(self.schema.attributes.items()):
            holder, column = self.holder(name)
            _relate_values(holder, column, f"values{k}", values, self.bins.get(name))
            with faults:
                _check_values(holder, column, f"values{k}", values, ranges=name in self.bins)

    def _sums(self, faults: Faults) -> TableCounts:
        """Add up the rows of each leaf and cell; rows with persons in a forbidden cell are faults too."""
        cells, schema = self._cells(), self.schema
        query = "SELECT leaf, cell, coalesce(sum(people), 0)::BIGINT AS persons, count(*) AS rows"
        query = f"{query} FROM ({cells}) GROUP BY ALL ORDER BY leaf, cell"
        fetched = quietly(self.table.source, lambda: self.table.con.execute(query).fetchnumpy())
        leaf, cell, people, rows = (np.asarray(fetched[name], np.int64) for name in ("leaf", "cell", "persons", "rows"))
        leaf, cell, people = (array[people > 0] for array in (leaf, cell, people))
        if (schema.position[cell] < 0).any():
            with faults:
                _check_zeros(self.table, schema, cells)
        faults.check()
        if int(rows.sum()) != self.table.rows():
            raise InputError("rows-lost", "not every row was counted once", self.table.place())
        counts = TableCounts.from_microdata(self.public.hierarchy, schema, leaf, schema.position[cell], people)
        return replace(counts, rows_read=int(rows.sum()))

    def _cells(self) -> str:
        """Return the query for each valid row's leaf, cell of the product and people; a bad count is missing."""
        shape, names = self.schema.shape, self.schema.names
        people = f"TRY_CAST(records.c{self.column(COUNT)} AS BIGINT)" if self.counted else "1"
        codes = " + ".join(f"values{k}.code * {prod(shape[k + 1 :])}" for k in range(len(shape)))
        joins = " ".join(f"JOIN values{k} ON {self._source(name)} = values{k}.value" for k, name in enumerate(names))
        return f"""
            SELECT records.rowid AS row, leaf, ({codes})::BIGINT AS cell, {people} AS people
            FROM records JOIN places ON records.c{self.place} = places.id {joins}"""

    def _source(self, attribute: str) -> str:
        """Return the column of ``records`` or ``places`` that holds an attribute."""
        holder, column = self.holder(attribute)
        return f"records.c{column}" if holder is self.table else f"places.shared{column}"


def _shared_attributes(source: Input, homes: Input, schema: Schema) -> tuple[str, ...]:
    """Return the attributes that the groups have and the records lack."""
    own, shared = names_of(source), names_of(homes)
    called, elsewhere = source.called(own), homes.called(shared)
    return tuple(
        name for name in schema.attributes if called.get(name, name) not in own and elsewhere.get(name, name) in shared
    )


def _person_column(source: Input, attributes: Collection[str], *, always: bool) -> tuple[str, ...]:
    """Return the column that identifies persons: ``always``, or if the table has it, or is said to have it.

    Rows that are counts of several persons have none.
    """
    names = names_of(source)
    called = source.called(names)
    counted = COUNT not in attributes and called.get(COUNT, COUNT) in names
    stated = PERSON in source.columns or PERSON in names
    return (PERSON,) if always or (stated and not counted and PERSON not in attributes) else ()


def _persons_differ(source: Input, columns: Columns) -> bool:
    """Return whether the persons of a large table are known to be all different, without holding their ids."""
    opened = batches_of(source, columns)
    if opened is None or opened.rows() < _LARGE:
        return False
    return all_distinct(opened.only(opened.names.index(PERSON)))


def _columns(place: str, own: Sequence[str], schema: Schema, further: Sequence[str] = ()) -> Columns:
    optional = () if COUNT in schema.attributes else (COUNT,)
    return Columns(first=(place, *further, *own), optional=optional, others=True)


def _check_persons(table: Loaded, column: int, most: int) -> None:
    """Raise InputError unless every row is of one person, and no person has more than ``most``."""
    column_checks.check_ids(table, (column,))
    if table.value(f"SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM {{t}} GROUP BY c{column})") > most:
        rows = column_checks.repeated_rows(table, f"c{column}", times=most)
        if most == 1:
            message = (
                "this person occurs in an earlier row, and one row is one person: remove the row, or correct its id. "
                f"A column that does not identify persons is not {PERSON}: see columns in [data]"
            )
            raise InputError("duplicate-entity", message, table.place(rows, column))
        message = f"this person has more than {most} rows, the public maximum (topdown.rows_a_person)"
        raise InputError("too-many-rows", message, table.place(rows, column))


def _check_total(table: Loaded, column: int) -> None:
    if table.value(f"SELECT coalesce(sum(c{column}::DOUBLE), 0) > {column_checks.MAX_TOTAL} FROM {{t}}"):
        raise InputError("too-large", "there are too many persons in all", table.place())


def _relate_places(table: Loaded, groups: Loaded | None, public: PublicRegions) -> None:
    """Give the connection a relation ``places`` of (id, leaf, shared attributes): of the regions, or of the groups.

    Of groups there is also ``listed``, the ids of all, before InputError is raised for a group without a sound region.
    """
    con = table.con
    register_leaves(table, public)
    if groups is None:
        con.execute("CREATE VIEW places AS SELECT region AS id, leaf FROM leaves")
        return
    con.execute("CREATE VIEW listed AS SELECT c0 AS id FROM groups")
    check_groups(groups, "the ids of the hierarchy")
    shared = "".join(f", c{k} AS shared{k}" for k in range(2, len(groups.names)))
    con.execute(f"CREATE VIEW places AS SELECT c0 AS id, leaf{shared} FROM groups JOIN leaves ON c1 = region")


def _check_places(table: Loaded, column: int, homes: Loaded | None) -> None:
    """Check where rows lie: in a listed region, or in a listed group, be its own region right or wrong."""
    if homes is None:
        column_checks.check_known(table, column, "places.id", *UNKNOWN_REGION, "the ids of the hierarchy")
    else:
        where = f"the ids of {homes.source.name}"
        column_checks.check_known(table, column, "listed.id", *UNKNOWN_GROUP, where)


def _check_region(table: Loaded, column: int, group: int, groups: Loaded) -> None:
    """Raise InputError (region-differs) for the rows that state another region than that of their group."""
    source = f"{{t}} JOIN {groups.table} AS home ON {{t}}.c{group} = home.c0"
    check_regions(table, column, f"{{t}}.c{column} <> home.c1", source, groups.source)


def _relate_values(table: Loaded, column: int, name: str, values: Sequence[str], bins: Bins | None) -> None:
    """Give the connection a relation of (value, code): of the values, or of the integers in the column by their bin."""
    import pyarrow as pa

    texts, codes = pa.array(values, pa.string()), np.arange(len(values), dtype=np.int64)
    if bins is not None:
        distinct = f"SELECT DISTINCT c{column} AS value FROM {table.table}"
        texts = quietly(table.source, lambda: table.con.sql(distinct).to_arrow_table())["value"].combine_chunks()
        codes = bin_codes(bins, texts)
    inside = codes >= 0
    relation: dict[str, Any] = {"value": texts.filter(pa.array(inside)), "code": pa.array(codes[inside], pa.int64())}
    table.con.register(name, pa.table(relation))


def _check_values(table: Loaded, column: int, name: str, values: Sequence[str], *, ranges: bool) -> None:
    shown = ", ".join(values[:6]) + (", ..." if len(values) > 6 else "")
    message = f"is not a value of this attribute, whose values are {shown}"
    if ranges:
        message = f"is no integer within the ranges of this attribute, which are {shown}"
    column_checks.check_known(table, column, f"{name}.value", "unknown-value", message, "the values listed")


def _check_zeros(table: Loaded, schema: Schema, cells: str) -> None:
    """Raise InputError for the rows with persons where a structural zero allows none: one for each rule."""
    import pyarrow as pa

    faults, free = Faults(), np.ones(schema.shape, np.bool_)
    for rule in schema.rules:
        mask = np.broadcast_to(rule.forbidden(schema.shape), schema.shape)
        table.con.register("broken", pa.table({"cell": np.flatnonzero(mask & free)}))
        free &= ~mask
        with faults:
            if rows := table.listed_rows(f"SELECT row FROM ({cells}) SEMI JOIN broken USING (cell) WHERE people > 0"):
                message = f"is ruled out by the structural zero {rule.text!r}: correct the row, or the rule"
                raise InputError("structural-zero", message, table.place(rows))
    faults.check()
