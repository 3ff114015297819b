"""Arrays in the form that kernels take: input arrays are read-only views, so one compiled kernel serves all callers."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

A = TypeVar("A", bound=NDArray[Any])


def read_only(array: A) -> A:
    """Return a read-only view: a kernel is compiled once for read-only arrays, and once more for writable ones."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def as_data(values: NDArray[Any]) -> NDArray[Any]:
    """Return integers as int64 and other numbers as float64, contiguous and read-only."""
    return read_only(np.ascontiguousarray(values, dtype=np.int64 if values.dtype.kind in "iu" else np.float64))


def as_floats(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return numbers as float64, contiguous and read-only."""
    return read_only(np.ascontiguousarray(values, np.float64))
