"""Sorting parts of compiled lists in place: a few lines that compile in a fraction of numpy's sort."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_GAP = 12


@compiled
def sort(values: Floats) -> None:
    """Sort numbers in place (Shell 1959)."""
    gap = values.size
    while gap > 1:
        gap = 1 if gap < _GAP else gap * 5 // 11
        for m in range(gap, values.size):
            value, k = values[m], m
            while k >= gap and values[k - gap] > value:
                values[k] = values[k - gap]
                k -= gap
            values[k] = value


@compiled
def sort_by_slope(begin: int, end: int, slopes: Ints, others: Ints) -> None:
    """Sort begin:end by slope, in place (Shell 1959): few are a plain insertion sort."""
    gap = end - begin
    while gap > 1:
        gap = 1 if gap < _GAP else gap * 5 // 11
        for m in range(begin + gap, end):
            slope, other, k = slopes[m], others[m], m
            while k >= begin + gap and slopes[k - gap] > slope:
                slopes[k], others[k] = slopes[k - gap], others[k - gap]
                k -= gap
            slopes[k], others[k] = slope, other
