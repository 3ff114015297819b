"""The unattributed estimators of section 3 on one draw of noise, and their squared errors."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt import solving
from coco_opt.array_types import Floats, Ints
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.problems import IsotonicL2
from coco_opt.ranges import SortedCounts, measure_sorted, round_nonnegative

RAW, SORTED, FIT = "S~", "S~r", "S-bar"
GEOMETRIC, GEOMETRIC_L1 = "S-bar, geometric noise", "S-bar p = 1, geometric noise"
ESTIMATORS = (RAW, SORTED, FIT, GEOMETRIC, GEOMETRIC_L1)


def noisy_ranks(ranks: Ints, epsilon: Fraction, rng: np.random.Generator) -> Floats:
    """Return sorted counts (n,) with Laplace noise of scale 1 / epsilon (NOT PRIVATE: seeded)."""
    return ranks + rng.laplace(0.0, 1.0 / float(epsilon), ranks.size)


def fit(noisy: Floats) -> Floats:
    """Return S-bar (n,): the certified isotonic regression in squares."""
    value: Floats = solving.solve(IsotonicL2(noisy)).value
    return value


def estimates(ranks: Ints, epsilon: Fraction, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Return every estimator's answer (n,) on one draw of Laplace and one of geometric noise."""
    noisy = noisy_ranks(ranks, epsilon, rng)
    source = SeededNoise(int(rng.integers(2**62)))
    geometric = SortedCounts.of(measure_sorted(ranks, Epsilon(epsilon), source=source))
    return {
        RAW: noisy,
        SORTED: round_nonnegative(np.sort(noisy)),
        FIT: fit(noisy),
        GEOMETRIC: geometric.isotonic("l2"),
        GEOMETRIC_L1: geometric.isotonic("l1"),
    }


def squared_error(estimate: NDArray[Any], ranks: Ints) -> float:
    """Return the sum of squared errors (Definition 2.3, before the expectation)."""
    difference = np.asarray(estimate - ranks, dtype=np.float64)
    return float(difference @ difference)
