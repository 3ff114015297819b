"""PRIVATE: the people in each leaf and cell by one query: records joined with regions, or groups, and with values.

A row that matches no region or no value, or whose count is none, has the cell -1. Such rows are explained elsewhere.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import BytesIO
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import InputError, Place
from coco_opt.execution.temporary_storage import remembered
from coco_opt.files.column_checks import MAX_DIGITS, MAX_TOTAL, REGION, check_groups
from coco_opt.files.inputs import Input
from coco_opt.files.regions import PublicRegions, register_leaves
from coco_opt.files.source import Loaded
from coco_opt.topdown.measuring.counts import BLOCK, TableCounts
from coco_opt.topdown.names import Bins
from coco_opt.topdown.schema import Schema

if TYPE_CHECKING:
    import duckdb

COUNT = "count"
_CAPPED = 2**62  # above the largest total that is allowed, and within 64 bits
_INTEGER = "'-?[0-9]{1,18}'"


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation of records: columns c0, c1, ..., their names here, and which of them hold integers, not texts.

    ``normal`` says that texts are in NFC already.
    """

    table: str
    names: tuple[str, ...]
    integers: frozenset[str] = frozenset()
    normal: bool = False

    def column(self, name: str) -> str:
        """Return a column by its name here."""
        return f"{self.table}.c{self.names.index(name)}"

    def text(self, name: str) -> str:
        """Return a column as text in NFC."""
        column = self.column(name)
        if name in self.integers:
            return f"{column}::VARCHAR"
        return column if self.normal else f"nfc_normalize({column})"

    def integer(self, name: str) -> str:
        """Return a column as integers, missing where a text is none."""
        return self.column(name) if name in self.integers else integer_of(self.column(name))


@dataclass(frozen=True, eq=False, slots=True)
class CellQuery:
    """What records are joined with, in a connection: regions or ``groups`` with their leaves, and values.

    Attributes with ``bins`` have integers in their columns. Attributes that the records lack are columns of ``groups``
    behind the first two.
    """

    con: duckdb.DuckDBPyConnection
    public: PublicRegions
    schema: Schema
    bins: Mapping[str, Bins]
    groups: Loaded | None

    @property
    def place(self) -> str:
        """Return the name of the column that says where a row lies."""
        return REGION if self.groups is None else "group_id"

    def relate(self) -> None:
        """Give the connection the relations ``places`` (id, leaf) and, by attribute, ``values0``, ... (value, code).

        With groups there are also ``listed`` (id), all groups, and the columns of groups in ``places``. Raises
        InputError, once the others are there, where groups are not sound: there are no ``places`` then.
        """
        import pyarrow as pa

        for k, (name, values) in enumerate(self.schema.attributes.items()):
            if name not in self.bins:
                codes = np.arange(len(values), dtype=np.int64)
                self.con.register(f"values{k}", pa.table({"value": pa.array(values, pa.string()), "code": codes}))
        register_leaves(self.con, self.public)
        if self.groups is None:
            self.con.execute("CREATE VIEW places AS SELECT region AS id, leaf FROM leaves")
            return
        self.con.execute("CREATE VIEW listed AS SELECT c0 AS id FROM groups")
        check_groups(self.groups, "the ids of the hierarchy")
        self.con.execute("CREATE VIEW places AS SELECT c0 AS id, leaf, groups.* FROM groups JOIN leaves ON c1 = region")

    def counts(self, relation: Relation, source: Input, folder: Path | None) -> TableCounts | None:
        """Return the people of each leaf and cell; None where there is no row, or one that cannot be counted.

        With a private ``folder``, the arrays lie there in files without a name. O(rows). Raises InputError (too-large,
        too-many-people).
        """
        people = f"least(sum(people), {_CAPPED})::BIGINT" if self.counted(relation) else "count(*)"
        query = f"SELECT key, {people} AS people, count(*) AS rows FROM ({self.rows(relation)}) GROUP BY key"
        batches = self.con.sql(f"{query} ORDER BY key").to_arrow_reader(BLOCK)
        return self._summed(([column.to_numpy() for column in batch.columns] for batch in batches), source, folder)

    def counted(self, relation: Relation) -> bool:
        """Return whether a row of the relation stands for a count of persons."""
        return COUNT in relation.names and COUNT not in self.schema.attributes

    def rows(self, relation: Relation, further: str = "") -> str:
        """Return the query for each row's ``key``, its leaf's cells behind those of leaves before it, and ``people``.

        Cells are those of the product of all attributes. The key is -1 where any part of it is missing.
        """
        number, joins = f"leaf * {self.schema.cells}", [f"places ON {relation.text(self.place)} = places.id"]
        for k, name in enumerate(self.schema.attributes):
            if name not in self.bins:
                joins.append(f"values{k} ON {self._text(relation, name)} = values{k}.value")
            number += f" + {self.code(relation, name)} * {prod(self.schema.shape[k + 1 :])}"
        people = "1"
        if self.counted(relation):
            people = relation.integer(COUNT)
            people = f"CASE WHEN {people} BETWEEN 0 AND {10**MAX_DIGITS - 1} THEN {people} END"
        wrong = f"{people} IS NULL OR {self._elsewhere(relation)}"
        key = f"CASE WHEN {wrong} THEN -1 ELSE coalesce(({number})::BIGINT, -1) END"
        tables = " LEFT JOIN ".join([relation.table, *joins])
        return f"SELECT {further} {key} AS key, {people} AS people FROM {tables}"

    def code(self, relation: Relation, name: str) -> str:
        """Return the place of a row's value among those of an attribute, missing where it is none of them."""
        bins = self.bins.get(name)
        if bins is None:
            return f"values{self.schema.names.index(name)}.code"
        shared = name not in relation.names
        number = integer_of(self._text(relation, name)) if shared else relation.integer(name)
        ranges = enumerate(zip(bins.low, bins.high, strict=True))
        cases = " ".join(f"WHEN {number} BETWEEN {low} AND {high} THEN {k}" for k, (low, high) in ranges)
        return f"(CASE {cases} END)"

    def _text(self, relation: Relation, name: str) -> str:
        """Return the column of an attribute, of the records or else of their groups, as text."""
        if name in relation.names or self.groups is None:
            return relation.text(name)
        return f"places.c{self.groups.names.index(name)}"

    def _elsewhere(self, relation: Relation) -> str:
        """Return the condition that a row states another region than that of its group; an empty entry states none."""
        if self.groups is None or REGION not in relation.names or REGION in self.schema.attributes:
            return "false"
        region = relation.text(REGION)
        return f"coalesce({region} <> '' AND {region} <> places.c1, false)"

    def _summed(self, batches: Iterable[list[Ints]], source: Input, folder: Path | None) -> TableCounts | None:
        """Return what rising keys, their people and rows say; None as ``counts`` does."""
        hierarchy, schema, rows, total = self.public.hierarchy, self.schema, 0, 0.0
        runs = np.zeros(len(hierarchy.leaves) + 1, np.int64)
        with _file(folder) as offsets, _file(folder) as cells, _file(folder) as counts:
            for key, people, number in batches:
                leaf, cell = np.divmod(key[people > 0], schema.cells)
                if (key < 0).any() or (schema.position[cell] < 0).any():
                    return None
                first, of_leaf = leaf.min(initial=0), np.bincount(leaf - leaf.min(initial=0))
                runs[first + 1 : first + 1 + of_leaf.size] += of_leaf
                cells.write(schema.position[cell].data)
                counts.write(people[people > 0].data)
                rows, total = rows + int(number.sum()), total + float(people.sum(dtype=np.float64))
            if total > MAX_TOTAL:
                raise InputError("too-large", "there are too many persons in all", Place(source.name))
            offsets.write(np.cumsum(runs).data)
            arrays = _integers(offsets), _integers(cells), _integers(counts)
        return TableCounts(hierarchy, schema, *arrays, rows) if rows else None


def integer_of(text: str) -> str:
    """Return a text as an integer, missing where it is not written as one."""
    return f"(CASE WHEN regexp_full_match({text}, {_INTEGER}) THEN TRY_CAST({text} AS BIGINT) END)"


def _file(folder: Path | None) -> Any:
    """Return a new file without a name in a private folder, its owner's alone; without a folder, it is in memory."""
    return BytesIO() if folder is None else tempfile.TemporaryFile(dir=folder)


def _integers(file: Any) -> Ints:
    """Return the integers of a file, read-only."""
    if isinstance(file, BytesIO):
        return np.frombuffer(file.getvalue(), np.int64)
    file.flush()
    content = b"" if not file.tell() else remembered(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return np.frombuffer(content, np.int64)
