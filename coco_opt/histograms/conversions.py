"""Exact conversions between H, Hc and Hg as dense arrays (Kuo et al. 2018, section 3).

``H[j]`` is the number of groups of size j, ``Hc[i]`` the number of groups of size at most i and ``Hg`` the
group sizes in nondecreasing order. All are int64. H and Hc may carry leading axes (regions); sizes lie on the
last.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from coco_opt.errors import InputError
from coco_opt.histograms.arrays import Int64Array, as_int64, check_nonnegative, check_total


def _dense(values: npt.ArrayLike, what: str, ndim: int | None = None) -> Int64Array:
    array = as_int64(values, what, ndim)
    if array.ndim == 0 or array.shape[-1] == 0:
        raise InputError("bad-shape", f"{what} needs at least the cell of size 0")
    return array


def _checked_dense(dense: npt.ArrayLike, ndim: int | None = None) -> Int64Array:
    array = _dense(dense, "H", ndim)
    check_nonnegative(array, "negative-count", "H")
    return array


def _checked_cumulative(cumulative: npt.ArrayLike, ndim: int | None = None) -> Int64Array:
    array = _dense(cumulative, "Hc", ndim)
    check_nonnegative(array, "negative-count", "Hc")
    if np.any(array[..., 1:] < array[..., :-1]):
        raise InputError("not-nondecreasing", "Hc must be nondecreasing")
    return array


def dense_to_cumulative(dense: npt.ArrayLike) -> Int64Array:
    """Return Hc from H, shape [..., K+1]; O(cells). Raises InputError on negative or non-integer cells."""
    array = _checked_dense(dense)
    for row in array.reshape(-1, array.shape[-1]):
        check_total(row)
    return np.cumsum(array, axis=-1, dtype=np.int64)


def cumulative_to_dense(cumulative: npt.ArrayLike) -> Int64Array:
    """Return H from Hc, shape [..., K+1]; O(cells). Raises InputError where Hc decreases or is negative."""
    return np.diff(_checked_cumulative(cumulative), axis=-1, prepend=np.int64(0))


def dense_to_ranks(dense: npt.ArrayLike) -> Int64Array:
    """Return Hg (one entry a group, nondecreasing) from H [K+1]; memory O(groups)."""
    array = _checked_dense(dense, 1)
    check_total(array)
    return np.repeat(np.arange(array.size, dtype=np.int64), array)


def cumulative_to_ranks(cumulative: npt.ArrayLike) -> Int64Array:
    """Return Hg from Hc [K+1]; memory O(groups)."""
    return dense_to_ranks(np.diff(_checked_cumulative(cumulative, 1), prepend=np.int64(0)))


def ranks_to_dense(ranks: npt.ArrayLike, max_size: int) -> Int64Array:
    """Return H [max_size + 1] from group sizes in any order; O(groups + max_size).

    Raises InputError where a size is negative or above ``max_size`` (clamp first: the bound is public).
    """
    array = as_int64(ranks, "Hg")
    check_nonnegative(array, "negative-size", "group sizes")
    if max_size < 0 or (array.size > 0 and int(array.max()) > max_size):
        raise InputError("size-above-bound", f"a group is larger than max_size = {max_size}; clamp first")
    return np.bincount(array, minlength=max_size + 1).astype(np.int64, copy=False)


def ranks_to_cumulative(ranks: npt.ArrayLike, max_size: int) -> Int64Array:
    """Return Hc [max_size + 1] from group sizes in any order; raises as ``ranks_to_dense`` does."""
    return np.cumsum(ranks_to_dense(ranks, max_size), dtype=np.int64)
