"""Arrays as kernels are given them: what they only read cannot be written, so that one compiled kernel serves all."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

A = TypeVar("A", bound=NDArray[Any])


def read_only(array: A) -> A:
    """Return a view that cannot be written: kernels are compiled once for such arrays, and again for others."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def as_data(values: NDArray[Any]) -> NDArray[Any]:
    """Return whole numbers as int64, others as float64, contiguous and not to be written."""
    return read_only(np.ascontiguousarray(values, dtype=np.int64 if values.dtype.kind in "iu" else np.float64))


def as_floats(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return numbers as float64, contiguous and not to be written."""
    return read_only(np.ascontiguousarray(values, np.float64))
