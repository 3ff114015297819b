"""Intervals inside buckets hold every table that the released buckets permit, and stay where buckets are even."""

from fractions import Fraction

import numpy as np
import pytest

from coco_opt import CountOfCounts, Geometric
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimating.intervals import Intervals, widen_in_buckets
from coco_opt.groups.estimating.posterior.observations import Answers, Ranks, Survey

BUCKETS = Buckets.from_edges([0, 1, 2, 3, 5, 7, 10])


def _intervals(counts: np.ndarray) -> Intervals:
    """Return intervals of no width."""
    cumulative = np.cumsum(counts, axis=1)
    return Intervals(0.9, counts.copy(), counts.copy(), cumulative.copy(), cumulative)


def _widened(counts: list[int], buckets: Buckets = BUCKETS) -> Intervals:
    intervals = _intervals(np.array([counts]))
    widen_in_buckets(intervals, [CountOfCounts.from_dense(counts)], buckets)
    return intervals


def test_a_steep_fall_is_held_that_the_released_table_misplaces() -> None:
    true = np.array([900, 700, 400, 180, 66, 16, 2, 0, 0, 0, 1])
    # Both tables have the same sums of cumulative counts in every bucket.
    released = true + np.array([0, 0, 0, -16, 32, -16, 0, 0, 0, 0, 0])
    sums = [BUCKETS.sums(np.cumsum(table)[:-1]) for table in (true, released)]
    np.testing.assert_array_equal(*sums)
    wide = _widened(released.tolist())
    assert (wide.groups_lower[0] <= true).all()
    assert (true <= wide.groups_upper[0]).all()
    assert (wide.at_most_lower[0] <= np.cumsum(true)).all()
    assert (np.cumsum(true) <= wide.at_most_upper[0]).all()
    # Sizes that are measured alone, with measured cells on both sides, keep theirs.
    np.testing.assert_array_equal(wide.groups_upper[0, :3], released[:3])


@pytest.mark.parametrize("seed", range(5))
def test_bounds_are_those_of_all_tables_with_the_same_buckets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = np.array([20, 9, *rng.integers(0, 7, 2), 5, 3])
    buckets = Buckets.from_edges([0, 1, 4, 5])
    wide = _widened(counts.tolist(), buckets)
    row = np.cumsum(counts)
    means = counts[0], counts[1:4].sum() / 3, counts[4]
    for first in range(row[0], row[4] + 1):
        for second in range(first, row[4] + 1):
            third = row[1:4].sum() - first - second
            table = np.diff([row[0], first, second, third, row[4]])
            least, most = [min(means)] * 3 + [min(means[1:])], [max(means)] * 3 + [max(means[1:])]
            if (table >= np.maximum(least, 0)).all() and (table <= most).all():
                assert (wide.groups_lower[0, 1:5] <= table).all()
                assert (table <= wide.groups_upper[0, 1:5]).all()


def test_even_and_empty_buckets_and_single_sizes_keep_their_intervals() -> None:
    for counts, buckets in (
        ([40] * 11, BUCKETS),
        ([9, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0], BUCKETS),
        ([90, 50, 30, 5, 40, 0, 1, 0, 0, 3, 1], Buckets.cells(10)),
    ):
        wide = _widened(counts, buckets)
        np.testing.assert_array_equal(wide.groups_lower[0], counts)
        np.testing.assert_array_equal(wide.groups_upper[0], counts)


def test_the_finest_buckets_begin_where_those_of_any_answers_do() -> None:
    noise = Geometric(Fraction(1))
    other = Buckets.from_edges([0, 4, 10])
    blocks = [Answers(0, query, np.zeros(query.count, np.int64), noise) for query in (BUCKETS, other)]
    survey = Survey(np.array([-1]), np.array([3]), 10, blocks)
    np.testing.assert_array_equal(survey.finest_buckets.begin, [0, 1, 2, 3, 4, 5, 7])
    ranked = Survey(np.array([-1]), np.array([3]), 10, [blocks[1], Answers(0, Ranks(6), np.zeros(3, np.int64), noise)])
    np.testing.assert_array_equal(ranked.finest_buckets.begin, [0, 4, 6, 7, 8, 9])
