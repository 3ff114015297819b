"""Block-like race data, SYNTHETIC: simulated versions of the paper's White and Hawaiian data (group = census block).

Matched exactly: groups, people, distinct sizes and blocks without anybody. The paper states the first three; the
number of empty blocks of White, the largest sizes and how blocks lie in counties are choices made here. A nation's
margin is spread over counties at random, so that nothing but totals resembles the census. All on runs: 11 million
blocks are about two thousand (size, count) pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from coco_experiments.kuo2018.housing import Households
from coco_experiments.simulated import counts_of_runs
from coco_opt.array_types import Ints
from coco_opt.errors import ConfigError
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.histograms import CountOfCounts, Hierarchy


@dataclass(frozen=True, slots=True)
class Margin:
    """The totals of simulated data: groups, people, distinct sizes (0 included), empty blocks and the largest size.

    ``decay`` (people) is where the sizes' Pareto tail is cut off exponentially; ``concentration`` the standard
    deviation of the logarithm of a county's share beyond its size.
    """

    name: str
    groups: int
    people: int
    distinct: int
    empty: int
    largest: int
    decay: float
    concentration: float


# The paper's totals; White's empty blocks (45 %), largest sizes and shapes are assumed.
WHITE = Margin("White (simulated)", 11_155_486, 226_378_365, 1_916, 5_020_000, 5_000, 150.0, 0.3)
HAWAIIAN = Margin("Hawaiian (simulated)", 11_155_486, 540_383, 224, 11_011_898, 908, 60.0, 1.5)


def simulated_data(margin: Margin) -> CountOfCounts:
    """Return one region's histogram with exactly the margin's totals; no randomness, O(distinct) time.

    Sizes 1, 2, ... are all present up to three quarters of the distinct ones, then gaps widen up to the largest. Counts
    follow size^-a exp(-size / decay), a found by bisection, then single groups are moved so that people match. Raises
    ConfigError for totals that no such histogram has.
    """
    sizes = _support(margin.distinct - 1, margin.largest)
    groups = margin.groups - margin.empty
    if groups < 2 * sizes.size:
        raise ConfigError("", f"{margin.name}: too few groups for {margin.distinct} distinct sizes")
    build = partial(_counts, sizes, groups, margin.decay)
    low, high = -4.0, 8.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if int(build(middle) @ sizes) > margin.people else (low, middle)
    counts = _with_people(sizes, build(high), margin.people, margin.name)
    return CountOfCounts.from_runs(np.r_[0, sizes], np.r_[margin.empty, counts])


def _support(distinct: int, largest: int) -> Ints:
    core = 3 * distinct // 4
    spread = np.linspace(0.0, 1.0, distinct - core + 1)[1:] ** 1.5
    far = core + np.maximum(np.arange(1, distinct - core + 1), np.floor(spread * (largest - core) + 0.5))
    return np.concatenate([np.arange(1, core + 1), np.maximum.accumulate(far)], dtype=np.int64, casting="unsafe")


def _counts(sizes: Ints, groups: int, decay: float, exponent: float) -> Ints:
    """Return at least one group a size; rounding the running sum keeps the total exact."""
    weights = np.exp(-exponent * np.log(sizes) - sizes / decay)
    running = np.cumsum(weights) / weights.sum() * (groups - sizes.size)
    rounded: Ints = np.floor(running + 0.5).astype(np.int64)
    return np.diff(rounded, prepend=0) + 1


def _with_people(sizes: Ints, counts: Ints, people: int, name: str) -> Ints:
    """Move groups from a size to a larger one until the people are right; ``counts`` must not have too many."""
    missing = people - int(counts @ sizes)
    counts = counts.copy()
    for source in range(sizes.size // 2):
        for step in (min(1 << power, sizes.size - 1 - source) for power in range(9, -1, -1)):
            gain = int(sizes[source + step] - sizes[source])
            moved = min(missing // gain, int(counts[source]) - 1)
            counts[source] -= moved
            counts[source + step] += moved
            missing -= moved * gain
        if missing == 0:
            return counts
    raise ConfigError("", f"{name}: no histogram of these sizes has {people:,} people")


def spread_over_counties(
    histogram: CountOfCounts, households: Households, concentration: float, seed: int, *, root: str = "nation"
) -> PrivateCounts:
    """Return a nation / state / county hierarchy whose root is exactly ``histogram``.

    Empty groups go to counties in proportion to their sizes, others in proportion to sizes times a log-normal factor of
    that ``concentration``. Memory: distinct sizes x counties.
    """
    rng = np.random.default_rng(seed)
    paths = [(root, households.states[s], c) for s, c in zip(households.county_state, households.counties, strict=True)]
    hierarchy = Hierarchy.from_paths(paths)
    place = np.array([hierarchy.index(path) - hierarchy.leaves.start for path in paths], np.int64)
    state_size = households.table.sum(axis=1)
    county = households.county_size.astype(np.float64)
    of_state = np.bincount(households.county_state, county, len(households.states))
    size = county / of_state[households.county_state] * state_size[households.county_state]
    by_size = rng.multinomial(histogram.counts, size / size.sum())
    factor = np.exp(rng.normal(0.0, concentration, size.size)) * size
    spread = rng.multinomial(histogram.counts, factor / factor.sum())
    spread[histogram.sizes == 0] = by_size[histogram.sizes == 0]
    run, at = np.nonzero(spread)
    return counts_of_runs(hierarchy, place[at], histogram.sizes[run], spread[run, at])
