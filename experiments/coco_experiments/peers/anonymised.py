"""Groups of one region: errors by the number of entities, next to the known rates of anonymised histograms.

An anonymised histogram is the multiset of group sizes. Its best possible error, in entities to add or remove, is of the
order of sqrt(n log(1 / epsilon) / epsilon) for n entities and an epsilon below 1, and of sqrt(n) at 1 (upper bound
Suresh 2019, lower bound Manurangsi 2022). The rates have no constants, so what is compared is how errors grow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import log, sqrt
from pathlib import Path

import numpy as np

from coco_experiments.outcome import Cell, Outcome, Reporter, Table
from coco_experiments.peers.study import OURS, finish
from coco_experiments.statistics import Mean
from coco_opt.array_types import Ints
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.problems import IsotonicL1
from coco_opt.ranges import measure_ranges, measure_sorted
from coco_opt.ranges.interval_counts import IntervalCounts
from coco_opt.solving import solve

Sizes = Callable[[int], Ints]

NAME = "peers/anonymised"
ENTITIES, SMALL_ENTITIES = (10**3, 10**4, 10**5, 10**6), (10**2, 10**3)
EPSILONS = (Fraction(1), Fraction(1, 10))
SEEDS, SMALL_SEEDS = 10, 5
STEEPEST = 0.65  # of errors by entities, in logarithms; the rate's is 0.5
_COLUMNS = ("sizes", "epsilon", "method", "entities", "error", "standard error", "error over the rate", "growth")


def staircase(entities: int) -> Ints:
    """Return one group of each size 1, 2, 3, ...: as many different sizes as so many entities can have."""
    return np.arange(1, int(sqrt(2 * entities)) + 1)


def heavy_tail(entities: int) -> Ints:
    """Return sizes that fall with their rank, and add up to about so many entities."""
    groups = np.arange(1, entities + 1, dtype=np.float64)
    sizes = np.floor(sqrt(entities) / groups).astype(np.int64)
    scale = max(1, entities // max(1, int(sizes.sum())))
    return np.sort(sizes[sizes > 0] * scale)


DATA: Mapping[str, Sizes] = {"one group of each size": staircase, "heavy tail": heavy_tail}


def sorted_counts(sizes: Ints, epsilon: Fraction, seed: int) -> Ints:
    """Return sizes from the noisy sorted sizes, made to rise (Hay et al. 2010, with p = 1)."""
    noisy = measure_sorted(sizes, Epsilon(epsilon), source=SeededNoise(seed)).answers[0].values
    return np.asarray(solve(IsotonicL1(noisy, lower=0)).value)


def cumulative_counts(sizes: Ints, epsilon: Fraction, seed: int) -> Ints:
    """Return sizes from noisy numbers of groups of at most each size, made to rise (Kuo et al. 2018).

    A group that grows by one entity leaves one cumulative count, so each count has sensitivity 1 and so have all
    together. The largest size is taken as public, twice the true one.
    """
    largest = 2 * int(sizes.max())
    at_most = np.searchsorted(sizes, np.arange(largest), side="right")
    measured = measure_ranges(at_most, Epsilon(epsilon), source=SeededNoise(seed), fan_out=None)
    noisy = IntervalCounts.of(measured).values[1:]
    fitted = np.asarray(solve(IsotonicL1(noisy, lower=0, upper=sizes.size)).value)
    return np.repeat(np.arange(largest + 1), np.diff(fitted, prepend=0, append=sizes.size))


METHODS = {"sorted sizes": sorted_counts, "cumulative counts": cumulative_counts}


def rate(entities: int, epsilon: Fraction) -> float:
    """Return the order of the best possible error."""
    return sqrt(entities * max(1.0, log(1 / epsilon)) / epsilon)


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure two kinds of sizes of 1,000 to a million entities, ten seeds; small: of 100 and 1,000, five seeds."""
    numbers, seeds = (SMALL_ENTITIES, SMALL_SEEDS) if small else (ENTITIES, SEEDS)
    rows: list[tuple[Cell, ...]] = []
    steep = []
    cases = [(name, epsilon, method) for name in DATA for epsilon in EPSILONS for method in METHODS]
    for done, (name, epsilon, method) in enumerate(cases, 1):
        means, entities = [], []
        for number in numbers:
            sizes = DATA[name](number)
            errors = [
                float(np.abs(np.sort(METHODS[method](sizes, epsilon, seed)) - sizes).sum()) for seed in range(seeds)
            ]
            means.append(Mean.of(tuple(errors)))
            entities.append(int(sizes.sum()))
        growth = float(np.polyfit(np.log(entities), np.log([mean.value for mean in means]), 1)[0])
        if growth > STEEPEST and not small:
            steep.append(
                f"{method} on {name} at epsilon {epsilon}: errors grow with entities to the power {growth:.2f}"
            )
        rows += [
            (name, str(epsilon), f"{OURS}: {method}", n, mean.value, mean.standard_error, over, growth)
            for n, mean in zip(entities, means, strict=True)
            for over in (mean.value / rate(n, epsilon),)
        ]
        reporter.progress(NAME, done, len(cases))
    notes = (
        "Error: entities to add or remove until the sizes are the true ones. Sizes are made; the number of groups is "
        "public here, which anonymised histograms hide.",
        "Growth: the exponent of entities that fits the errors; that of the best possible rate is 0.5.",
    )
    table = Table("Sizes of groups by the number of entities", _COLUMNS, tuple(rows), notes)
    return finish(NAME, [table], steep, out, reporter)
