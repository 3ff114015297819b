"""Clopper-Pearson limits and the bound on epsilon: right, sound, and able to see faults."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from coco_opt.audit import lower_bound
from coco_opt.audit.bounds import clopper_pearson
from coco_opt.errors import ProblemError


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
