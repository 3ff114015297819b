"""Fits of buckets and splits, bootstrap variances of ranks, and the convex program cell by cell."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize
from scipy.sparse import csr_array, eye_array, hstack

from coco_opt import (
    CountOfCounts,
    Epsilon,
    Geometric,
    GroupsMethod,
    Hierarchy,
    IsotonicL1,
    IsotonicL2,
    Rho,
    SeededNoise,
    SolverChoices,
    emd,
    estimate_groups,
    solve,
)
from coco_opt.errors import ProblemError
from coco_opt.groups import QUERIES, RegionMeasurement
from coco_opt.groups.buckets import Buckets, Split
from coco_opt.groups.estimating.convex import convex, reconciled
from coco_opt.groups.estimating.estimators import (
    FitOptions,
    SizeEstimate,
    bootstrap_variances,
    estimate,
    squared_errors,
)
from coco_opt.groups.estimating.method import VarianceRule
from coco_opt.groups.estimating.posterior.consistent import posterior_estimate
from coco_opt.groups.estimating.posterior.sampler import SamplerOptions
from coco_opt.groups.measuring.sizes import read_sizes
from coco_opt.groups.noisy_measurements import Loss
from coco_opt.histograms import sum_of_leaves
from tests.groups.helpers import MAX_SIZE, NoNoise, answer, assert_consistent, measured, three_levels
from tests.groups.test_groups import release


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


SIZES = st.lists(st.integers(0, 9), min_size=1, max_size=30)


@given(SIZES, st.randoms(use_true_random=False), st.integers(1, 5))
def test_squared_errors_match_groups_by_rank(sizes: list[int], random: Any, cuts: int) -> None:
    ranks = np.sort(np.array(sizes, np.int64))
    other = CountOfCounts.from_ranks([max(0, size + random.randint(-3, 3)) for size in sizes])
    # Runs of one size may be cut, as those of a rank estimate are.
    bounds = np.unique([0, *np.flatnonzero(np.diff(ranks)) + 1, *random.choices(range(ranks.size), k=cuts), ranks.size])
    counts = np.diff(bounds).astype(np.int64)
    estimated = SizeEstimate(ranks[bounds[:-1]], counts, np.ones(counts.size))
    expected = np.add.reduceat((ranks - other.ranks()) ** 2.0, bounds[:-1])
    np.testing.assert_allclose(squared_errors(estimated, other), expected)


def test_squared_errors_need_equal_numbers_of_groups() -> None:
    first, second = CountOfCounts.from_runs([3], [4]), CountOfCounts.from_runs([3], [5])
    with pytest.raises(ProblemError, match="same number of groups"):
        squared_errors(SizeEstimate.from_histogram(first, 1.0), second)
    empty = SizeEstimate.from_histogram(CountOfCounts.empty(), 0.0)
    assert squared_errors(empty, CountOfCounts.empty()).size == 0


def booted(noisy: RegionMeasurement, options: FitOptions, seed: int = 0, replicates: int = 200) -> SizeEstimate:
    solvers = SolverChoices()
    result = estimate(noisy, options, solvers)
    rng = np.random.default_rng(seed)
    return bootstrap_variances(noisy, result, options, solvers, rng=rng, replicates=replicates)


DISTRIBUTIONS: list[dict[str, Any]] = [
    {"cost": Epsilon(Fraction(1, 40))},
    {"cost": Epsilon(Fraction(1, 40)), "neighbours": "replace"},
    {"cost": Rho(Fraction(1, 3_200))},
]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_lone_group_keeps_the_variance_of_its_noise(distribution: dict[str, Any]) -> None:
    """One group far from both bounds: its size's error is the noise itself, whatever the law."""
    noisy = answer(CountOfCounts.from_runs([5_000], [1]), "ranks", NoNoise(), max_size=10_000, **distribution)
    result = booted(noisy, FitOptions("l2"))
    assert result.sizes.tolist() == [5_000]
    assert result.variances[0] == pytest.approx(noisy.distribution.variance, rel=0.3)


@pytest.mark.parametrize("query", QUERIES)
def test_it_finds_the_squared_error_of_the_same_truth(query: str) -> None:
    """From the truth itself the bootstrap's total is the expected squared error over fresh noise."""
    histogram = CountOfCounts.from_runs([1, 2, 5, 9], [60, 30, 10, 2])
    options = FitOptions("l2" if query == "ranks" else "l1")
    exact = answer(histogram, query, NoNoise())
    result = booted(exact, options)
    assert result.histogram.equals(histogram)
    fresh = [estimate(answer(histogram, query, SeededNoise(s)), options, SolverChoices()) for s in range(200)]
    ranks = histogram.ranks()
    error = np.mean([np.sum((fit.histogram.ranks() - ranks) ** 2) for fit in fresh])
    total = float(result.counts @ result.variances)
    assert total == pytest.approx(error, rel=0.3)


def test_variances_repeat_with_the_generator_and_are_never_zero() -> None:
    histogram = CountOfCounts.from_runs([1, 2, 5], [300, 200, 50])
    sharp = answer(histogram, "cumulative", SeededNoise(1), Epsilon(Fraction(50)))
    result = booted(sharp, FitOptions(), replicates=20)
    np.testing.assert_allclose(result.variances, 1 / (20 * result.counts + 1))  # no replicate differed
    noisy = answer(histogram, "cumulative", SeededNoise(1))
    a, b, c = (booted(noisy, FitOptions(), seed, 20).variances for seed in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)
    with pytest.raises(ProblemError, match="at least one replicate"):
        booted(noisy, FitOptions(), replicates=0)


def test_a_region_without_groups_has_no_variances() -> None:
    assert booted(answer(CountOfCounts.empty(), "cumulative", SeededNoise(1)), FitOptions()).variances.size == 0


def of_release(seed: int, **settings: Any) -> tuple[CountOfCounts, ...]:
    hierarchy, truth = three_levels(np.random.default_rng(seed))
    threads = settings.pop("threads", 1)
    method = GroupsMethod(**{"losses": ("l1",) * 3, "consistency": "matching", **settings})
    return estimate_groups(measured(hierarchy, truth, seed=seed), method, threads=threads).histograms


def test_a_release_with_redraws_repeats_whatever_the_threads() -> None:
    first = of_release(3, variances="bootstrap")
    for again in (of_release(3, variances="bootstrap"), of_release(3, variances="bootstrap", threads=3)):
        assert all(a.equals(b) for a, b in zip(first, again, strict=True))
    assert not all(a.equals(b) for a, b in zip(first, of_release(3), strict=True))


@pytest.mark.parametrize("change", [{"merge": "average"}, {"consistency": "bottom_up"}, {"consistency": "joint"}])
def test_nothing_is_redrawn_for_methods_that_read_no_variances(change: dict[str, Any]) -> None:
    method = GroupsMethod(**{"losses": ("l1",) * 3, "variances": "bootstrap", "consistency": "matching", **change})
    assert not method.redraws
    plain, redrawn = of_release(4, **change), of_release(4, variances="bootstrap", **change)
    assert all(a.equals(b) for a, b in zip(plain, redrawn, strict=True))
    assert GroupsMethod(losses=("l1",) * 3, variances="bootstrap", consistency="matching").redraws


READINGS = ("sizes", "cumulative")
LOSSES: tuple[Loss, ...] = ("l1", "l2")


def any_hierarchy(seed: int) -> tuple[Hierarchy, list[CountOfCounts]]:
    """Return a hierarchy of two to four levels with only children, regions without groups and single sizes."""
    rng = np.random.default_rng(seed)
    paths: list[tuple[str, ...]] = [("n",)]
    for _ in range(int(rng.integers(1, 4))):
        paths = [(*path, f"r{k}") for path in paths for k in range(int(rng.integers(1, 4)))]
    hierarchy = Hierarchy.from_paths(paths)
    scale = rng.choice([0, 1, 50], len(hierarchy.leaves))
    leaves = [
        CountOfCounts.from_dense(rng.integers(0, 1 + most, MAX_SIZE + 1) * (rng.random(MAX_SIZE + 1) < 0.5))
        for most in scale
    ]
    return hierarchy, sum_of_leaves(hierarchy, leaves)


@settings(max_examples=80)
@given(st.integers(0, 10_000), st.sampled_from(LOSSES), st.sampled_from(READINGS), st.integers(0, 15))
def test_releases_are_whole_and_consistent(seed: int, loss: Loss, query: str, levels: int) -> None:
    hierarchy, truth = any_hierarchy(seed)
    chosen = [level for level in range(hierarchy.levels) if levels >> level & 1] or [hierarchy.levels - 1]
    shares = [Fraction(level in chosen, len(chosen)) for level in range(hierarchy.levels)]
    noisy = measured(hierarchy, truth, query, seed=seed, shares=shares)
    released = convex(noisy, GroupsMethod(loss, consistency="convex"), SolverChoices())
    assert_consistent(hierarchy, truth, released)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("query", READINGS)
def test_without_noise_the_truth_comes_back(query: str, loss: Loss) -> None:
    for seed in range(12):
        hierarchy, truth = any_hierarchy(seed)
        method = GroupsMethod(losses=(loss,) * hierarchy.levels, consistency="convex")
        released = release(hierarchy, truth, method, [query] * hierarchy.levels, seed=None)
        assert all(a.equals(b) for a, b in zip(released, truth, strict=True))


@pytest.mark.parametrize(
    ("query", "loss", "repairs"),
    [
        ("sizes", "l1", {"simplex_projection", "controlled_rounding"}),
        ("cumulative", "l1", {"isotonic_l1"}),
        ("cumulative", "l2", {"isotonic_l2"}),
    ],
)
def test_the_reading_follows_the_query_and_every_step_is_certified(query: str, loss: Loss, repairs: set[str]) -> None:
    hierarchy, truth = three_levels(np.random.default_rng(4))
    solvers = SolverChoices()
    convex(measured(hierarchy, truth, query), GroupsMethod(loss, consistency="convex"), solvers)
    assert {certificate.problem for certificate in solvers.certificates} == {f"integer_tree_{loss}", *repairs}
    assert all(certificate.relative_gap <= 1e-9 for certificate in solvers.certificates)


def test_what_was_not_measured_follows_the_parent() -> None:
    hierarchy = Hierarchy.from_paths([("n", "a"), ("n", "b")])
    truth = sum_of_leaves(hierarchy, [CountOfCounts.from_dense([0, 20]), CountOfCounts.from_dense([0, 10, 10])])
    method = GroupsMethod(losses=("l1", "l1"), consistency="convex")
    released = release(hierarchy, truth, method, ["cumulative"] * 2, seed=None, shares=[Fraction(1), Fraction(0)])
    assert all(released[leaf].equals(CountOfCounts.from_dense([0, 15, 5])) for leaf in hierarchy.leaves)
    assert_consistent(hierarchy, truth, released)


@given(st.integers(0, 10_000))
def test_moves_are_the_shortest(seed: int) -> None:
    rng = np.random.default_rng(seed)
    children = rng.integers(0, 5, (int(rng.integers(1, 5)), int(rng.integers(1, 7))))
    total = int(children.sum())
    parent = rng.multinomial(total, rng.dirichlet(np.ones(children.shape[1])))
    result = reconciled(parent, children)
    np.testing.assert_array_equal(result.sum(axis=0), parent)
    np.testing.assert_array_equal(result.sum(axis=1), children.sum(axis=1))
    assert result.min() >= 0
    # No table with these sums can be nearer: its distance is at least that of the sums.
    off = result - children
    assert np.abs(off).sum() == np.abs(parent - children.sum(axis=0)).sum()
    assert np.abs(off.cumsum(axis=1)).sum() == np.abs((parent - children.sum(axis=0)).cumsum()).sum()


def test_large_counts_are_reconciled_exactly() -> None:
    rng = np.random.default_rng(3)
    children = rng.integers(10**11, 10**12, (6, 40))
    parent = rng.multinomial(int(children.sum()), np.ones(40) / 40)
    result = reconciled(parent, children)
    np.testing.assert_array_equal(result.sum(axis=0), parent)
    np.testing.assert_array_equal(result.sum(axis=1), children.sum(axis=1))
    assert result.min() >= 0


def test_taxi_is_near_its_measured_errors(shared_data: Path) -> None:
    file = shared_data / "kuo2018" / "taxi_neighbourhoods.csv"
    if not file.is_file():
        pytest.skip("the Taxi file is not on this machine")
    data, cells = read_sizes(file), 5_000
    truth = [histogram.clamp(cells) for histogram in data.histograms()]
    noisy = measured(data.hierarchy, truth, max_size=cells, seed=2018)
    expected: dict[Loss, tuple[int, ...]] = {"l1": (9_500, 5_700, 2_700), "l2": (8_100, 4_900, 2_700)}
    for loss, references in expected.items():
        released = convex(noisy, GroupsMethod(loss, consistency="convex"), SolverChoices())
        errors = np.array([emd(a, b) for a, b in zip(released, truth, strict=True)])
        for level, reference in enumerate(references):
            assert errors[data.hierarchy.level == level].mean() == pytest.approx(reference, rel=0.12)
