"""Laws of sizes drawn along with the groups: the sampler's stationary law against enumeration, and gamma draws.

Rows drawn given all others: weights of their states by the formula, and draws against the exact posterior.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest
from scipy import special, stats
from scipy.special import gammaln

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import SolverError
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimating.posterior.chains import CountRowChain, Learned, MoveOptions, MoveTables, Scattered
from coco_opt.groups.estimating.posterior.observations import Answers, Survey, compiled_queries, residuals
from coco_opt.groups.estimating.posterior.prior import Hats, only_last
from coco_opt.kernels import drawing, posterior_base, posterior_shape, posterior_shares, posterior_weights
from coco_opt.kernels.posterior_weights import CellAnswers, Window
from coco_opt.privacy import DiscreteGaussian, Geometric
from tests.posterior import tiny
from tests.posterior.test_moves import (
    CELLS,
    DISTRIBUTIONS,
    EDGES,
    GROUPS,
    MAX_SIZE,
    PARENT,
    answers,
    begun,
    distance,
    frequencies,
    moved,
)

STRENGTH = 3.0
_DRAWS = 100_000  # of the prior


def scattered() -> Scattered:
    """Sizes 0 .. 2 under hats at 0, 1 and 3: size 2 is half of each of the last two. Size 3 has a hat of its own."""
    shape = np.array([0.4, 0.3, 0.1, 0.2])
    return Scattered(shape, Hats.at([0, 1, 3], only_last(MAX_SIZE + 1)), STRENGTH)


def log_probabilities(state: Ints, alpha: Floats, distribution: Floats) -> Floats:
    """Return the log-chance of one leaf's histogram for every row of Dirichlet parameters (draws, 4).

    ``distribution`` (draws, 4, sizes) are the B_j. Summed over how many groups of size 2 are of the middle hat.
    """
    groups, terms = int(state.sum()), []
    for middle in range(int(state[2]) + 1):
        counts = np.array([state[0], state[1] + middle, state[2] - middle, state[3]])
        each = distribution[:, [0, 1, 1, 2, 3], [0, 1, 2, 2, 3]]
        times = np.array([state[0], state[1], middle, state[2] - middle, state[3]])
        ways = special.gammaln(groups + 1) - special.gammaln(times + 1).sum() + (times * np.log(each)).sum(axis=1)
        strength = alpha.sum(axis=1)
        drawn = special.gammaln(strength) - special.gammaln(strength + groups)
        drawn += (special.gammaln(alpha + counts) - special.gammaln(alpha)).sum(axis=1)
        terms.append(ways + drawn)
    found: Floats = special.logsumexp(terms, axis=0)
    return found


def distributions(prior: Scattered, shapes: Floats) -> Floats:
    """Return the B_j (draws, 4, sizes) of shapes (draws, sizes)."""
    some = np.flatnonzero(prior.hats.sums(prior.base[None])[0] > 0.0)
    hats = np.stack([prior.hats.values(np.eye(prior.hats.count)[j]) for j in some])
    found: Floats = hats * shapes[:, None]
    return found / found.sum(axis=2, keepdims=True)


def bases(draws: int, rng: np.random.Generator) -> Floats:
    """Return draws of the base (draws, sizes) from its prior: knots at 0, 1 and 3, and the size 3 alone."""
    constants, log_size = posterior_base, np.log1p([0.0, 1.0, 3.0])
    power, rate, excess = (rng.normal(0.0, spread, draws) for spread in constants.SPREADS)
    roughness = np.exp(rng.uniform(*constants.BOUNDS[0], draws))
    wide = np.diff(log_size)
    square = roughness[:, None] ** 2 * wide + np.array([constants.EMPTY, 0.0]) ** 2
    steps = power[:, None] * wide + rate[:, None] * np.array([1.0, 2.0])
    steps += rng.standard_t(2.0, (draws, 2)) * np.sqrt(square)
    first, second = steps.T
    middle = (np.log1p(2.0) - log_size[1]) / wide[1]
    levels = np.stack([0.0 * first, first, first + middle * second, first + second + excess], axis=1)
    values: Floats = np.exp(levels - levels.max(axis=1, keepdims=True))
    return np.maximum(values / values.sum(axis=1, keepdims=True), 1e-250)


def strengths(draws: int, rng: np.random.Generator) -> Floats:
    """Return strengths from their prior, by the inverse of its distribution function."""
    beyond = (1.0 + posterior_shares.MOST / STRENGTH) ** -posterior_shares.TAIL
    found: Floats = STRENGTH * ((1.0 - (1.0 - beyond) * rng.random(draws)) ** (-1.0 / posterior_shares.TAIL) - 1.0)
    return found


@cache
def log_prior(*, base_is_known: bool = False) -> Floats:
    """Return the log prior of every state: leaves' weights summed out exactly, all else by draws.

    The base is drawn from its prior, or is the chains' first one where it is known. Sizes 1 and 2 depart from it by
    factors of mean 1 and one precision. No answers enter, so all surveys share it.
    """
    prior, rng = scattered(), np.random.default_rng(8)
    base = bases(_DRAWS, rng)
    if base_is_known:
        base[:] = prior.base
    ends = np.log([posterior_shape.LEAST_PRECISION, posterior_shape.MOST_PRECISION])
    precision = np.exp(rng.uniform(*ends, _DRAWS))[:, None]
    factors = np.ones((_DRAWS, MAX_SIZE + 1))
    factors[:, 1:3] = rng.gamma(precision, 1.0, (_DRAWS, 2)) / precision
    distribution = distributions(prior, base * np.maximum(factors, 1e-200))
    mass = np.stack([base[:, 0], base[:, 1] + 0.5 * base[:, 2], 0.5 * base[:, 2], base[:, 3]], axis=1)
    mass = (1.0 - posterior_base.EQUAL) * mass + posterior_base.EQUAL / 4
    root = rng.gamma(np.exp(rng.uniform(*posterior_base.BOUNDS[1], _DRAWS))[:, None] * mass)
    alpha = strengths(_DRAWS, rng)[:, None] * root / root.sum(axis=1, keepdims=True) + 1e-30
    states = tiny.states(Survey(PARENT, GROUPS, MAX_SIZE, ()))
    rows = {row.tobytes(): row for state in states for row in state}
    of_leaf = {key: log_probabilities(row, alpha, distribution) for key, row in rows.items()}
    logs = [special.logsumexp(of_leaf[first.tobytes()] + of_leaf[second.tobytes()]) for first, second in states]
    return np.array(logs) - np.log(_DRAWS)


def enumerated(survey: Survey, *, base_is_known: bool = False) -> tuple[list[Ints], Floats]:
    """Return all states and their probabilities."""
    states = tiny.states(survey)
    likelihoods = [tiny.log_likelihood(survey, tiny.table_of(survey, state)) for state in states]
    logs = np.array(likelihoods) + log_prior(base_is_known=base_is_known)
    probabilities = np.exp(logs - logs.max())
    return states, probabilities / probabilities.sum()


@pytest.mark.parametrize(("trades", "shifts"), [(0.0, 0.0), (4.0, 0.0), (1.0, 8.0)])
def test_weights_and_groups_together_draw_from_the_enumerated_posterior(trades: float, shifts: float) -> None:
    survey = Survey(PARENT, GROUPS, MAX_SIZE, answers([EDGES, None, EDGES], "geometric"))
    prior = scattered()
    states, wanted = enumerated(survey)
    learned = Learned(np.tile(prior.base, (2, 1)), prior)
    options = MoveOptions(several=0.4, independent=0.5, furthest=3, trades=trades, traded=1.0, shifts=shifts)
    chain = begun(survey, learned, states[0], options)
    chain.advance(200)
    seen = moved(chain, states, 10_000, 12)
    assert distance(seen, wanted) < 5.0
    # The distance has power: a prior that holds the base, or the leaves to the shape, is told apart.
    _, stiff = enumerated(survey, base_is_known=True)
    assert distance(seen, stiff) > 5.0
    _, held = tiny.posterior(survey, Learned(learned.probabilities))
    assert distance(seen, held) > 20.0


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_rows_and_weights_together_draw_from_the_enumerated_posterior(distribution: str) -> None:
    survey = Survey(PARENT, GROUPS, MAX_SIZE, answers([CELLS, None, CELLS], distribution))
    prior = scattered()
    states, wanted = enumerated(survey)
    learned = Learned(np.tile(prior.base, (2, 1)), prior)
    chain = CountRowChain(survey, compiled_queries(survey), states[0], np.uint64(1))
    chain.use(learned, MoveTables(survey, learned, MoveOptions()))
    chain.within(np.zeros((2, MAX_SIZE), np.int64), np.full((2, MAX_SIZE), 9))
    found = np.empty((8_000, *states[0].shape), np.int64)
    for n in range(found.shape[0]):
        chain.advance(4)
        found[n] = chain._state.histograms
    assert distance(frequencies(found, states), wanted) < 5.0
    table = np.empty((3, MAX_SIZE), np.int64)
    chain.fill(table)
    np.testing.assert_array_equal(chain._state.residual, residuals(survey, table.__getitem__)[0])


@pytest.mark.parametrize("shape", [0.02, 0.7, 1.0, 40.0])
def test_gamma_draws_have_their_law(shape: float) -> None:
    words = np.array([5], np.uint64)
    drawn = np.array([drawing.gamma(words, shape) for _ in range(4_000)])
    assert stats.kstest(drawn, stats.gamma(shape).cdf).pvalue > 1e-4


ROW_CELLS, ROW_GROUPS = 4, 5


@pytest.mark.parametrize("distributions", [(0,), (1,), (0, 0, 0), (0, 1)])
@pytest.mark.parametrize("scale", [1.0, 900.0])
def test_weights_are_the_likelihoods_up_to_a_factor_a_cell(distributions: tuple[int, ...], scale: float) -> None:
    rng = np.random.default_rng(8)
    window = Window(np.array([0, 0, 1, 2]), np.array([0, 3, 9, 14, 18]))
    steepness = rng.uniform(0.2, 0.9, len(distributions))
    row, near = np.array([0, 2, 3, 4]), rng.integers(-3, 4, (len(distributions), ROW_CELLS))
    residual = np.rint(scale * near).astype(np.int64)
    blocks = np.arange(len(distributions))
    answers = CellAnswers(residual, np.array(distributions), steepness, np.array([0, len(distributions)]), blocks)
    powers, weight = np.exp(-steepness[:, None] * np.arange(8.0)), np.empty(18)
    posterior_weights.weigh(window, answers, 0, row, powers, weight)
    for i in range(ROW_CELLS):
        states = window.low[i] + np.arange(window.start[i + 1] - window.start[i])
        away = np.abs(residual[:, i, None] + states - row[i])
        away = np.where(np.array(distributions)[:, None] == 0, away, away**2)
        wanted = -steepness @ away
        found = weight[window.start[i] : window.start[i + 1]]
        np.testing.assert_allclose(found / found.max(), np.exp(wanted - wanted.max()), atol=1e-12)


@pytest.mark.parametrize("steepness", [30.0, 700.0, 1e6])
@pytest.mark.parametrize("answered", [-9, 0, 2, 9])
def test_sharp_answers_leave_the_nearest_state(steepness: float, answered: int) -> None:
    """Their likelihoods underflow from state to state."""
    window, row = Window(np.array([1, 0, 0]), np.array([0, 1, 3, 7])), np.array([1, 1, 3])
    residual = np.repeat((row - answered)[None, :], 2, axis=0)
    answers = CellAnswers(residual, np.array([0, 0]), np.full(2, steepness), np.array([0, 2]), np.arange(2))
    powers, weight = np.exp(-steepness * np.arange(5.0))[None, :].repeat(2, axis=0), np.empty(7)
    posterior_weights.weigh(window, answers, 0, row, powers, weight)
    for i in range(3):
        states = window.low[i] + np.arange(window.start[i + 1] - window.start[i])
        away = np.abs(states - answered)
        found = weight[window.start[i] : window.start[i + 1]]
        np.testing.assert_allclose(found / found.max(), np.exp(-2.0 * steepness * (away - away.min())), atol=1e-12)


def row_frequencies(survey: Survey, prior: Learned, start: Ints, draws: int) -> Floats:
    """Return how often each value occurs in each cell of each leaf's row, float64[leaves, K, groups + 1]."""
    leaves, cells, groups = survey.leaves, survey.max_size, int(survey.groups[survey.leaves].max())
    chain = CountRowChain(survey, compiled_queries(survey), start, np.uint64(4))
    chain.use(prior)
    chain.within(np.zeros((leaves.size, cells), np.int64), np.full((leaves.size, cells), groups))
    seen, table = np.zeros((leaves.size, cells, groups + 1)), np.empty((survey.parent.size, cells), np.int64)
    for _ in range(draws):
        chain.advance(1)
        chain.fill(table)
        seen[np.arange(leaves.size)[:, None], np.arange(cells), table[leaves]] += 1
    return seen / draws


@pytest.mark.parametrize("distributions", [(0,), (1,), (0, 1)])
def test_rows_are_drawn_from_their_posterior(distributions: tuple[int, ...]) -> None:
    """Several answers about one row, as of its ancestors: the draws' frequencies against the exact marginals."""
    rng = np.random.default_rng(8)
    noise = [(Geometric(Fraction(2)), DiscreteGaussian(Fraction(3)))[kind] for kind in distributions]
    answers = [Answers(0, Buckets.cells(ROW_CELLS), rng.integers(-2, ROW_GROUPS + 3, ROW_CELLS), own) for own in noise]
    survey = Survey(np.array([-1]), np.array([ROW_GROUPS]), ROW_CELLS, answers)
    prior, states = tiny.some_prior(1, ROW_CELLS), np.arange(ROW_GROUPS + 1)
    weight = np.exp(sum(own.distribution.log_weight(states - own.values[:, None]) for own in answers))
    wanted = tiny.marginals(weight, prior.probabilities[0])
    start = np.zeros((1, ROW_CELLS + 1), np.int64)
    start[0, 2] = ROW_GROUPS
    draws = 10_000
    error = np.sqrt(wanted * (1.0 - wanted) / draws) + 1e-9
    assert (np.abs(row_frequencies(survey, prior, start, draws)[0] - wanted) < 4.5 * error).all()


@pytest.mark.parametrize("noise", [Geometric(Fraction(2)), DiscreteGaussian(Fraction(6))])
def test_answers_in_buckets_above_bend_the_rows_as_the_posterior_does(noise: Geometric | DiscreteGaussian) -> None:
    """Two leaves with answers about cells, their parent with sums of two cells: against every pair of rows."""
    rng, cells, groups = np.random.default_rng(3), 3, 3
    buckets = Buckets.from_edges([0, 1, 3])
    own = [Answers(k, Buckets.cells(cells), rng.integers(0, groups + 1, cells), noise) for k in (1, 2)]
    above = Answers(0, buckets, np.array([2 * groups, groups]), noise)
    survey = Survey(np.array([-1, 0, 0]), np.array([2 * groups, groups, groups]), cells, [*own, above])
    assert survey.of_rows
    prior = tiny.some_prior(2, cells)
    rows = [np.array(row) for row in product(range(groups + 1), repeat=cells) if sorted(row) == list(row)]
    wanted = np.zeros((2, cells, groups + 1))
    for pair in product(rows, repeat=2):
        log = sum(
            answers.distribution.log_weight(answers.query.sums(x) - answers.values).sum()
            for answers, x in zip(survey.answers, (*pair, pair[0] + pair[1]), strict=True)
        )
        counts = [np.diff(x, prepend=0, append=groups) for x in pair]
        log += sum((n * np.log(pi) - gammaln(n + 1.0)).sum() for n, pi in zip(counts, prior.probabilities, strict=True))
        for leaf, x in enumerate(pair):
            wanted[leaf, np.arange(cells), x] += np.exp(log)
    wanted /= wanted.sum(axis=2, keepdims=True)
    start = np.zeros((2, cells + 1), np.int64)
    start[:, 1] = groups
    np.testing.assert_allclose(row_frequencies(survey, prior, start, 40_000), wanted, atol=0.012)


def test_no_path_through_the_windows_is_reported() -> None:
    answers = Answers(0, Buckets.cells(2), np.array([3, 0]), Geometric(Fraction(1)))
    survey = Survey(np.array([-1]), np.array([4]), 2, [answers])
    chain = CountRowChain(survey, compiled_queries(survey), np.array([[3, 0, 1]]), np.uint64(1))
    chain.use(tiny.some_prior(1, 2))
    chain.within(np.array([[3, 0]]), np.array([[3, 0]]))
    with pytest.raises(SolverError, match="within its window"):
        chain.advance(1)
