"""Sampling a hierarchy's posterior: the exact one, consistent, deterministic, better than no prior; sparse draws."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from coco_opt import Epsilon, ExpectedDistance, Marginals, Measurement, SolverChoices
from coco_opt.errors import ProblemError
from coco_opt.groups import Buckets, GroupsMeasurements
from coco_opt.groups.estimating.posterior import sparse
from coco_opt.groups.estimating.posterior.consistent import posterior_estimate
from coco_opt.groups.estimating.posterior.convergence import Convergence
from coco_opt.groups.estimating.posterior.observations import Answers, Ranks, Survey, survey_of
from coco_opt.groups.estimating.posterior.prior import Hats, PriorOptions, SizeProbabilities, only_last
from coco_opt.groups.estimating.posterior.recording import summaries, summary_values
from coco_opt.groups.estimating.posterior.sampler import SamplerOptions, sample_posterior, start_histograms
from coco_opt.groups.estimating.posterior.sparse import (
    SparseDraws,
    SparseSampler,
    fewer_chains,
    has_parents,
    sparse_estimate,
)
from coco_opt.groups.estimating.posterior.spikes import isolated_sizes, root_shape
from coco_opt.kernels import posterior_record
from coco_opt.posterior.chains import Criterion, effective_size, split_r_hat
from coco_opt.privacy import Geometric
from tests.groups.helpers import MAX_SIZE, assert_consistent, measured, three_levels

SHORT = SamplerOptions(chains=2, burn_in=30, most_burn_in=60, settle=10, draws=20, thin=1, most_rounds=2)
PARENT = np.array([-1, 0, 0, 1, 1, 1, 2, 2, 2])


def geometric(rng: np.random.Generator, scale: float, n: int) -> NDArray[np.int64]:
    p = 1.0 - np.exp(-1.0 / scale)
    return np.asarray(rng.geometric(p, n) - rng.geometric(p, n), np.int64)


def made(
    growths: tuple[float, ...], seed: int = 0, groups: int = 60, max_size: int = 50
) -> tuple[Survey, NDArray[np.int64]]:
    """Return noisy answers about nine regions of skewed sizes, and the true cumulative counts."""
    rng = np.random.default_rng(seed)
    true = np.zeros((9, max_size), np.int64)
    for leaf in range(3, 9):
        sizes = np.floor(rng.gamma(0.6, 8.0, groups)).astype(np.int64).clip(0, max_size)
        true[leaf] = np.cumsum(np.bincount(sizes, minlength=max_size + 1))[:-1]
    for region in range(8, 0, -1):
        true[PARENT[region]] += true[region]
    counts = np.array([6, 3, 3, 1, 1, 1, 1, 1, 1]) * groups
    level = [0, 1, 1, 2, 2, 2, 2, 2, 2]
    queries = [Buckets.by_growth(max_size, growth) for growth in growths]
    found = []
    for region in range(9):
        level_query = queries[level[region]]
        right = level_query.sums(true[region])
        found.append(Answers(region, level_query, right + geometric(rng, 3.0, right.size), Geometric(Fraction(3))))
    return Survey(PARENT, counts, max_size, found), true


@pytest.mark.parametrize(
    ("growths", "groups", "prior"),
    [
        ((0.1, 0.3, 0.5), 60, PriorOptions()),
        ((0.0, 0.0, 0.0), 150, PriorOptions()),
        ((0.1, 0.0, 0.3), 60, PriorOptions(reach=0.3)),
    ],
)
def test_same_bits_for_every_number_of_threads(growths: tuple[float, ...], groups: int, prior: PriorOptions) -> None:
    survey, true = made(growths, groups=groups)
    one, two = (sample_posterior(survey, 5, prior=prior, options=replace(SHORT, threads=n)) for n in (1, 2))
    np.testing.assert_array_equal(one.cumulative.counts, two.cumulative.counts)
    np.testing.assert_array_equal(one.mean, two.mean)
    np.testing.assert_array_equal(one.r_hat, two.r_hat)
    other = sample_posterior(survey, 6, prior=prior, options=SHORT)
    assert (other.mean != one.mean).any()
    lower, upper = one.quantile(1, 2), one.quantile(1, 2, upper=True)
    assert (lower <= upper).all()
    assert (np.diff(lower, axis=1) >= 0).all()
    assert (np.diff(upper, axis=1) >= 0).all()
    assert (lower >= 0).all()
    assert (upper <= survey.groups[:, None]).all()
    # Draws add up, so their means do.
    total = np.zeros_like(one.mean)
    np.add.at(total, PARENT[1:], one.mean[1:])
    np.testing.assert_allclose(total[:3], one.mean[:3])
    outer = one.quantile(1, 20), one.quantile(19, 20, upper=True)
    inside = (outer[0] <= true) & (true <= outer[1])
    assert inside.mean() > 0.85


def test_the_posterior_is_nearer_than_the_leaves_fits() -> None:
    ours = theirs = 0
    for seed in range(3):
        survey, true = made((0.1, 0.3, 0.5), seed)
        found = sample_posterior(survey, seed, options=replace(SHORT, draws=100))
        table = np.empty(true.shape, np.int64)
        posterior_record.cumulate(PARENT, survey.leaves, start_histograms(survey, np.arange(survey.leaves.size)), table)
        ours += int(np.abs(found.quantile(1, 2) - true).sum())
        theirs += int(np.abs(table - true).sum())
    assert ours < 0.75 * theirs


def test_sampling_stops_when_it_has_converged_and_says_when_not() -> None:
    survey, _ = made((0.1, 0.3, 0.5))
    criterion = Criterion(1.05, 60.0)
    long = sample_posterior(survey, 1, options=replace(SHORT, most_rounds=60, criterion=criterion))
    assert criterion.met(long.r_hat, long.effective).all()
    assert 80 < long.draws < 60 * 40
    limited = replace(SHORT, most_rounds=60, criterion=criterion, seconds=1e-3)
    assert sample_posterior(survey, 1, options=limited).draws == 80
    short = sample_posterior(survey, 1, options=replace(SHORT, most_rounds=1))
    assert not criterion.met(short.r_hat, short.effective).all()
    assert short.draws == 40
    assert 50 <= short.sweeps <= 80
    assert 0.0 < short.accepted < 1.0


def test_ranks_and_missing_levels_are_sampled() -> None:
    rng = np.random.default_rng(3)
    full, true = made((0.1, 0.3, 0.5))
    sizes = np.repeat(np.arange(51), np.diff(true[0], prepend=0, append=360))
    found = [Answers(0, Ranks(), sizes + geometric(rng, 3.0, 360), Geometric(Fraction(3))), *full.answers[3:6]]
    survey = Survey(PARENT, full.groups, 50, found)
    result = sample_posterior(survey, 2, options=SHORT)
    assert np.abs(result.quantile(1, 2)[0] - true[0]).sum() < 300
    again = sample_posterior(survey, 2, options=SHORT, start=start_histograms(survey, np.arange(survey.leaves.size)))
    assert np.abs(again.quantile(1, 2)[0] - true[0]).sum() < 300
    assert (again.mean != result.mean).any()


def test_quantiles_are_decided_in_whole_numbers() -> None:
    low, start = np.array([[3, 0]], np.int32), np.array([0, 4, 6])
    counts = np.array([2, 0, 1, 1, 0, 4], np.uint16)
    found = np.empty((1, 2), np.int64)
    for part, of, upper, wanted in [
        (1, 2, False, [3, 1]),
        (1, 2, True, [5, 1]),
        (3, 4, False, [5, 1]),
        (3, 4, True, [6, 1]),
        (0, 1, False, [3, 1]),
        (1, 1, True, [6, 1]),
    ]:
        posterior_record.quantile(low, start, counts, 4, part, of, upper, found)
        assert found[0].tolist() == wanted


@pytest.mark.parametrize("reach", [0.0, 0.15, 0.3])
def test_hats_share_every_size_out(reach: float) -> None:
    alone = only_last(40)
    alone[[0, 17]] = True
    hats = Hats.by_reach(alone, reach)
    np.testing.assert_allclose(hats.values(np.ones(hats.count)), 1.0)
    values = np.random.default_rng(1).random((3, 40))
    np.testing.assert_allclose(hats.sums(values).sum(axis=1), values.sum(axis=1))
    factors = np.random.default_rng(2).random((3, hats.count))
    np.testing.assert_allclose((hats.values(factors) * values).sum(axis=1), (hats.sums(values) * factors).sum(axis=1))
    only = hats.sums(np.eye(40)[17:18])[0]
    assert np.count_nonzero(only) == 1
    assert np.count_nonzero(hats.sums(np.ones((1, 40)) - np.eye(40)[17:18])[0][only > 0]) == 0


def test_what_regions_share_is_not_flattened_however_often_it_is_learned() -> None:
    rng = np.random.default_rng(3)
    shape = rng.gamma(0.3, 1.0, 60)
    learner = SizeProbabilities(np.array([-1, 0, 0]), shape, only_last(60), PriorOptions(floor=1e-12))
    counts = np.array([[500.0], [200.0], [300.0]]) * shape / shape.sum()
    found = learner.learn(counts, steps=300)
    np.testing.assert_allclose(found, np.tile(shape / shape.sum(), (3, 1)), atol=1e-10)


def test_learning_climbs_the_likelihood_and_borrows_from_the_parent() -> None:
    rng = np.random.default_rng(4)
    parent = np.array([-1, 0, 0])
    leaves = rng.multinomial(400, rng.dirichlet(np.full(50, 0.5)), 2).astype(np.float64)
    counts = np.concatenate([leaves.sum(axis=0)[None], leaves])
    learner = SizeProbabilities(parent, np.ones(50), only_last(50), PriorOptions(borrowed=1e-9))
    before = -np.inf
    for _ in range(30):
        value = float(counts[0] @ np.log(learner.learn(counts)[0]))
        assert value >= before - 1e-6
        before = value
    options = PriorOptions(borrowed=20.0)
    empty = np.concatenate([counts[1:2], counts[1:2], np.zeros((1, 50))])
    learned = SizeProbabilities(parent, np.ones(50), only_last(50), options).learn(empty, steps=5)
    np.testing.assert_allclose(learned[2], learned[0])
    assert (learned > 0.0).all()


@pytest.mark.parametrize("noise", [1.0, 60.0])
def test_the_shape_is_as_fine_as_the_answers_tell(noise: float) -> None:
    """A law with an edge: the shape keeps the nearness of the fit to the noisy answers, and is smoother than it."""
    rng = np.random.default_rng(5)
    sizes, groups = 120, 36_000
    true = np.bincount(rng.integers(0, 101, groups), minlength=sizes + 1)
    noisy = np.cumsum(true)[:-1] + geometric(rng, noise, sizes)
    survey = Survey(
        np.array([-1]),
        np.array([groups]),
        sizes,
        [Answers(0, Buckets.cells(sizes), noisy, Geometric(Fraction(noise)))],
    )
    fit = start_histograms(survey, np.arange(survey.leaves.size))[0]
    found = root_shape(survey, fit.astype(np.float64), isolated_sizes(survey, 0.3), 0.15)
    assert found.sum() == pytest.approx(groups)
    away = [np.abs(np.cumsum(one - true)).sum() for one in (found, fit)]
    assert away[0] < 1.2 * away[1]
    assert np.abs(np.diff(found)).sum() <= np.abs(np.diff(fit)).sum() + 1e-6


def test_the_prior_is_learned_until_it_stands_still_or_the_bound() -> None:
    survey, _ = made((0.1, 0.3, 0.5))
    options = replace(SHORT, burn_in=10, settle=5, update_every=5, most_rounds=1)
    waited = sample_posterior(survey, 1, options=replace(options, prior_moves=0.03))
    assert waited.prior_moved <= 0.03
    assert waited.sweeps > 10 + 20
    bound = sample_posterior(survey, 1, options=replace(options, prior_moves=0.0, most_burn_in=40))
    assert bound.prior_moved > 0.0
    assert bound.sweeps == 40 + 20


def test_r_hat_and_effective_sizes_know_good_chains_from_bad() -> None:
    rng = np.random.default_rng(0)
    good = rng.normal(size=(4, 500, 3))
    assert (np.abs(split_r_hat(good) - 1.0) < 0.02).all()
    assert (effective_size(good) > 1_400).all()
    bad = good + np.arange(4)[:, None, None]
    assert (split_r_hat(bad) > 1.3).all()
    assert (effective_size(bad) < 20).all()
    drifting = good + np.linspace(0.0, 3.0, 500)[:, None]
    assert (split_r_hat(drifting) > 1.2).all()
    phi, slow = 0.8, np.zeros((4, 4_000, 1))
    noise = rng.normal(size=slow.shape)
    for n in range(1, 4_000):
        slow[:, n] = phi * slow[:, n - 1] + noise[:, n]
    assert effective_size(slow)[0] == pytest.approx(16_000 * (1 - phi) / (1 + phi), rel=0.2)
    still = np.ones((4, 10, 1))
    assert split_r_hat(still)[0] == 1.0
    assert effective_size(still)[0] == 40.0
    stuck = still * np.arange(4)[:, None, None]
    assert split_r_hat(stuck)[0] == np.inf


def test_wrong_starts_and_options_are_refused() -> None:
    survey, _ = made((0.1, 0.3, 0.5))
    with pytest.raises(ProblemError, match="numbers of groups"):
        sample_posterior(survey, 1, start=np.zeros((6, 51), np.int64))
    with pytest.raises(ProblemError, match="one histogram"):
        sample_posterior(survey, 1, start=np.zeros((6, 3), np.int64))
    with pytest.raises(ProblemError, match="65,535"):
        SamplerOptions(chains=8, draws=1_000, least_rounds=10)
    with pytest.raises(ProblemError, match="at least one"):
        SamplerOptions(chains=0)


@pytest.mark.parametrize("wrong", [{"reach": 1.0}, {"root_reach": -0.1}, {"borrowed": 0.0}, {"floor": 0.0}])
def test_priors_that_leave_sizes_without_a_chance_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ProblemError):
        PriorOptions(**wrong)  # type: ignore[arg-type]


def test_one_criterion_decides_and_its_numbers_agree() -> None:
    criterion = Criterion()
    r_hat = np.array([[1.0, 1.1, 1.0], [1.0, 1.1001, 1.0], [1.0, 1.0, 1.0]])
    effective = np.array([[25.0, 40.0, 40.0], [40.0, 40.0, 40.0], [40.0, 40.0, 24.9]])
    assert criterion.met(r_hat, effective).tolist() == [True, False, False]
    np.testing.assert_array_equal(criterion.distance(r_hat, effective) <= 1.0 + 1e-9, [True, False, False])
    state = Convergence(criterion, 3, (1, 2), float(r_hat.max()), float(effective.min()), "multinomial", 200, 180, 0.01)
    text, account = str(state), state.account(("n", "n/a", "n/b"))
    assert "1 of 3 regions have converged" in text
    assert "worst R-hat 1.11, least effective sample size 24" in text  # never rounded to the bound itself
    assert not account["converged"]
    assert account["not_converged"] == ["n/a", "n/b"]
    assert account["regions"] - account["regions_not_converged"] == 1


def test_chains_go_on_until_they_converge_or_their_time_is_used() -> None:
    survey, _ = made((0.1, 0.3, 0.5))
    never = SamplerOptions(chains=2, burn_in=30, most_burn_in=60, draws=10, usual_rounds=3, criterion=Criterion(1.0001))
    unlimited, brief, longer, longest = (
        sample_posterior(survey, 1, options=replace(never, seconds=seconds)) for seconds in (np.inf, 1e-3, 0.2, 0.4)
    )
    assert brief.draws <= unlimited.draws == never.chains * never.usual_rounds * never.draws
    assert unlimited.sweeps < longer.sweeps < longest.sweeps
    again = sample_posterior(survey, 1, options=replace(never, seconds=0.4, threads=1))
    np.testing.assert_array_equal(longest.mean, again.mean)


SHORTEST = SamplerOptions(chains=2, burn_in=20, most_burn_in=40, settle=10, draws=10, thin=1, most_rounds=4, threads=1)
HIERARCHY, TRUTH = three_levels(np.random.default_rng(4))


def noisy(epsilon: int = 1) -> Measurement:
    buckets = [Buckets.by_growth(MAX_SIZE, growth) for growth in (0.2, 0.3, 0.5)]
    return measured(HIERARCHY, TRUTH, "cumulative", buckets=buckets, costs=[Epsilon(Fraction(epsilon))] * 3)


@pytest.fixture(scope="module")
def drawn() -> SparseDraws:
    survey = survey_of(GroupsMeasurements(noisy()))
    with ThreadPoolExecutor(1) as pool:
        return SparseSampler(survey, 7, PriorOptions(), fewer_chains(SHORTEST, survey.parent.size)).sample(pool)


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
