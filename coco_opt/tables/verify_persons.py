"""Check a release of tables of persons against its manifest's promises, from the raw files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coco_opt.errors import CocoOptError, InputError
from coco_opt.histograms.arrays import Int64Array
from coco_opt.tables.checked import Check, first_of, int64_column, is_safe, positions, tree_check
from coco_opt.tables.folder import read_columns, read_parts
from coco_opt.tables.persons import (
    EXACT,
    EXACT_COLUMNS,
    MICRODATA,
    PERSONS,
    REGION_COLUMNS,
    REGIONS,
    TABLES,
)
from coco_opt.topdown.bounds import UNBOUNDED
from coco_opt.topdown.plain import schema_of
from coco_opt.topdown.queries import Query, parse_query
from coco_opt.topdown.schema import Schema

_BLOCK = 1 << 10  # regions whose answers are dense at a time
TABLE_PROMISES = ("integers", "nonnegative", "structural_zeros", "children_sum_to_parents", "invariants", "microdata")


@dataclass(frozen=True, eq=False, slots=True)
class _Content:
    """The raw columns as arrays: ``parent`` and ``region`` are rows of the regions' file, ``cell`` of the product."""

    folder: Path
    schema: Schema
    names: list[str]
    parent: Int64Array
    level: Int64Array
    region: Int64Array
    row_level: Int64Array
    cell: Int64Array
    persons: Int64Array

    @property
    def keys(self) -> Int64Array:
        """Return one number for each region and cell."""
        return self.region * self.schema.cells + self.cell


def verify_tables(folder: Path, manifest: dict[str, Any]) -> list[Check]:
    """Check that a folder of tables is whole and holds what its manifest promises; never raises on bad content.

    Always checked: the files can be read, counts are integers, regions form a tree, and every row has a known region,
    its level, known values and a place of its own. O(rows log rows).
    """
    promises = manifest.get("promises")
    if not isinstance(promises, list) or any(name not in TABLE_PROMISES for name in promises):
        return [Check("manifest", passed=False, detail="promises what this version cannot check")]
    failure = ""
    try:
        schema = schema_of(manifest.get("schema", {}))
        regions = read_columns(folder / REGIONS, REGION_COLUMNS)
        tables = read_columns(folder / TABLES, ("level", "region", *schema.names, PERSONS))
    except CocoOptError as error:
        failure = str(error)
    if failure:
        return [Check("files", passed=False, detail=failure)]
    checks = [
        Check("files", passed=True, detail="manifest and tables can be read"),
        Check("manifest", passed=True, detail=f"promises {len(promises)} properties"),
    ]
    return checks + list(_content_checks(folder, schema, promises, regions, tables))


def _content_checks(folder: Path, schema: Schema, promises: list[str], regions: Any, tables: Any) -> Iterator[Check]:
    integers = _integers(regions, tables)
    yield integers
    if integers.passed:
        content = _columns(folder, schema, regions, tables)
        structure = [tree_check(content.names, content.parent, content.level), _rows(content)]
        yield from structure
        if all(check.passed for check in structure):
            yield from (_PROMISES[name](content) for name in TABLE_PROMISES[1:] if name in promises)
            return
    for name in TABLE_PROMISES[1:]:
        if name in promises:
            yield Check(name, passed=False, detail="not checked: the tables are not sound")


def _integers(regions: Any, tables: Any) -> Check:
    import pyarrow.types as kinds

    for table, file, name in ((regions, REGIONS, "level"), (tables, TABLES, "level"), (tables, TABLES, PERSONS)):
        column = table.column(name)
        if not kinds.is_signed_integer(column.type) or column.null_count:
            return Check("integers", passed=False, detail=f"{file}, column {name!r} does not hold integers only")
    return Check("integers", passed=True, detail="levels and counts are integers")


def _columns(folder: Path, schema: Schema, regions: Any, tables: Any) -> _Content:
    names = regions.column("region")
    cell = _cells(schema, tables)
    return _Content(
        folder,
        schema,
        names=names.to_pylist(),
        parent=positions(regions.column("parent"), names),
        level=int64_column(regions, "level"),
        region=positions(tables.column("region"), names),
        row_level=int64_column(tables, "level"),
        cell=cell,
        persons=int64_column(tables, PERSONS),
    )


def _rows(content: _Content) -> Check:
    for wrong, what in (
        (content.region < 0, "no such region"),
        (content.cell < 0, "a value that its attribute does not have"),
        (content.persons == 0, "a row with 0 persons must be left out"),
        (content.row_level != content.level[np.maximum(content.region, 0)], "not the region's level"),
    ):
        if wrong.any():
            return Check("rows", passed=False, detail=f"row {first_of(wrong) + 1}: {what}")
    if np.unique(content.keys).size < content.keys.size:
        return Check("rows", passed=False, detail="a region and cell occur twice")
    return Check("rows", passed=True, detail="every region and cell occurs once")


def _nonnegative(content: _Content) -> Check:
    wrong = content.persons < 0
    detail = f"row {first_of(wrong) + 1} is negative" if wrong.any() else "no count is negative"
    return Check("nonnegative", not wrong.any(), detail)


def _zeros(content: _Content) -> Check:
    wrong = content.schema.position[content.cell] < 0
    rules = len(content.schema.rules)
    detail = f"row {first_of(wrong) + 1} is ruled out" if wrong.any() else f"no person where {rules} rules forbid one"
    return Check("structural_zeros", not wrong.any(), detail)


def _children_sum(content: _Content) -> Check:
    """Compare each inner region's cells with the sums of its children's: the difference must vanish everywhere."""
    name = "children_sum_to_parents"
    if not is_safe(content.persons):
        return Check(name, passed=False, detail="the counts do not add up within 64 bits")
    inner = np.zeros(len(content.names), np.bool_)
    inner[content.parent[content.parent >= 0]] = True
    own, up = inner[content.region], content.parent[content.region]
    region = np.concatenate([content.region[own], up[up >= 0]])
    cell = np.concatenate([content.cell[own], content.cell[up >= 0]])
    persons = np.concatenate([content.persons[own], -content.persons[up >= 0]])
    keys, where = np.unique(region * content.schema.cells + cell, return_inverse=True)
    rest = np.zeros(keys.size, np.int64)
    np.add.at(rest, where, persons)
    if rest.any():
        first = content.names[int(keys[first_of(rest != 0)]) // content.schema.cells]
        detail = f"{np.count_nonzero(rest)} cells differ; the first lies in {first!r}"
        return Check(name, passed=False, detail=detail)
    return Check(name, passed=True, detail="every region is the sum of its children in every cell")


def _invariants(content: _Content) -> Check:
    failure, checked = "", 0
    try:
        failure, checked = _broken_invariant(content)
    except CocoOptError as error:
        failure = str(error)
    detail = failure or f"{checked:,} stated answers hold"
    return Check("invariants", not failure, detail)


def _broken_invariant(content: _Content) -> tuple[str, int]:
    """Return the first stated answer that the tables do not keep, "" if all hold, and how many there are."""
    stated = read_columns(content.folder / EXACT, EXACT_COLUMNS)
    region = positions(stated.column("region"), _chunked(content.names))
    lower, upper = int64_column(stated, "lower"), _upper(stated)
    queries, labels = stated.column("query").to_pylist(), stated.column("answer").to_pylist()
    if (region < 0).any():
        return f"{EXACT}, row {first_of(region < 0) + 1}: no such region", 0
    for text in dict.fromkeys(queries):
        rows = np.array([row for row, one in enumerate(queries) if one == text], np.int64)
        query = parse_query(text, content.schema)
        where = {label: k for k, label in enumerate(query.labels())}
        answers = [where.get(labels[row], -1) for row in rows.tolist()]
        if -1 in answers:
            return f"{EXACT}, row {int(rows[answers.index(-1)]) + 1}: {text!r} has no such answer", 0
        found = _answers(content, query, region[rows], np.array(answers, np.int64))
        wrong = (found < lower[rows]) | (found > upper[rows])
        if wrong.any():
            row = int(rows[first_of(wrong)])
            return f"{content.names[region[row]]!r}: {text}, {labels[row]} is not as stated", 0
    return "", region.size


def _answers(content: _Content, query: Query, regions: Int64Array, answers: Int64Array) -> Int64Array:
    """Return one answer of a query a row, int64[rows], for regions and answers int64[rows], from the raw rows."""
    from scipy.sparse import csr_array

    kept, inverse = np.unique(regions, return_inverse=True)
    place = np.full(len(content.names), -1, np.int64)
    place[kept] = np.arange(kept.size)
    used = place[content.region] >= 0
    cells = content.schema.position[content.cell[used]]
    shape = (kept.size, content.schema.size)
    table = csr_array((content.persons[used], (place[content.region[used]], cells)), shape=shape)
    found = np.zeros(regions.size, np.int64)
    matrix = query.operator.to_sparse().astype(np.int64).tocsr()
    for start in range(0, kept.size, _BLOCK):
        here = np.flatnonzero((inverse >= start) & (inverse < start + _BLOCK))
        block = (table[start : start + _BLOCK] @ matrix.T).toarray()
        found[here] = block[inverse[here] - start, answers[here]]
    return found


def _upper(stated: Any) -> Int64Array:
    """Return the upper sides, ``UNBOUNDED`` where there is none."""
    return np.asarray(stated.column("upper").fill_null(UNBOUNDED).to_numpy(), np.int64)


def _microdata(content: _Content) -> Check:
    """Count the persons of the microdata by region and cell: they must be the leaves' tables."""
    failure, keys, counts = "", np.zeros(0, np.int64), np.zeros(0, np.int64)
    try:
        for part in read_parts(content.folder / MICRODATA, ("region", *content.schema.names)):
            region = positions(part.column("region"), _chunked(content.names))
            cell = _cells(content.schema, part)
            if (region < 0).any() or (cell < 0).any():
                raise InputError("unknown-value", "a person has no known region or values")
            keys, counts = _merged(keys, counts, region * content.schema.cells + cell)
    except InputError as error:
        failure = str(error)
    if failure:
        return Check("microdata", passed=False, detail=failure)
    leaves = content.level[content.region] == content.level.max()
    order = np.argsort(content.keys[leaves])
    same = np.array_equal(keys, content.keys[leaves][order]) and np.array_equal(counts, content.persons[leaves][order])
    detail = f"{counts.sum():,} persons make the tables of the leaves" if same else "the persons make other tables"
    return Check("microdata", same, detail)


def _merged(keys: Int64Array, counts: Int64Array, more: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return distinct keys and how often each occurred, with more of them counted in."""
    added, times = np.unique(more, return_counts=True)
    merged, where = np.unique(np.concatenate([keys, added]), return_inverse=True)
    total = np.zeros(merged.size, np.int64)
    np.add.at(total, where, np.concatenate([counts, times]))
    return merged, total


def _cells(schema: Schema, table: Any) -> Int64Array:
    """Return the cell of every row's values among those of the product, negative for an unknown value."""
    cell = np.zeros(table.num_rows, np.int64)
    for name, values in schema.attributes.items():
        code = positions(table.column(name), _chunked(list(values)))
        cell = np.where((code < 0) | (cell < 0), -1, cell * len(values) + code)
    return cell


def _chunked(values: list[str]) -> Any:
    import pyarrow as pa

    return pa.chunked_array([pa.array(values, pa.string())])


_PROMISES: dict[str, Callable[[_Content], Check]] = {
    "nonnegative": _nonnegative,
    "structural_zeros": _zeros,
    "children_sum_to_parents": _children_sum,
    "invariants": _invariants,
    "microdata": _microdata,
}
