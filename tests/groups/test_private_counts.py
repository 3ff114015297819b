"""The container of private counts: its checks, its sums over the hierarchy, and what it shows."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_opt.errors import InputError
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.histograms import CountOfCounts, Hierarchy

TREE = Hierarchy.from_paths([("n", "a", "1"), ("n", "a", "2"), ("n", "b", "3")])


def build(leaves: list[CountOfCounts]) -> PrivateCounts:
    return PrivateCounts.of_leaves(TREE, leaves)


leaf_sizes = st.lists(st.lists(st.integers(0, 6), max_size=8), min_size=3, max_size=3)


@given(leaf_sizes)
def test_every_region_is_the_sum_of_its_leaves(sizes: list[list[int]]) -> None:
    leaves = [CountOfCounts.from_ranks(np.array(entry, np.int64)) for entry in sizes]
    counts = build(leaves)
    result = counts.histograms()
    for region in range(TREE.regions):
        below = [leaves[leaf - TREE.leaves.start] for leaf in TREE.leaf_range(region)]
        assert result[region].equals(CountOfCounts.total(below))
        assert counts.region(region).equals(result[region])
    assert all(counts.leaf(k).equals(leaf) for k, leaf in enumerate(leaves))


ONE = CountOfCounts.from_ranks([1, 1, 4])


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"sizes": [1, 4, 1, 4, 4, 1]}, "bad-runs"),
        ({"sizes": [1, 1, 1, 4, 1, 4]}, "bad-runs"),
        ({"sizes": [-1, 4, 1, 4, 1, 4]}, "bad-runs"),
        ({"counts": [2, 1, 2, 1, 3, 0]}, "bad-runs"),
        ({"counts": [2, 1, 2, 1, 2, 2]}, "groups-lost"),
        ({"counts": [2, 1, 2, 1, 2]}, "bad-shape"),
        ({"leaf_offsets": [0, 2, 4, 5]}, "bad-shape"),
        ({"leaf_offsets": [0, 4, 2, 6]}, "bad-shape"),
        ({"leaf_offsets": [0, 6]}, "bad-shape"),
        ({"group_counts": [9, 6, 3]}, "bad-shape"),
        ({"group_counts": [9, 6, 3, 3, 2, 4]}, "groups-lost"),
        ({"rows_counted": 17}, "rows-lost"),
        ({"sizes": [1.0, 4, 1, 4, 1, 4]}, "not-integer"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change: dict[str, object], code: str) -> None:
    good = build([ONE, ONE, ONE])
    fields = {name: getattr(good, name) for name in PrivateCounts.__slots__}
    with pytest.raises(InputError) as caught:
        PrivateCounts(**{**fields, **change})
    assert caught.value.code == code


def test_leaves_and_regions_that_do_not_exist() -> None:
    counts = build([ONE, ONE, ONE])
    for leaf in (3, -1):
        with pytest.raises(InputError, match="unknown-region"):
            counts.leaf(leaf)
    with pytest.raises(InputError, match="unknown-region"):
        counts.region(6)


def test_arrays_are_read_only_and_survive_pickling() -> None:
    counts = build([ONE, CountOfCounts.empty(), ONE])
    for copy in (counts, pickle.loads(pickle.dumps(counts))):
        with pytest.raises(ValueError, match="read-only"):
            copy.sizes[0] = 7
        assert copy.region(0).ranks().tolist() == [1, 1, 1, 1, 4, 4]
        assert copy.leaf(1).groups == 0
