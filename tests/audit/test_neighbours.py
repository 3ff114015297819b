"""Neighbouring databases, the cells in which they differ, and the scores of their noisy answers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from coco_opt.audit import NeighbourPair, changed_cells, lower_bound, measured_scores, neighbour_pair, witness
from coco_opt.audit.measured import Scores, scalar_draws
from coco_opt.audit.neighbours import resized
from coco_opt.errors import ProblemError
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.privacy import NEIGHBOURS, QUERIES, Neighbours, PureBudget, Query, SeededNoise, budget, sensitivity

BOUND = 9
sizes = st.lists(st.integers(0, 12), min_size=1, max_size=8)


def _pair(leaves: list[list[int]], neighbours: Neighbours) -> NeighbourPair:
    hierarchy = Hierarchy.from_paths([("all", f"leaf{k}") for k in range(len(leaves))])
    histograms = [CountOfCounts.from_ranks(leaf) for leaf in leaves]
    return neighbour_pair([CountOfCounts.total(histograms), *histograms], hierarchy, BOUND, neighbours)


def _dense(histogram: CountOfCounts, query: Query) -> np.ndarray:
    if query == "rank":
        return histogram.ranks()
    return histogram.to_dense(BOUND) if query == "naive" else histogram.cumulative(BOUND)[:-1]


@given(st.lists(sizes, min_size=1, max_size=3), st.sampled_from(NEIGHBOURS), st.sampled_from(QUERIES))
def test_changed_cells_are_those_of_the_dense_answers(
    leaves: list[list[int]], neighbours: Neighbours, query: Query
) -> None:
    assume(any(size < BOUND for leaf in leaves for size in leaf))
    assume(neighbours == "add_remove" or sum(size > 0 for leaf in leaves for size in leaf) > 1)
    pair = _pair(leaves, neighbours)
    total = 0
    for region, (one, two) in enumerate(zip(pair.first, pair.second, strict=True)):
        first, second = _dense(one, query), _dense(two, query)
        differ = np.flatnonzero(first != second)
        found = changed_cells(one, two, query, BOUND)
        assert found.cells.tolist() == differ.tolist()
        assert found.first.tolist() == first[differ].tolist()
        assert found.second.tolist() == second[differ].tolist()
        assert one.groups == two.groups
        distance = int(np.abs(first - second).sum())
        assert distance <= sensitivity(query, neighbours)
        total += distance
        if region == 0:
            change = int(two.entities - one.entities)
            assert change == (1 if neighbours == "add_remove" else 0)
    assert total > 0


def test_pair_isolates_the_largest_group_of_the_smallest_leaf() -> None:
    pair = _pair([[1, 1, 2, 3], [1, 5, 9], [4, 4, 4, 4]], "add_remove")
    assert pair.what == "one entity added to a group of 5 in 'all/leaf1'"
    assert pair.changed == (0, 2)
    assert pair.second[2].ranks().tolist() == [1, 6, 9]
    moved = _pair([[1, 1, 2, 3], [1, 5, 9]], "replace")
    assert moved.second[2].ranks().tolist() == [0, 6, 9]
    assert moved.group_counts.tolist() == [7, 4, 3]


def test_pair_takes_the_entity_from_elsewhere_where_the_leaf_has_one_group() -> None:
    pair = _pair([[3], [0, 2, 2]], "replace")
    assert [histogram.ranks().tolist() for histogram in pair.second[1:]] == [[4], [0, 1, 2]]


def test_no_pair_without_a_group_that_can_change() -> None:
    with pytest.raises(ProblemError, match="smaller than max_size"):
        _pair([[9, 11]], "add_remove")
    with pytest.raises(ProblemError, match="to give"):
        _pair([[0, 3]], "replace")
    with pytest.raises(ProblemError, match="no group of that size"):
        resized(CountOfCounts.from_ranks([1, 3]), 2, 3)


def test_huge_bounds_and_counts_cost_nothing() -> None:
    truth = CountOfCounts([0, 7, 10**8], [10**15, 3, 1])
    hierarchy = Hierarchy.from_paths([("all",)])
    pair = neighbour_pair([truth], hierarchy, 10**9)
    found = changed_cells(*pair.first, *pair.second, "rank", 10**9)
    assert found.cells.tolist() == [10**15 + 3]
    assert found.second.tolist() == [10**8 + 1]
    found = changed_cells(*pair.first, *pair.second, "cumulative", 10**9)
    assert (found.cells.tolist(), found.first.tolist()) == ([10**8], [10**15 + 4])


def test_witness_holds_the_scales_a_release_uses() -> None:
    pair = _pair([[1, 1, 2, 3], [1, 5, 9]], "add_remove")
    shared = PureBudget(Fraction(1), (Fraction(1, 4), Fraction(3, 4)))
    found = witness(pair, ("naive", "rank"), shared, BOUND)
    assert found.scales == (Fraction(8), Fraction(8), Fraction(4, 3))
    assert found.levels.tolist() == [0, 0, 1]
    assert found.at(1).labels == (("rank", "all/leaf1 cell 1"),)
    leaves = PureBudget(Fraction(1), (Fraction(0), Fraction(1)))
    assert witness(pair, ("naive", "rank"), leaves, BOUND).levels.tolist() == [1]


def test_nothing_to_audit_where_nothing_is_measured() -> None:
    pair = _pair([[3], [0, 2, 2]], "add_remove")
    same = NeighbourPair(pair.hierarchy, pair.first, pair.first, "nothing")
    with pytest.raises(ProblemError, match="nothing to audit"):
        witness(same, ("naive", "naive"), PureBudget.uniform(Fraction(1), 2), BOUND)


def test_first_score_is_the_log_likelihood_ratio() -> None:
    epsilon, first, second = 0.5, 4, 6
    answers = np.arange(-5, 15, dtype=np.int64)
    scores = Scores.zeros(answers.size)
    scores.add(answers, first, second, 1 / epsilon)
    log = -epsilon * np.abs(answers - second) + epsilon * np.abs(answers - first)
    assert scores.columns[:, 0] == pytest.approx(log)
    assert scores.columns[:, 1] == pytest.approx((answers - first) * epsilon)


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("query", QUERIES)
def test_measurements_lose_no_more_than_they_claim(query: Query, neighbours: Neighbours) -> None:
    scores = _scores(query, neighbours, 20_000)
    bound = lower_bound(*scores).epsilon
    assert 0.4 < bound <= 1.0  # four or eight changed cells make naive's best event weak


def _scores(query: Query, neighbours: Neighbours, runs: int) -> tuple[np.ndarray, np.ndarray]:
    pair = _pair([[1, 1, 2, 3], [1, 5, 9]], neighbours)
    found = witness(pair, (query, query), PureBudget.uniform(Fraction(1), 2, neighbours), BOUND)
    return measured_scores(found, runs, lambda side: SeededNoise(90 + side))


def test_sensitivity_one_for_the_naive_method_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(budget._UNIT_SENSITIVITY, "naive", 1)
    bound = lower_bound(*_scores("naive", "add_remove", 20_000)).epsilon
    assert 1.4 < bound <= 2.0


def test_scalar_draws_are_the_stream_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    import coco_opt.audit.measured as measured

    whole = scalar_draws(SeededNoise(3), Fraction(2), 10, 5_000, region="r")
    monkeypatch.setattr(measured, "_CHUNK", 777)
    chunked = scalar_draws(SeededNoise(3), Fraction(2), 10, 5_000, region="r")
    assert np.array_equal(whole, chunked)
    assert whole.std() == pytest.approx(2 * math.sqrt(2), rel=0.1)


@pytest.mark.slow
def test_one_percent_too_little_noise_is_caught_and_none_too_little_is_not() -> None:
    for scale, caught in ((Fraction(99, 100), True), (Fraction(1), False)):
        sides = [scalar_draws(SeededNoise(60 + side), scale, side, 20_000_000, region="r") for side in (0, 1)]
        assert (lower_bound(*sides).epsilon > 1.0) == caught
