"""Sort parts of compiled lists in place, select by rank, and search in what is sorted.

The problem: put numbers in order, or find the one of rank n. numpy's sort takes seconds to compile in a kernel; these
are a few lines that compile in a fraction of that.

Shell sort (``falling``, ``sort_by_slope``):

1. Start from a large gap.
2. Sort the entries that lie a gap apart by insertion.
3. Shrink the gap to 5/11 of it, and to 1 once it is below 12; repeat until a round had the gap 1.

Selection (``nth_smallest``): divide the range at a pivot, and go on in the part that contains the rank.

Search (``first_of``): halve the range; values before ``low`` are smaller, those from ``high`` on are not.

Invariant: after a round with gap g all entries g apart are in order; in selection everything left of ``low`` is at
most, and everything right of ``high`` at least, the entry of rank n.
Cost: search O(log n), selection O(n) on average; for sorting with these gaps no tight bound is known.
Source: Shell 1959, with the gaps of Gonnet and Baeza-Yates 1991; Hoare 1961 (Algorithm 65, Find).
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from coco_opt.kernels.compile import compiled, compiled_in_place

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NumberT = TypeVar("NumberT", np.int64, np.float64)

_GAP = 12


@compiled
def nth_smallest(values: NDArray[NumberT], n: int) -> Any:
    """Return the entry of rank ``n`` (from 0) by Hoare's selection, in place; O(len) on average."""
    low, high = 0, values.size - 1
    # The entry of rank n lies in low:high; each round leaves the part of it on one side of the pivot.
    while low < high:
        pivot = values[(low + high) // 2]
        i, j = low, high
        # Entries before i are at most the pivot, entries after j at least the pivot.
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        # Between j and i every entry equals the pivot: a rank there is found.
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
        # Insert entry m into the sorted sequence m - gap, m - 2 gap, ...; equal keys stay in the order of their places.
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
def sort_by_slope(begin: int, end: int, slopes: Ints, companions: Ints) -> None:
    """Sort begin:end by slope, in place (Shell 1959): few are a plain insertion sort."""
    gap = end - begin
    while gap > 1:
        gap = 1 if gap < _GAP else gap * 5 // 11
        # Insert entry m into the sorted sequence m - gap, m - 2 gap, ...; companions move along with their slopes.
        for m in range(begin + gap, end):
            slope, companion, k = slopes[m], companions[m], m
            while k >= begin + gap and slopes[k - gap] > slope:
                slopes[k], companions[k] = slopes[k - gap], companions[k - gap]
                k -= gap
            slopes[k], companions[k] = slope, companion


@compiled_in_place
def first_of(values: NDArray[Any], row: int, least: float, low: int, high: int) -> int:
    """Return the first place of a sorted row, between two places, whose value is at least ``least``; else ``high``."""
    while low < high:
        middle = (low + high) // 2
        if values[row, middle] < least:
            low = middle + 1
        else:
            high = middle
    return low
