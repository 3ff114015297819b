"""Sorting parts of compiled lists in place: a few lines that compile in a fraction of numpy's sort."""

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
                other = order[k - gap]
                if keys[other] > keys[place] or (keys[other] == keys[place] and other < place):
                    break
                order[k] = other
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
