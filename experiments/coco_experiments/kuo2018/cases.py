"""The data sets of the experiments: real where the user has them, simulated otherwise, tiny ones for small runs.

Every case says in its name what it is. The paper's own White and synthetic housing files are read where the user has
them (``kuo2018/white_blocks.csv``, ``kuo2018/housing.csv``: level columns root first, then size and groups).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from coco_experiments.data import (
    HAWAII_MAX_SIZE,
    generated_counts,
    hawaii_blocks,
    hawaiian,
    own_copy,
    taxi,
)
from coco_experiments.groups import Case
from coco_experiments.kuo2018.housing import (
    HAWAIIAN,
    WHITE,
    Margin,
    census_households,
    generated_households,
    housing,
    simulated_data,
    spread_over_counties,
)
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.histograms import CountOfCounts, Hierarchy

SEED = 2018
MAX_SIZE = 100_000  # the paper's public bound
TAXI_MAX_SIZE = 5_000  # Taxi's sizes are below
# For 3,000 counties; the simulated data have no larger size, so that only empty cells are left out.
HOUSING_MAX_SIZE, WHITE_MAX_SIZE, HAWAIIAN_MAX_SIZE = 10_000, 5_000, 1_000
CAPPED = "K = 10,000 / 5,000 / 1,000 for housing / White / Hawaiian over counties, to keep 3,161 regions affordable."
WEST_COAST = ("California", "Oregon", "Washington")
WHITE_FILE = "kuo2018/white_blocks.csv"
HOUSING_FILE = "kuo2018/housing.csv"


def taxi_case(folder: Path | None, max_size: int = MAX_SIZE) -> Case:
    """Return Taxi, the paper's own data: 3 levels, 31 regions."""
    return Case.of("Taxi", taxi(folder), max_size)


def hawaii_case(folder: Path | None, column: str = "nhpi") -> Case:
    """Return the census blocks of Hawaii (real, one state): 4 levels, 1,232 regions."""
    return Case.of(f"Hawaii blocks ({column})", hawaii_blocks(column, folder), HAWAII_MAX_SIZE)


def housing_case(folder: Path | None, max_size: int = HOUSING_MAX_SIZE) -> Case:
    """Return housing made by the paper's recipe from H13, or the paper's file where the user has it."""
    own = own_copy(HOUSING_FILE, folder)
    if own is not None:
        return Case.of("Synthetic (the paper's)", own, max_size)
    return Case.of("Synthetic (made anew)", housing(census_households(folder), SEED), max_size)


def white_case(folder: Path | None, max_size: int = WHITE_MAX_SIZE) -> Case:
    """Return the White simulated data set over the census counties, or the paper's file where the user has it."""
    own = own_copy(WHITE_FILE, folder)
    return _blocks_case(WHITE, folder, max_size) if own is None else Case.of("White (the paper's)", own, max_size)


def hawaiian_case(folder: Path | None, max_size: int = HAWAIIAN_MAX_SIZE) -> Case:
    """Return the paper's Hawaiian margin of the nation, its blocks spread over counties at random."""
    nation = hawaiian(folder).region(0)
    return _blocks_case(replace(HAWAIIAN, name="Hawaiian (counties made)"), folder, max_size, nation)


def _blocks_case(margin: Margin, folder: Path | None, max_size: int, nation: CountOfCounts | None = None) -> Case:
    histogram = simulated_data(margin) if nation is None else nation
    counts = spread_over_counties(histogram, census_households(folder), margin.concentration, SEED)
    return Case.of(margin.name, counts, max_size)


def not_comparable(name: str) -> str:
    """Return why published values do not compare with ours on a case, "" where its data are the paper's."""
    if name in {"Taxi", "Hawaiian"} or name.endswith("(the paper's)"):
        return ""
    return "the paper's data are not public: simulated data stand in"


def small_cases(max_size: int = 400) -> list[Case]:
    """Return three made cases of three levels in place of Taxi, housing and race data; no file is read."""
    rng = np.random.default_rng(SEED)
    households = generated_households(3, 2, 400, rng)
    small = replace(WHITE, name="simulated blocks", groups=6_000, people=60_000, distinct=120, empty=2_500, largest=350)
    return [
        Case.of("made dense", generated_counts(2, 3, 400, max_size // 4, rng), max_size),
        Case.of("made housing", housing(households, SEED, outliers=20, largest=max_size), max_size),
        Case.of("simulated blocks", spread_over_counties(simulated_data(small), households, 0.3, SEED), max_size),
    ]


def top(case: Case, levels: int) -> Case:
    """Return a case with its upper ``levels`` levels only: groups lie in the regions of the last level."""
    hierarchy = case.hierarchy
    count = int(hierarchy.level_start[levels])
    upper = Hierarchy(hierarchy.parent[:count], hierarchy.names[:count])
    leaves = [case.counts.region(region) for region in upper.leaves]
    return Case.of(case.name, PrivateCounts.of_leaves(upper, leaves), case.max_size)


def only(case: Case, states: Sequence[str], name: str, root: str) -> Case:
    """Return the part of a case below the regions of level 1 called ``states``, under a root of its own name."""
    hierarchy = case.hierarchy
    leaves = [leaf for leaf in hierarchy.leaves if hierarchy.paths[leaf].split("/")[1] in states]
    paths = [(root, *hierarchy.paths[leaf].split("/")[1:]) for leaf in leaves]
    part = Hierarchy.from_paths(paths)
    of_leaf = {part.index(path): case.counts.region(leaf) for path, leaf in zip(paths, leaves, strict=True)}
    return Case.of(name, PrivateCounts.of_leaves(part, [of_leaf[leaf] for leaf in part.leaves]), case.max_size)


def west_coast(case: Case) -> Case:
    """Return California, Oregon and Washington of a case over the nation, the root the paper used for 3 levels."""
    return only(case, WEST_COAST, f"{case.name}, West Coast", "West Coast")
