"""The raw rows of a release of tables, and checks of what its files state about answers.

Each check reads its file and raises BrokenError at the first row that does not hold, or says how many rows do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.array_types import Flags, Ints
from coco_opt.execution.temporary_storage import forget_pages, stored_empty
from coco_opt.files.arrow_texts import coded, positions
from coco_opt.files.differences import REGION
from coco_opt.files.folder import number_of_rows, read_columns, read_parts
from coco_opt.files.release_checks import (
    BrokenError,
    CountRows,
    first_of,
    int64_column,
    is_safe,
    refuse,
    refuse_repeated,
    refuse_types,
)
from coco_opt.histograms.arrays import rising
from coco_opt.releases.kind import Folder
from coco_opt.topdown.constraint import UNBOUNDED, row_of
from coco_opt.topdown.kind.files import (
    CONSTRAINT_COLUMNS,
    CONSTRAINTS,
    ESTIMATE_COLUMNS,
    ESTIMATES,
    EXACT,
    EXACT_COLUMNS,
    PERSONS,
    TABLES,
)
from coco_opt.topdown.kind.intervals import COLUMNS as INTERVAL_COLUMNS
from coco_opt.topdown.kind.intervals import INTERVALS
from coco_opt.topdown.queries import Query, parse_query
from coco_opt.topdown.schema import Schema

Tables = tuple[Ints, Ints, Ints]
"""Raw rows of tables: regions by row of the regions' file, allowed cells, persons."""
QueryRows = tuple[Query, Ints, Ints]
"""The rows of a file that are about one query, and the index of the answer that each of them states."""


@dataclass(frozen=True, eq=False)
class RawTables(CountRows):
    """The raw columns as arrays: ``counts`` are persons, ``key`` is a cell of the product, int32 as regions are.

    ``misplaced`` names a row whose level or name is not its region's, "" for none. The product has at most 2^27 cells,
    and files of more than 2^31 regions are not written. Dense answers of ``block`` regions are in memory at a time.
    """

    file = TABLES
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
            refuse_types(part, {"level": "int32", PERSONS: "int64"}, TABLES, rows)
            region = regions.at(part.column("region"))
            wrong = regions.misnamed(part, region) if (region >= 0).all() else None
            if wrong and not misplaced:
                misplaced = f"{TABLES}, row {rows + wrong[0] + 1}: not the region's {wrong[1]}"
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


def check_invariants(tables: RawTables) -> str:
    """Check that the tables keep every stated answer, and that all that the manifest declares are stated.

    What it declares as exact must be stated as one number.
    """
    # By query, [regions, answers], in a file if they are many.
    before, stated_answers, exact_answers = 0, dict[str, Flags](), dict[str, Flags]()
    declared = {entry["query"] for entry in tables.manifest["exact"]}
    for stated in read_parts(tables.folder / EXACT, EXACT_COLUMNS, coded=True):
        region, queries = _query_rows(tables, stated, EXACT, before)
        lower, upper = int64_column(stated, "lower"), _upper(stated)
        for query, rows, answers in queries:
            _mark(stated_answers, query, tables, region[rows], answers)
            if query.text in declared:
                one = lower[rows] == upper[rows]
                _mark(exact_answers, query, tables, region[rows[one]], answers[one])
            values = tables.answers(query, region[rows], answers)
            wrong = (values < lower[rows]) | (values > upper[rows])
            if wrong.any():
                first = first_of(wrong)
                path = tables.regions.paths[region[rows[first]]]
                raise BrokenError(f"{path!r}: {query.text}, {query.label(int(answers[first]))} is not as stated")
        before += stated.num_rows
        forget_pages()
    _check_complete(tables, "facts", stated_answers)
    _check_complete(tables, "exact", exact_answers)
    return f"{before:,} stated answers hold"


def check_constraints(tables: RawTables) -> str:
    """Check that the tables keep every stated linear constraint, and that these are the manifest's."""
    stated = read_columns(tables.folder / CONSTRAINTS, CONSTRAINT_COLUMNS)
    if stated.column("fact").null_count:
        raise BrokenError(f"{CONSTRAINTS}: a row names no constraint")
    region, constraint = tables.regions.at(stated.column("region")), int64_column(stated, "fact")
    tables.regions.refuse_misnamed(stated, region, CONSTRAINTS)
    constraints = tables.manifest["facts"]
    if np.unique(constraint).tolist() != [number for number, entry in enumerate(constraints) if "terms" in entry]:
        raise BrokenError(f"{CONSTRAINTS}: the constraints are not those of the manifest")
    levels = np.array([tables.manifest["levels"].index(entry["level"]) for entry in constraints], np.int64)
    lower, upper = _sides(stated)
    is_empty = (lower <= -UNBOUNDED) & (upper >= UNBOUNDED)
    if is_empty.any() or (levels[constraint] != tables.regions.hierarchy.level[region]).any():
        raise BrokenError(f"{CONSTRAINTS}: a row states nothing, or of a region of another level")
    codes, texts = coded(stated.column("constraint"))
    code_of = {text: code for code, text in enumerate(texts.to_pylist())}
    expected = np.array([code_of.get(entry.get("constraint"), -1) for entry in constraints], np.int64)
    refuse(codes != expected[constraint], "another constraint than its number says", CONSTRAINTS)
    for number in np.unique(constraint).tolist():
        entry, rows = constraints[number], np.flatnonzero(constraint == number)
        text, terms = entry["constraint"], tuple((int(weight), str(count)) for weight, count in entry["terms"])
        weights = row_of(terms, tables.schema)
        most = float(np.abs(weights).max(initial=0))
        if not is_safe(*(most * tables.counts[piece] for piece in tables.pieces())):
            raise BrokenError(f"{text!r} does not add up within 64 bits")
        sums = np.zeros(len(tables.regions.paths), np.int64)
        for piece in tables.pieces():
            np.add.at(sums, tables.region[piece], tables.weighted(weights, piece))
        wrong = (sums[region[rows]] < lower[rows]) | (sums[region[rows]] > upper[rows])
        if wrong.any():
            raise BrokenError(f"{tables.regions.paths[region[rows[first_of(wrong)]]]!r}: {text!r} does not hold")
    return f"{region.size:,} stated constraints hold"


def check_estimates(tables: RawTables) -> str:
    """Check every estimate: of a known region and answer, once, finite, with an error of at least 0."""
    before, seen = 0, dict[str, Flags]()
    for stated in read_parts(tables.folder / ESTIMATES, ESTIMATE_COLUMNS, coded=True):
        region, queries = _query_rows(tables, stated, ESTIMATES, before)
        value, error = (np.asarray(stated.column(name).to_numpy(), np.float64) for name in ESTIMATE_COLUMNS[-2:])
        is_number = np.isfinite(value) & np.isfinite(error) & (error >= 0)
        refuse(~is_number, "an estimate or its standard error is no number", ESTIMATES, before)
        for query, rows, answers in queries:
            what = f"of the rows of {query.text!r}: an answer of a region occurs twice"
            refuse_repeated(region[rows] * query.answers + answers, what, ESTIMATES)
            if query.text in seen and seen[query.text][region[rows], answers].any():
                raise BrokenError(f"{ESTIMATES}, {what}")
            _mark(seen, query, tables, region[rows], answers)
        before += stated.num_rows
    return f"{before:,} estimates are of known answers"


def check_intervals(tables: RawTables) -> str:
    """Check that intervals are of known answers, ordered, hold the released answers, and leave only zeros out."""
    stated = tables.manifest["intervals"]
    if not isinstance(stated["coverage"], float) or not 0.0 < stated["coverage"] < 1.0:
        raise BrokenError("the manifest states no coverage between 0 and 1")
    intervals = read_columns(tables.folder / INTERVALS, INTERVAL_COLUMNS)
    region, queries = _query_rows(tables, intervals, INTERVALS)
    lower, upper = int64_column(intervals, "lower"), int64_column(intervals, "upper")
    refuse((lower < 0) | (lower > upper), "the ends are not in order", INTERVALS)
    by_text = {each[0].text: each for each in queries}
    if set(by_text) - set(stated["queries"]):
        raise BrokenError(f"{INTERVALS} has other queries than the manifest states")
    marked = np.unique(region[~intervals.column("converged").to_numpy()]).size
    if marked > int(tables.manifest["posterior"]["regions_not_converged"]):
        raise BrokenError(f"{marked:,} regions are marked as not converged, which the manifest does not state")
    for text in stated["queries"]:
        no_rows = np.zeros(0, np.int64)
        query, rows, answers = by_text.get(text, (parse_query(text, tables.schema), no_rows, no_rows))
        refuse_repeated(region[rows] * query.answers + answers, f"an answer of {text!r} occurs twice", INTERVALS)
        released = tables.answers(query, region[rows], answers)
        outside = np.zeros(region.size, np.bool_)
        outside[rows] = (released < lower[rows]) | (released > upper[rows])
        refuse(outside, "does not hold the released answer", INTERVALS)
        columns = query.operator.absolute_columns.astype(np.int64)
        if int(released.sum()) != sum(int(tables.weighted(columns, rows).sum()) for rows in tables.pieces()):
            raise BrokenError(f"{INTERVALS} leaves out an answer of {text!r} that is not 0")
    return f"{region.size:,} intervals hold their released answers"


def _query_rows(tables: RawTables, stated: Any, file: str, before: int = 0) -> tuple[Ints, list[QueryRows]]:
    """Return the region of every row of answers, and the rows of each query.

    ``before`` is the number of the file's rows before these. Raises BrokenError for a row of no known answer.
    """
    region = tables.regions.at(stated.column("region"))
    tables.regions.refuse_misnamed(stated, region, file, before)
    codes, texts = coded(stated.column("query"))
    refuse(codes == len(texts), "names no query", file, before)
    queries = []
    for code, text in enumerate(texts.to_pylist()):
        rows, query = np.flatnonzero(codes == code), parse_query(text, tables.schema)
        answers = positions(stated.column("answer").take(rows), query.labels())
        if (answers < 0).any():
            row = before + int(rows[first_of(answers < 0)]) + 1
            raise BrokenError(f"{file}, row {row}: {text!r} has no such answer")
        queries.append((query, rows, answers))
    return region, queries


def _check_complete(tables: RawTables, key: str, stated: Mapping[str, Flags]) -> None:
    """Raise BrokenError for an invariant of the manifest that is not stated for every region of its level.

    ``stated`` says by query which answers [regions, answers] are: those of a ``key`` of the manifest.
    """
    for entry in tables.manifest[key]:
        if "query" not in entry:
            continue
        level = tables.manifest["levels"].index(entry["level"])
        if entry["query"] not in stated or not stated[entry["query"]][tables.regions.hierarchy.level == level].all():
            what = "leaves out answers" if key == "facts" else "states no exact number for answers"
            raise BrokenError(f"{EXACT} {what} of {entry['query']!r} by {entry['level']}")


def _mark(flags: dict[str, Flags], query: Query, tables: RawTables, region: Ints, answers: Ints) -> None:
    """Mark answers of regions among the flags [regions, answers] of a query."""
    if query.text not in flags:
        flags[query.text] = stored_empty((len(tables.regions.paths), query.answers), np.dtype(np.bool_))
        flags[query.text][:] = False
    flags[query.text][region, answers] = True


def _sides(stated: Any) -> tuple[Ints, Ints]:
    """Return the sides of constraints, ``UNBOUNDED`` or its negative where there is none."""
    return np.asarray(stated.column("lower").fill_null(-UNBOUNDED).to_numpy(), np.int64), _upper(stated)


def _upper(stated: Any) -> Ints:
    """Return the upper bounds, ``UNBOUNDED`` where there is none."""
    return np.asarray(stated.column("upper").fill_null(UNBOUNDED).to_numpy(), np.int64)
