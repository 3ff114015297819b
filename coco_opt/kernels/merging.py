"""Merge two estimates of each matched group and sort every child again (Kuo et al. 2018, section 5.3).

For a group with sizes s_p at the parent and s_c at the child, of variances V_p and V_c::

    s = (s_p / V_p + s_c / V_c) / (1 / V_p + 1 / V_c),        V = 1 / (1 / V_p + 1 / V_c)

1. Average every pair of sizes by the inverse variances.
2. Round the sizes to integers.
3. Sort the runs of every child by size and variance, and join equal ones.

Invariant: every child keeps its number of groups. Cost: O(matches log matches).
Source: Kuo et al. 2018, section 5.3, equations 5 and 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from coco_opt.errors import ProblemError

if TYPE_CHECKING:
    from coco_opt.kernels.matching import Matches

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]
SizeArray = npt.NDArray[np.int64] | npt.NDArray[np.float64]
Merge = Literal["weighted", "average"]
Rounding = Literal["half_up", "half_even", "half_down"]


class MergedRuns(NamedTuple):
    """The runs of all children after merging: child c holds the runs offsets[c] .. offsets[c+1]."""

    sizes: Int64Array
    counts: Int64Array
    variances: Float64Array
    offsets: Int64Array


def round_sizes(sizes: Float64Array, rounding: Rounding) -> Int64Array:
    """Return the nearest integers; halves go up (towards larger sizes), down, or to the even neighbour."""
    if rounding == "half_even":
        return np.rint(sizes).astype(np.int64)
    if rounding not in ("half_up", "half_down"):
        raise ProblemError(f"rounding must be half_up, half_even or half_down, not {rounding!r}")
    below = np.floor(sizes)
    fraction = sizes - below
    up = fraction >= 0.5 if rounding == "half_up" else fraction > 0.5
    return (below + up).astype(np.int64)


def _parent_weight(parent: Float64Array, child: Float64Array) -> Float64Array:
    """Return V_c / (V_p + V_c), continued to 0 and infinity; 1/2 where both are 0 or infinite."""
    weight = np.full(parent.shape, 0.5)
    ordinary = np.isfinite(parent) & np.isfinite(child) & (parent + child > 0)
    weight[ordinary] = child[ordinary] / (parent[ordinary] + child[ordinary])
    weight[np.isinf(child) & np.isfinite(parent)] = 1.0
    weight[np.isinf(parent) & np.isfinite(child)] = 0.0
    return weight


def merge_estimates(
    parent_size: SizeArray,
    parent_variance: Float64Array,
    child_size: SizeArray,
    child_variance: Float64Array,
    merge: Merge = "weighted",
) -> tuple[Float64Array, Float64Array]:
    """Return the merged sizes (unrounded) and variances of pairs of estimates of the same groups.

    weighted: s = (s_p/V_p + s_c/V_c)/(1/V_p + 1/V_c), V = 1/(1/V_p + 1/V_c). An estimate of variance 0 is
    exact and wins, one of infinite variance counts nothing; two of the same such kind are averaged and keep
    that variance. average: s = (s_p + s_c)/2, V = (V_p + V_c)/4. Sizes below 2^53. Raises ProblemError on a
    negative or NaN variance. Source: Kuo et al. 2018, section 5.3, equations 5 and 6.
    """
    for variance in (parent_variance, child_variance):
        if np.any(np.isnan(variance)) or np.any(variance < 0):
            raise ProblemError("variances must not be negative or NaN")
    s_p, s_c = parent_size.astype(np.float64), child_size.astype(np.float64)
    if merge == "average":
        return (s_p + s_c) / 2, (parent_variance + child_variance) / 4
    if merge != "weighted":
        raise ProblemError(f"merge must be weighted or average, not {merge!r}")
    weight = _parent_weight(parent_variance, child_variance)
    # This form gives exact halves for equal variances, so that the tie rule of the rounding sees them.
    size = s_c + (s_p - s_c) * weight
    smaller = np.minimum(parent_variance, child_variance)
    variance = np.where(np.isfinite(smaller), smaller, np.inf)
    both = np.isfinite(parent_variance) & np.isfinite(child_variance)
    variance[both] = smaller[both] * np.maximum(weight, 1.0 - weight)[both]
    return size, variance


def merge_runs(
    matches: Matches,
    parent_sizes: SizeArray,
    parent_variances: Float64Array,
    child_sizes: SizeArray,
    child_variances: Float64Array,
    offsets: Int64Array,
    merge: Merge = "weighted",
    rounding: Rounding = "half_up",
) -> MergedRuns:
    """Merge matched estimates, round them, and return every child's runs sorted by size, then variance.

    ``matches`` index the parent's runs and the children's concatenated runs (child c: offsets[c] ..
    offsets[c+1]); sizes are entities. Runs of equal size and variance become one. Raises ProblemError as
    ``merge_estimates`` and ``round_sizes`` do. O(matches log matches). Source: Kuo et al. 2018, section 5.3
    (Algorithm 1, the step after matching).
    """
    # Imported here: it brings the compiled kernels with it.
    from coco_opt.kernels.matching import check_offsets

    check_offsets(offsets, child_sizes.size)
    p, c = matches.parent_run, matches.child_run
    size, variance = merge_estimates(parent_sizes[p], parent_variances[p], child_sizes[c], child_variances[c], merge)
    rounded = round_sizes(size, rounding)
    child = np.searchsorted(offsets, c, side="right") - 1
    return _coalesce(child, rounded, variance, matches.groups, offsets.size - 1)


def _coalesce(
    child: Int64Array, size: Int64Array, variance: Float64Array, count: Int64Array, children: int
) -> MergedRuns:
    # By child, then size, then variance: runs that are to be joined become neighbours.
    order = np.lexsort((variance, size, child))
    child, size, variance, count = child[order], size[order], variance[order], count[order]
    changes = (child[1:] != child[:-1]) | (size[1:] != size[:-1]) | (variance[1:] != variance[:-1])
    # A run begins where any of the three differs from the entry before it.
    first = np.flatnonzero(np.r_[np.ones(min(1, child.size), bool), changes])
    counts = np.add.reduceat(count, first) if first.size else count
    starts = np.searchsorted(child[first], np.arange(children + 1)).astype(np.int64, copy=False)
    return MergedRuns(size[first], counts, variance[first], starts)
