"""The count-of-counts histogram of one region as runs, how many groups there are of each size, and their distance.

240 million groups have about 2,400 distinct sizes, so every operation works on (size, count) runs and costs
time and memory in the number of runs, unless its docstring says otherwise. The distance is the earth mover distance
between group-size histograms: the entities to add or remove.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import InputError
from coco_opt.histograms.arrays import INT64_MAX, as_int64, check_nonnegative, check_total, exact_dot
from coco_opt.histograms.hierarchy import Hierarchy

if TYPE_CHECKING:
    import pandas as pd


def _frozen(array: Ints) -> Ints:
    copy = array.copy()
    copy.setflags(write=False)
    return copy


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class CountOfCounts:
    """Hold the number of groups of each size that occurs in one region.

    Parameters
    ----------
    sizes : array_like of int, shape (r,)
        The sizes in entities a group, strictly increasing, at least 0. ``from_runs`` takes any order.
    counts : array_like of int, shape (r,)
        The number of groups of each size, above 0.

    Raises
    ------
    InputError
        The arrays are not like this; no message holds a value.

    Notes
    -----
    The arrays are copied and read-only, int64. Operations cost time and memory in the number of distinct sizes r, not
    of groups. Source: Kuo et al. 2018, section 3.

    Examples
    --------
    >>> from coco_opt import CountOfCounts
    >>> households = CountOfCounts.from_runs(sizes=[1, 2, 4], counts=[90, 120, 40])
    >>> households.groups, households.entities
    (250, 490)
    >>> households.cumulative(5).tolist()
    [0, 90, 210, 210, 250, 250]
    """

    sizes: Ints
    counts: Ints

    def __post_init__(self) -> None:
        sizes, counts = as_int64(self.sizes, "sizes"), as_int64(self.counts, "counts")
        if sizes.size != counts.size:
            raise InputError("bad-shape", "sizes and counts must have the same length")
        check_nonnegative(sizes, "negative-size", "sizes")
        if np.any(sizes[1:] <= sizes[:-1]):
            raise InputError("not-increasing", "sizes must be strictly increasing (from_runs takes any order)")
        if np.any(counts <= 0):
            raise InputError("nonpositive-count", "every count must be positive (from_runs drops zeros)")
        check_total(counts)
        object.__setattr__(self, "sizes", _frozen(sizes))
        object.__setattr__(self, "counts", _frozen(counts))

    def __reduce__(self) -> tuple[Callable[..., CountOfCounts], tuple[Ints, Ints]]:
        # Unpickled arrays are writable: going through the constructor makes them read-only again.
        return CountOfCounts, (self.sizes, self.counts)

    @classmethod
    def empty(cls) -> CountOfCounts:
        """Return the histogram of a region without groups."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))

    @classmethod
    def from_runs(cls, sizes: npt.ArrayLike, counts: npt.ArrayLike) -> CountOfCounts:
        """Build from (size, count) runs in any order; equal sizes are added up, zero counts dropped.

        Parameters
        ----------
        sizes : array_like of int, shape (r,)
            Sizes in entities a group, at least 0.
        counts : array_like of int, shape (r,)
            The number of groups of each size, at least 0.

        Raises
        ------
        InputError
            An entry is negative or no integer.

        Notes
        -----
        O(runs log runs).

        Examples
        --------
        >>> from coco_opt import CountOfCounts
        >>> CountOfCounts.from_runs(sizes=[2, 1, 2], counts=[3, 4, 1]).counts.tolist()
        [4, 4]
        """
        size, count = as_int64(sizes, "sizes"), as_int64(counts, "counts")
        if size.size != count.size:
            raise InputError("bad-shape", "sizes and counts must have the same length")
        check_nonnegative(size, "negative-size", "sizes")
        check_nonnegative(count, "negative-count", "counts")
        check_total(count)
        positive = count > 0
        if not positive.any():
            return cls.empty()
        size, count = size[positive], count[positive]
        order = np.argsort(size, kind="stable")
        size, count = size[order], count[order]
        first = np.flatnonzero(np.r_[True, size[1:] != size[:-1]])
        return cls(size[first], np.add.reduceat(count, first))

    @classmethod
    def from_dense(cls, dense: npt.ArrayLike) -> CountOfCounts:
        """Build from H [K+1], ``H[j]`` the number of groups of size j. Raises InputError if negative."""
        array = as_int64(dense, "H")
        check_nonnegative(array, "negative-count", "H")
        sizes = np.flatnonzero(array)
        return cls(sizes, array[sizes])

    @classmethod
    def from_ranks(cls, ranks: npt.ArrayLike) -> CountOfCounts:
        """Build from one size a group, in any order.

        O(groups), or O(groups log groups) for far-spread sizes. Raises InputError on a negative size.
        """
        array = as_int64(ranks, "Hg")
        check_nonnegative(array, "negative-size", "group sizes")
        if array.size == 0:
            return cls.empty()
        if int(array.max()) <= 4 * array.size + 1_000_000:
            return cls.from_dense(np.bincount(array))
        sizes, counts = np.unique(array, return_counts=True)
        return cls(sizes, counts)

    @classmethod
    def total(cls, parts: Iterable[CountOfCounts]) -> CountOfCounts:
        """Return the histogram of all groups of ``parts`` together; O(runs log runs) over all parts."""
        listed = list(parts)
        if not listed:
            return cls.empty()
        sizes = np.concatenate([part.sizes for part in listed])
        return cls.from_runs(sizes, np.concatenate([part.counts for part in listed]))

    @property
    def groups(self) -> int:
        """Number of groups."""
        return int(self.counts.sum())

    @property
    def entities(self) -> int:
        """Number of entities (people) in all groups, exact beyond int64."""
        return exact_dot(self.sizes, self.counts)

    @property
    def distinct(self) -> int:
        """Number of distinct sizes, the number of runs."""
        return int(self.sizes.size)

    @property
    def max_size(self) -> int:
        """Size of the largest group; 0 for a region without groups."""
        return int(self.sizes[-1]) if self.sizes.size else 0

    def clamp(self, max_size: int) -> CountOfCounts:
        """Return the histogram with every size above the public bound ``max_size`` replaced by it.

        One entity more or less changes the clamped histogram by one entity at most, so no sensitivity grows.
        """
        if max_size < 0:
            raise InputError("negative-size", "max_size must not be negative")
        if self.max_size <= max_size:
            return self
        return CountOfCounts.from_runs(np.minimum(self.sizes, max_size), self.counts)

    def to_dense(self, max_size: int) -> Ints:
        """Return H, int64[max_size + 1]. Raises InputError where a group is larger: clamp first."""
        if max_size < self.max_size or max_size < 0:
            raise InputError("size-above-bound", f"a group is larger than max_size = {max_size}; clamp first")
        dense = np.zeros(max_size + 1, np.int64)
        dense[self.sizes] = self.counts
        return dense

    def cumulative(self, max_size: int) -> Ints:
        """Return Hc, int64[max_size + 1]; its last cell is ``groups``. Raises as ``to_dense`` does."""
        return np.cumsum(self.to_dense(max_size), dtype=np.int64)

    def ranks(self) -> Ints:
        """Return Hg, int64[groups]: the size of every group in nondecreasing order.

        Warning: this expands the runs, 8 bytes a group (2 GB for 240 million groups); see ``rank_runs``.
        """
        return np.repeat(self.sizes, self.counts)

    def rank_runs(self) -> tuple[Ints, Ints]:
        """Return Hg as runs ``(sizes, stops)``: run k is Hg[stops[k-1]:stops[k]], the first from 0."""
        return self.sizes, np.cumsum(self.counts, dtype=np.int64)

    def equals(self, other: CountOfCounts) -> bool:
        """Return whether both hold the same sizes and counts."""
        return np.array_equal(self.sizes, other.sizes) and np.array_equal(self.counts, other.counts)

    def to_pandas(self) -> pd.DataFrame:
        """Return a frame with the int64 columns ``size`` and ``groups``, one row a distinct size."""
        import pandas as pd

        return pd.DataFrame({"size": self.sizes.copy(), "groups": self.counts.copy()})

    def __add__(self, other: CountOfCounts) -> CountOfCounts:
        if not isinstance(other, CountOfCounts):
            return NotImplemented
        return CountOfCounts.total((self, other))

    def __repr__(self) -> str:
        shown = ", ".join(f"{s}: {c}" for s, c in zip(self.sizes[:4], self.counts[:4], strict=True))
        more = ", ..." if self.distinct > 4 else ""
        return (
            f"CountOfCounts({self.groups:,} groups, {self.entities:,} entities, "
            f"{self.distinct:,} distinct sizes; size: groups = {{{shown}{more}}})"
        )


def _counts_at(histogram: CountOfCounts, sizes: Ints) -> Ints:
    stops = np.concatenate([np.zeros(1, np.int64), np.cumsum(histogram.counts)])
    return stops[np.searchsorted(histogram.sizes, sizes, side="right")]


def emd(a: CountOfCounts, b: CountOfCounts) -> int:
    """Return the earth mover's distance of two histograms: the entities to add or remove until they are equal.

    Parameters
    ----------
    a, b : CountOfCounts
        Histograms with the same number of groups.

    Returns
    -------
    int
        sum_i |Hc_a[i] - Hc_b[i]| in entities, exact, Hc[i] being the number of groups of size at most i.

    Raises
    ------
    InputError
        The numbers of groups differ.

    Notes
    -----
    O(runs log runs); no run is expanded. Source: Kuo et al. 2018, Lemma 1.

    Examples
    --------
    >>> from coco_opt import CountOfCounts, emd
    >>> emd(CountOfCounts.from_ranks([1, 2, 2]), CountOfCounts.from_ranks([1, 2, 5]))
    3
    """
    if a.groups != b.groups:
        raise InputError("unequal-groups", "emd compares histograms with the same number of groups")
    sizes = np.union1d(a.sizes, b.sizes)
    gaps = np.abs(_counts_at(a, sizes[:-1]) - _counts_at(b, sizes[:-1]))
    return exact_dot(gaps, np.diff(sizes))


def emd_cumulative(hc: npt.ArrayLike, hc2: npt.ArrayLike) -> int:
    """Return sum_i |hc[i] - hc2[i]| in entities for cumulative counts over the same sizes 0..K, exactly.

    Raises InputError where the lengths, or the numbers of groups (the last cells), differ. O(K).
    """
    first, second = as_int64(hc, "hc"), as_int64(hc2, "hc2")
    if first.size != second.size:
        raise InputError("bad-shape", "emd_cumulative compares arrays of the same length")
    if first.size == 0:
        return 0
    if first[-1] != second[-1]:
        raise InputError("unequal-groups", "emd compares histograms with the same number of groups")
    bound = max(int(np.abs(first).max()), int(np.abs(second).max()))
    if 2 * bound * first.size <= INT64_MAX:
        return int(np.abs(first - second).sum())
    return sum(abs(x - y) for x, y in zip(first.tolist(), second.tolist(), strict=True))


def histograms_of(cumulative: Ints, groups: Ints) -> list[CountOfCounts]:
    """Return one histogram a region from cumulative counts (regions, K) and the numbers of groups."""
    rows: Iterable[Ints] = np.column_stack([cumulative, groups])
    return [CountOfCounts.from_dense(np.diff(row, prepend=0)) for row in rows]


def sum_of_leaves(hierarchy: Hierarchy, leaves: Sequence[CountOfCounts]) -> list[CountOfCounts]:
    """Return the histogram of every region, in the hierarchy's order, from those of the leaves.

    O(levels x runs log runs).
    """
    region = np.repeat(np.array(hierarchy.leaves), [leaf.distinct for leaf in leaves])
    sizes, counts = (np.concatenate([getattr(leaf, name) for leaf in leaves]) for name in ("sizes", "counts"))
    levels = [list(leaves)]
    for level in reversed(range(hierarchy.levels - 1)):
        region = hierarchy.parent[region]
        order = np.lexsort((sizes, region))
        region, sizes, counts = region[order], sizes[order], counts[order]
        changed = (region[1:] != region[:-1]) | (sizes[1:] != sizes[:-1])
        first = np.flatnonzero(np.append(True, changed)[: region.size])
        region, sizes, counts = region[first], sizes[first], np.add.reduceat(counts, first)
        regions = hierarchy.level_range(level)
        cuts = np.searchsorted(region, np.arange(regions.start, regions.stop + 1)).tolist()
        levels.append([CountOfCounts(sizes[start:stop], counts[start:stop]) for start, stop in pairwise(cuts)])
    return [histogram for level_histograms in reversed(levels) for histogram in level_histograms]


def errors_by_level(
    hierarchy: Hierarchy, histograms: Sequence[CountOfCounts], truth: Sequence[CountOfCounts]
) -> Floats:
    """Return the mean earth mover's distance of a region at each level, float64[levels], in entities.

    Where numbers of groups differ, empty groups are added to the fewer: an entity to add or remove counts one.
    """
    errors = np.array([_distance(a, b) for a, b in zip(histograms, truth, strict=True)], dtype=np.float64)
    return np.asarray(np.add.reduceat(errors, hierarchy.level_start[:-1]) / np.diff(hierarchy.level_start))


def _distance(a: CountOfCounts, b: CountOfCounts) -> int:
    most = max(a.groups, b.groups)
    filled = (
        histogram
        if histogram.groups == most
        else CountOfCounts.total([histogram, CountOfCounts.from_runs([0], [most - histogram.groups])])
        for histogram in (a, b)
    )
    return emd(*filled)
