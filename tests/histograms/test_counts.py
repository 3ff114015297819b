"""CountOfCounts: fixtures of the papers, round trips, checks, exactness."""

from __future__ import annotations

import csv
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_opt.errors import InputError
from coco_opt.histograms import CountOfCounts, Hierarchy, emd, emd_cumulative

RANKS = st.lists(st.integers(0, 30), max_size=40)


def test_kuo_example() -> None:
    counts = CountOfCounts.from_dense([0, 2, 1, 2])
    assert counts.cumulative(3).tolist() == [0, 2, 3, 5]
    assert counts.ranks().tolist() == [1, 1, 2, 3, 3]
    assert (counts.groups, counts.entities, counts.distinct, counts.max_size) == (5, 10, 3, 3)


def test_poster_example() -> None:
    a, b = CountOfCounts.from_ranks([4, 1]), CountOfCounts.from_ranks([2, 1])
    root = a + b
    assert root.to_dense(4)[1:].tolist() == [2, 1, 0, 1]
    assert a.to_dense(4)[1:].tolist() == [1, 0, 0, 1]
    assert root.cumulative(4)[1:].tolist() == [2, 3, 3, 4]
    assert root.ranks().tolist() == [1, 1, 2, 4]
    assert a.ranks().tolist() == [1, 4]


@given(RANKS)
def test_round_trips(ranks: list[int]) -> None:
    counts = CountOfCounts.from_ranks(np.array(ranks, np.int64))
    assert counts.ranks().tolist() == sorted(ranks)
    assert counts.groups == len(ranks)
    assert counts.entities == sum(ranks)
    dense, cumulative = counts.to_dense(30), counts.cumulative(30)
    assert dense.tolist() == [ranks.count(j) for j in range(31)]
    assert cumulative.tolist() == [sum(r <= i for r in ranks) for i in range(31)]
    assert dense.dtype == cumulative.dtype == counts.ranks().dtype == np.int64
    for same in (
        CountOfCounts.from_dense(dense),
        CountOfCounts.from_runs(ranks, [1] * len(ranks)),
        pickle.loads(pickle.dumps(counts)),
    ):
        assert counts.equals(same)
    sizes, stops = counts.rank_runs()
    assert np.repeat(sizes, np.diff(stops, prepend=0)).tolist() == sorted(ranks)


@given(RANKS, st.integers(0, 31))
def test_clamp(ranks: list[int], bound: int) -> None:
    clamped = CountOfCounts.from_ranks(np.array(ranks, np.int64)).clamp(bound)
    assert clamped.ranks().tolist() == sorted(min(r, bound) for r in ranks)


@given(RANKS, RANKS)
def test_addition(first: list[int], second: list[int]) -> None:
    together = CountOfCounts.from_ranks(first) + CountOfCounts.from_ranks(second)
    assert together.ranks().tolist() == sorted(first + second)
    assert CountOfCounts.total([]).groups == 0


def test_from_runs_adds_duplicates_and_drops_zeros() -> None:
    counts = CountOfCounts.from_runs([7, 3, 7, 5], [1, 2, 4, 0])
    assert counts.sizes.tolist() == [3, 7]
    assert counts.counts.tolist() == [2, 5]


def test_far_spread_ranks_and_large_totals_stay_exact() -> None:
    counts = CountOfCounts.from_ranks([10**18, 3, 10**18])
    assert counts.counts.tolist() == [1, 2]
    large = CountOfCounts.from_runs([2**40, 2**41], [2**40, 2**41])
    assert large.entities == 2**80 + 2**82
    assert emd(large, CountOfCounts.from_runs([0], [2**40 + 2**41])) == 2**80 + 2**82


@pytest.mark.parametrize(
    ("sizes", "counts", "code"),
    [
        ([-1, 2], [1, 1], "negative-size"),
        ([2, 2], [1, 1], "not-increasing"),
        ([3, 2], [1, 1], "not-increasing"),
        ([1, 2], [1, 0], "nonpositive-count"),
        ([1, 2], [1, -4], "nonpositive-count"),
        ([1, 2], [1], "bad-shape"),
        ([[1], [2]], [1, 1], "bad-shape"),
        ([1.0, 2.0], [1, 1], "not-integer"),
        ([1, 2], [True, True], "not-integer"),
        ([1, 2], np.array([1, 2**63], np.uint64), "too-large"),
        ([1, 2], [2**62, 2**62], "too-many-groups"),
    ],
)
def test_bad_runs_are_refused(sizes: object, counts: object, code: str) -> None:
    with pytest.raises(InputError) as caught:
        CountOfCounts(np.asarray(sizes), np.asarray(counts))
    assert caught.value.code == code


def test_bad_dense_forms_are_refused_without_showing_values() -> None:
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: CountOfCounts.from_dense([1, -77123]), "negative-count"),
        (lambda: CountOfCounts.from_ranks([3, -77123]), "negative-size"),
        (lambda: CountOfCounts.from_ranks([77123]).to_dense(10), "size-above-bound"),
        (lambda: CountOfCounts.from_runs([77123], [-1]), "negative-count"),
    ]
    for action, code in cases:
        with pytest.raises(InputError) as caught:
            action()
        assert caught.value.code == code
        assert "77123" not in str(caught.value)


def test_arrays_are_copied_and_read_only() -> None:
    sizes = np.array([1, 2])
    counts = CountOfCounts(sizes, np.array([5, 6]))
    sizes[0] = 9
    assert counts.sizes[0] == 1
    for held in (counts, pickle.loads(pickle.dumps(counts))):
        with pytest.raises(ValueError, match="read-only"):
            held.counts[0] = 3


def test_frame_and_repr() -> None:
    counts = CountOfCounts.from_dense([0, 2, 1, 2])
    frame = counts.to_pandas()
    assert frame.columns.tolist() == ["size", "groups"]
    assert frame["groups"].tolist() == [2, 1, 2]
    assert repr(counts) == ("CountOfCounts(5 groups, 10 entities, 3 distinct sizes; size: groups = {1: 2, 2: 1, 3: 2})")


def test_emd_of_the_papers_example() -> None:
    ones = CountOfCounts.from_runs([1], [100])
    assert emd(ones, CountOfCounts.from_runs([2], [100])) == 100
    assert emd(ones, CountOfCounts.from_runs([5], [100])) == 400


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=30))
def test_emd_is_the_distance_of_the_sorted_sizes(pairs: list[tuple[int, int]]) -> None:
    first, second = [p[0] for p in pairs], [p[1] for p in pairs]
    expected = sum(abs(x - y) for x, y in zip(sorted(first), sorted(second), strict=True))
    a, b = CountOfCounts.from_ranks(first), CountOfCounts.from_ranks(second)
    assert emd(a, b) == emd(b, a) == expected
    assert emd_cumulative(a.cumulative(30), b.cumulative(30)) == expected


def test_emd_beyond_int64_and_unequal_groups() -> None:
    assert emd_cumulative([-(2**62), 2**62, 0], [2**62, -(2**62), 0]) == 2**64
    with pytest.raises(InputError, match="unequal-groups"):
        emd(CountOfCounts.from_ranks([1]), CountOfCounts.from_ranks([1, 1]))
    with pytest.raises(InputError, match="unequal-groups"):
        emd_cumulative([0, 1], [0, 2])
    with pytest.raises(InputError, match="bad-shape"):
        emd_cumulative([0, 1], [1])


def test_taxi_has_the_published_totals(shared_data: Path) -> None:
    with (shared_data / "kuo2018" / "taxi_neighbourhoods.csv").open(encoding="utf-8", newline="") as file:
        rows = [(tuple(row[:3]), int(row[3]), int(row[4])) for row in list(csv.reader(file))[1:]]
    hierarchy = Hierarchy.from_paths(dict.fromkeys(path for path, _, _ in rows))
    assert (hierarchy.regions, hierarchy.levels, len(hierarchy.leaves)) == (31, 3, 28)
    leaves: dict[int, list[tuple[int, int]]] = {v: [] for v in hierarchy.leaves}
    for path, size, groups in rows:
        leaves[hierarchy.index(path)].append((size, groups))
    parts = [CountOfCounts.from_runs(*zip(*runs, strict=True)) for runs in leaves.values()]
    root = CountOfCounts.total(parts)
    assert (root.groups, root.entities, root.distinct) == (360_872, 130_962_398, 3_128)
    summed = hierarchy.aggregate(np.stack([part.cumulative(root.max_size) for part in parts]))
    assert np.array_equal(summed[0], root.cumulative(root.max_size))
