"""Laws of sizes drawn along with the groups: the sampler's stationary law against enumeration, and gamma draws."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy import special, stats

from coco_opt.array_types import Floats, Ints
from coco_opt.groups.estimating.posterior.chains import (
    CountRowChain,
    Learned,
    MoveChain,
    MoveOptions,
    MoveTables,
    Scattered,
)
from coco_opt.groups.estimating.posterior.observations import Survey, compiled_queries, residuals
from coco_opt.groups.estimating.posterior.prior import Hats, only_last
from coco_opt.kernels import drawing, posterior_base, posterior_shape, posterior_shares
from tests.posterior import tiny
from tests.posterior.test_moves import (
    CELLS,
    DISTRIBUTIONS,
    EDGES,
    GROUPS,
    MAX_SIZE,
    PARENT,
    answers,
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
    chain = MoveChain(survey, compiled_queries(survey), states[0], np.uint64(1))
    options = MoveOptions(several=0.4, independent=0.5, furthest=3, trades=trades, traded=1.0, shifts=shifts)
    chain.use(learned, MoveTables(survey, learned, options))
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
