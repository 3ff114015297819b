"""Estimators, Algorithm 1 and its baselines: what must hold for every input, and hand-made cases."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coco_opt import CountOfCounts, Epsilon, GroupsMethod, Hierarchy, SeededNoise, SolverChoices, emd, estimate_groups
from coco_opt.errors import ProblemError
from coco_opt.groups import QUERIES, Buckets, RegionMeasurement
from coco_opt.groups.estimating.estimators import FitOptions, SizeEstimate, estimate
from coco_opt.groups.estimating.subtrees import match_and_merge, matching
from tests.groups.helpers import MAX_SIZE, answer, assert_consistent, measured, three_levels


def release(
    hierarchy: Hierarchy,
    truth: Sequence[CountOfCounts],
    method: GroupsMethod,
    queries: Sequence[str],
    *,
    seed: int | None = 3,
    shares: Sequence[Fraction | int | None] | None = None,
    solvers: SolverChoices | None = None,
    threads: int = 1,
) -> list[CountOfCounts]:
    noisy = measured(hierarchy, truth, queries, seed=seed, shares=shares)
    return list(estimate_groups(noisy, method, solvers, threads=threads).histograms)


LOSSES, STEPS = st.sampled_from(["l1", "l2"]), st.sampled_from(["matching", "bottom_up"])


@settings(max_examples=60)
@given(
    st.integers(0, 10_000),
    st.tuples(*[st.sampled_from(QUERIES)] * 3),
    st.tuples(*[LOSSES] * 3),
    STEPS,
    st.sampled_from(["weighted", "average"]),
)
def test_any_mix_of_estimators_stays_consistent(
    seed: int, queries: tuple[str, ...], losses: Any, consistency: Any, merge: Any
) -> None:
    hierarchy, truth = three_levels(np.random.default_rng(seed))
    method = GroupsMethod(losses=losses, consistency=consistency, merge=merge)
    assert_consistent(hierarchy, truth, release(hierarchy, truth, method, queries, seed=seed))


@pytest.mark.parametrize("consistency", ["matching", "bottom_up", "none"])
@pytest.mark.parametrize("query", QUERIES)
def test_without_noise_the_truth_comes_back(query: str, consistency: str) -> None:
    hierarchy, truth = three_levels(np.random.default_rng(2))
    method = GroupsMethod(losses=("l1", "l2", "l1"), consistency=consistency)
    released = release(hierarchy, truth, method, [query] * 3, seed=None)
    assert all(a.equals(b) for a, b in zip(released, truth, strict=True))


@pytest.mark.parametrize("loss", ["l1", "l2"])
def test_joint_releases_are_whole_and_consistent(loss: str) -> None:
    hierarchy, truth = three_levels(np.random.default_rng(8))
    method = GroupsMethod(losses=(loss,) * 3, consistency="joint")
    assert_consistent(hierarchy, truth, release(hierarchy, truth, method, ["cumulative"] * 3))
    exact = release(hierarchy, truth, method, ["cumulative"] * 3, seed=None)
    assert all(a.equals(b) for a, b in zip(exact, truth, strict=True))


def test_solvers_chosen_by_kind_give_consistent_releases() -> None:
    hierarchy, truth = three_levels(np.random.default_rng(5))
    method = GroupsMethod(losses=("l1", "l2", "l1"), consistency="matching")
    solvers = SolverChoices({"isotonic_l1": "highs", "isotonic_l2": "clarabel", "group_matching": "scipy"})
    released = release(hierarchy, truth, method, ["cumulative"] * 3, solvers=solvers)
    assert_consistent(hierarchy, truth, released)
    used = {certificate.problem: certificate.solver for certificate in solvers.certificates}
    assert used == {"isotonic_l1": "highs", "isotonic_l2": "clarabel", "group_matching": "scipy"}


def test_regions_without_groups_stay_empty() -> None:
    hierarchy = Hierarchy.from_paths([("n", "full"), ("n", "void")])
    full = CountOfCounts.from_runs([1, 2, 5], [30, 20, 4])
    truth = [full, full, CountOfCounts.empty()]
    for query in QUERIES:
        released = release(hierarchy, truth, GroupsMethod(losses=("l1", "l1"), consistency="matching"), [query] * 2)
        assert_consistent(hierarchy, truth, released)


def test_bottom_up_reads_leaves_only() -> None:
    hierarchy, truth = three_levels(np.random.default_rng(7))
    method = GroupsMethod(losses=("l1",) * 3, consistency="bottom_up")
    for shares in ([None, None, 1], [Fraction(1, 4), Fraction(1, 4), Fraction(1, 2)]):
        solvers = SolverChoices()
        released = release(hierarchy, truth, method, ["cumulative"] * 3, shares=shares, solvers=solvers)
        assert_consistent(hierarchy, truth, released)
        assert sum(row.solves for row in solvers.certificates) == len(hierarchy.leaves)


def half(histogram: CountOfCounts, query: str) -> RegionMeasurement:
    return answer(histogram, query, SeededNoise(9), Epsilon(Fraction(1, 2)))


def test_variances_follow_section_5_1() -> None:
    histogram = CountOfCounts.from_runs([1, 2, 5], [300, 200, 50])
    options, solvers = FitOptions(), SolverChoices()
    cumulative = estimate(half(histogram, "cumulative"), options, solvers)
    np.testing.assert_allclose(cumulative.variances, 4 / (0.25 * cumulative.counts))
    ranks = estimate(half(histogram, "ranks"), FitOptions(loss="l2"), solvers)
    np.testing.assert_allclose(ranks.variances, 2 / (0.25 * ranks.counts))
    sizes = estimate(half(histogram, "sizes"), options, solvers)
    np.testing.assert_allclose(sizes.variances, 8 / (0.25 * sizes.counts))


def test_matching_and_merging_by_hand() -> None:
    """One parent group of size 4 meets children's sizes 1 and 7: weights 1/V decide, halves go up."""
    parent = SizeEstimate(np.array([2, 4]), np.array([1, 1]), np.array([1.0, 1.0]))
    a = SizeEstimate(np.array([1]), np.array([1]), np.array([3.0]))
    b = SizeEstimate(np.array([7]), np.array([1]), np.array([1.0]))
    weighted = match_and_merge(parent, [a, b], SolverChoices())
    assert weighted[0].sizes.tolist() == [2]  # (2/1 + 1/3) / (4/3) = 1.75
    assert weighted[1].sizes.tolist() == [6]  # (4 + 7) / 2 = 5.5, half up
    assert weighted[0].variances.tolist() == [0.75]
    even = match_and_merge(parent, [a, b], SolverChoices(), rounding="half_even")
    assert even[1].sizes.tolist() == [6]
    average = match_and_merge(parent, [a, b], SolverChoices(), merge="average")
    assert average[0].sizes.tolist() == [2]  # 1.5, half up


def test_estimates_nearer_the_truth_win_the_merge() -> None:
    """An exact parent (tiny variance) imposes its sizes on a poor child, and the other way round."""
    hierarchy = Hierarchy.from_paths([("n", "a")])
    truth, poor = CountOfCounts.from_runs([2, 6], [50, 50]), CountOfCounts.from_runs([3, 5], [50, 50])
    for sharp in (0, 1):
        estimates = [SizeEstimate.from_histogram(poor, 1e6), SizeEstimate.from_histogram(poor, 1e6)]
        estimates[sharp] = SizeEstimate.from_histogram(truth, 1e-6)
        merged = matching(hierarchy, estimates, SolverChoices(), GroupsMethod(consistency="matching"))
        assert emd(merged[0], truth) == 0


@pytest.mark.parametrize(
    ("query", "settings", "method", "message"),
    [
        ("ranks", {}, {"consistency": "joint"}, "'cumulative' on every measured level"),
        ("cumulative", {"shares": [None, 1, 1]}, {"consistency": "matching"}, "give it a share"),
        ("cumulative", {}, {"consistency": "matching", "losses": ("l1",) * 2}, "3 levels need as many losses, not 2"),
        ("ranks", {}, {"consistency": "convex"}, r"groups\.query"),
        ("cumulative", {"buckets": [Buckets.from_edges([0, 3, MAX_SIZE])] * 3}, {"consistency": "convex"}, "buckets"),
        ("sizes", {}, {"consistency": "posterior"}, "sizes"),
    ],
)
def test_what_a_method_cannot_read_is_refused(
    query: str, settings: dict[str, Any], method: dict[str, Any], message: str
) -> None:
    hierarchy, truth = three_levels(np.random.default_rng(8))
    noisy = measured(hierarchy, truth, query, **settings)
    with pytest.raises(ProblemError, match=message):
        estimate_groups(noisy, GroupsMethod(**{"losses": ("l1",) * 3, **method}))


@pytest.mark.parametrize(
    "options",
    [
        {"losses": ("l1", "L2")},
        {"consistency": "matchin"},
        {"merge": "mean"},
        {"rounding": "up"},
        {"ties": "left"},
        {"losses": ("l1", "l2"), "consistency": "joint"},
        {"losses": ("l1", "l2"), "consistency": "convex"},
        {"consistency": "matching", "intervals": 0.9},
    ],
)
def test_a_method_that_cannot_be_is_refused_when_it_is_made(options: dict[str, Any]) -> None:
    with pytest.raises(ProblemError, match=r"no estimator of groups is called|must be one of|one loss|'posterior'"):
        GroupsMethod(**{"losses": ("l1",), **options})
