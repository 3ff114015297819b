"""What is mended of a posterior: answers and queries that linear estimates refute, and intervals inside buckets."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from coco_opt import CountOfCounts, Geometric
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimating.intervals import Intervals, widen_in_buckets
from coco_opt.groups.estimating.posterior.observations import Answers, Ranks, Survey
from coco_opt.histograms import Hierarchy
from coco_opt.kernels.posterior_table_summaries import Draws
from coco_opt.operators import Grouping, Operator
from coco_opt.topdown.estimating.posterior.correction import Correction, Counting, DrawnTables, central
from coco_opt.topdown.estimating.posterior.moved_queries import Moved
from coco_opt.topdown.estimating.posterior.result import Targets
from coco_opt.topdown.estimating.sparse_tables import SparseTables

REGIONS, DRAWS = 400, 120
TREE = Hierarchy.from_paths([("land", f"r{k}", "leaf") for k in range(REGIONS)])
ALL = Grouping(np.zeros(1, np.int64), 1)
PRIOR, NOISE = 20.0, 10.0  # standard deviations: of the truth around 1,000, and of the estimates around the truth


@dataclass(frozen=True)
class Estimates:
    """Linear estimates of a level's regions, each with the same standard error."""

    estimates: NDArray[np.float64]

    def answers(self, operator: Operator, level: int, regions: slice = slice(None)) -> NDArray[np.float64]:
        own = self.estimates if level else self.estimates.sum(keepdims=True)
        return np.asarray(own[regions, None])

    def standard_errors(self, operator: Operator, level: int, regions: slice = slice(None)) -> NDArray[np.float64]:
        return np.full_like(self.answers(operator, level, regions), NOISE if level else NOISE * REGIONS**0.5)


def corrected(
    error: float | NDArray[np.float64], spread: float = 1.0, *, widened: bool = False
) -> tuple[Correction, NDArray[np.float64], NDArray[np.float64]]:
    """Return the correction of draws whose mean is wrong by an error, the true answers, and the estimates."""
    rng = np.random.default_rng(5)
    true = 1000.0 + PRIOR * rng.standard_normal(REGIONS)
    estimates = true + NOISE * rng.standard_normal(REGIONS)
    mean = (1000.0 * NOISE**2 + estimates * PRIOR**2) / (NOISE**2 + PRIOR**2) + error
    deviation = spread * PRIOR * NOISE / np.hypot(PRIOR, NOISE)
    numbers = np.rint(mean + deviation * rng.standard_normal((DRAWS, REGIONS))).astype(np.int32)
    offset = np.arange(DRAWS)[:, None] * REGIONS + np.arange(REGIONS + 1)
    drawn = DrawnTables(TREE, Draws(offset, np.zeros(numbers.size, np.uint16), numbers.reshape(-1)), 1)
    linear: Any = Estimates(estimates)
    return Correction.of(drawn, linear, ((ALL,),) * 3, widened=drawn if widened else None), true, estimates


def test_a_posterior_that_holds_stays_as_it_is() -> None:
    correction, _, _ = corrected(0.0)
    assert correction.weights[1][0] < 0.2
    assert correction.weights[2] == (0.0,)  # the leaves' answers are the draws'


@pytest.mark.parametrize("error", [5.0, 20.0, 100.0])
def test_errors_are_no_larger_than_those_of_the_estimates_and_intervals_hold(error: float) -> None:
    correction, true, estimates = corrected(error)
    values = correction.sorted_answers(1, TREE.level_range(1), 0)
    assert values is not None
    assert (np.diff(values, axis=1) >= 0).all()
    squared = np.mean((values.mean(axis=1) - true) ** 2)
    assert squared < 1.03 * np.mean((estimates - true) ** 2)
    lower, upper = central(values, 0.9)
    assert 0.85 < np.mean((lower <= true) & (true <= upper)) < 0.95


def test_targets_of_many_regions_are_corrected_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    correction, true, _ = corrected(100.0)
    targets = Targets(correction.drawn, correction, ((ALL,),) * 3)
    regions, parent = TREE.level_range(1), np.array([int(true.sum())])
    together = targets(regions, parent)
    monkeypatch.setattr("coco_opt.topdown.estimating.posterior.correction._NUMBERS", 7 * DRAWS)
    np.testing.assert_array_equal(targets(regions, parent), together)


def test_narrow_draws_get_the_spread_of_their_risk() -> None:
    correction, true, _ = corrected(50.0, spread=0.2)
    values = correction.sorted_answers(1, TREE.level_range(1), 0)
    assert values is not None
    lower, upper = central(values, 0.9)
    assert 0.8 < np.mean((lower <= true) & (true <= upper)) < 0.95


def test_leaves_of_a_posterior_that_holds_keep_their_intervals() -> None:
    correction, _, _ = corrected(0.0, widened=True)
    assert correction.factors[0] == pytest.approx(1.0, abs=0.1)
    assert corrected(30.0)[0].sorted_answers(2, TREE.level_range(2), 0) is None  # targets have no factors


@pytest.mark.parametrize("error", [15.0, 40.0])
def test_intervals_of_leaves_are_widened_to_the_errors_and_keep_their_centres(error: float) -> None:
    correction, true, _ = corrected(np.where(np.arange(REGIONS) % 2, error, -error), widened=True)
    regions = TREE.level_range(2)
    before = correction.drawn.sorted_answers(regions, Counting.of(ALL))
    after = correction.sorted_answers(2, regions, 0)
    assert after is not None
    assert (np.diff(after, axis=1) >= 0).all()
    np.testing.assert_allclose(after.mean(axis=1), before.mean(axis=1), atol=0.5)
    squared = np.mean((before.mean(axis=1) - true) ** 2)
    assert after.var(axis=1).mean() == pytest.approx(squared, rel=0.15)
    some = range(regions.start + 100, regions.start + 110)
    np.testing.assert_array_equal(correction.sorted_answers(2, some, 0), after[100:110])


LEAVES, LEAF_DRAWS, LEAF_NOISE = 60, 64, 10.0
LAND = Hierarchy.from_paths([("land", f"leaf{k}") for k in range(LEAVES)])
HOME = Grouping(np.array([0, 0, 1, 1]), 2)  # young and old persons at home, then in institutions
AGE = Grouping(np.array([0, 1, 0, 1]), 2)
PERSONS = Grouping(np.zeros(4, np.int64), 1)
CELLS = Grouping(np.arange(4), 4)


class LeafEstimates:
    """Linear estimates of the leaves' cells, each with half the variance of an answer."""

    def __init__(self, tables: NDArray[np.float64]) -> None:
        self.leaves = tables

    def answers(self, operator: Operator, level: int, regions: slice) -> NDArray[np.float64]:
        return operator.apply((self.leaves if level else self.leaves.sum(axis=0, keepdims=True))[regions])

    def standard_errors(self, operator: Operator, level: int, regions: slice) -> NDArray[np.float64]:
        scale = LEAF_NOISE * (1.0 if level else LEAVES**0.5) * (4 / operator.answers / 2) ** 0.5
        return np.full_like(self.answers(operator, level, regions), scale)


def drawn_and_true(institutions: int) -> tuple[DrawnTables, Any, NDArray[np.int64]]:
    """Return draws that see too few persons in the leaves with institutions, linear estimates, and the truth."""
    rng = np.random.default_rng(3)
    true = np.tile([200, 100, 0, 0], (LEAVES, 1))
    true[:institutions, 2:] = 20, 80
    seen = true.copy()
    seen[:institutions] += [16, 64, -16, -64]  # the ages and the total are as they should be
    tables = seen + (rng.integers(-3, 4, (LEAF_DRAWS, LEAVES, 1)) * [1, -1, 0, 0])
    tables[:, :, 2:] = np.maximum(tables[:, :, 2:] + rng.integers(-2, 3, (LEAF_DRAWS, LEAVES, 2)), 0)
    cells = np.broadcast_to(np.arange(4, dtype=np.uint16), tables.shape)
    offset = 4 * (np.arange(LEAF_DRAWS)[:, None] * LEAVES + np.arange(LEAVES + 1))
    draws = Draws(offset, cells.reshape(-1).copy(), tables.reshape(-1).astype(np.uint16))
    estimates = LeafEstimates(true + LEAF_NOISE / 2**0.5 * rng.standard_normal(true.shape))
    return DrawnTables(LAND, draws, 4), estimates, true


def answers(drawn: DrawnTables, operator: Operator) -> NDArray[np.float64]:
    """Return the leaves' mean answers [leaves, answers]."""
    return drawn.sorted_answers(LAND.leaves, Counting.of(operator)).mean(axis=1).reshape(LEAVES, -1)


def nearest(linear: Any) -> SparseTables:
    """Return integer tables near the linear estimates, as estimation "full" has them."""
    return SparseTables.of(np.maximum(np.rint(linear.leaves), 0).astype(np.int64))


def test_no_draw_changes_where_the_model_holds() -> None:
    drawn, linear, _ = drawn_and_true(0)
    moved = Moved.of(drawn, linear, [CELLS, HOME, AGE], nearest(linear))
    assert moved.drawn is drawn
    assert not any(rows.size for rows in moved.rows)


def test_answers_of_a_refuted_query_move_and_other_queries_keep_theirs() -> None:
    drawn, linear, true = drawn_and_true(6)
    moved = Moved.of(drawn, linear, [CELLS, HOME, AGE], nearest(linear))
    assert set(range(12)) <= set(moved.rows[1].tolist())
    assert moved.rows[0].size == moved.rows[2].size == 0
    before, after = answers(drawn, HOME), answers(moved.drawn, HOME)
    errors = [np.abs(each - HOME.apply(true))[:6].mean() for each in (before, after)]
    assert errors[0] > 70.0
    assert errors[1] < 2.0 * LEAF_NOISE
    # Persons and ages of every leaf fitted what was measured.
    np.testing.assert_allclose(after.sum(axis=1), before.sum(axis=1), atol=1e-9)
    np.testing.assert_allclose(answers(moved.drawn, AGE), answers(drawn, AGE), atol=3.0)
    persons = [each.sorted_answers(LAND.leaves, Counting.of(PERSONS)) for each in (drawn, moved.drawn)]
    np.testing.assert_array_equal(*persons)


def test_intervals_of_moved_answers_hold_what_their_estimates_allow() -> None:
    drawn, linear, true = drawn_and_true(20)
    moved = Moved.of(drawn, linear, [HOME], nearest(linear))
    correction = Correction.of(moved.drawn, linear, ((HOME,),) * 2, widened=drawn, moved=moved.rows)
    assert correction.weights[0] == (1.0,)
    values = correction.sorted_answers(1, LAND.leaves, 0)
    assert values is not None
    assert (np.diff(values, axis=1) >= 0).all()
    lower, upper = central(values, 0.9)
    expected = HOME.apply(true)[:20].reshape(-1)
    assert np.mean((lower[:40] <= expected) & (expected <= upper[:40])) > 0.85
    some = range(LAND.leaves.start + 5, LAND.leaves.start + 9)
    np.testing.assert_array_equal(correction.sorted_answers(1, some, 0), values[10:18])


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
