"""The posterior of one row: forward-backward against enumeration, and the estimator around it."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.groups.estimating.posterior.region import RowOptions, row_posterior
from coco_opt.kernels import isotonic_l1, posterior_region
from coco_opt.kernels.posterior_region import CellAnswers, Increments, Window
from coco_opt.privacy import DiscreteGaussian, Geometric, NoiseDistribution

CELLS, GROUPS = 4, 5
THREE, SIXTEEN = Geometric(Fraction(3)), DiscreteGaussian(Fraction(16))
WINDOWS = {
    "whole": ([0] * CELLS, [GROUPS + 1] * CELLS),
    "ragged": ([0, 0, 1, 2], [3, 6, 5, 4]),
    "gaps": ([0, 2, 2, 5], [1, 2, 1, 1]),
    "falling": ([0, 1, 0, 1], [6, 2, 6, 2]),
}


def probability(increment: int, q: float, rho: float) -> float:
    if increment < 0:
        return 0.0
    return 1.0 - q if increment == 0 else q * (1.0 - rho) * rho ** (increment - 1)


def window_of(name: str) -> Window:
    low, width = WINDOWS[name]
    return Window(np.array(low), np.concatenate([[0], np.cumsum(width)]))


def enumerated(
    window: Window, answer: NDArray[np.int64], distribution: int, steepness: float, prior: Increments
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    low, start = window
    marginal, moved, total = np.zeros(start[-1]), np.zeros(CELLS + 1), 0.0
    for row in itertools.product(*(range(low[i], low[i] + start[i + 1] - start[i]) for i in range(CELLS))):
        ends = (0, *row, GROUPS)
        here = math.prod(probability(ends[i + 1] - ends[i], prior.q[i], prior.rho[i]) for i in range(CELLS + 1))
        away = np.abs(np.array(row) - answer)
        here *= math.exp(-steepness * float(away.sum() if distribution == 0 else (away**2).sum()))
        total += here
        marginal[start[:-1] + np.array(row) - low] += here
        moved += here * (np.diff(ends) > 0)
    return total, marginal / total, moved / total


@pytest.mark.parametrize("distribution", [0, 1])
@pytest.mark.parametrize("name", WINDOWS)
def test_forward_backward_equals_enumeration(name: str, distribution: int) -> None:
    rng = np.random.default_rng(3)
    for _ in range(5):
        window = window_of(name)
        prior = Increments(rng.uniform(0.1, 0.9, CELLS + 1), rng.uniform(0.05, 0.9, CELLS + 1))
        answer = rng.integers(-3, GROUPS + 4, CELLS)
        steepness = float(rng.uniform(0.1, 1.5))
        weight = posterior_region.likelihoods(window, answer, distribution, steepness)
        found, marginal, mean, moved = posterior_region.forward_backward(window, weight, prior, GROUPS)
        total, wanted, wanted_moved = enumerated(window, answer, distribution, steepness, prior)
        np.testing.assert_allclose(marginal, wanted, atol=1e-13)
        np.testing.assert_allclose(moved, wanted_moved, atol=1e-13)
        cell = np.repeat(np.arange(CELLS), np.diff(window.start))
        value = window.low[cell] + np.arange(wanted.size) - window.start[cell]
        np.testing.assert_allclose(mean, np.bincount(cell, wanted * value), atol=1e-12)
        shift = math.log(total) - found  # the kernel's weights are 1 at each cell's best state
        assert shift == pytest.approx(np.log(weight_of_best(window, answer, distribution, steepness)).sum(), abs=1e-9)
        lower = posterior_region.quantiles(window, marginal, np.array([0.5]))[0]
        below = np.array([wanted[(cell == i) & (value <= lower[i])].sum() for i in range(CELLS)])
        assert (below >= 0.5 - 1e-12).all()
        assert (np.diff(lower) >= 0).all()


def weight_of_best(
    window: Window, answer: NDArray[np.int64], distribution: int, steepness: float
) -> NDArray[np.float64]:
    high = window.low + np.diff(window.start) - 1
    away = np.maximum(np.maximum(window.low - answer, answer - high), 0)
    return np.exp(-steepness * np.asarray(away if distribution == 0 else away**2, np.float64))


def test_no_path_through_the_windows_is_reported() -> None:
    window = Window(np.array([3, 0]), np.array([0, 1, 2]))
    prior = Increments(np.full(3, 0.5), np.full(3, 0.5))
    found, *_ = posterior_region.forward_backward(window, np.ones(2), prior, 4)
    assert found == -np.inf


@pytest.mark.parametrize("distributions", [(0,), (1,), (0, 0, 0), (0, 1)])
def test_rows_are_drawn_from_their_posterior(distributions: tuple[int, ...]) -> None:
    """Several answers about one row, as of its ancestors: the draws' frequencies against forward-backward."""
    rng = np.random.default_rng(8)
    window = window_of("ragged")
    prior = Increments(rng.uniform(0.2, 0.8, CELLS + 1), rng.uniform(0.1, 0.8, CELLS + 1))
    steepness = rng.uniform(0.2, 0.9, len(distributions))
    answer = rng.integers(-2, GROUPS + 3, (len(distributions), CELLS))
    weight = np.ones(window.start[-1])
    for distribution, steep, one in zip(distributions, steepness, answer, strict=True):
        weight *= posterior_region.likelihoods(window, one, distribution, float(steep))
    _, wanted, _, _ = posterior_region.forward_backward(window, weight, prior, GROUPS)
    rows = np.zeros((1, CELLS), np.int64)
    blocks = np.arange(len(distributions))
    answers = CellAnswers(rows - answer, np.array(distributions), steepness, np.array([0, len(distributions)]), blocks)
    powers = np.exp(-steepness[:, None] * np.arange(GROUPS + 2.0))
    totals, words = np.array([GROUPS]), np.array([4], np.uint64)
    chain = posterior_region.Rows(rows, totals, window.low[None], window.start[None], powers, words)
    every = Increments(prior.q[None], prior.rho[None])
    seen, draws = np.zeros(wanted.size), 30_000
    for _ in range(draws):
        assert posterior_region.sweep(answers, chain, every)
        seen[window.start[:-1] + rows[0] - window.low] += 1
    np.testing.assert_array_equal(answers.residual, rows - answer)
    error = np.sqrt(wanted * (1.0 - wanted) / draws) + 1e-9
    assert (np.abs(seen / draws - wanted) < 4.5 * error).all()


def noisy_region(distribution: NoiseDistribution, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    rng = np.random.default_rng(seed)
    sizes = np.floor(rng.gamma(1.2, 40.0, 4_000)).astype(np.int64).clip(0, 600)
    counts = np.bincount(sizes, minlength=601)
    true = np.cumsum(counts)[:-1]
    if distribution == THREE:
        noise = rng.geometric(1 - np.exp(-1 / 3), true.size) - rng.geometric(1 - np.exp(-1 / 3), true.size)
    else:
        noise = np.rint(rng.normal(0.0, 4.0, true.size)).astype(np.int64)
    return true, true + noise, sizes.size


@pytest.mark.parametrize("distribution", [THREE, SIXTEEN])
def test_estimate_is_nearer_than_the_isotonic_fit(distribution: NoiseDistribution) -> None:
    ours = theirs = 0
    for seed in range(4):
        true, answers, groups = noisy_region(distribution, seed)
        found = row_posterior(answers, groups, distribution)
        assert found.edge_mass <= RowOptions().edge_mass
        assert (np.diff(found.median) >= 0).all()
        assert found.median[0] >= 0
        assert found.median[-1] <= groups
        inside = (found.quantiles(0.05)[0] <= true) & (true <= found.quantiles(0.95)[0])
        assert 0.8 < inside.mean() <= 1.0
        ours += int(np.abs(found.median - true).sum())
        theirs += int(np.abs(isotonic_l1.fit(answers, 0, groups) - true).sum())
    assert ours < 0.95 * theirs


def test_far_answers_and_small_regions_are_estimated() -> None:
    assert row_posterior(np.array([-40, -30, 50]), 2, Geometric(Fraction(1))).median.tolist() == [0, 0, 2]
    assert row_posterior(np.array([3]), 0, DiscreteGaussian(Fraction(2))).median.tolist() == [0]


@pytest.mark.parametrize(
    ("answers", "groups"),
    [
        (np.array([1.5]), 3),
        (np.zeros(0, np.int64), 3),
        (np.array([1]), -1),
    ],
)
def test_wrong_answers_are_refused(answers: NDArray[np.int64], groups: int) -> None:
    with pytest.raises(ProblemError):
        row_posterior(answers, groups, THREE)
