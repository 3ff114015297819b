"""The queries from their definition, and each declared sensitivity reached and never exceeded (brute force)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations_with_replacement, permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError
from coco_opt.groups.buckets import Buckets, Split
from coco_opt.groups.queries import QUERIES, Query, cells, exact_answers, sensitivity
from coco_opt.histograms import CountOfCounts
from coco_opt.privacy import NEIGHBOURS, Neighbours


def defined(sizes: tuple[int, ...], query: Query, clamp: int) -> Ints:
    """Compute a query from its definition, cell by cell, on group sizes clamped to ``clamp``."""
    ranked = sorted(min(size, clamp) for size in sizes)
    if query == "ranks":
        return np.array(ranked, np.int64)
    if query == "sizes":
        return np.array([ranked.count(size) for size in range(clamp + 1)], np.int64)
    return np.array([sum(size <= bound for size in ranked) for bound in range(clamp)], np.int64)


@pytest.mark.parametrize("query", QUERIES)
@given(sizes=st.lists(st.integers(0, 9), max_size=12).map(tuple), clamp=st.integers(1, 12))
def test_exact_answers_are_the_definition(query: Query, sizes: tuple[int, ...], clamp: int) -> None:
    result = exact_answers(CountOfCounts.from_ranks(list(sizes)), query, clamp)
    assert result.dtype == np.int64
    np.testing.assert_array_equal(result, defined(sizes, query, clamp))
    assert result.size == cells(query, clamp, len(sizes))


def neighbours_of(sizes: tuple[int, ...], neighbours: Neighbours) -> Iterator[tuple[int, ...]]:
    """Yield every database one entity away (each unordered pair comes up from one of its ends)."""
    if neighbours == "add_remove":
        for group in range(len(sizes)):
            yield (*sizes[:group], sizes[group] + 1, *sizes[group + 1 :])
        return
    for source, target in permutations(range(len(sizes)), 2):
        if sizes[source] > 0:
            moved = list(sizes)
            moved[source] -= 1
            moved[target] += 1
            yield tuple(moved)


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("clamp", [2, 3, 9])
def test_sensitivities_are_reached_and_never_exceeded(query: Query, neighbours: Neighbours, clamp: int) -> None:
    changes = [
        defined(other, query, clamp) - defined(sizes, query, clamp)
        for groups in range(1, 5)
        for sizes in combinations_with_replacement(range(6), groups)
        for other in neighbours_of(sizes, neighbours)
    ]
    claimed = sensitivity(query, neighbours)
    assert max(int(np.abs(change).sum()) for change in changes) == claimed.l1
    squared = max(int((change**2).sum()) for change in changes)
    # Two moves of H that share a cell need room: sizes 0 to 3 at least.
    assert squared == claimed.l2_squared if clamp > 2 else squared <= claimed.l2_squared


def _row_counts(ranked: Ints, cells: int) -> Ints:
    rows = np.repeat(np.arange(len(ranked)), ranked.shape[1])
    flat = np.bincount(rows * cells + ranked.ravel(), minlength=len(ranked) * cells)
    return flat.reshape(len(ranked), cells)


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("clamp", [6, 30])
def test_sensitivities_on_a_hundred_thousand_random_pairs(neighbours: Neighbours, clamp: int) -> None:
    rng = np.random.default_rng(20)
    pairs, groups, largest = 100_000, 7, 12
    left = rng.integers(1, largest, size=(pairs, groups))
    right = left.copy()
    chosen = rng.permuted(np.tile(np.arange(groups), (pairs, 1)), axis=1)
    right[np.arange(pairs), chosen[:, 0]] += 1
    if neighbours == "replace":
        right[np.arange(pairs), chosen[:, 1]] -= 1
    ranks = [np.sort(np.minimum(sizes, clamp), axis=1) for sizes in (left, right)]
    counts = [_row_counts(ranked, clamp + 1) for ranked in ranks]
    cumulative = [each.cumsum(axis=1)[:, :-1] for each in counts]
    for query, (a, b) in {"ranks": ranks, "sizes": counts, "cumulative": cumulative}.items():
        claimed = sensitivity(query, neighbours)  # type: ignore[arg-type]
        assert np.abs(a - b).sum(axis=1).max() == claimed.l1
        assert ((a - b) ** 2).sum(axis=1).max() == claimed.l2_squared


def partitions(cells: int) -> Iterator[Buckets]:
    """Yield every way to cut the cells 0 .. cells - 1 into buckets."""
    for cuts in product((False, True), repeat=cells - 1):
        yield Buckets.from_starts([0, *(1 + at for at, cut in enumerate(cuts) if cut)], cells)


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("clamp", [1, 2, 4])
def test_buckets_change_by_no_more_than_cells(neighbours: Neighbours, clamp: int) -> None:
    """Every partition, every pair of small databases, clamped ones too; some pair reaches what is declared."""
    claimed = sensitivity("buckets", neighbours)
    worst = squared = 0
    for groups in range(1, 4):
        for sizes in combinations_with_replacement(range(6), groups):
            for other in neighbours_of(sizes, neighbours):
                cells_of = (CountOfCounts.from_ranks(sorted(one)) for one in (sizes, other))
                left, right = (one.clamp(clamp).cumulative(clamp)[:-1] for one in cells_of)
                for buckets in partitions(clamp):
                    change = buckets.sums(right) - buckets.sums(left)
                    worst, squared = max(worst, int(np.abs(change).sum())), max(squared, int((change**2).sum()))
    assert (worst, squared) <= (claimed.l1, claimed.l2_squared)
    if clamp > 1:
        assert (worst, squared) == (claimed.l1, claimed.l2_squared)


def test_exact_answers_to_buckets_are_sums_of_cells() -> None:
    histogram = CountOfCounts.from_ranks([0, 1, 1, 3, 9])
    cumulative = exact_answers(histogram, "cumulative", 5)
    buckets = Buckets.from_starts([0, 1, 3], 5)
    expected = [int(cumulative[a:b].sum()) for a, b in ((0, 1), (1, 3), (3, 5))]
    assert exact_answers(histogram, "buckets", 5, buckets).tolist() == expected
    assert cells("buckets", 5, 5, buckets) == 3
    with pytest.raises(ProblemError, match="needs the buckets"):
        exact_answers(histogram, "buckets", 5)


def split_by_definition(sizes: tuple[int, ...], at: int, clamp: int) -> Ints:
    """Compute a split from its definition: groups up to each size below it, then max(size, at) of all, in order."""
    below = [sum(min(size, clamp) <= bound for size in sizes) for bound in range(at)]
    return np.array([*below, *sorted(max(min(size, clamp), at) for size in sizes)], np.int64)


def change_of_split(before: tuple[int, ...], after: tuple[int, ...], at: int, clamp: int) -> Ints:
    """Return by how much what is asked of a region changes."""
    old, new = (
        exact_answers(CountOfCounts.from_ranks(sorted(one)), "split", clamp, Split(at)) for one in (before, after)
    )
    return new - old


@given(sizes=st.lists(st.integers(0, 9), max_size=9).map(tuple), clamp=st.integers(2, 12), at=st.integers(1, 11))
def test_splits_are_their_definition(sizes: tuple[int, ...], clamp: int, at: int) -> None:
    at = min(at, clamp - 1)
    result = exact_answers(CountOfCounts.from_ranks(list(sizes)), "split", clamp, Split(at))
    np.testing.assert_array_equal(result, split_by_definition(sizes, at, clamp))
    assert result.size == cells("split", clamp, len(sizes), Split(at))


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("clamp", [2, 3, 5])
def test_a_split_changes_by_no_more_than_one_question(neighbours: Neighbours, clamp: int) -> None:
    """Every size to split at, every pair of small databases, clamped ones too; every split reaches what is declared."""
    claimed = sensitivity("split", neighbours)
    for at in range(1, clamp):
        changes = [
            change_of_split(sizes, other, at, clamp)
            for groups in range(1, 4)
            for sizes in combinations_with_replacement(range(7), groups)
            for other in neighbours_of(sizes, neighbours)
        ]
        assert max(int(np.abs(change).sum()) for change in changes) == claimed.l1
        assert max(int((change**2).sum()) for change in changes) == claimed.l2_squared


@pytest.mark.parametrize("query", ["buckets", "split"])
@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_buckets_and_splits_of_twenty_thousand_random_pairs(neighbours: Neighbours, query: Query) -> None:
    rng, claimed, worst = np.random.default_rng(12), sensitivity(query, neighbours), 0
    for _ in range(20_000):
        clamp = int(rng.integers(2, 40))
        left = rng.integers(1, 45, int(rng.integers(2, 12)))
        right = left.copy()
        grown, shrunk = rng.permutation(left.size)[:2]
        right[grown] += 1
        right[shrunk] -= neighbours == "replace"
        ranked = [np.sort(np.minimum(sizes, clamp)) for sizes in (left, right)]
        counts = [np.bincount(sizes, minlength=clamp + 1).cumsum()[:-1] for sizes in ranked]
        if query == "split":
            split = Split(int(rng.integers(1, clamp)))
            before, after = (split.answers(*both) for both in zip(counts, ranked, strict=True))
        else:
            starts = np.unique(np.append(rng.integers(0, clamp, 5), 0))
            before, after = (np.add.reduceat(cumulative, starts) for cumulative in counts)
        change = after - before
        worst = max(worst, int(np.abs(change).sum()))
        assert (change**2).sum() <= claimed.l2_squared
    assert worst == claimed.l1


def answers_of(query: Query) -> Iterator[Callable[[tuple[int, ...]], Ints]]:
    """Yield what is asked of a region by a query, for buckets in every way to cut the cells."""
    if query == "buckets":
        for buckets in partitions(3):
            yield lambda sizes, buckets=buckets: buckets.sums(defined(sizes, "cumulative", 3))
    elif query == "split":
        yield lambda sizes: split_by_definition(sizes, 2, 3)
    else:
        yield lambda sizes: defined(sizes, query, 3)


@pytest.mark.parametrize("query", [*QUERIES, "buckets", "split"])
def test_moving_an_entity_between_regions_costs_no_more_than_within_one(query: Query) -> None:
    # Parallel composition over the regions of a level must hold for "replace" as well.
    region, claimed = list(combinations_with_replacement(range(4), 2)), sensitivity(query, "replace")
    changes = [
        np.concatenate([answers(moved[:2]) - answers(left), answers(moved[2:]) - answers(right)])
        for left, right in product(region, repeat=2)
        for moved in neighbours_of(left + right, "replace")
        for answers in answers_of(query)
    ]
    assert max(int(np.abs(change).sum()) for change in changes) == claimed.l1
    squared = max(int((change**2).sum()) for change in changes)
    # Two moves of H that share a cell need room: sizes 0 to 3 at least.
    assert squared <= claimed.l2_squared if query == "sizes" else squared == claimed.l2_squared


def test_unknown_names_and_missing_sizes_are_refused() -> None:
    with pytest.raises(ProblemError, match="needs the size"):
        exact_answers(CountOfCounts.empty(), "split", 5)
    with pytest.raises(ProblemError, match="at least 1"):
        Split(0)
    with pytest.raises(ProblemError, match="unknown query 'H'"):
        sensitivity("H", "add_remove")  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="unknown neighbours"):
        sensitivity("sizes", "swap")  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="unknown query"):
        exact_answers(CountOfCounts.empty(), "naive", 3)  # type: ignore[arg-type]
