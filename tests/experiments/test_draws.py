"""The exact shortcut for noise and fit of sorted sizes: its outcomes are distributed as those of noise and fit."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from coco_experiments.groups import Case
from coco_experiments.kuo2018.methods import estimate_ranks

from coco_opt import CountOfCounts, Hierarchy, SeededNoise, SolverChoices
from coco_opt.groups import GroupsMeasurements
from coco_opt.groups.estimating.estimators import FitOptions, estimate
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.privacy import Epsilon

LARGEST, EPSILON, DRAWS = 10_000, Fraction(1), 2_000
TINY = CountOfCounts(np.array([1, 2, 5]), np.array([4, 2, 1]))


def outcome(histogram: CountOfCounts) -> tuple[int, ...]:
    return (*histogram.sizes.tolist(), *histogram.counts.tolist())


def by_noise_and_fit(seed: int) -> tuple[int, ...]:
    counts = PrivateCounts.of_leaves(Hierarchy.from_paths([("all",)]), [TINY])
    noisy = Case.of("all", counts, LARGEST).measured(SeededNoise(seed), [Epsilon(EPSILON)], "ranks")
    return outcome(estimate(GroupsMeasurements(noisy)[0], FitOptions("l2"), SolverChoices()).histogram)


@pytest.mark.slow
def test_the_shortcut_has_the_outcomes_of_noise_and_fit() -> None:
    """Two-sample chi-square over released histograms; those seen fewer than ten times in all are one class."""
    rng, solvers = np.random.default_rng(7), SolverChoices()
    shortcuts = (
        estimate_ranks(TINY, max_size=LARGEST, epsilon=EPSILON, rng=rng, solvers=solvers).histogram
        for _ in range(DRAWS)
    )
    tallies = [Counter(map(outcome, shortcuts)), Counter(map(by_noise_and_fit, range(DRAWS)))]
    common = [each for each, times in (tallies[0] + tallies[1]).items() if times >= 10]
    seen = np.array([[tally[each] for each in common] for tally in tallies], np.float64)
    seen = np.column_stack([seen, DRAWS - seen.sum(axis=1)])
    seen = seen[:, seen.sum(axis=0) > 0]
    statistic, degrees = float(((seen[0] - seen[1]) ** 2 / seen.sum(axis=0)).sum()), seen.shape[1] - 1
    assert statistic <= degrees + 5.0 * (2 * degrees) ** 0.5
