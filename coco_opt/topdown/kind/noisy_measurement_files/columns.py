"""The columns of noisy measurement files: their names, their types, and what each cell of them must be.

Texts may be strings or bytes, coded or not; numbers may be integers of any size, fractions as texts, or floating point
of 32 or 64 bits, which stand for the shortest decimal that is read as the same number.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from coco_opt.array_types import Flags, Ints
from coco_opt.errors import InputError, Place
from coco_opt.privacy.budget import stated_fraction

GEOCODE, QUERY, VALUE, VARIANCE = COLUMNS = ("geocode", "query_name", "value", "variance")
SIGN = "sign"
_LEAST_VARIANCE = Fraction(1, 25)  # below, least squares by the inverse variances loses digits of other answers
_LARGEST_VARIANCE = 2**80  # of noise that a measurement may state


def check_columns(schema: Any, file: str, attributes: Sequence[str] = (), sum_over: Sequence[str] = ()) -> None:
    """Raise InputError (missing-column, duplicate-column, wrong-type) unless a file has the columns.

    Only constraints need no variance. Columns named like the ``attributes`` may be missing, those to ``sum_over`` not.
    """
    import pyarrow.types as kinds

    for name in (*COLUMNS, SIGN, *attributes, *sum_over):
        if schema.names.count(name) > 1:
            raise InputError("duplicate-column", "two columns have this name", Place(file, None, name))
    for name in COLUMNS:
        if name not in schema.names and not (name == VARIANCE and SIGN in schema.names):
            raise InputError("missing-column", f"the columns must be {', '.join(COLUMNS)}", Place(file, None, name))
    for name in sum_over:
        if name not in schema.names:
            message = "no column says how queries count this attribute, which is to be summed over"
            raise InputError("missing-column", message, Place(file, None, name))
    kind = schema.field(VALUE).type
    if not (_is_list(kind) and kinds.is_integer(kind.value_type)):
        raise InputError("wrong-type", f"must hold lists of integers, not {kind}", Place(file, None, VALUE))
    for name in (GEOCODE, QUERY, *(name for name in (SIGN, *attributes, *sum_over) if name in schema.names)):
        if not is_text(schema.field(name).type):
            raise InputError("wrong-type", f"must hold texts, not {schema.field(name).type}", Place(file, None, name))
    kind = schema.field(VARIANCE).type if VARIANCE in schema.names else None
    if kind is not None and not (
        kinds.is_floating(kind) or kinds.is_integer(kind) or is_text(kind) or kinds.is_decimal(kind)
    ):
        raise InputError("wrong-type", f"must hold numbers or fractions, not {kind}", Place(file, None, VARIANCE))


def is_text(kind: Any) -> bool:
    """Return whether a column's type is texts: strings or bytes, coded or not."""
    import pyarrow.types as kinds

    kind = kind.value_type if kinds.is_dictionary(kind) else kind
    texts = (kinds.is_string, kinds.is_large_string, kinds.is_string_view)
    others = (kinds.is_binary, kinds.is_large_binary, kinds.is_binary_view, kinds.is_null)
    return any(check(kind) for check in (*texts, *others))


def _is_list(kind: Any) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))


def coded(column: Any, place: Place) -> tuple[list[str], Ints]:
    """Return the distinct texts of a column, and each row's position among them, -1 for an empty cell.

    Raises InputError (unreadable-file) at ``place`` for bytes that are no UTF-8 text.
    """
    import pyarrow as pa
    import pyarrow.types as kinds

    encoded = column if kinds.is_dictionary(column.type) else column.dictionary_encode()
    places = np.asarray(encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    texts: list[str] | None = None
    with suppress(pa.ArrowInvalid):
        texts = encoded.dictionary.cast("string").to_pylist()
    if texts is None:
        raise InputError("unreadable-file", "is not UTF-8 text: convert it", place)
    return texts, places


def unmeasured(batch: Any) -> Flags:
    """Return which rows state that nothing was measured: no sign, no values, and no variance or an infinite one."""
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    empty = np.asarray(batch.column(VALUE).is_null())
    if SIGN in batch.schema.names:  # a constraint without values is no constraint
        empty = empty & np.asarray(batch.column(SIGN).is_null())
    if VARIANCE not in batch.schema.names or not empty.any():
        return np.zeros(batch.num_rows, np.bool_)
    variance = batch.column(VARIANCE)
    none = np.asarray(variance.is_null())
    if kinds.is_floating(variance.type):
        none = np.asarray(pc.coalesce(pc.is_inf(variance), variance.is_null()))
    return np.asarray(empty & none)


def read_fraction(text: str) -> Fraction | None:
    """Return a variance of noise exactly as written, None for anything else."""
    value = stated_fraction(text)
    return value if value is not None and _LEAST_VARIANCE <= value <= _LARGEST_VARIANCE else None


def lists_of(batch: Any, positions: Ints, size: int, file: str, rows: Ints) -> Ints:
    """Return the values int64[rows, size] of rows whose lists all have that length; what is larger is the largest.

    Raises InputError (null-value) for a list with an empty entry.
    """
    flat = batch.column(VALUE).take(positions).flatten()
    if flat.null_count:
        wrong = np.asarray(np.asarray(flat.is_null()).reshape(positions.size, size).any(axis=1))
        message = "the list of values has an empty entry"
        raise InputError("null-value", message, place_of(file, rows[positions], wrong, VALUE))
    values = np.asarray(flat.to_numpy(zero_copy_only=False))
    if values.dtype == np.uint64:
        values = np.minimum(values, np.uint64(np.iinfo(np.int64).max))
    return values.astype(np.int64).reshape(positions.size, size)


def check_lengths(batch: Any, positions: Ints, shape: Sequence[int], name: str, file: str, rows: Ints) -> None:
    """Raise InputError (bad-shape) unless rows have as many values as the ``shape`` of their query makes."""
    import pyarrow.compute as pc

    every_length = pc.list_value_length(batch.column(VALUE)).to_numpy(zero_copy_only=False)
    lengths, size = np.asarray(every_length, np.int64)[positions], prod(shape)
    wrong = lengths != size
    if wrong.any():
        expected = " x ".join(map(str, shape)) or "1"
        message = f"{name!r} has {lengths[wrong][0]:,} values, and {expected} make {size:,}"
        raise InputError("bad-shape", message, place_of(file, rows[positions], wrong, VALUE))


def place_of(file: str, rows: Ints, wrong: Flags | None, column: str) -> Place:
    """Return the place of the first wrong row, or of the first row without ``wrong``."""
    index = 0 if wrong is None else int(np.flatnonzero(wrong)[0])
    return Place(file, int(rows[index]) + 1, column)
