"""Bounds, residuals and direct estimates: Clopper-Pearson limits, kernel densities, and the paper's mechanisms."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from coco_experiments.flaxman2019.counting import (
    MECHANISMS,
    SamplerName,
    UniformTree,
    budget_loss,
    children_of,
    direct_estimate,
    mechanism,
    noise,
    population,
    rake,
)
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom, binomtest, gaussian_kde

from coco_opt.audit import ResidualCounts, empirical_privacy_loss, lower_bound
from coco_opt.audit.bounds import clopper_pearson
from coco_opt.audit.privacy_loss import unit_grid_density
from coco_opt.errors import ProblemError
from coco_opt.histograms import Hierarchy


@pytest.mark.parametrize("trials", [1, 2, 17, 1000])
def test_limits_are_the_exact_ones(trials: int) -> None:
    hits = np.unique(np.linspace(0, trials, 7).astype(int))
    low, high = clopper_pearson(hits, trials, 0.005)
    for number, count in enumerate(hits.tolist()):
        exact = binomtest(count, trials).proportion_ci(0.99, method="exact")
        assert (low[number], high[number]) == pytest.approx((exact.low, exact.high), rel=1e-9)


@pytest.mark.parametrize("p", [0.001, 0.05, 0.3, 0.5, 0.9, 0.999])
def test_each_limit_is_wrong_at_most_as_often_as_stated(p: float) -> None:
    hits = np.arange(41)
    low, high = clopper_pearson(hits, 40, 0.02)
    probabilities = binom.pmf(hits, 40, p)
    assert probabilities[low > p].sum() <= 0.02
    assert probabilities[high < p].sum() <= 0.02


def _sides(epsilon: float, runs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    noise = [np.floor(rng.standard_exponential((2, runs)) / epsilon) for _ in range(2)]
    return noise[0][0] - noise[0][1], noise[1][0] - noise[1][1] + 1


def test_bound_approaches_epsilon_from_below() -> None:
    bounds = [lower_bound(*_sides(1.0, runs, 3)).epsilon for runs in (100, 10_000, 400_000)]
    assert bounds == sorted(bounds)
    assert 0.95 < bounds[-1] <= 1.0


def test_bound_hardly_ever_exceeds_epsilon() -> None:
    # At confidence 0.9 at most 40 of 400 may; binomial(400, 0.1) stays below 60 but for 1 in 1000.
    above = sum(lower_bound(*_sides(0.7, 400, seed), confidence=0.9).epsilon > 0.7 for seed in range(400))
    assert above < 60


def test_event_is_chosen_on_one_half_and_judged_on_the_other() -> None:
    # The first halves differ in everything, the second ones in nothing: only the second may count.
    first = np.concatenate([np.zeros(500), np.zeros(500)])
    second = np.concatenate([np.ones(500), np.zeros(500)])
    assert lower_bound(first, second).epsilon == 0.0
    found = lower_bound(np.zeros(1000), np.ones(1000))
    assert (found.hits, found.trials, found.other_hits, found.other_trials) == (500, 500, 0, 500)
    sure = 0.0005 ** (1 / 500)
    assert found.epsilon == pytest.approx(math.log(sure / (1 - sure)))


def test_best_of_several_statistics_sides_and_directions_is_used() -> None:
    rng = np.random.default_rng(4)
    noise = rng.normal(size=(2, 4000))
    first = np.column_stack([noise[0], np.zeros(4000)])
    second = np.column_stack([noise[1], -np.ones(4000)])
    found = lower_bound(first, second)
    assert found.event.statistic == 1
    assert found.epsilon > 5
    swapped = lower_bound(second, first)
    assert swapped.epsilon == found.epsilon
    assert swapped.event.favours_second != found.event.favours_second


def test_delta_lowers_the_bound() -> None:
    one, two = _sides(1.0, 40_000, 5)
    plain, relaxed = lower_bound(one, two), lower_bound(one, two, delta=0.1)
    assert 0 < relaxed.epsilon < plain.epsilon
    assert lower_bound(one, two, delta=0.9).epsilon == 0.0


@pytest.mark.parametrize(
    ("first", "second", "options"),
    [
        (np.zeros(1), np.zeros(5), {}),
        (np.zeros((5, 2)), np.zeros((5, 1)), {}),
        (np.zeros(5), np.zeros(5), {"confidence": 1.0}),
        (np.zeros(5), np.zeros(5), {"choosing": 0.0}),
        (np.zeros(5), np.zeros(5), {"delta": 1.0}),
    ],
)
def test_bad_arguments_are_refused(first: np.ndarray, second: np.ndarray, options: dict[str, float]) -> None:
    with pytest.raises(ProblemError):
        lower_bound(first, second, **options)


whole = st.lists(st.integers(-50, 50), min_size=2, max_size=60)


def _geometric(epsilon: float) -> ResidualCounts:
    """Return an ideal sample of 10^14 double-geometric residuals."""
    k = np.arange(-1500, 1501)
    a = math.exp(-epsilon)
    counts = np.rint(1e14 * (1 - a) / (1 + a) * a ** np.abs(k)).astype(np.int64)
    return ResidualCounts(k[counts > 0].astype(np.float64), counts[counts > 0])


@given(whole, st.floats(0, 100))
def test_residual_counts_have_numpys_moments_and_percentiles(values: list[int], percent: float) -> None:
    counted = ResidualCounts.of(np.array(values))
    assert counted.n == len(values)
    assert counted.deviation == pytest.approx(np.std(values, ddof=1), abs=1e-9)
    assert counted.percentile(percent) == pytest.approx(np.percentile(values, percent), abs=1e-9)


@given(whole, whole)
def test_total_counts_both_parts(one: list[int], two: list[int]) -> None:
    both = ResidualCounts.total([ResidualCounts.of(np.array(part)) for part in (one, two)])
    together = ResidualCounts.of(np.array(one + two))
    assert np.array_equal(both.values, together.values)
    assert np.array_equal(both.counts, together.counts)
    assert ResidualCounts.total([]).n == 0


@pytest.mark.parametrize("bad", [([1.0, 0.0], [1, 1]), ([0.0], [0]), ([math.nan], [1]), ([0.0, 1.0], [1])])
def test_residual_counts_refuse_what_is_not_a_distribution(bad: tuple[list[float], list[int]]) -> None:
    with pytest.raises(ProblemError):
        ResidualCounts(np.array(bad[0]), np.array(bad[1], np.int64))


def _lattice(kind: str) -> NDArray[np.float64]:
    rng = np.random.default_rng(1)
    drawn = rng.laplace(scale=20.0, size=700)
    return np.asarray({"whole": np.rint(drawn), "shifted": np.rint(drawn) + 0.25, "real": drawn}[kind])


@pytest.mark.parametrize("kind", ["whole", "shifted", "real"])
@pytest.mark.parametrize("factor", [0.02, 0.15, 1.0])
def test_density_is_scipys(kind: str, factor: float) -> None:
    residuals = _lattice(kind)
    counted = ResidualCounts.of(residuals)
    ours = unit_grid_density(counted, -60.3, 120, factor * counted.deviation)
    scipys = gaussian_kde(residuals, factor)(-60.3 + np.arange(120))
    assert ours == pytest.approx(scipys, rel=1e-10)


def test_density_far_from_every_residual_is_zero() -> None:
    counted = ResidualCounts.of(np.array([0.0, 1.0]))
    assert unit_grid_density(counted, 1e6, 3, 1.0).tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(ProblemError, match="bandwidth"):
        unit_grid_density(counted, 0.0, 3, 0.0)


@pytest.mark.parametrize("epsilon", [0.0125, 0.025, 0.1])
def test_loss_of_ideal_geometric_residuals_is_epsilon_outside_the_middle(epsilon: float) -> None:
    loss = empirical_privacy_loss(_geometric(epsilon))
    outside = loss.mean_between(4 * loss.bandwidth, loss.residual_range)
    assert outside == pytest.approx(epsilon, rel=2e-3)
    assert loss.maximum == pytest.approx(epsilon, rel=2e-3)
    assert loss.deviation == pytest.approx(math.sqrt(2) / epsilon, rel=0.01)


def test_loss_is_taken_on_unit_bins_below_the_range() -> None:
    residuals = np.random.default_rng(2).laplace(scale=30.0, size=2_000)
    loss = empirical_privacy_loss(residuals, range_factor=1.5, percentile=90.0)
    reach = 1.5 * max(abs(np.percentile(residuals, 10)), abs(np.percentile(residuals, 90)))
    assert loss.residual_range == pytest.approx(reach)
    assert loss.centres[0] == pytest.approx(0.5 - reach)
    assert np.diff(loss.centres) == pytest.approx(1.0)
    assert reach - 1.5 < loss.centres[-1] < reach
    density = gaussian_kde(residuals, 0.15)(loss.centres)
    assert loss.loss == pytest.approx(np.log(density[:-1] / density[1:]), abs=1e-9)
    edges = np.append(loss.centres - 0.5, loss.centres[-1] + 0.5)
    assert np.array_equal(loss.counts, np.histogram(residuals, edges)[0])


def test_gaps_in_the_density_are_left_out() -> None:
    loss = empirical_privacy_loss(np.repeat([-4000.0, 0.0, 4000.0], 50), bandwidth=0.001)
    assert np.isnan(loss.loss).any()
    assert math.isfinite(loss.maximum)
    assert math.isnan(loss.mean_between(1000.0, 1001.0))


def test_equal_residuals_have_no_estimate() -> None:
    with pytest.raises(ProblemError, match="equal"):
        empirical_privacy_loss(np.zeros(10))
    with pytest.raises(ProblemError, match="equal"):
        empirical_privacy_loss(np.zeros(1))


@given(st.integers(1, 300), st.integers(1, 6), st.integers(0, 10**6))
def test_root_is_exact(root: int, levels: int, extra: int) -> None:
    below = (root + 1) ** levels - 1
    people = min(root**levels + extra, below)
    assert children_of(people, 1, levels) == root
    assert children_of(100 * people, 100, levels) == root


@pytest.mark.parametrize(("children", "levels"), [(1, 3), (2, 3), (5, 2), (7, 1)])
def test_uniform_tree_is_a_hierarchy(children: int, levels: int) -> None:
    tree = UniformTree.of(children, levels)
    hierarchy = Hierarchy.from_parents(tree.parent, [f"r{k}" for k in range(tree.parent.size)])
    assert np.array_equal(hierarchy.parent, tree.parent)
    assert np.array_equal(hierarchy.level_start, tree.level_start)
    counts = np.arange(tree.cells, dtype=np.int64)
    assert np.array_equal(tree.counts(counts), _sums(hierarchy, counts))


def _sums(hierarchy: Hierarchy, leaves: np.ndarray) -> np.ndarray:
    values = np.zeros(hierarchy.regions, np.int64)
    values[hierarchy.leaves.start :] = leaves
    for region in range(hierarchy.regions - 1, 0, -1):
        values[hierarchy.parent[region]] += values[region]
    return values


def test_raking_by_hand() -> None:
    tree = UniformTree.of(2, 2)
    raked = rake(np.array([12.0, 1, 3, 1, 2, 5, -1]), tree.parent, tree.level_start)
    assert raked.tolist() == [12, 3, 9, 1, 2, 11.25, -2.25]


def test_raking_shares_equally_where_the_children_sum_to_nothing() -> None:
    tree = UniformTree.of(2, 1)
    assert rake(np.array([10.0, 4, -4]), tree.parent, tree.level_start).tolist() == [10, 5, 5]
    assert rake(np.zeros(3), tree.parent, tree.level_start).tolist() == [0, 0, 0]


@given(st.lists(st.integers(-20, 40), min_size=13 * 2, max_size=13 * 2))
def test_raked_children_sum_to_their_parents_in_every_cell(values: list[int]) -> None:
    tree = UniformTree.of(3, 2)
    noisy = np.array(values, np.float64).reshape(13, 2)
    raked = rake(noisy, tree.parent, tree.level_start)
    assert np.array_equal(raked[0], noisy[0])
    for parent in range(4):
        children = np.flatnonzero(tree.parent == parent)
        scale = 1e-9 * (1 + np.abs(raked[children]).max())
        assert raked[children].sum(axis=0) == pytest.approx(raked[parent], abs=scale)


@pytest.mark.parametrize(("sampler", "ratio"), [("ratio", 0.6), ("exact", math.exp(-0.4))])
def test_samplers_have_their_law(sampler: SamplerName, ratio: float) -> None:
    drawn = noise(0.4, 200_000, sampler, np.random.default_rng(1))
    k = np.arange(-8, 9)
    expected = 200_000 * (1 - ratio) / (1 + ratio) * ratio ** np.abs(k)
    found = np.array([np.count_nonzero(drawn == value) for value in k])
    assert ((found - expected) ** 2 / expected).sum() < 45  # chi-square, 17 cells: 1 in 3000
    assert budget_loss(0.4, sampler) == pytest.approx(-math.log(ratio))


def test_population_places_everybody() -> None:
    tree = UniformTree.of(4, 2)
    leaves = population(1_000, tree, np.random.default_rng(2))
    assert leaves.shape == (16,)
    assert leaves.sum() == 1_000


@pytest.mark.parametrize("sampler", ["ratio", "exact"])
def test_mechanisms_spend_their_budget_as_stated(sampler: SamplerName) -> None:
    tree = UniformTree.of(10, 3)
    leaves = np.full(1_000, 1_000, np.int64)
    epsilon = 0.2
    deviations = {}
    for name in MECHANISMS:
        errors = mechanism(name, tree, leaves, epsilon, sampler=sampler)(np.random.default_rng(3)) - leaves
        deviations[name] = float(errors.std())
        assert abs(errors.mean()) < 4 * deviations[name] / math.sqrt(1_000) + 1
    assert deviations["GDPC"] == pytest.approx(math.sqrt(2) / 0.2, rel=0.1)
    # Four runs at a quarter: four times the noise, halved by the mean. RDPC's cells have a quarter as well.
    assert deviations["ADPC"] == pytest.approx(2 * math.sqrt(2) / 0.2, rel=0.1)
    assert deviations["RDPC"] == pytest.approx(4 * math.sqrt(2) / 0.2, rel=0.1)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda rng: children_of(5, 100, 3),
        lambda rng: rake(np.zeros(4), UniformTree.of(2, 1).parent, UniformTree.of(2, 1).level_start),
        lambda rng: noise(0.0, 3, "exact", rng),
        lambda rng: noise(1.0, 3, "ratio", rng),
        lambda rng: mechanism("PDPC", UniformTree.of(2, 1), np.zeros(2, np.int64), 1.0),
        lambda rng: direct_estimate(np.zeros(0), np.ones(3)),
    ],
)
def test_mistakes_are_refused(mistake: Callable[[np.random.Generator], object]) -> None:
    with pytest.raises(ProblemError):
        mistake(np.random.default_rng(1))


def test_direct_estimate_by_hand() -> None:
    found = direct_estimate(np.array([0, 0, 0, 1]), np.array([0, 1, 1.5, 2]))
    assert found.k.tolist() == [0, 1, 2]
    assert found.equal[:2] == pytest.approx([math.log(3), math.log(1 / 2)])
    assert found.at_least[:2] == pytest.approx([0.0, math.log(1 / 3)])
    assert np.isnan(found.equal[2])
    assert np.isnan(found.at_least[2])
    assert found.maximum == pytest.approx((math.log(3), math.log(3)))


def test_direct_estimate_without_common_events_is_nan() -> None:
    assert np.isnan(direct_estimate(np.zeros(3), np.ones(3)).maximum[0])
