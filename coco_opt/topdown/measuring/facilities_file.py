"""Read a table of facilities: region_id, then one column for each type with the number of facilities."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from coco_opt.errors import InputError
from coco_opt.files import column_checks
from coco_opt.files.columns import Columns
from coco_opt.files.faults import Faults, RowError, RowFaults
from coco_opt.files.inputs import Input, InputLike
from coco_opt.files.regions import PublicRegions
from coco_opt.files.source import Loaded, isolated, load
from coco_opt.histograms.arrays import Int64Array
from coco_opt.topdown.facilities import by_leaf
from coco_opt.topdown.names import nearest

FACILITIES = Columns(first=("region_id",), levels=True, middle="one column a type", min_levels=1, private=False)


def read_facilities(facilities: InputLike, public: PublicRegions, types: Sequence[str]) -> Int64Array:
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
        faults, row_faults = Faults(), RowFaults(table)
        with faults:
            column_checks.check_present(table, 0)
        rows = table.fetch(f"SELECT {', '.join(f'c{k}' for k in range(len(columns) + 1))} FROM {{t}} ORDER BY rowid")
        order = [types.index(name) for name in columns]
        leaf_of, numbers = public.leaf_of, dict[int, list[int]]()
        for row, (region, *texts) in enumerate(rows):
            if not region:
                continue
            with row_faults.row(row):
                leaf = _new_leaf(leaf_of, region, numbers)
                numbers[leaf] = [0] * len(types)
                for column, text in enumerate(texts):
                    numbers[leaf][order[column]] = _number(column + 1, text)
        row_faults.check(faults)
    counts = np.array(list(numbers.values()), np.int64).reshape(-1, len(types))
    return by_leaf(len(public.hierarchy.leaves), list(numbers), counts)


def _new_leaf(leaf_of: Mapping[str, int], region: str, seen: Collection[int]) -> int:
    if region not in leaf_of:
        raise RowError("unknown-region", "this region is not in the hierarchy", 0)
    if leaf_of[region] in seen:
        raise RowError("duplicate-region", "this region occurs twice", 0)
    return leaf_of[region]


def _number(column: int, text: str | None) -> int:
    if not (text and text.isascii() and text.isdigit() and len(text) <= column_checks.MAX_DIGITS):
        raise RowError("not-an-integer", "must be an integer of at least 0", column)
    return int(text)


def _check_types(table: Loaded, columns: Sequence[str], types: Sequence[str]) -> None:
    for column, name in enumerate(columns):
        if name not in types:
            message = f"{name!r} is no type of topdown.facilities; {nearest(name, types)}"
            raise InputError("unknown-type", message, table.place(column=column + 1))
    missing = [name for name in types if name not in columns]
    if missing:
        raise InputError(
            "missing-type", f"there is no column {missing[0]!r}, a type of topdown.facilities", table.place()
        )
