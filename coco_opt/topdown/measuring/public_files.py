"""Read public tables: bounds on answers, and facilities by type, both by region."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import InputError
from coco_opt.files import column_checks
from coco_opt.files.arrow_texts import paths_at
from coco_opt.files.column_checks import UNKNOWN_REGION
from coco_opt.files.csv_text import quoted
from coco_opt.files.inputs import Columns, Input, InputLike
from coco_opt.files.regions import PublicRegions, register_leaves
from coco_opt.files.source import Faults, Loaded, isolated, load
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
    import pyarrow as pa

    source = Input.of(bounds, "bounds")
    with isolated([source]) as con:
        table = load(con, "bounds", source, BOUNDS)
        faults = column_checks.absent_entries(table, range(3))
        every = np.arange(hierarchy.regions)
        con.register("regions", pa.table({"path": paths_at(hierarchy, every), "region": pa.array(every)}))
        message = "is not the path of a region, from the root, joined by /"
        with faults:
            column_checks.check_listed(table, 0, "regions.path", "unknown-region", message, "the paths of the regions")
        queries = _relate_answers(table, schema, faults)
        for column in (3, 4):
            _check_side(table, column, faults)
        rows = con.execute(f"""
            SELECT bounds.rowid AS row, region, query, answer,
                   coalesce(TRY_CAST(c3 AS BIGINT), 0) AS lower, coalesce(TRY_CAST(c4 AS BIGINT), {UNBOUNDED}) AS upper
            FROM bounds JOIN regions ON c0 = path JOIN answers ON c1 = text AND c2 = label ORDER BY row""").fetchnumpy()
        row, region, query, answer, lower, upper = (np.asarray(column, np.int64) for column in rows.values())
        _, first = np.unique(np.stack([query, region, answer]), axis=1, return_index=True)
        message = "an earlier row bounds the same answer of this region"
        faults.note(table, np.delete(row, first).tolist(), None, "duplicate-bound", message)
        message = "the lower bound is above the upper one"
        faults.note(table, row[lower > upper].tolist(), None, "inconsistent-bounds", message)
        faults.check()
        if row.size != table.rows():
            raise InputError("rows-lost", "not every row was read once", table.place())
    level, stated = hierarchy.level[region], []
    for number, at in dict.fromkeys(zip(query.tolist(), level.tolist(), strict=True)):
        some, regions = (query == number) & (level == at), hierarchy.level_range(at)
        shape = len(regions), queries[number].answers
        sides = np.zeros(shape, np.int64), np.full(shape, UNBOUNDED)
        for side, values in zip(sides, (lower, upper), strict=True):
            side[region[some] - regions.start, answer[some]] = values[some]
        stated.append(RegionBounds(queries[number], at, *sides, origin))
    return tuple(stated)


def _relate_answers(table: Loaded, schema: Schema, faults: Faults) -> list[Query]:
    """Return the queries of a file of bounds, and relate their answers: ``answers`` (text, label, query, answer).

    Texts and labels are as the file has them; ``query`` and ``answer`` are places among the queries and their answers.
    """
    import pyarrow as pa

    queries, answers = list[Query](), list[tuple[str, str, int, int]]()
    for (text,) in table.fetch("SELECT c1 FROM {t} WHERE c1 <> '' GROUP BY c1 ORDER BY min(rowid)"):
        of_query = f"c1 = {quoted(text)}"
        try:
            query = parse_query(text, schema)
        except InputError as error:
            faults.note(table, table.rows_where(of_query), 1, error.code, error.message)
            continue
        places, unknown = {label: place for place, label in enumerate(query.labels())}, []
        for (label,) in table.fetch(f"SELECT DISTINCT c2 FROM {{t}} WHERE {of_query} AND c2 <> ''"):
            place = places.get(label, places.get(_with_released_ranges(label)))
            if place is None:
                unknown.append(quoted(label))
            else:
                answers.append((text, label, len(queries), place))
        queries.append(query)
        if unknown:
            message = f"is no answer of {text!r}, which are {'; '.join(list(places)[:6])}{'; ...' * (len(places) > 6)}"
            rows = table.rows_where(f"{of_query} AND c2 IN ({', '.join(unknown)})")
            faults.note(table, rows, 2, "unknown-answer", message)
    kinds = {"text": pa.string(), "label": pa.string(), "query": pa.int64(), "answer": pa.int64()}
    listed = [dict(zip(kinds, answer, strict=True)) for answer in answers]
    table.con.register("answers", pa.Table.from_pylist(listed, pa.schema(kinds)))
    return queries


def _check_side(table: Loaded, column: int, faults: Faults) -> None:
    """Note the entries of a column that are neither empty nor integers of at least 0."""
    c, message = f"c{column}", "must be an integer of at least 0, or empty for no bound"
    odd = f"{c} <> '' AND NOT regexp_full_match({c}, '[0-9]{{1,{column_checks.MAX_DIGITS}}}')"
    negative = f"starts_with({c}, '-')"
    faults.note(table, table.rows_where(f"{odd} AND {negative}"), column, "negative-bound", message)
    faults.note(table, table.rows_where(f"{odd} AND NOT {negative}"), column, "not-an-integer", message)


def _with_released_ranges(answer: str) -> str:
    """Return an answer's name with ranges as they are released: "age = 0..17" as "age = 0-17"."""
    parts = [part.partition(" = ") for part in answer.split(", ")]
    return ", ".join(f"{name}{equals}{label_of(value)}" for name, equals, value in parts)


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
