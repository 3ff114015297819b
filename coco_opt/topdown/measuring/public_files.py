"""Read public tables: bounds on answers, and facilities by type, both by region."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coco_opt.array_types import Flags, Ints
from coco_opt.errors import HierarchyError, InputError
from coco_opt.files import column_checks
from coco_opt.files.column_checks import UNKNOWN_REGION
from coco_opt.files.faults import RowError, RowFaults
from coco_opt.files.inputs import Columns, Input, InputLike
from coco_opt.files.regions import PublicRegions, register_leaves
from coco_opt.files.source import Loaded, isolated, load
from coco_opt.histograms import Hierarchy
from coco_opt.topdown.constraint import UNBOUNDED, RegionBounds, Source
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


FACILITIES = Columns(first=("region_id",), levels=True, middle="one column a type", min_levels=1, private=False)


def read_facilities(facilities: InputLike, public: PublicRegions, types: Sequence[str]) -> Ints:
    """Return the facilities of every leaf and type, int64[leaves, types], types in the order of ``types``.

    Regions without a row have none. Raises InputError with all bad rows: unknown-region, duplicate-region,
    unknown-type, missing-type, not-an-integer and the codes of ``source.load``. O(rows x types).
    """
    source = Input.of(facilities, "facilities")
    with isolated([source]) as con:
        table = load(con, "facilities", source, FACILITIES)
        _check_types(table, table.names[1:], types)
        register_leaves(con, public)
        faults = column_checks.absent_entries(table, (0,))
        with faults:
            column_checks.check_listed(table, 0, "leaves.region", *UNKNOWN_REGION, "the ids of the hierarchy")
        with faults:
            column_checks.check_unique(table, (0,), "duplicate-region", "this region occurs twice", 0)
        for column in range(1, len(table.names)):
            with faults:
                column_checks.check_count(table, column, "not-an-integer")
        faults.check()
        numbers = ", ".join(f"c{table.names.index(name)}::BIGINT AS n{k}" for k, name in enumerate(types))
        rows = con.execute(f"SELECT leaf, {numbers} FROM facilities JOIN leaves ON c0 = region").fetchnumpy()
    counts = np.stack([rows[f"n{k}"] for k in range(len(types))], axis=1)
    return by_leaf(len(public.hierarchy.leaves), np.asarray(rows["leaf"], np.int64), counts)


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
