"""Names for arrays of the three element types that annotations use, and what no array may have."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


def has_masked(values: object) -> bool:
    """Return whether an entry of an array, or of a sequence of arrays, is masked."""
    if isinstance(values, (list, tuple)):
        return any(has_masked(entry) for entry in values if isinstance(entry, (list, tuple, np.ma.MaskedArray)))
    return bool(np.ma.is_masked(values))
