"""Rows drawn given all others: weights of their states by the formula, and draws against the exact posterior."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy.special import gammaln

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import SolverError
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimating.posterior.chains import CountRowChain, Learned
from coco_opt.groups.estimating.posterior.observations import Answers, Survey, compiled_queries
from coco_opt.kernels import posterior_weights
from coco_opt.kernels.posterior_weights import CellAnswers, Window
from coco_opt.privacy import DiscreteGaussian, Geometric
from tests.posterior import tiny

CELLS, GROUPS = 4, 5


@pytest.mark.parametrize("distributions", [(0,), (1,), (0, 0, 0), (0, 1)])
@pytest.mark.parametrize("scale", [1.0, 900.0])
def test_weights_are_the_likelihoods_up_to_a_factor_a_cell(distributions: tuple[int, ...], scale: float) -> None:
    rng = np.random.default_rng(8)
    window = Window(np.array([0, 0, 1, 2]), np.array([0, 3, 9, 14, 18]))
    steepness = rng.uniform(0.2, 0.9, len(distributions))
    row, near = np.array([0, 2, 3, 4]), rng.integers(-3, 4, (len(distributions), CELLS))
    residual = np.rint(scale * near).astype(np.int64)
    blocks = np.arange(len(distributions))
    answers = CellAnswers(residual, np.array(distributions), steepness, np.array([0, len(distributions)]), blocks)
    powers, weight = np.exp(-steepness[:, None] * np.arange(8.0)), np.empty(18)
    posterior_weights.weigh(window, answers, 0, row, powers, weight)
    for i in range(CELLS):
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


def frequencies(survey: Survey, prior: Learned, start: Ints, draws: int) -> Floats:
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
    answers = [Answers(0, Buckets.cells(CELLS), rng.integers(-2, GROUPS + 3, CELLS), own) for own in noise]
    survey = Survey(np.array([-1]), np.array([GROUPS]), CELLS, answers)
    prior, states = tiny.some_prior(1, CELLS), np.arange(GROUPS + 1)
    weight = np.exp(sum(own.distribution.log_weight(states - own.values[:, None]) for own in answers))
    wanted = tiny.marginals(weight, prior.probabilities[0])
    start = np.zeros((1, CELLS + 1), np.int64)
    start[0, 2] = GROUPS
    draws = 10_000
    error = np.sqrt(wanted * (1.0 - wanted) / draws) + 1e-9
    assert (np.abs(frequencies(survey, prior, start, draws)[0] - wanted) < 4.5 * error).all()


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
    np.testing.assert_allclose(frequencies(survey, prior, start, 40_000), wanted, atol=0.012)


def test_no_path_through_the_windows_is_reported() -> None:
    answers = Answers(0, Buckets.cells(2), np.array([3, 0]), Geometric(Fraction(1)))
    survey = Survey(np.array([-1]), np.array([4]), 2, [answers])
    chain = CountRowChain(survey, compiled_queries(survey), np.array([[3, 0, 1]]), np.uint64(1))
    chain.use(tiny.some_prior(1, 2))
    chain.within(np.array([[3, 0]]), np.array([[3, 0]]))
    with pytest.raises(SolverError, match="within its window"):
        chain.advance(1)
