"""Checks that every histogram array passes once; messages name the array but never show a value of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from coco_opt.array_types import Ints, has_masked
from coco_opt.errors import InputError

INT64_MAX = int(np.iinfo(np.int64).max)


def as_int64(values: npt.ArrayLike, what: str, ndim: int | None = 1) -> Ints:
    """Return ``values`` as contiguous int64, unchanged.

    ``ndim`` None accepts any number of dimensions. Raises InputError where the dtype is no integer type, a
    value does not fit in int64 or the shape is wrong. An empty sequence counts as integers.
    """
    if has_masked(values):
        raise InputError("masked-array", f"{what} is a masked array: fill or drop what is masked first")
    array = np.asarray(values)
    if ndim is not None and array.ndim != ndim:
        raise InputError("bad-shape", f"{what} must have {ndim} dimension(s), not {array.ndim}")
    if array.dtype.kind not in "iu" and array.size > 0:
        raise InputError("not-integer", f"{what} must hold integers (dtype {array.dtype} given)")
    if array.dtype.kind == "u" and array.size > 0 and int(array.max()) > INT64_MAX:
        raise InputError("too-large", f"{what} holds a number above the int64 range")
    return np.ascontiguousarray(array, dtype=np.int64)


def check_nonnegative(array: Ints, code: str, what: str) -> None:
    """Raise InputError ``code`` where an entry is negative."""
    if array.size > 0 and int(array.min()) < 0:
        raise InputError(code, f"{what} must not be negative")


def check_total(counts: Ints) -> None:
    """Raise InputError where the nonnegative ``counts`` add up to more than int64 holds."""
    if counts.size == 0 or int(counts.max()) * counts.size <= INT64_MAX:
        return
    if sum(counts.tolist()) > INT64_MAX:
        raise InputError("too-many-groups", "the number of groups does not fit in int64")


def exact_dot(left: Ints, right: Ints) -> int:
    """Return the exact sum of products of two nonnegative vectors as a Python int, beyond int64 too."""
    if left.size == 0:
        return 0
    if int(left.max()) * int(right.max()) * left.size <= INT64_MAX:
        return int(np.dot(left, right))
    return sum(a * b for a, b in zip(left.tolist(), right.tolist(), strict=True))


_ROWS = 1 << 20  # values that are compared at a time


def rising(values: np.ndarray[Any, Any]) -> bool:
    """Return whether no value is less than the value before it, without an array as large as they are."""
    steps = range(0, values.size, _ROWS)
    return all((np.diff(values[step : step + _ROWS + 1]) >= 0).all() for step in steps)


def summed(keys: Ints, people: Ints) -> tuple[Ints, Ints]:
    """Return distinct rising keys, and the total people of each; keys without people are dropped."""
    if (keys[1:] > keys[:-1]).all() and people.all():
        return keys, people
    order = np.argsort(keys, kind="stable")
    order = order[people[order] > 0]
    keys = keys[order]
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if keys.size else np.zeros(0, np.int64)
    return keys[first], np.add.reduceat(people[order], first) if keys.size else np.zeros(0, np.int64)
