"""Public rows like the private ones, such as those of another year: the rows of regions that both years have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from coco_opt.errors import InputError, Place
from coco_opt.files.arrow_texts import as_arrow
from coco_opt.files.batches import column_types, is_id
from coco_opt.files.column_checks import REGION
from coco_opt.files.folder import MANIFEST
from coco_opt.files.foreign_errors import quietly
from coco_opt.files.inputs import Columns, Frame, Input, parts_of
from coco_opt.files.measurement import is_measurement
from coco_opt.files.source import isolated, load, names_of

_GROUP = "group_id"


def is_release(path: Path) -> bool:
    """Return whether a path is a release's folder. Raises InputError (unknown-format) for a measurement's."""
    if is_measurement(path):
        message = (
            "is a measurement, and a rehearsal needs counts: make a release of it, which is free, and name that:  "
        )
        raise InputError("unknown-format", f"{message}coco-opt estimate {path.name}", Place(path.name))
    return (path / MANIFEST).is_file()


def rows_of_regions(records: Input, groups: Input | None, ids: Iterable[str]) -> tuple[Input, Input | None, str]:
    """Return public records, and the groups in which they lie if there are any, of the regions with these ids.

    Also returns in words how much that is, "" for all. Raises InputError as ``names_of`` and ``load`` do.
    """
    if groups is None:
        records, words, _ = _rows_with(records, REGION, ids, _GROUP)
        return records, None, words
    groups, words, listed = _rows_with(groups, REGION, ids, _GROUP)
    if words:
        records, _, _ = _rows_with(records, _GROUP, listed, REGION)
    return records, groups, words


def shared_words(ids: Iterable[str | None], others: Iterable[str | None]) -> str:
    """Return in words how many regions of other data have an id of these."""
    own, listed = set(ids), [name for name in others if name is not None]
    shared = sum(name in own for name in listed)
    return f", {shared:,} of whose {len(listed):,} lowest regions have the id of a region here" if listed else ""


def _rows_with(source: Input, column: str, known: Iterable[str], key: str) -> tuple[Input, str, list[str]]:
    """Return the rows whose ``column`` is known, how much that is in words, and their values of ``key``.

    A table in which all rows or none are known is returned as it is: who reads it says what is wrong. Empty entries
    stay.
    """
    import pyarrow as pa

    names, column = names_of(source), source.called(names_of(source)).get(column, column)
    part = parts_of(source)[0]
    readable = [name for name in names if part.is_csv or is_id(column_types(part)[name])]
    if column not in readable:
        return source, "", []
    place, keys = readable.index(column), source.called(names).get(key, key)
    with isolated([source]) as con:
        own = load(con, "rows", replace(source, columns={}), Columns(first=tuple(readable), others=True, private=False))
        con.register("known", pa.table({"id": as_arrow(known)}))
        inside = f"c{place} IN (SELECT id FROM known)"
        rows, kept = own.rows(), own.value(f"SELECT count(*) FROM {{t}} WHERE {inside}")
        other = own.fetch(f"SELECT DISTINCT c{place} FROM {{t}} WHERE c{place} <> '' AND NOT {inside} ORDER BY 1")
        if not kept or not other:
            return source, "", []
        query = f"SELECT * FROM rows WHERE {inside} OR c{place} IS NULL OR c{place} = '' ORDER BY rowid"
        table = quietly(source, lambda: con.sql(query).to_arrow_table()).rename_columns(readable)
    words = (
        f": {kept:,} of its {rows:,} rows ({100 * kept / rows:.1f} %), which lie in regions of this release; "
        f"{len(other):,} other id{'s are' if len(other) > 1 else ' is'} left out, such as {other[0][0]!r}"
    )
    listed = table.column(keys).to_pylist() if keys in readable else []
    return Input(Frame(source.name, _with_counts(table)), source.columns), words, listed


def _with_counts(table: Any) -> Any:
    """Return a table of texts whose column of counts holds integers, as a frame must, where all entries are some."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if (
        "count" not in table.column_names
        or not pc.all(pc.match_substring_regex(table["count"], "^[0-9]{1,18}$")).as_py()
    ):
        return table
    return table.set_column(table.column_names.index("count"), "count", table["count"].cast(pa.int64()))
