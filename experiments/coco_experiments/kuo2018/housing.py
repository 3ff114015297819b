"""Partially synthetic housing: households of the 2010 census by state and county, with a heavy tail put on.

The census tables stop at 7 and more people. The paper continues the ratio (size 7) / (size 6) by binomial draws and
adds 50 outlier groups a state, uniform on 1..10,000, which stand for group quarters. Two departures, both forced by
the tables: households of 7 and more are a total, so the ratio r is chosen below 1 such that the tail sums to it
(n7 = r n6, n8 = r n7, ... gives r = total / (n6 + total)); and counties have no 1-person column, so that a county's
size is the sum of its other columns, which is the same as giving every county its state's share of 1-person
households. Source: Kuo et al. 2018, section 6.1.

Block-like race data, SYNTHETIC too: simulated versions of the paper's White and Hawaiian data (group = census block).
Matched exactly: groups, people, distinct sizes and blocks without anybody. The paper states the first three; the
number of empty blocks of White, the largest sizes and how blocks lie in counties are choices made here. A nation's
margin is spread over counties at random, so that nothing but totals resembles the census. All on runs: 11 million
blocks are about two thousand (size, count) pairs.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from coco_experiments.data import counts_of_runs, data_file
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


OUTLIERS = 50  # a state
LARGEST_OUTLIER = 10_000  # entities
STATES = "census2010_h13/h13_state_2010.csv"
COUNTIES = "census2010_h13/h13_county_2010_n2_to_n7plus.csv"
_COLUMNS = ("n1", "n2", "n3", "n4", "n5", "n6", "n7plus")


@dataclass(frozen=True, eq=False, slots=True)
class Households:
    """Hold public household counts: ``table`` int64[states, 7] has sizes 1..6 and 7 or more (households).

    County c is ``counties[c]``, lies in ``county_state[c]`` and has the size ``county_size[c]`` (any unit).
    """

    states: tuple[str, ...]
    table: Ints
    counties: tuple[str, ...]
    county_state: Ints
    county_size: Ints


def census_households(folder: Path | None = None) -> Households:
    """Read table H13 of 2010 by state and county; 51 states and 3,109 counties."""
    with data_file(STATES, folder).open(newline="", encoding="utf-8") as file:
        states = list(csv.DictReader(file))
    with data_file(COUNTIES, folder).open(newline="", encoding="utf-8") as file:
        counties = list(csv.DictReader(file))
    number = {row["state"]: index for index, row in enumerate(states)}
    return Households(
        tuple(number),
        np.array([[int(row[column]) for column in _COLUMNS] for row in states], np.int64),
        tuple(f"{row['county']} {row['fips']}" for row in counties),
        np.array([number[row["state"]] for row in counties], np.int64),
        np.array([sum(int(row[column]) for column in _COLUMNS[1:]) for row in counties], np.int64),
    )


def generated_households(states: int, counties: int, households: int, rng: np.random.Generator) -> Households:
    """Return made public tables: ``states`` of about ``households`` each, the same number of counties in all."""
    shares = np.array([0.27, 0.33, 0.16, 0.13, 0.065, 0.025, 0.02])
    totals = np.maximum(50, households * np.exp(rng.normal(0.0, 0.5, states))).astype(np.int64)
    owner = np.repeat(np.arange(states, dtype=np.int64), counties)
    return Households(
        tuple(f"state{s}" for s in range(states)),
        np.maximum(1, np.rint(totals[:, None] * shares)).astype(np.int64),
        tuple(f"county{c}" for c in range(owner.size)),
        owner,
        np.maximum(1, 1_000 * np.exp(rng.normal(0.0, 1.0, owner.size))).astype(np.int64),
    )


def tail_ratio(size6: int, size7_plus: int) -> float:
    """Return r < 1 with r + r^2 + ... = size7_plus / size6, the ratio of neighbouring sizes of the tail."""
    return size7_plus / (size6 + size7_plus) if size7_plus else 0.0


def tail(total: int, ratio: float, rng: np.random.Generator) -> Ints:
    """Return the numbers of groups of sizes 7, 8, ..., which sum to ``total``.

    Of the groups that reach a size each goes on to the next with probability ``ratio`` (binomial draws), so that
    neighbouring sizes have that ratio in expectation.
    """
    counts = []
    reached = total
    while reached:
        further = int(rng.binomial(reached, ratio))
        counts.append(reached - further)
        reached = further
    return np.array(counts, np.int64)


def housing(
    households: Households,
    seed: int,
    *,
    scale: float = 1.0,
    outliers: int = OUTLIERS,
    largest: int = LARGEST_OUTLIER,
    root: str = "nation",
) -> PrivateCounts:
    """Return the synthetic groups as a hierarchy nation / state / county.

    ``scale`` multiplies the public counts (groups, rounded half up) before the tail and the ``outliers`` (uniform on
    1..largest) are added.
    Every state's groups of one size are spread over its counties at random in proportion to their sizes.
    O(counties x sizes of a state).
    """
    rng = np.random.default_rng(seed)
    paths = [(root, households.states[s], c) for s, c in zip(households.county_state, households.counties, strict=True)]
    hierarchy = Hierarchy.from_paths(paths)
    place = np.array([hierarchy.index(path) - hierarchy.leaves.start for path in paths], np.int64)
    pieces: list[tuple[Ints, Ints, Ints]] = []
    for state in range(len(households.states)):
        counties = np.flatnonzero(households.county_state == state)
        if counties.size == 0:
            continue
        sizes, counts = _state_runs(households.table[state], scale, rng)
        far = rng.integers(1, largest + 1, outliers)
        sizes, counts = np.r_[sizes, far], np.r_[counts, np.ones(outliers, np.int64)]
        weights = households.county_size[counties] / households.county_size[counties].sum()
        spread = rng.multinomial(counts, weights)
        run, county = np.nonzero(spread)
        pieces.append((place[counties[county]], sizes[run], spread[run, county]))
    leaf, size, count = (np.concatenate([piece[k] for piece in pieces]) for k in range(3))
    return counts_of_runs(hierarchy, leaf, size, count)


def _state_runs(row: Ints, scale: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
    scaled = np.floor(row * scale + 0.5).astype(np.int64)
    above = tail(int(scaled[6]), tail_ratio(int(scaled[5]), int(scaled[6])), rng)
    return np.arange(1, 7 + above.size), np.concatenate([scaled[:6], above])
