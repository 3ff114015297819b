"""The sampler's stationary law against enumeration on tiny hierarchies, for all questions, laws and priors."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from coco_opt.array_types import Ints
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimating.posterior import chains
from coco_opt.groups.estimating.posterior.chains import Learned, MoveChain, MoveOptions, MoveTables
from coco_opt.groups.estimating.posterior.observations import Answers, Ranks, Survey, compiled_queries, residuals
from coco_opt.kernels import posterior_moves
from coco_opt.privacy import DiscreteGaussian, Geometric, NoiseDistribution
from tests.posterior import tiny

DRAWS = 8_000
DISTRIBUTIONS: dict[str, NoiseDistribution] = {
    "geometric": Geometric(Fraction(17, 10)),
    "gaussian": DiscreteGaussian(Fraction(5, 2)),
}
PARENT = np.array([-1, 0, 0])
GROUPS = np.array([5, 3, 2])
MAX_SIZE = 3
EDGES = Buckets.from_edges([0, 1, 3])
CELLS = Buckets.cells(MAX_SIZE)
PART = Buckets(np.array([1]), np.array([3]))


def answers(queries: list[Buckets | Ranks | None], distribution: str) -> list[Answers]:
    rng = np.random.default_rng(11)
    noise = DISTRIBUTIONS[distribution]
    found = []
    for region, level_query in enumerate(queries):
        if level_query is None:
            continue
        wanted = int(GROUPS[region]) if isinstance(level_query, Ranks) else level_query.begin.size
        values = rng.integers(0, 4, wanted)
        found.append(Answers(region, level_query, values, noise))
    return found


CASES: dict[str, list[Buckets | Ranks | None]] = {
    "cells": [CELLS, CELLS, CELLS],
    "buckets by level": [EDGES, CELLS, CELLS],
    "cells left out": [PART, EDGES, EDGES],
    "ranks": [Ranks(), CELLS, CELLS],
    "split and ranks below": [Ranks(1), Ranks(), Ranks(2)],
    "leaf without answers": [EDGES, CELLS, None],
}


def distance(seen: NDArray[np.int64], wanted: NDArray[np.float64]) -> float:
    """Return chi-square's excess over its degrees of freedom in standard deviations, rare states pooled."""
    draws = int(seen.sum())
    common = wanted * draws >= 5.0
    seen = np.append(seen[common], seen[~common].sum())
    expected = np.append(wanted[common], wanted[~common].sum()) * draws
    kept = expected > 0.0
    freedom = int(kept.sum()) - 1
    square = ((seen[kept] - expected[kept]) ** 2 / expected[kept]).sum()
    return float((square - freedom) / np.sqrt(2.0 * freedom))


def begun(survey: Survey, prior: Learned, start: Ints, options: MoveOptions) -> MoveChain:
    """Return a chain that begins with given histograms under a prior."""
    chain = MoveChain(survey, compiled_queries(survey), start, np.uint64(4))
    chain.use(prior, MoveTables(survey, prior, options))
    return chain


def moved(chain: MoveChain, states: list[Ints], draws: int, thin: int) -> Ints:
    """Return how often each state was drawn."""
    histograms = np.empty((draws, *states[0].shape), np.int64)
    for n in range(draws):
        chain.advance(thin)
        histograms[n] = chain._state.histograms
    return frequencies(histograms, states)


def frequencies(found: Ints, states: list[Ints]) -> Ints:
    """Return how often each state is among the draws."""
    place = (max(int(GROUPS.max()), 1) + 1) ** np.arange(states[0].size)
    keys = np.array([state.ravel() @ place for state in states])
    order = np.argsort(keys)
    drawn = order[np.searchsorted(keys[order], found.reshape(found.shape[0], -1) @ place)]
    return np.bincount(drawn, minlength=keys.size)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("case", CASES)
def test_moves_draw_from_the_enumerated_posterior(case: str, distribution: str) -> None:
    survey = Survey(PARENT, GROUPS, MAX_SIZE, answers(CASES[case], distribution))
    prior = tiny.some_prior(2, MAX_SIZE)
    states, wanted = tiny.posterior(survey, prior)
    chain = begun(survey, prior, states[0], MoveOptions(several=0.5, independent=0.4, furthest=3))
    chain.advance(100)
    assert distance(moved(chain, states, DRAWS, 3), wanted) < 5.0


LEVELS, RANKED, TOPLESS = CASES["buckets by level"], [EDGES, Ranks(), CELLS], [None, EDGES, EDGES]
ALONE = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)]  # several sizes, independent ones
MIXES: dict[str, tuple[list[Buckets | Ranks | None], MoveOptions]] = {
    **{
        f"{several}, {independent}, by group {by_group}": (
            LEVELS,
            MoveOptions(several=several, independent=independent, by_group=by_group, furthest=3, exchanges=0.0),
        )
        for (several, independent), by_group in product(ALONE, (0.0, 1.0))
    },
    "within a window": (LEVELS, MoveOptions(by_group=0.0, within=0.7, several=0.5, furthest=2)),
    "mostly exchanges": (RANKED, MoveOptions(exchanges=8.0, furthest=3)),
    **{
        f"mostly {kind}, {name}": (queries, options)
        for kind, options in (
            ("trades", MoveOptions(exchanges=0.0, trades=8.0, traded=1.0, furthest=2)),
            ("shifts", MoveOptions(exchanges=0.0, trades=1.0, traded=1.0, shifts=12.0, furthest=2)),
        )
        for name, queries in (("ranks", RANKED), ("no root", TOPLESS))
    },
}


@pytest.mark.parametrize("name", MIXES)
def test_each_kind_of_move_keeps_the_posterior(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    queries, options = MIXES[name]
    if options.shifts:  # other trades are of few sizes and groups
        monkeypatch.setattr(chains, "_TRADED_SIZES", 3)
        monkeypatch.setattr(chains, "_MOST_TRADED", 2)
    survey = Survey(PARENT, GROUPS, MAX_SIZE, answers(queries, "geometric"))
    prior = tiny.some_prior(2, MAX_SIZE)
    states, wanted = tiny.posterior(survey, prior)
    chain = begun(survey, prior, states[-1], options)
    chain.advance(100)
    assert distance(moved(chain, states, DRAWS, 6 if queries is LEVELS else 3), wanted) < 5.0
    table = np.empty((3, MAX_SIZE), np.int64)
    chain.fill(table)
    np.testing.assert_array_equal(chain._state.residual, residuals(survey, table.__getitem__)[0])


def test_shifts_move_pairs_that_buckets_and_sums_hold() -> None:
    """Each leaf's two groups have a sharp sum, and their parent's sums are sharp in every bucket of four sizes."""
    sizes, distribution = 64, Geometric(Fraction(1, 20))
    wide, narrow = Buckets.from_edges([0, 32, 64]), Buckets.from_edges(list(range(0, 65, 4)))
    start = np.zeros((2, sizes + 1), np.int64)
    start[0, [37, 57]] = start[1, [38, 58]] = 1
    other = np.zeros_like(start)
    other[0, [38, 56]] = other[1, [37, 59]] = 1
    table, changed = (np.cumsum(each, axis=1)[:, :-1] for each in (start, other))
    assert (narrow.sums(table.sum(axis=0)) == narrow.sums(changed.sum(axis=0))).all()
    found = [Answers(0, narrow, narrow.sums(table.sum(axis=0)), distribution)]
    found += [Answers(leaf + 1, wide, wide.sums(table[leaf]), distribution) for leaf in (0, 1)]
    survey = Survey(PARENT, np.array([4, 2, 2]), sizes, found)
    prior = Learned(np.full((2, sizes + 1), 1 / (sizes + 1)))
    apart = {}
    for shifts in (0.0, 8.0):
        chain = begun(survey, prior, start, MoveOptions(by_group=0.0, trades=0.0, shifts=shifts, furthest=2))
        chain.advance(400)
        apart[shifts] = chain.take_means()[0, 56]
    assert apart[0.0] == 0.0
    assert apart[8.0] > 0.1


def test_trades_move_what_buckets_and_sums_hold() -> None:
    """Leaves asked sharply for one bucket, their parent for all cells: what one spreads the other must gather."""
    wide, cells, distribution = Buckets.from_edges([0, 8]), Buckets.cells(8), Geometric(Fraction(1, 20))
    start = np.zeros((2, 9), np.int64)
    start[0, 3] = start[0, 5] = 20
    start[1, 4] = 40
    table = np.cumsum(start, axis=1)[:, :-1]
    found = [Answers(0, cells, table.sum(axis=0), distribution)]
    found += [Answers(leaf + 1, wide, wide.sums(table[leaf]), distribution) for leaf in (0, 1)]
    survey = Survey(PARENT, np.array([80, 40, 40]), 8, found)
    prior = Learned(np.full((2, 9), 1 / 9))
    gathered = {}
    for trades in (0.0, 4.0):
        chain = begun(survey, prior, start, MoveOptions(exchanges=1.0, trades=trades, furthest=2))
        chain.advance(400)
        gathered[trades] = chain.take_means()[0, 4]
    assert gathered[0.0] == 0.0
    assert gathered[4.0] > 1.0


def test_exchanges_swap_what_sums_pin() -> None:
    """Two leaves of one group, whose sizes only the root was asked for, sharply: each must be seen with either."""
    values = np.array([0, 1, 1, 1, 1, 2, 2, 2])
    cells = Buckets.cells(8)
    found = [Answers(0, cells, values, Geometric(Fraction(1, 20)))]
    survey = Survey(PARENT, np.array([2, 1, 1]), 8, found)
    start = np.zeros((2, 9), np.int64)
    start[0, 1] = start[1, 5] = 1
    prior = Learned(np.full((2, 9), 1 / 9))
    first = {}
    for exchanges in (0.0, 1.0):
        chain = begun(survey, prior, start, MoveOptions(exchanges=exchanges))
        chain.advance(400)
        first[exchanges] = chain.take_means()[0]
    assert first[0.0][1] == 1.0
    assert first[1.0][[1, 5]] == pytest.approx([0.5, 0.5], abs=0.1)


def test_a_wrong_prior_is_noticed() -> None:
    """The distance used above has power: a slightly different prior is rejected."""
    survey = Survey(PARENT, GROUPS, MAX_SIZE, answers(CASES["cells"], "geometric"))
    prior = tiny.some_prior(2, MAX_SIZE)
    states, _ = tiny.posterior(survey, prior)
    other = tiny.some_prior(2, MAX_SIZE)
    other.probabilities[:, 0] *= 1.25
    _, wanted = tiny.posterior(survey, other)
    chain = begun(survey, prior, states[0], MoveOptions(furthest=3))
    assert distance(moved(chain, states, 2 * DRAWS, 3), wanted) > 10.0


def test_residuals_ranks_and_lists_stay_true() -> None:
    """After many moves the state's bookkeeping equals what is computed anew."""
    rng = np.random.default_rng(0)
    parent, groups, max_size = np.array([-1, 0, 0, 1, 1, 2]), np.array([90, 50, 40, 20, 30, 40]), 40
    queries: list[Buckets | Ranks] = [
        Ranks(4),
        Buckets.by_growth(max_size, 0.3),
        Buckets(np.array([2, 9]), np.array([5, 30])),
        Buckets.cells(max_size),
        Ranks(),
        Buckets.by_growth(max_size, 1.0),
    ]
    found = []
    for region, level_query in enumerate(queries):
        wanted = int(groups[region]) if isinstance(level_query, Ranks) else level_query.begin.size
        found.append(Answers(region, level_query, rng.integers(0, 40, wanted), Geometric(Fraction(9))))
    found.append(Answers(1, Ranks(), rng.integers(0, 40, 50), DiscreteGaussian(Fraction(90))))
    survey = Survey(parent, groups, max_size, found)
    start = np.zeros((3, max_size + 1), np.int64)
    start[:, 7] = groups[survey.leaves]
    prior = tiny.some_prior(3, max_size)
    chain = begun(survey, prior, start, MoveOptions(several=0.5))
    chain.advance(300)
    state = chain._state
    table = np.empty((6, max_size), np.int64)
    chain.fill(table)
    residual, ranks = residuals(survey, table.__getitem__)
    np.testing.assert_array_equal(state.residual, residual)
    np.testing.assert_array_equal(state.ranks, ranks)
    np.testing.assert_array_equal(table, tiny.table_of(survey, state.histograms))
    for leaf in range(3):
        held = state.occupied[leaf, : state.occupied_count[leaf]]
        assert sorted(held) == np.flatnonzero(state.histograms[leaf]).tolist()
        assert (state.place[leaf, held] == np.arange(held.size)).all()
    assert chain.accepted > 1_000
    np.testing.assert_allclose(chain.take_means().sum(axis=1), groups[survey.leaves])


@pytest.mark.parametrize("query", [Buckets.from_edges([0, 1, 4_000]), Buckets.cells(4_000)])
def test_squares_of_many_groups_do_not_overflow(query: Buckets) -> None:
    """All of 10^8 groups go from size 0 to the largest: far from the answers, however large the square."""
    groups, distribution = 10**8, DiscreteGaussian(Fraction(25))
    start = np.zeros((1, 4_001), np.int64)
    start[0, 0] = groups
    answers = [Answers(0, query, query.sums(np.full(4_000, groups)), distribution)]
    survey = Survey(np.array([-1]), np.array([groups]), 4_000, answers)
    chain = MoveChain(survey, compiled_queries(survey), start, np.uint64(1))
    change = posterior_moves._shift(chain._queries, chain._state, 0, 0, 4_000, groups, 0, write=False)
    squares = np.square(query.sums(np.full(4_000, groups)).astype(np.float64)).sum()
    assert change == pytest.approx(-squares / (2.0 * 25.0))


def test_alias_tables_give_back_the_chances() -> None:
    rng = np.random.default_rng(1)
    probabilities = rng.dirichlet(np.full(17, 0.3), 6)
    keep, alias = np.empty(probabilities.shape), np.empty(probabilities.shape, np.int32)
    posterior_moves.alias_tables(probabilities, keep, alias)
    for row in range(6):
        back = np.bincount(alias[row], 1.0 - keep[row], 17) + keep[row]
        np.testing.assert_allclose(back / 17.0, probabilities[row], atol=1e-14)
