"""Sort parts of compiled lists in place.

Shell sort and Hoare's selection: a few lines that compile in a fraction of the time of numpy's sort. Invariant: after a
round with gap g all entries g apart are in order. Selection costs O(n) on average.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NumberT = TypeVar("NumberT", np.int64, np.float64)

_GAP = 12


@compiled
def nth_smallest(values: NDArray[NumberT], n: int) -> Any:
    """Return the entry of rank ``n`` (from 0) by Hoare's selection, in place; O(len) on average."""
    low, high = 0, values.size - 1
    while low < high:
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if n <= j:
            high = j
        elif n >= i:
            low = i
        else:
            break
    return values[n]


@compiled
def falling(keys: NDArray[NumberT], order: Ints) -> None:
    """Write the places of the keys into ``order``, the largest first, equal ones as they stand (Shell 1959)."""
    for k in range(keys.size):
        order[k] = k
    gap = keys.size
    while gap > 1:
        gap = 1 if gap < _GAP else gap * 5 // 11
        for m in range(gap, keys.size):
            place, k = order[m], m
            while k >= gap:
                previous = order[k - gap]
                if keys[previous] > keys[place] or (keys[previous] == keys[place] and previous < place):
                    break
                order[k] = previous
                k -= gap
            order[k] = place


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
def sort_by_slope(begin: int, end: int, slopes: Ints, companions: Ints) -> None:
    """Sort begin:end by slope, in place (Shell 1959): few are a plain insertion sort."""
    gap = end - begin
    while gap > 1:
        gap = 1 if gap < _GAP else gap * 5 // 11
        for m in range(begin + gap, end):
            slope, companion, k = slopes[m], companions[m], m
            while k >= begin + gap and slopes[k - gap] > slope:
                slopes[k], companions[k] = slopes[k - gap], companions[k - gap]
                k -= gap
            slopes[k], companions[k] = slope, companion
