"""The private side of a release: every leaf's counts of groups by size, with the public hierarchy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import InputError
from coco_opt.histograms import CountOfCounts, Hierarchy, sum_of_leaves
from coco_opt.histograms.arrays import as_int64


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class PrivateCounts:
    """Hold the true counts of groups by size of every leaf, as runs in flat arrays.

    ``group_counts`` int64[regions] is the number of groups of every region, public or not. Leaf i (the i-th of
    ``hierarchy.leaves``) has ``counts[k]`` groups of ``sizes[k]`` entities for leaf_offsets[i] <= k <
    leaf_offsets[i + 1], sizes strictly increasing. ``rows_read`` is the number of rows of the private table,
    ``rows_counted`` how many of them the arrays hold. Raises InputError where arrays do not fit together. Its
    repr shows nothing private.
    """

    hierarchy: Hierarchy
    group_counts: Ints
    leaf_offsets: Ints
    sizes: Ints
    counts: Ints
    rows_read: int
    rows_counted: int

    def __post_init__(self) -> None:
        for name in ("group_counts", "leaf_offsets", "sizes", "counts"):
            array = as_int64(getattr(self, name), name).copy()
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        self._check_shapes()
        self._check_runs()
        if self.rows_read != self.rows_counted:
            raise InputError("rows-lost", "not every row of the private table was counted")

    def __reduce__(self) -> tuple[Callable[..., PrivateCounts], tuple[object, ...]]:
        arrays = (self.group_counts, self.leaf_offsets, self.sizes, self.counts)
        return PrivateCounts, (self.hierarchy, *arrays, self.rows_read, self.rows_counted)

    @classmethod
    def of_leaves(cls, hierarchy: Hierarchy, leaves: Sequence[CountOfCounts]) -> PrivateCounts:
        """Return the counts of these leaves, in the order of ``hierarchy.leaves``; every entity is a row."""
        offsets = np.cumsum([0, *(leaf.distinct for leaf in leaves)], dtype=np.int64)
        groups = hierarchy.aggregate(np.array([leaf.groups for leaf in leaves], np.int64))
        sizes, counts = (np.concatenate([getattr(leaf, name) for leaf in leaves]) for name in ("sizes", "counts"))
        rows = sum(leaf.entities for leaf in leaves)
        return cls(hierarchy, groups, offsets, sizes, counts, rows, rows)

    def _check_shapes(self) -> None:
        offsets, runs = self.leaf_offsets, self.sizes.size
        if self.group_counts.size != self.hierarchy.regions or self.counts.size != runs:
            raise InputError("bad-shape", "group_counts needs one entry a region, counts one a size")
        if offsets.size != len(self.hierarchy.leaves) + 1 or offsets[0] != 0 or offsets[-1] != runs:
            raise InputError("bad-shape", "leaf_offsets must run from 0 to the number of runs, one step a leaf")
        if np.any(np.diff(offsets) < 0):
            raise InputError("bad-shape", "leaf_offsets must not decrease")

    def _check_runs(self) -> None:
        leaf = self._leaf_of_run()
        falling = (np.diff(self.sizes) <= 0) & (np.diff(leaf) == 0)
        if np.any(self.sizes < 0) or np.any(self.counts <= 0) or np.any(falling):
            raise InputError("bad-runs", "sizes must increase from 0 within a leaf, and counts be positive")
        groups = np.zeros(len(self.hierarchy.leaves), np.int64)
        np.add.at(groups, leaf, self.counts)
        if not np.array_equal(self.hierarchy.aggregate(groups), self.group_counts):
            raise InputError("groups-lost", "the groups of the private table are not those of the public counts")

    def _leaf_of_run(self) -> Ints:
        return np.repeat(np.arange(self.leaf_offsets.size - 1, dtype=np.int64), np.diff(self.leaf_offsets))

    @property
    def arrays(self) -> tuple[Ints, Ints, Ints]:
        """Return all that is private: the offsets of the leaves' runs, the sizes and the counts."""
        return self.leaf_offsets, self.sizes, self.counts

    def leaf(self, leaf: int) -> CountOfCounts:
        """Return the histogram of the ``leaf``-th leaf, counted from 0 within ``hierarchy.leaves``."""
        if not 0 <= leaf < self.leaf_offsets.size - 1:
            raise InputError("unknown-region", f"there is no leaf {leaf}")
        run = slice(int(self.leaf_offsets[leaf]), int(self.leaf_offsets[leaf + 1]))
        return CountOfCounts(self.sizes[run], self.counts[run])

    def region(self, region: int) -> CountOfCounts:
        """Return the histogram of any region, the sum over its leaves; O(runs log runs) of those leaves."""
        leaves, first = self.hierarchy.leaf_range(region), self.hierarchy.leaves.start
        start, stop = self.leaf_offsets[leaves.start - first], self.leaf_offsets[leaves.stop - first]
        return CountOfCounts.from_runs(self.sizes[start:stop], self.counts[start:stop])

    def above(self, size: int) -> tuple[int, int]:
        """Return how many groups are larger than ``size``, and how many entities they have beyond it in all."""
        larger = self.sizes > size
        return int(self.counts[larger].sum()), int((self.sizes[larger] - size) @ self.counts[larger])

    def histograms(self) -> list[CountOfCounts]:
        """Return the histogram of every region, in the hierarchy's order; O(levels x runs log runs)."""
        return sum_of_leaves(self.hierarchy, [self.leaf(leaf) for leaf in range(len(self.hierarchy.leaves))])

    def identity(self) -> dict[str, int]:
        """Return the row and group counts of the run's *private* record; never for public output or logs."""
        return {
            "rows_read": self.rows_read,
            "rows_counted": self.rows_counted,
            "rows_rejected": self.rows_read - self.rows_counted,
            "groups_in_input": int(self.counts.sum()),
            "groups_at_root": int(self.group_counts[0]),
        }

    def __repr__(self) -> str:
        return f"PrivateCounts({self.hierarchy!r}, {int(self.group_counts[0]):,} groups; sizes are private)"
