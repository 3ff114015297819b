"""Read private records of persons, one column an attribute.

A record is one person, or, in a table with a ``count`` column, as many persons alike. DuckDB counts Parquet files and
frames as they are read. Tables with errors, and CSV files, it holds as text: there errors say what is wrong, and where.
Ambiguous input raises a typed error with file, row and column that shows no private value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import InputError, Place
from coco_opt.files import column_checks
from coco_opt.files.batches import Batches, batches_of
from coco_opt.files.column_checks import (
    REGION,
    UNKNOWN_GROUP,
    UNKNOWN_REGION,
    check_regions,
    occur_at_most,
    states_regions,
)
from coco_opt.files.foreign_errors import quietly
from coco_opt.files.inputs import GROUPS, Columns, Input, InputLike
from coco_opt.files.regions import PublicRegions
from coco_opt.files.scratch import spilling
from coco_opt.files.source import Faults, Loaded, isolated, load, names_of, streamed
from coco_opt.topdown.measuring.cell_query import COUNT, CellQuery, Relation
from coco_opt.topdown.measuring.counts import TableCounts
from coco_opt.topdown.names import Bins
from coco_opt.topdown.schema import Schema

Located = Callable[[Callable[[range, Ints], Place]], None]
"""Takes a function of leaves and allowed cells that returns where the rows with persons in them lie."""

_AT_ONCE = 1 << 17  # rows of a batch, whose columns are joined and coded
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
    located: Located | None = None,
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

    ``located`` is given what says where the rows of some leaves and cells lie; all rows are then held.

    O(rows). Parquet files and frames are counted while they are read. Of CSV files, and where a row is wrong, DuckDB
    holds all rows. ``spill``, a private folder, is temporary storage for what does not fit in memory.
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
    optional = () if COUNT in schema.attributes else (COUNT,)
    columns = Columns(first=(place, *further, *own), optional=optional, others=True)
    opened, inputs, faults = batches_of(source, columns), [source] if homes is None else [source, homes], Faults()
    with spilling(spill, inputs) as folder, isolated(inputs, folder) as con:
        groups_table = None if homes is None else load(con, "groups", homes, replace(GROUPS, last=shared))
        query = CellQuery(con, public, schema, bins, groups_table)
        with faults:
            query.relate()
        if opened is not None and not faults and located is None:
            counts = _streamed(query, opened, rows_a_person, folder)
            if counts is not None:
                return counts
        table = load(con, "records", source, columns)
        column_checks.check_rows(table)
        loaded = _Records(query, table, rows_a_person, folder)
        counts = loaded.counts(faults)
        if located is not None:
            located(loaded.place_of)
        return counts


def _streamed(query: CellQuery, opened: Batches, rows_a_person: int | None, folder: Path | None) -> TableCounts | None:
    """Return the counts of a table that is not held; None where a row is wrong, or may be."""
    relation = Relation("stream", opened.names, opened.integers_here)
    if query.counted(relation) and (rows_a_person is not None or COUNT not in relation.integers):
        return None
    persons = PERSON in relation.names and PERSON not in query.schema.attributes
    if persons and not occur_at_most(opened.only(relation.names.index(PERSON)), rows_a_person or 1):
        return None

    columns, arrays = replace(opened, at_once=_AT_ONCE).stream((*query.schema.attributes, REGION))
    count = partial(query.counts, relation, opened.source, folder)
    return quietly(opened.source, lambda: streamed(query.con, relation.table, columns, arrays, count))


@dataclass(frozen=True, eq=False, slots=True)
class _Records:
    """Loaded records, to be checked and counted; ``query`` says what their columns may hold."""

    query: CellQuery
    table: Loaded
    rows_a_person: int | None
    folder: Path | None

    @property
    def relation(self) -> Relation:
        """Return the records as a relation."""
        return Relation(self.table.table, self.table.names, normal=True)

    def column(self, name: str) -> int:
        """Return the place of a column by its name here."""
        return self.table.names.index(name)

    def holder(self, attribute: str) -> tuple[Loaded, int]:
        """Return the table that has an attribute's column, and the column's place: the records, else the groups."""
        groups = self.query.groups
        if attribute in self.table.names or groups is None:
            return self.table, self.column(attribute)
        return groups, groups.names.index(attribute)

    def counts(self, faults: Faults) -> TableCounts:
        """Return the persons by leaf and cell.

        ``faults`` are those of the groups. Raises InputError with all bad rows that can be found together.
        """
        counted = self.query.counted(self.relation)
        if self.rows_a_person is not None and counted:
            message = f"a row of several persons has no {PERSON}: remove the column {COUNT!r} or topdown.rows_a_person"
            raise InputError("unexpected-column", message, self.table.place())
        placed = not faults
        self._check_columns(faults, placed=placed, counted=counted)
        if not placed:  # nothing can be counted
            faults.check()
        source, counts = self.table.source, None
        if not faults:
            counts = quietly(source, lambda: self.query.counts(self.relation, source, self.folder))
        if counts is None:
            with faults:
                _check_zeros(self.table, self.query.schema, self.query.rows(self.relation, "records.rowid AS row,"))
            faults.check()
        if counts is None or counts.rows_read != self.table.rows():
            raise InputError("rows-lost", "not every row was counted once", self.table.place())
        return counts

    def place_of(self, leaves: range, cells: Ints) -> Place:
        """Return where the rows with persons in some leaves and allowed cells lie."""
        import pyarrow as pa

        every, leaf = self.query.schema.cells, f"key // {self.query.schema.cells}"
        self.table.con.register("sought", pa.table({"cell": self.query.schema.allowed[cells]}))
        rows = self.query.rows(self.relation, "records.rowid AS row,")
        inside = f"people > 0 AND {leaf} BETWEEN {leaves.start} AND {leaves.stop - 1}"
        return self.table.place(
            self.table.listed_rows(f"SELECT row FROM ({rows}) JOIN sought ON key % {every} = cell WHERE {inside}")
        )

    def _check_columns(self, faults: Faults, *, placed: bool, counted: bool) -> None:
        table, schema, groups = self.table, self.query.schema, self.query.groups
        place = self.column(self.query.place) if placed or groups is not None else -1
        if counted:
            with faults:
                column_checks.check_count(table, self.column(COUNT), "negative-count")
        if PERSON in table.names and PERSON not in schema.attributes:
            with faults:
                _check_persons(table, self.column(PERSON), self.rows_a_person or 1)
        if placed or groups is not None:
            relation, unknown, ids = "places.id", UNKNOWN_REGION, "the ids of the hierarchy"
            if groups is not None:  # in a listed group, be its own region right or wrong
                relation, unknown, ids = "listed.id", UNKNOWN_GROUP, f"the ids of {groups.source.name}"
            with faults:
                column_checks.check_known(table, place, relation, *unknown, ids)
        if placed and groups is not None and REGION in table.names and REGION not in schema.attributes:
            column = self.column(REGION)
            source = f"{{t}} JOIN {groups.table} AS home ON {{t}}.c{place} = home.c0"
            with faults:
                check_regions(table, column, f"{{t}}.c{column} <> home.c1", source, groups.source)
        for k, (name, values) in enumerate(schema.attributes.items()):
            holder, column = self.holder(name)
            if name in self.query.bins:  # the texts that are integers within the ranges
                code = self.query.code(Relation(holder.table, holder.names, normal=True), name)
                texts = f"SELECT DISTINCT c{column} AS value FROM {holder.table} WHERE {code} IS NOT NULL"
                holder.con.execute(f"CREATE VIEW values{k} AS {texts}")
            with faults:
                _check_values(holder, column, f"values{k}", values, ranges=name in self.query.bins)


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


def _check_values(table: Loaded, column: int, name: str, values: Sequence[str], *, ranges: bool) -> None:
    shown = ", ".join(values[:6]) + (", ..." if len(values) > 6 else "")
    message = f"is not a value of this attribute, whose values are {shown}"
    advice = (
        ': where the attribute does not apply, write a value of its own, such as "none", list it in '
        "topdown.attributes, and rule out by topdown.structural_zeros what cannot be"
    )
    if ranges:
        message, advice = f"is no integer within the ranges of this attribute, which are {shown}", ""
    column_checks.check_known(table, column, f"{name}.value", "unknown-value", message, "the values listed", advice)


def _check_zeros(table: Loaded, schema: Schema, rows: str) -> None:
    """Raise InputError for the rows with persons where a structural zero allows none: one for each rule."""
    import pyarrow as pa

    faults, free = Faults(), np.ones(schema.shape, np.bool_)
    for rule in schema.rules:
        mask = np.broadcast_to(rule.forbidden(schema.shape), schema.shape)
        table.con.register("broken", pa.table({"cell": np.flatnonzero(mask & free)}))
        free &= ~mask
        broken = f"SELECT row FROM ({rows}) JOIN broken ON key % {schema.cells} = cell WHERE people > 0"
        message = f"is ruled out by the structural zero {rule.text!r}: correct the row, or the rule"
        faults.note(table, table.listed_rows(broken), None, "structural-zero", message)
    faults.check()
