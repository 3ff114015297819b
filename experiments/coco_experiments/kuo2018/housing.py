"""Partially synthetic housing: households of the 2010 census by state and county, with a heavy tail put on.

The census tables stop at 7 and more people. The paper continues the ratio (size 7) / (size 6) by binomial draws and
adds 50 outlier groups a state, uniform on 1..10,000, which stand for group quarters. Two departures, both forced by
the tables: households of 7 and more are a total, so the ratio r is chosen below 1 such that the tail sums to it
(n7 = r n6, n8 = r n7, ... gives r = total / (n6 + total)); and counties have no 1-person column, so that a county's
size is the sum of its other columns, which is the same as giving every county its state's share of 1-person
households. Source: Kuo et al. 2018, section 6.1.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coco_experiments.data import data_file
from coco_experiments.simulated import counts_of_runs
from coco_opt.array_types import Ints
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.histograms import Hierarchy

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
