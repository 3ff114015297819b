"""Read a table of facilities: region_id, then one column for each type with the number of facilities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import InputError
from coco_opt.files import column_checks
from coco_opt.files.arrow_texts import as_arrow
from coco_opt.files.columns import Columns
from coco_opt.files.faults import RowError, RowFaults
from coco_opt.files.inputs import Input, InputLike
from coco_opt.files.regions import PublicRegions
from coco_opt.files.source import Loaded, isolated, load
from coco_opt.topdown.facilities import by_leaf
from coco_opt.topdown.names import nearest

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
