"""Read the private values of entities and count them by cell of the public domain.

Counting runs in DuckDB. An entry that could be misread raises a typed error that names its place, not its value.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import InputError, Place
from coco_opt.files import column_checks
from coco_opt.files.foreign_errors import quietly
from coco_opt.files.inputs import Columns, Input, InputLike
from coco_opt.files.scratch import spilling
from coco_opt.files.source import Faults, Loaded, isolated, load
from coco_opt.problem import MAX_INTEGER
from coco_opt.ranges.domain import DomainTree
from coco_opt.ranges.interval_counts import Outside

if TYPE_CHECKING:
    import duckdb


VALUES = Columns(last=("value",), optional=("count",), others=True)
CELLS = Columns(last=("cell", "count"), others=True)
_NO_COLUMNS = ("missing-column", "no-header")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class CellCounts:
    """PRIVATE: entities in each cell of the domain, int64 (cells,).

    ``rows`` were read from the file; ``clamped`` entities lay outside the domain and count in its first or last cell.
    """

    cells: Ints
    rows: int = 0
    clamped: int = 0

    @property
    def arrays(self) -> tuple[Ints, ...]:
        """Return the counts: equal data, and no other, give equal arrays."""
        return (self.cells,)

    def identity(self) -> dict[str, int]:
        """Return the counts of rows and entities, for the private record."""
        return {
            "rows_read": self.rows,
            "rows_counted": self.rows,
            "rows_rejected": 0,
            "entities": int(self.cells.sum()),
            "entities_clamped": self.clamped,
        }

    def __repr__(self) -> str:
        return "CellCounts(private)"


def read_values(
    values: InputLike, domain: DomainTree, outside: Outside = "refuse", spill: Path | None = None
) -> CellCounts:
    """Count entities by cell from a table of one row an entity with its ``value``, or of ``cell`` and ``count``.

    Next to ``value``, a column ``count`` may say how many entities a row stands for. Values are integers; one outside
    the domain is refused, or with ``outside`` "clamp" counted in the nearest cell. Cells are numbered from 0,
    each given at most once; those that are absent hold nobody. ``spill`` is a private folder: a large table is read in
    little memory, and what does not fit lies there meanwhile.

    Raises InputError: empty-file, missing-column,
    not-an-integer, negative-count, too-large, outside-domain, duplicate-cell, no-entities and the codes of
    ``source.load``. O(rows).
    """
    source = Input.of(values, "values")
    with spilling(spill, [source]) as folder, isolated([source], folder) as con:
        table = _open(con, source)
        column_checks.check_rows(table)
        by_cell = "cell" in table.names
        column = table.names.index("cell" if by_cell else "value")
        edges = (0, domain.cells) if by_cell else (int(domain.edges[0]), int(domain.edges[-1]))
        faults = Faults()
        with faults:
            column_checks.check_count(table, column)
        if "count" in table.names:
            with faults:
                column_checks.check_count(table, table.names.index("count"), "negative-count")
        if by_cell:
            with faults:
                message = "this cell occurs twice: give each cell's count once"
                column_checks.check_unique(table, (column,), "duplicate-cell", message, column)
        if by_cell or outside == "refuse":
            with faults:
                _check_inside(table, column, *edges, clamp=not by_cell)
        faults.check()
        counted = "1"
        if "count" in table.names:
            number = f"c{table.names.index('count')}"
            if table.value(f"SELECT sum({number}::DOUBLE) > {MAX_INTEGER} FROM {{t}}"):
                raise InputError("too-large", "there are more than 2^53 entities in all", table.place())
            counted = f"{number}::BIGINT"
        keys, entities = _counts_by_entry(table, column, counted)
        rows = table.rows()
    places = keys if by_cell else domain.cells_of(keys)
    beyond = (places < 0) | (places >= domain.cells)
    cells = np.zeros(domain.cells, np.int64)
    np.add.at(cells, np.clip(places, 0, domain.cells - 1), entities)
    if not cells.any():
        raise InputError("no-entities", "every count is 0: is this the right file?", Place(source.name))
    return CellCounts(cells, rows, int(entities[beyond].sum()))


def _open(con: duckdb.DuckDBPyConnection, source: Input) -> Loaded:
    failure = ""
    for table, columns in (("entities", VALUES), ("counts", CELLS)):
        try:
            return load(con, table, source, columns)
        except InputError as error:
            if error.code not in _NO_COLUMNS or set(columns.required) & set(source.columns):
                raise  # a configuration that names such a column means this form
            failure = error.code
    raise InputError(failure, "the columns must be value, one row an entity, or cell and count", Place(source.name))


def _check_inside(table: Loaded, column: int, first: int, behind: int, *, clamp: bool) -> None:
    plain = f"regexp_full_match(c{column}, '0|-?[1-9][0-9]{{0,{column_checks.MAX_DIGITS - 1}}}')"
    inside = f"TRY_CAST(c{column} AS BIGINT) BETWEEN {first} AND {behind - 1}"
    if rows := table.rows_where(f"{plain} AND NOT {inside}"):
        hint = ', or set outside = "clamp"' if clamp else ""
        message = f"lies outside the public domain {first} to {behind - 1}: correct it, widen the domain{hint}"
        raise InputError("outside-domain", message, table.place(rows, column))


def _counts_by_entry(table: Loaded, column: int, counted: str) -> tuple[Ints, Ints]:
    """Return the distinct entries of a column and the entities of each."""
    query = f"SELECT c{column}::BIGINT AS entry, sum({counted})::BIGINT AS entities FROM {table.table} GROUP BY 1"
    rows = quietly(table.source, lambda: table.con.execute(query).fetchnumpy())
    return np.asarray(rows["entry"], np.int64), np.asarray(rows["entities"], np.int64)
