"""Read public bounds on answers: region (its path from the root), query, answer, lower, upper (empty: none)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coco_opt.errors import HierarchyError, InputError
from coco_opt.histograms import Hierarchy
from coco_opt.histograms.arrays import Int64Array
from coco_opt.tables import checks
from coco_opt.tables.columns import Columns
from coco_opt.tables.reader import StrPath
from coco_opt.tables.source import Loaded, isolated, load
from coco_opt.topdown.bounds import UNBOUNDED
from coco_opt.topdown.invariants import RegionBounds
from coco_opt.topdown.queries import Query, parse_query
from coco_opt.topdown.schema import Schema

BOUNDS = Columns(first=("region", "query", "answer", "lower", "upper"), private=False)


def read_bounds(path: StrPath, hierarchy: Hierarchy, schema: Schema) -> tuple[RegionBounds, ...]:
    """Return the bounds of a file, one entry for each query and level it speaks of.

    Raises InputError, with the row: unknown-region, unknown-answer, not-an-integer, negative-bound, what
    ``parse_query`` says of a query, and the codes of ``source.load``.
    """
    path = Path(path)
    with isolated([path]) as con:
        table = load(con, "bounds", path, BOUNDS)
        checks.check_rows(table)
        for column in range(3):
            checks.check_present(table, column)
        rows = table.fetch("SELECT c0, c1, c2, c3, c4 FROM {t} ORDER BY rowid")
        sides: dict[tuple[str, int], tuple[Query, Int64Array, Int64Array]] = {}
        for row, (region, text, answer, lower, upper) in enumerate(rows):
            number = _region(table, row, hierarchy, region)
            level = int(hierarchy.level[number])
            if (text, level) not in sides:
                query = _query(table, row, text, schema)
                shape = (len(hierarchy.level_range(level)), query.answers)
                sides[text, level] = (query, np.zeros(shape, np.int64), np.full(shape, UNBOUNDED, np.int64))
            query, lowers, uppers = sides[text, level]
            place = (number - hierarchy.level_range(level).start, _answer(table, row, query, answer))
            lowers[place] = _number(table, row, 3, lower, 0)
            uppers[place] = _number(table, row, 4, upper, UNBOUNDED)
    return tuple(RegionBounds(query, level, low, high) for (_, level), (query, low, high) in sides.items())


def _region(table: Loaded, row: int, hierarchy: Hierarchy, region: str) -> int:
    try:
        return hierarchy.index(region)
    except HierarchyError:
        message = "is not the path of a region, from the root, joined by /"
    raise InputError("unknown-region", message, table.place(row, 0))


def _query(table: Loaded, row: int, text: str, schema: Schema) -> Query:
    try:
        return parse_query(text, schema)
    except InputError as error:
        code, message = error.code, str(error)
    raise InputError(code, message, table.place(row, 1))


def _answer(table: Loaded, row: int, query: Query, answer: str) -> int:
    labels = query.labels()
    if answer not in labels:
        shown = "; ".join(labels[:6]) + ("; ..." if len(labels) > 6 else "")
        raise InputError("unknown-answer", f"is no answer of {query.text!r}, which are {shown}", table.place(row, 2))
    return labels.index(answer)


def _number(table: Loaded, row: int, column: int, text: str | None, missing: int) -> int:
    if text is None or text == "":
        return missing
    if text.isascii() and text.isdigit() and len(text) <= checks.MAX_DIGITS:
        return int(text)
    code = "negative-bound" if text.startswith("-") else "not-an-integer"
    raise InputError(code, "must be an integer of at least 0, or empty for no bound", table.place(row, column))
