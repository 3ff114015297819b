"""Five named data sets for isotonic regression, int64 and reproducible from a seed."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.privacy import SeededNoise

SEED = 2018


def _noise(n: int, scale: int, name: str) -> Ints:
    return SeededNoise(SEED).stream(Fraction(scale), measurement="bench", region=name).draw(n)


def noisy_group_sizes(n: int) -> Ints:
    """Return the rank query: households of 1 to 7 people and a few large groups, sorted, noise of scale 1."""
    rng = np.random.default_rng(SEED)
    shares = np.array([0.27, 0.33, 0.16, 0.13, 0.07, 0.03, 0.01])
    sizes = rng.choice(np.arange(1, 8), n, p=shares)
    large = max(1, n // 100_000)
    sizes[:large] = rng.integers(1, 10_001, large)
    return np.sort(sizes).astype(np.int64) + _noise(n, 1, "group sizes")


def noisy_cumulative_counts(n: int) -> Ints:
    """Return the cumulative query: a heavy-tailed histogram that is empty above a tenth of n, noise of scale 1."""
    rng = np.random.default_rng(SEED)
    filled = max(1, n // 10)
    expected = 200_000.0 / (1.0 + np.arange(filled)) ** 1.1 + 0.05
    histogram = np.zeros(n, np.int64)
    histogram[:filled] = rng.poisson(expected)
    return np.cumsum(histogram) + _noise(n, 1, "cumulative counts")


def slope(n: int) -> Ints:
    """Return a line that rises by one a step, with noise of scale 2: many short blocks."""
    return np.arange(n, dtype=np.int64) + _noise(n, 2, "slope")


def flat_run(n: int) -> Ints:
    """Return one long run of equal true values with noise of scale 10: few long blocks."""
    return np.full(n, 1_000, np.int64) + _noise(n, 10, "flat run")


def heavy_ties(n: int) -> Ints:
    """Return three levels moved by -1, 0 or 1: nearly every comparison is a tie."""
    rng = np.random.default_rng(SEED)
    levels = np.sort(rng.integers(0, 3, n))
    return (levels + rng.integers(-1, 2, n)).astype(np.int64)


INSTANCES: dict[str, Callable[[int], Ints]] = {
    "noisy group sizes": noisy_group_sizes,
    "noisy cumulative counts": noisy_cumulative_counts,
    "slope": slope,
    "long flat run": flat_run,
    "heavy ties": heavy_ties,
}
