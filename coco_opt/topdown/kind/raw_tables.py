"""The raw rows of a release of tables, read for its checks: known regions, known values, distinct cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.execution.temporary_storage import forget_pages, stored_empty
from coco_opt.files.differences import REGION
from coco_opt.files.folder import number_of_rows, read_parts
from coco_opt.files.release_checks import CountRows, int64_column, positions, refuse_types
from coco_opt.histograms.arrays import rising
from coco_opt.releases.kind import Folder
from coco_opt.topdown.kind.files import PERSONS, TABLES
from coco_opt.topdown.queries import Query
from coco_opt.topdown.schema import Schema

Tables = tuple[Ints, Ints, Ints]
"""Raw rows of tables: regions by row of the regions' file, allowed cells, persons."""


@dataclass(frozen=True, eq=False)
class RawTables(CountRows):
    """The raw columns as arrays: ``counts`` are persons, ``key`` is a cell of the product, int32 as regions are.

    ``misplaced`` names a row whose level or name is not its region's, "" for none. The product has at most 2^27 cells,
    and files of more than 2^31 regions are not written. Dense answers of ``block`` regions are in memory at a time.
    """

    folder: Path
    manifest: Mapping[str, Any]
    schema: Schema
    misplaced: str = ""
    block: int = 1 << 10

    @classmethod
    def read(cls, folder: Folder, schema: Schema, block: int) -> RawTables:
        """Read a group of rows at a time. Raises BrokenError for counts or levels that are not integers."""
        regions, rows, misplaced = folder.regions, 0, ""
        size = (number_of_rows(folder.path / TABLES),)
        int32, int64 = np.dtype(np.int32), np.dtype(np.int64)
        region_of, cell, persons = stored_empty(size, int32), stored_empty(size, int32), stored_empty(size, int64)
        for part in read_parts(folder.path / TABLES, (*REGION, *schema.names, PERSONS), coded=True):
            refuse_types(part, {"level": "int32", PERSONS: "int64"}, TABLES)
            region = regions.at(part.column("region"))
            wrong = regions.misnamed(part, region) if (region >= 0).all() else None
            if wrong and not misplaced:
                misplaced = f"row {rows + wrong[0] + 1}: not the region's {wrong[1]}"
            some = slice(rows, rows + part.num_rows)
            region_of[some], cell[some], persons[some] = region, cells_of(schema, part), int64_column(part, PERSONS)
            rows += part.num_rows
        forget_pages()
        columns = regions, region_of, cell, persons, schema.cells
        return cls(*columns, folder.path, folder.manifest, schema, misplaced, block)

    def allowed(self, rows: slice | Ints) -> Ints:
        """Return the place of some rows among the cells that can occur, negative for a structural zero."""
        return np.asarray(self.schema.position[self.key[rows]], np.int64)

    @property
    def allowed_rows(self) -> Tables:
        """Return regions, allowed cells and persons of rows whose cells can occur; other rows break another promise."""
        allowed = self.allowed(slice(None))
        used = allowed >= 0
        return self.region[used].astype(np.int64), allowed[used], self.counts[used]

    def weighted(self, weights: Ints, rows: slice) -> Ints:
        """Return the persons of some rows times the weight of their cell; ``weights`` int64[allowed cells]."""
        allowed = self.allowed(rows)
        return np.where(allowed >= 0, weights[np.maximum(allowed, 0)], 0) * self.counts[rows]

    def answers(self, query: Query, regions: Ints, answers: Ints) -> Ints:
        """Return the answer of a query for each pair of regions and answers, all int64[rows], from the raw rows."""
        from scipy.sparse import csr_array

        distinct, inverse = np.unique(regions, return_inverse=True)
        near = self._rows_of(distinct)
        region, allowed = self.region[near], self.allowed(near)
        row = np.minimum(np.searchsorted(distinct, region), distinct.size - 1)
        used = np.flatnonzero((distinct[row] == region) & (allowed >= 0)) if distinct.size else row
        entries = self.counts[near][used], (row[used], allowed[used])
        table = csr_array(entries, shape=(distinct.size, self.schema.size))
        values = np.zeros(regions.size, np.int64)
        matrix = query.operator.to_sparse().astype(np.int64).tocsr()
        for start in range(0, distinct.size, self.block):
            rows = np.flatnonzero((inverse >= start) & (inverse < start + self.block))
            block = (table[start : start + self.block] @ matrix.T).toarray()
            values[rows] = block[inverse[rows] - start, answers[rows]]
        return values

    def _rows_of(self, regions: Ints) -> slice:
        """Return rows that hold all of some regions, which rise: few of them where rows lie in the regions' order."""
        if not regions.size or not self.are_rising:
            return slice(0, self.region.size)
        first, last = np.searchsorted(self.region, np.array([regions[0], regions[-1] + 1], self.region.dtype))
        return slice(int(first), int(last))

    @cached_property
    def are_rising(self) -> bool:
        """Return whether rows lie in the regions' order."""
        return rising(self.region)


def cells_of(schema: Schema, table: Any) -> Ints:
    """Return the product cell of every row's values, negative for an unknown value."""
    cell = np.zeros(table.num_rows, np.int64)
    for name, values in schema.attributes.items():
        code = positions(table.column(name), values)
        cell = np.where((code < 0) | (cell < 0), -1, cell * len(values) + code)
    return cell
