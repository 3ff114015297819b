"""Read public tables: bounds on answers, and facilities by type, both by region."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coco_opt.array_types import Flags, Ints
from coco_opt.errors import HierarchyError, InputError
from coco_opt.files import column_checks
from coco_opt.files.arrow_texts import as_arrow
from coco_opt.files.columns import Columns
from coco_opt.files.faults import RowError, RowFaults
from coco_opt.files.inputs import Input, InputLike
from coco_opt.files.regions import PublicRegions
from coco_opt.files.source import Loaded, isolated, load
from coco_opt.histograms import Hierarchy
from coco_opt.topdown.bounds import UNBOUNDED
from coco_opt.topdown.constraint import RegionBounds, Source
from coco_opt.topdown.facilities import by_leaf
from coco_opt.topdown.names import label_of, nearest
from coco_opt.topdown.queries import Query, parse_query
from coco_opt.topdown.schema import Schema

BOUNDS = Columns(first=("region", "query", "answer", "lower", "upper"), private=False, blank=("lower", "upper"))


def read_bounds(
    bounds: InputLike, hierarchy: Hierarchy, schema: Schema, origin: Source = "public"
) -> tuple[RegionBounds, ...]:
    """Return the bounds of a file, one entry for each query and level in it; ``origin`` is the source of all.

    Raises InputError with all bad rows: unknown-region, unknown-answer, not-an-integer, negative-bound,
    duplicate-bound, inconsistent-bounds, the codes of ``parse_query``, and the codes of ``source.load``. O(rows).
    """
    source = Input.of(bounds, "bounds")
    with isolated([source]) as con:
        table = load(con, "bounds", source, BOUNDS)
        faults, row_faults = column_checks.absent_entries(table, range(3)), RowFaults(table)
        rows = table.fetch("SELECT c0, c1, c2, c3, c4 FROM {t} ORDER BY rowid")
        sides_by_query: dict[tuple[str, int], _Sides] = {}
        for row, (region, text, answer, *numbers) in enumerate(rows):
            if not (region and text and answer):
                continue
            with row_faults.row(row):
                number = _region(hierarchy, region)
                level = int(hierarchy.level[number])
                if (text, level) not in sides_by_query:
                    regions = len(hierarchy.level_range(level))
                    sides_by_query[text, level] = _Sides.open(_query(text, schema), regions)
                sides = sides_by_query[text, level]
                place = (number - hierarchy.level_range(level).start, _answer(sides, answer))
                _fill(sides, place, _number(3, numbers[0], 0), _number(4, numbers[1], UNBOUNDED))
        row_faults.check(faults)
    return tuple(
        RegionBounds(sides.query, level, sides.lower, sides.upper, origin)
        for (_, level), sides in sides_by_query.items()
    )


@dataclass(frozen=True, eq=False, slots=True)
class _Sides:
    """The bounds of a query on one level as they are read, int64[regions, answers], and each answer's position."""

    query: Query
    places: dict[str, int]
    lower: Ints
    upper: Ints
    present: Flags

    @classmethod
    def open(cls, query: Query, regions: int) -> _Sides:
        shape = (regions, query.answers)
        places = {label: place for place, label in enumerate(query.labels())}
        return cls(query, places, np.zeros(shape, np.int64), np.full(shape, UNBOUNDED), np.zeros(shape, np.bool_))


def _fill(sides: _Sides, place: tuple[int, int], lower: int, upper: int) -> None:
    if sides.present[place]:
        raise RowError("duplicate-bound", "an earlier row bounds the same answer of this region")
    if lower > upper:
        raise RowError("inconsistent-bounds", "the lower bound is above the upper one")
    sides.present[place], sides.lower[place], sides.upper[place] = True, lower, upper


def _region(hierarchy: Hierarchy, region: str) -> int:
    try:
        return hierarchy.index(region)
    except HierarchyError:
        message = "is not the path of a region, from the root, joined by /"
    raise RowError("unknown-region", message, 0)


def _query(text: str, schema: Schema) -> Query:
    try:
        return parse_query(text, schema)
    except InputError as error:
        code, message = error.code, error.message
    raise RowError(code, message, 1)


def _answer(sides: _Sides, answer: str) -> int:
    released = _with_released_ranges(answer)
    if answer not in sides.places and released in sides.places:
        return sides.places[released]
    if answer not in sides.places:
        labels = list(sides.places)
        shown = "; ".join(labels[:6]) + ("; ..." if len(labels) > 6 else "")
        message = f"is no answer of {sides.query.text!r}, which are {shown}"
        raise RowError("unknown-answer", message, 2)
    return sides.places[answer]


def _with_released_ranges(answer: str) -> str:
    """Return an answer's name with ranges as they are released: "age = 0..17" as "age = 0-17"."""
    parts = [part.partition(" = ") for part in answer.split(", ")]
    return ", ".join(f"{name}{equals}{label_of(value)}" for name, equals, value in parts)


def _number(column: int, text: str | None, missing: int) -> int:
    if text is None or text == "":
        return missing
    if text.isascii() and text.isdigit() and len(text) <= column_checks.MAX_DIGITS:
        return int(text)
    code = "negative-bound" if text.startswith("-") else "not-an-integer"
    raise RowError(code, "must be an integer of at least 0, or empty for no bound", column)


_AT_ONCE = 1 << 20  # ids that are looked up together
FACILITIES = Columns(first=("region_id",), levels=True, middle="one column a type", min_levels=1, private=False)


def read_facilities(facilities: InputLike, public: PublicRegions, types: Sequence[str]) -> Ints:
    """Return the facilities of every leaf and type, int64[leaves, types], types in the order of ``types``.

    Regions without a row have none. Raises InputError with all bad rows: unknown-region, duplicate-region,
    unknown-type, missing-type, not-an-integer and the codes of ``source.load``. O(rows x types).
    """
    source = Input.of(facilities, "facilities")
    with isolated([source]) as con:
        table = load(con, "facilities", source, FACILITIES)
        column_checks.check_rows(table)
        columns = list(table.names[1:])
        _check_types(table, columns, types)
        leaf = _leaves(table, public)
        counts = np.empty((leaf.size, len(types)), np.int64)
        for column, name in enumerate(columns):
            counts[:, types.index(name)] = _numbers(table, column + 1)
        if (leaf < 0).any() or (counts < 0).any():
            _check_by_row(table, public, len(columns))
    return by_leaf(len(public.hierarchy.leaves), leaf, counts)


def _leaves(table: Loaded, public: PublicRegions) -> Ints:
    """Return the leaf of every row, -1 where the region is unknown or an earlier row has it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    regions = pa.chunked_array(table.texts(0), pa.string())
    leaf = np.full(len(regions), -1, np.int64)
    ids, listed = as_arrow(public.ids), regions.combine_chunks()
    for start in range(0, len(ids), _AT_ONCE):
        row = pc.index_in(ids.slice(start, _AT_ONCE), value_set=listed)  # the first row of each id
        row = np.asarray(row.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
        present = np.flatnonzero(row >= 0)
        leaf[row[present]] = public.leaf[start + present]
    return leaf


def _numbers(table: Loaded, column: int) -> Ints:
    """Return a column of integers of at least 0; -1 for what is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pa.chunked_array(table.texts(column), pa.string())
    digits = pc.match_substring_regex(texts, f"^[0-9]{{1,{column_checks.MAX_DIGITS}}}$")
    numbers = pc.if_else(digits.fill_null(fill_value=False), texts, pa.scalar("-1")).cast(pa.int64())
    return np.asarray(numbers.to_numpy(), np.int64)


def _check_by_row(table: Loaded, public: PublicRegions, columns: int) -> None:
    """Raise InputError with what is wrong in every row of a table that has such rows."""
    faults, row_faults = column_checks.absent_entries(table, (0,)), RowFaults(table)
    rows = table.fetch(f"SELECT {', '.join(f'c{k}' for k in range(columns + 1))} FROM {{t}} ORDER BY rowid")
    known, seen = set(public.ids), set[str]()
    unpadded = {each.lstrip("0") for each in known}
    for row, (region, *texts) in enumerate(rows):
        if not region:
            continue
        with row_faults.row(row):
            if region not in known:
                zeros = column_checks.ZEROS_DIFFER if region.lstrip("0") in unpadded else ""
                raise RowError("unknown-region", f"this region is not in the hierarchy{zeros}", 0)
            if region in seen:
                raise RowError("duplicate-region", "this region occurs twice", 0)
            seen.add(region)
            for column, text in enumerate(texts):
                _check_number(column + 1, text)
    row_faults.check(faults)


def _check_number(column: int, text: str | None) -> None:
    if not (text and text.isascii() and text.isdigit() and len(text) <= column_checks.MAX_DIGITS):
        raise RowError("not-an-integer", "must be an integer of at least 0", column)


def _check_types(table: Loaded, columns: Sequence[str], types: Sequence[str]) -> None:
    for column, name in enumerate(columns):
        if name not in types:
            message = f"{name!r} is no type of topdown.facilities: delete the column, or {nearest(name, types)}"
            raise InputError("unknown-type", message, table.place(column=column + 1))
    missing = [name for name in types if name not in columns]
    if missing:
        raise InputError(
            "missing-type", f"there is no column {missing[0]!r}, a type of topdown.facilities", table.place()
        )
