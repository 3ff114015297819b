"""Draws kept by the sizes that occur: the same distributions, tables and intervals as of draws held whole."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from coco_opt import Epsilon, ExpectedDistance, Marginals, Measurement, SolverChoices
from coco_opt.groups import Buckets, GroupsMeasurements
from coco_opt.groups.estimating.posterior import sparse
from coco_opt.groups.estimating.posterior.consistent import posterior_estimate
from coco_opt.groups.estimating.posterior.observations import Survey, survey_of
from coco_opt.groups.estimating.posterior.prior import PriorOptions
from coco_opt.groups.estimating.posterior.recording import summaries, summary_values
from coco_opt.groups.estimating.posterior.sampler import SamplerOptions
from coco_opt.groups.estimating.posterior.sparse import (
    SparseDraws,
    SparseSampler,
    fewer_chains,
    has_parents,
    sparse_estimate,
)
from tests.groups.helpers import MAX_SIZE, assert_consistent, measured, three_levels

SHORT = SamplerOptions(chains=2, burn_in=20, most_burn_in=40, settle=10, draws=10, thin=1, most_rounds=4, threads=1)
HIERARCHY, TRUTH = three_levels(np.random.default_rng(4))


def noisy(epsilon: int = 1) -> Measurement:
    buckets = [Buckets.by_growth(MAX_SIZE, growth) for growth in (0.2, 0.3, 0.5)]
    return measured(HIERARCHY, TRUTH, "cumulative", buckets=buckets, costs=[Epsilon(Fraction(epsilon))] * 3)


@pytest.fixture(scope="module")
def drawn() -> SparseDraws:
    survey = survey_of(GroupsMeasurements(noisy()))
    with ThreadPoolExecutor(1) as pool:
        return SparseSampler(survey, 7, PriorOptions(), fewer_chains(SHORT, survey.parent.size)).sample(pool)


def tables(drawn: SparseDraws) -> Any:
    """Return the histograms of all draws, int64[draws, regions, K + 1]."""
    found = np.zeros((drawn.draws, HIERARCHY.regions, MAX_SIZE + 1), np.int64)
    for d, v in np.ndindex(found.shape[:2]):
        own = slice(*drawn.start[d, v : v + 2])
        assert (np.diff(drawn.sizes[own]) > 0).all()
        found[d, v, drawn.sizes[own]] = drawn.counts[own]
    return found


def test_every_draw_is_a_whole_consistent_table(drawn: SparseDraws) -> None:
    found = tables(drawn)
    assert drawn.draws == 40
    assert (found.sum(axis=2) == drawn.survey.groups).all()
    for region in range(HIERARCHY.leaves.start):
        children = list(HIERARCHY.children(region))
        np.testing.assert_array_equal(found[:, region], found[:, children].sum(axis=1))


@pytest.mark.parametrize("stretch", [1, 60, 10**6])
def test_intervals_and_table_are_those_of_the_draws(
    drawn: SparseDraws, stretch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse, "_STRETCH", stretch)
    found = tables(drawn)
    histograms, intervals, gap = sparse_estimate(drawn, SolverChoices(), 0.8)
    assert_consistent(HIERARCHY, TRUTH, histograms)
    table = np.stack([one.to_dense(MAX_SIZE) for one in histograms])
    assert intervals is not None
    for draws, value, lower, upper in (
        (found, table, intervals.groups_lower, intervals.groups_upper),
        (found.cumsum(axis=2), table.cumsum(axis=1), intervals.at_most_lower, intervals.at_most_upper),
    ):
        ordered = np.sort(draws, axis=0)
        np.testing.assert_array_equal(lower, np.minimum(ordered[3], value))
        np.testing.assert_array_equal(upper, np.maximum(ordered[36], value))
    groups, told = drawn.survey.groups, intervals.summaries
    assert told is not None
    of_draws = np.stack([summaries(one.cumsum(axis=1)[:, :-1].copy(), groups) for one in found])
    value = summaries(table.cumsum(axis=1)[:, :-1].copy(), groups)
    ordered = np.sort(of_draws, axis=0)
    np.testing.assert_array_equal(told.value, summary_values(value, groups))
    np.testing.assert_array_equal(told.lower, summary_values(np.minimum(ordered[3], value), groups))
    np.testing.assert_array_equal(told.upper, summary_values(np.maximum(ordered[36], value), groups))
    # No whole table has a smaller expected error than the one found by more than is said to be unproved.
    rows = found.cumsum(axis=2)[:, :, :-1]
    problem = ExpectedDistance(drawn.survey.parent, groups, Marginals.from_samples(rows), total=drawn.draws)
    best = SolverChoices().solve(problem)
    cost = problem.objective(table.cumsum(axis=1)[:, :-1])
    assert cost - problem.objective(best) <= gap * cost + 1e-9
    assert cost <= problem.objective(best) * 1.05


def test_threads_change_nothing_and_without_a_coverage_there_are_no_intervals() -> None:
    one, two = (posterior_estimate(noisy(), SolverChoices(), threads=threads, many=0) for threads in (1, 2))
    assert all(a.equals(b) for a, b in zip(one.histograms, two.histograms, strict=True))
    assert one.intervals is None
    assert one.convergence == two.convergence


def test_leaves_without_a_common_level_are_told_apart(drawn: SparseDraws) -> None:
    assert has_parents(drawn.survey)
    assert not has_parents(replace(drawn.survey, parent=np.array([-1]), groups=np.array([3]), answers=()))
    ragged = Survey(np.array([-1, 0, 0, 1, 1]), np.array([6, 4, 2, 3, 1]), 5, ())
    assert not has_parents(ragged)
