"""Laws of sizes drawn along with the groups: the sampler's stationary law against enumeration, and gamma draws."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

from coco_opt.groups.estimating.posterior.chains import (
    CountRowChain,
    Learned,
    MoveChain,
    MoveOptions,
    MoveTables,
    Scattered,
)
from coco_opt.groups.estimating.posterior.observations import Survey, compiled_queries, residuals
from coco_opt.groups.estimating.posterior.prior import Hats
from coco_opt.kernels import drawing, posterior_moves, posterior_shape
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
)

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
STRENGTH, ROOT = 3.0, 2.0


def scattered() -> Scattered:
    """Sizes 0 .. 3 under hats at 0, 1 and 3: size 2 is half of each of the last two."""
    shape = np.array([0.4, 0.3, 0.1, 0.2])
    return Scattered(shape, Hats.at([0, 1, 3], np.zeros(MAX_SIZE + 1, bool)), STRENGTH, ROOT)


def log_probabilities(state: IntArray, alpha: FloatArray, distribution: FloatArray) -> FloatArray:
    """Return the log-chance of one leaf's histogram for every row of Dirichlet parameters (draws, 3).

    ``law`` (draws, 3, sizes) are the B_j. Summed over how many groups of size 2 are of the middle hat.
    """
    groups, terms = int(state.sum()), []
    for middle in range(int(state[2]) + 1):
        counts = np.array([state[0], state[1] + middle, state[3] + state[2] - middle])
        each = distribution[:, [0, 1, 1, 2, 2], [0, 1, 2, 2, 3]]
        times = np.array([state[0], state[1], middle, state[2] - middle, state[3]])
        ways = special.gammaln(groups + 1) - special.gammaln(times + 1).sum() + (times * np.log(each)).sum(axis=1)
        strength = alpha.sum(axis=1)
        drawn = special.gammaln(strength) - special.gammaln(strength + groups)
        drawn += (special.gammaln(alpha + counts) - special.gammaln(alpha)).sum(axis=1)
        terms.append(ways + drawn)
    found: FloatArray = special.logsumexp(terms, axis=0)
    return found


def distributions(prior: Scattered, shapes: FloatArray) -> FloatArray:
    """Return the B_j (draws, 3, sizes) of shapes (draws, sizes)."""
    some = np.flatnonzero(prior.hats.sums(prior.base[None])[0] > 0.0)
    hats = np.stack([prior.hats.values(np.eye(prior.hats.count)[j]) for j in some])
    found: FloatArray = hats * shapes[:, None]
    return found / found.sum(axis=2, keepdims=True)


def enumerated(survey: Survey, prior: Scattered, *, loose: bool = True) -> tuple[list[IntArray], FloatArray]:
    """Return all states and their chances: leaves' weights summed out exactly, all else by draws.

    Sizes 1 to 3 depart from the base by factors of mean 1 and one precision, unless the shape is not ``loose``.
    """
    rng = np.random.default_rng(8)
    mass = prior.hats.sums(prior.base[None])[0]
    some = mass > 0.0
    ends = np.log([posterior_shape.LEAST_PRECISION, posterior_shape.MOST_PRECISION])
    precision = np.exp(rng.uniform(*ends, 40_000))[:, None]
    factors = np.ones((40_000, MAX_SIZE + 1))
    if loose:
        factors[:, 1:] = rng.gamma(precision, 1.0, (40_000, MAX_SIZE)) / precision
    distribution = distributions(prior, prior.base * np.maximum(factors, 1e-200))
    root = rng.dirichlet(ROOT * mass[some], 40_000)
    alpha = rng.gamma(1.0, STRENGTH, 40_000)[:, None] * root + 1e-30
    states = tiny.states(survey)
    of_leaf: dict[bytes, FloatArray] = {}
    for state in states:
        for row in state:
            of_leaf.setdefault(row.tobytes(), log_probabilities(row, alpha, distribution))
    logs = []
    for state in states:
        told = sum((of_leaf[row.tobytes()] for row in state), start=np.zeros(alpha.shape[0]))
        mean = special.logsumexp(told) - np.log(told.size)
        logs.append(tiny.log_likelihood(survey, tiny.table_of(survey, state)) + mean)
    probabilities = np.exp(np.array(logs) - max(logs))
    return states, probabilities / probabilities.sum()


@numba.njit(nogil=True)  # type: ignore[untyped-decorator]
def _trace(
    queries: Any, state: Any, prior: Any, plan: Any, basis: Any, shares: Any, counts: Any, thin: int, found: Any
) -> None:
    for n in range(found.shape[0]):
        posterior_moves.advance(queries, state, prior, plan, basis, shares, thin, counts)
        found[n] = state.histograms


@pytest.mark.parametrize("trades", [0.0, 4.0])
def test_weights_and_groups_together_draw_from_the_enumerated_posterior(trades: float) -> None:
    survey = Survey(PARENT, GROUPS, MAX_SIZE, answers([EDGES, None, EDGES], "geometric"))
    prior = scattered()
    states, wanted = enumerated(survey, prior)
    learned = Learned(np.tile(prior.base, (2, 1)), prior)
    chain = MoveChain(survey, compiled_queries(survey), states[0], np.uint64(1))
    options = MoveOptions(several=0.4, independent=0.5, furthest=3, trades=trades, traded=1.0)
    chain.use(learned, MoveTables(survey, learned, options))
    chain.advance(200)
    assert chain._tables is not None
    tables, found = chain._tables, np.empty((10_000, *states[0].shape), np.int64)
    _trace(
        chain._queries,
        chain._state,
        tables.prior,
        tables.plan,
        tables.basis,
        chain._shares,
        np.zeros(states[0].shape),
        12,
        found,
    )
    seen = frequencies(found, states)
    assert distance(seen, wanted) < 5.0
    # The distance has power: a prior that holds the shape to its base, or the leaves to the shape, is told apart.
    _, stiff = enumerated(survey, prior, loose=False)
    assert distance(seen, stiff) > 5.0
    _, held = tiny.posterior(survey, Learned(learned.probabilities))
    assert distance(seen, held) > 20.0


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_rows_and_weights_together_draw_from_the_enumerated_posterior(distribution: str) -> None:
    survey = Survey(PARENT, GROUPS, MAX_SIZE, answers([CELLS, None, CELLS], distribution))
    prior = scattered()
    states, wanted = enumerated(survey, prior)
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
