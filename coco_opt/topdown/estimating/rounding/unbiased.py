"""Unbiased rounding: integer tables whose expectation is the fractional one, with sums kept in every draw.

Nearest rounding adds people to small counts on average; this does not, but a single table is further away.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.problem import MAX_INTEGER

_SUMS = 1e-3  # people by which sums may differ from integers: a solver's error, not another table


def unbiased_rounding(
    x: ArrayLike, parent: Ints | None, rng: np.random.Generator, totals: ArrayLike | None = None
) -> Ints:
    """Return integer tables int64[children, cells] with expectation x, each number its floor or ceiling.

    Every cell keeps the sum ``parent`` int64[cells] and, where ``totals`` int64[children] are given, every child its
    total: in each draw, not only on average. Without a parent cells are rounded independently. The draw depends on
    ``rng`` alone. Raises ProblemError for negative numbers, for totals without a parent, and where x does not have
    these sums. O(entries), with totals O(entries x the smaller side). Source: Gandhi et al. 2006; Cox 1987.
    """
    from coco_opt.kernels import dependent_rounding

    tables = _checked_tables(x)
    floors = np.floor(tables)
    fraction = tables - floors
    if parent is None and totals is not None:
        raise ProblemError("children's totals are kept together with a parent's table only")
    if parent is None:
        dependent_rounding.independent(fraction, rng.random(fraction.size))
        return (floors + fraction).astype(np.int64)
    _check_sums(tables.sum(axis=0), np.asarray(parent), "cell")
    if totals is None:
        dependent_rounding.columns(fraction, rng.random(fraction.size))
    else:
        _check_sums(tables.sum(axis=1), np.asarray(totals), "child")
        dependent_rounding.both_ways(fraction, rng.random(fraction.size))
    rounded = (floors + fraction).astype(np.int64)
    # What single sums are off may add up along cycles.
    for sums, target in ((rounded.sum(axis=0), parent), (rounded.sum(axis=1), totals)):
        if target is not None and (sums != np.asarray(target)).any():
            raise ProblemError("the fractional tables are too far from the sums that rounding is to keep")
    return rounded


def _checked_tables(x: ArrayLike) -> Floats:
    tables = np.array(x, dtype=np.float64)
    if tables.ndim != 2:
        raise ProblemError("x must be a table of numbers with one row per child")
    if not (np.abs(tables) <= MAX_INTEGER).all() or (tables < -_SUMS).any():
        raise ProblemError("x must be finite, at most 2^53 and not negative: counts of people are not")
    return np.maximum(tables, 0.0)


def _check_sums(sums: Floats, target: NDArray[np.generic], what: str) -> None:
    if target.shape != sums.shape or target.dtype.kind not in "iu":
        raise ProblemError(f"the sums to keep must be one integer per {what}, {sums.size} in all")
    off = np.flatnonzero(np.abs(sums - target.astype(np.float64)) > _SUMS * np.maximum(1.0, 1e-6 * sums))
    if off.size:
        raise ProblemError(f"the fractional tables do not have the sum of {what} {off[0]} that rounding is to keep")
