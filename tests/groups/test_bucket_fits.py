"""Fits of buckets and splits: the reduction of sums to bucket means, the truth without noise, consistent tables."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize
from scipy.sparse import csr_array, eye_array, hstack

from coco_opt import CountOfCounts, Geometric, IsotonicL1, IsotonicL2, SolverChoices, emd, estimate_groups, solve
from coco_opt.groups import RegionMeasurement
from coco_opt.groups.buckets import Buckets, Split
from coco_opt.groups.estimating.estimators import FitOptions, estimate
from coco_opt.groups.estimating.method import GroupsMethod, VarianceRule
from coco_opt.groups.estimating.posterior.consistent import posterior_estimate
from coco_opt.groups.estimating.posterior.sampler import SamplerOptions
from coco_opt.groups.noisy_measurements import Loss
from tests.groups.helpers import MAX_SIZE, NoNoise, answer, assert_consistent, measured, three_levels


def sums_matrix(buckets: Buckets, cells: int) -> csr_array:
    at = np.repeat(np.arange(buckets.count), buckets.end - buckets.begin)
    return csr_array((np.ones(cells), (at, np.arange(cells))), shape=(buckets.count, cells))


@st.composite
def bucket_answers(draw: Any) -> tuple[Buckets, list[int], int]:
    cells = draw(st.integers(2, 9))
    cuts = sorted(draw(st.sets(st.integers(1, cells - 1))))
    buckets = Buckets.from_edges([0, *cuts, cells])
    values = draw(st.lists(st.integers(-30, 60), min_size=buckets.count, max_size=buckets.count))
    return buckets, values, draw(st.integers(0, 12))


@given(bucket_answers())
@settings(max_examples=40, deadline=None)
def test_absolute_sums_are_fitted_by_weighted_means(case: tuple[Buckets, list[int], int]) -> None:
    """The linear program over all single cells has no better optimum than isotonic regression of bucket means."""
    buckets, values, groups = case
    cells, width = int(buckets.end[-1]), (buckets.end - buckets.begin).astype(np.float64)
    fitted = solve(IsotonicL1(values / width, width, lower=0, upper=groups))
    # x, then the parts of the residual: A x - y = up - down, with x rising.
    identity = eye_array(buckets.count)
    equal = hstack([sums_matrix(buckets, cells), -identity, identity])
    rising = np.zeros((cells - 1, cells + 2 * buckets.count))
    for row, (left, right) in enumerate(pairwise(range(cells))):
        rising[row, [left, right]] = 1.0, -1.0
    cost = np.append(np.zeros(cells), np.ones(2 * buckets.count))
    bounds = [(0, groups)] * cells + [(0, None)] * (2 * buckets.count)
    result = linprog(cost, A_ub=rising, b_ub=np.zeros(cells - 1), A_eq=equal, b_eq=values, bounds=bounds)
    assert fitted.objective == pytest.approx(result.fun, abs=1e-7)


@given(bucket_answers())
@settings(max_examples=25, deadline=None)
def test_squared_sums_are_fitted_by_weighted_means(case: tuple[Buckets, list[int], int]) -> None:
    buckets, values, groups = case
    width = (buckets.end - buckets.begin).astype(np.float64)
    fitted = solve(IsotonicL2(values / width, width**2, lower=0, upper=groups))
    a, y = sums_matrix(buckets, int(buckets.end[-1])), np.array(values, np.float64)
    start = np.linspace(0, groups, a.shape[1])
    result = minimize(
        lambda x: float(((a @ x - y) ** 2).sum()),
        start,
        jac=lambda x: 2.0 * (a.T @ (a @ x - y)),
        bounds=[(0, groups)] * start.size,
        constraints={"type": "ineq", "fun": np.diff, "jac": lambda x: np.diff(np.eye(x.size), axis=0)},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert fitted.objective <= result.fun + 1e-5 * max(1.0, result.fun)


@pytest.mark.parametrize("loss", get_args(Loss))
def test_without_noise_wide_buckets_keep_groups_near_their_sizes(loss: Loss) -> None:
    truth = CountOfCounts.from_runs([2, 3, 9, 14, 30], [5, 4, 7, 1, 2])
    buckets = Buckets.by_growth(40, 0.3)
    values = buckets.sums(truth.cumulative(40)[:-1])
    answer = RegionMeasurement("buckets", "r", truth.groups, 40, Geometric(1), values, buckets)
    result = estimate(answer, FitOptions(loss), SolverChoices())
    assert result.histogram.groups == truth.groups
    # A group may lie anywhere within its bucket and the next one's half.
    widths = (buckets.end - buckets.begin)[np.searchsorted(buckets.end, truth.sizes, side="right")]
    assert emd(result.histogram, truth) <= float((truth.counts * 1.5 * (widths - 1)).sum()) + truth.groups
    assert (result.variances > 0).all()
    single = estimate(
        RegionMeasurement("buckets", "r", truth.groups, 40, Geometric(1), truth.cumulative(40)[:-1], Buckets.cells(40)),
        FitOptions(loss),
        SolverChoices(),
    )
    assert single.histogram.equals(truth)


@pytest.mark.parametrize("consistency", ["matching", "bottom_up"])
@pytest.mark.parametrize("variances", get_args(VarianceRule))
def test_buckets_make_consistent_tables(consistency: Any, variances: VarianceRule) -> None:
    hierarchy, truth = three_levels(np.random.default_rng(1))
    buckets = [Buckets.from_edges([0, 1, 3, MAX_SIZE]), None, Buckets.from_edges([0, 2, 7, MAX_SIZE])]
    noisy = measured(hierarchy, truth, "cumulative", buckets=buckets)
    result = estimate_groups(noisy, GroupsMethod(("l1", "l2", "l1"), consistency=consistency, variances=variances))
    assert_consistent(hierarchy, truth, result.histograms)


SPLITS = [Split(4), None, Split(1)]


@pytest.mark.parametrize("loss", ["l1", "l2"])
@pytest.mark.parametrize("at", [1, 5, MAX_SIZE - 1])
def test_without_noise_a_split_returns_the_truth(loss: Any, at: int) -> None:
    _, truth = three_levels(np.random.default_rng(2))
    for histogram in (*truth[:4], CountOfCounts.from_runs([0], [5]), CountOfCounts.from_runs([12], [5])):
        exact = answer(histogram, "cumulative", NoNoise(), buckets=[Split(at)])
        result = estimate(exact, FitOptions(loss), SolverChoices())
        assert result.histogram.equals(histogram)
        assert (result.variances > 0).all()


@pytest.mark.parametrize("variances", ["formula", "bootstrap"])
@pytest.mark.parametrize("consistency", ["matching", "bottom_up", "none", "posterior"])
def test_what_reads_ranks_reads_splits(consistency: Any, variances: Any) -> None:
    hierarchy, truth = three_levels(np.random.default_rng(2))
    noisy = measured(hierarchy, truth, buckets=SPLITS, shares=[3, 3, 3])
    if consistency == "posterior":
        result = posterior_estimate(
            noisy,
            SolverChoices(),
            options=SamplerOptions(chains=2, burn_in=20, most_burn_in=40, settle=10, draws=10, thin=1, most_rounds=1),
        ).histograms
    else:
        result = list(estimate_groups(noisy, GroupsMethod(consistency=consistency, variances=variances)).histograms)
    if consistency != "none":
        assert_consistent(hierarchy, truth, result)
    assert np.mean([emd(a, b) for a, b in zip(result, truth, strict=True)]) < 25
