"""The demo's data: a fictitious nation of households, written as the three tables a user would bring.

Nobody lives there, so its noise may be seeded and the truth shown next to the estimates.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.groups.estimating.estimate import GroupsResult, estimate_groups
from coco_opt.groups.estimating.method import Consistency, GroupsMethod
from coco_opt.groups.measuring.entities import read_tables
from coco_opt.groups.measuring.measure import measure_hierarchy
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.groups.noisy_measurements import Loss
from coco_opt.groups.queries import Query
from coco_opt.privacy import Epsilon, SeededNoise
from coco_opt.releases.kind import Truth

NATION = "Meridia"
STATES = ("Alder", "Birch", "Cedar", "Dogwood", "Elm")
COUNTIES_PER_STATE = 6
SEED = 20180610
MAX_SIZE = 400
EPSILON = Epsilon(Fraction(1))

# Shares of households of 1, 2, ... people; the tail continues by a constant ratio.
_SHARES = (0.27, 0.33, 0.16, 0.13, 0.06, 0.025)
_TAIL_RATIO = 0.55
_TAIL_SIZES = 12
_EMPTY_SHARE = 0.04

_CONFIG = f"""\
# The demo's configuration: change a value and run it again with  coco-opt release config.toml
[data]
entities = "entities.csv"     # who is in which group: private in real life
groups = "groups.csv"         # which region each group lies in: public
hierarchy = "hierarchy.csv"   # the regions, one column a level: public

[privacy]
dataset = "Households of {NATION} (simulated)"
epsilon = "{EPSILON.amount}"
noise = "seeded"              # reproducible, so NOT PRIVATE; a real release leaves this line and the seed out
seed = {SEED}

[groups]
max_size = {MAX_SIZE}                # public bound on the size of a group
# query = "cumulative"        # what is left out is chosen: bucket_growth, the budget's split, consistency
# consistency = "posterior"   # joint | posterior | convex | matching | bottom_up | none

[output]
directory = "releases"
private = "private"
title = "Households of {NATION} by size (simulated)"
words = {{ group = "household", entity = "person" }}
"""


@dataclass(frozen=True, slots=True)
class DemoFiles:
    """Where the demo's input lies."""

    config: Path
    entities: Path
    groups: Path
    hierarchy: Path


def write_demo(folder: Path, *, seed: int = SEED, groups: int = 20_000) -> DemoFiles:
    """Write the fictitious nation's three tables and its configuration into a folder, which is created.

    About ``groups`` households in 30 counties, five states; the same seed writes the same files. O(people).
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = DemoFiles(*(folder / n for n in ("config.toml", "entities.csv", "groups.csv", "hierarchy.csv")))
    rng = np.random.default_rng(seed)
    counties = [(state, f"{state} {k}") for state in STATES for k in range(1, COUNTIES_PER_STATE + 1)]
    ids = [f"r{k:02d}" for k in range(1, len(counties) + 1)]
    _write(
        files.hierarchy,
        ("region_id", "nation", "state", "county"),
        ((region, NATION, *county) for region, county in zip(ids, counties, strict=True)),
    )
    region, sizes = _households(rng, len(counties), groups)
    names = [f"g{k:06d}" for k in range(sizes.size)]
    _write(files.groups, ("group_id", "region_id"), zip(names, (ids[k] for k in region), strict=True))
    members = np.repeat(np.arange(sizes.size), sizes)
    people = (f"p{k:07d}" for k in range(members.size))
    _write(files.entities, ("entity_id", "group_id"), zip(people, (names[k] for k in members), strict=True))
    files.config.write_text(_CONFIG, encoding="utf-8")
    return files


def _households(rng: np.random.Generator, regions: int, groups: int) -> tuple[Ints, Ints]:
    """Return the region and the size of every group: households, and a few institutions in some regions."""
    weights = rng.pareto(2.5, regions) + 0.15
    per_region = rng.multinomial(groups, weights / weights.sum())
    tail = _SHARES[-1] * _TAIL_RATIO ** np.arange(1, _TAIL_SIZES + 1)
    shares = np.concatenate([[_EMPTY_SHARE], _SHARES, tail])
    region = np.repeat(np.arange(regions), per_region)
    sizes = rng.choice(shares.size, size=groups, p=shares / shares.sum())
    institutions = rng.poisson(1.5, regions)
    large = np.rint(20 * (1 + rng.pareto(1.1, int(institutions.sum())))).clip(max=MAX_SIZE)
    everywhere = np.concatenate([region, np.repeat(np.arange(regions), institutions)])
    order = np.argsort(everywhere, kind="stable")
    return everywhere[order].astype(np.int64), np.concatenate([sizes, large]).astype(np.int64)[order]


def _write(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def demo_truth(files: DemoFiles, *, seed: int = SEED) -> Truth:
    """Return the fictitious nation's true counts and the results of three baselines with the same seed and budget."""
    counts = read_tables(files.entities, files.groups, files.hierarchy)
    baselines = {
        "matching": _baseline(counts, seed, "matching"),
        "no consistency": _baseline(counts, seed, "none"),
        "bottom-up": _baseline(counts, seed, "bottom_up"),
    }
    return Truth(counts, baselines)


def _baseline(counts: PrivateCounts, seed: int, consistency: Consistency) -> GroupsResult:
    levels = counts.hierarchy.levels
    cumulative: Query = "cumulative"
    l1: Loss = "l1"
    leaves_only = (*(EPSILON * 0,) * (levels - 1), EPSILON)
    measurement = measure_hierarchy(
        counts.histograms(),
        counts.hierarchy,
        counts.group_counts,
        queries=(cumulative,) * levels,
        costs=leaves_only if consistency == "bottom_up" else (EPSILON * Fraction(1, levels),) * levels,
        max_size=MAX_SIZE,
        neighbours="add_remove",
        source=SeededNoise(seed),
    )
    return estimate_groups(measurement, GroupsMethod((l1,) * levels, consistency=consistency))
