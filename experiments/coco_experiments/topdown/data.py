"""Tables to release: people of census blocks by race and ethnicity, and a larger made schema drawn from their counts.

The counts of Hawaii's blocks are real (2010 census, ``census2010_blocks``). The 2,016-cell tables are MADE: race
detail, voting age and residence type are drawn at random from fixed shares within each block's real counts.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from coco_experiments.data import data_file
from coco_opt.array_types import Floats, Ints
from coco_opt.errors import InputError
from coco_opt.histograms import Hierarchy
from coco_opt.topdown.measuring.counts import TableCounts
from coco_opt.topdown.schema import Schema

COLUMNS = ("white_nh", "black_nh", "aian_nh", "asian_nh", "nhpi_nh", "hisp")  # then the rest of pop
RACES = ("white", "black", "aian", "asian", "nhpi", "other")
SMALL = Schema(
    {"hispanic": ("no", "yes"), "race": (*RACES, "any")},
    ("hispanic = no & race = any", "hispanic = yes & race != any"),  # the file has no races of Hispanics
)
RESIDENCES = (
    "household",
    "correctional",
    "juvenile",
    "nursing",
    "other_institution",
    "college",
    "military",
    "other_quarters",
)
NO_YOUNG_SOLDIERS = "voting_age = under_18 & residence = military"

_HISPANIC_RACES = np.array([0.40, 0.02, 0.02, 0.08, 0.10, 0.38])  # then the combinations share what is left
_COMBINED = 0.75  # of "other or multiple" people report several races
_UNDER_18 = 0.22
_QUARTERS = np.array([0.05, 0.03, 0.25, 0.04, 0.20, 0.18, 0.25])  # types of the blocks that have group quarters
_WITH_QUARTERS = 0.03  # of blocks


@dataclass(frozen=True, eq=False, slots=True)
class Blocks:
    """Blocks as the leaves of five levels, and their people int64[blocks, 7]: six races of others, then Hispanics."""

    hierarchy: Hierarchy
    people: Ints


@dataclass(frozen=True, eq=False, slots=True)
class Tables:
    """A schema, a hierarchy and the private counts of its leaves."""

    schema: Schema
    hierarchy: Hierarchy
    counts: TableCounts


def hawaii(folder: Path | None = None) -> Blocks:
    """Read Hawaii's 25,016 blocks below state, 5 counties, 351 tracts and 875 block groups.

    Raises ConfigError where the file is absent, InputError where races exceed the population.
    """
    path = data_file("census2010_blocks/hi_2010_block.csv.gz", folder)
    with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
        rows = sorted((row["geoid"].zfill(15), _counts(row)) for row in csv.DictReader(file))
    # Of the 15 digits: 2 state, 3 county, 6 tract, and the first of the block's 4 is its block group.
    paths = [(geoid[:2], geoid[:5], geoid[:11], geoid[:12], geoid) for geoid, _ in rows]
    people = np.array([counts for _, counts in rows], np.int64)
    if (people < 0).any():
        raise InputError("negative-count", "a block has more people of all races than people")
    return Blocks(Hierarchy.from_paths(paths), people)


def generated_blocks(
    rng: np.random.Generator, counties: int = 3, tracts: int = 4, groups: int = 2, blocks: int = 6
) -> Blocks:
    """Return simulated blocks: sizes mostly small, a third empty, races in shares that differ between tracts."""
    paths = [
        ("state", f"c{c}", f"c{c}t{t}", f"c{c}t{t}g{g}", f"c{c}t{t}g{g}b{b}")
        for c in range(counties)
        for t in range(tracts)
        for g in range(groups)
        for b in range(blocks)
    ]
    shares = rng.dirichlet(np.full(7, 0.5), counties * tracts).repeat(groups * blocks, axis=0)
    sizes = np.where(rng.random(len(paths)) < 1 / 3, 0, rng.geometric(1 / 60, len(paths)))
    return Blocks(Hierarchy.from_paths(paths), rng.multinomial(sizes, shares).astype(np.int64))


def small_tables(blocks: Blocks) -> Tables:
    """Return tables of 7 cells: six races of non-Hispanics, and Hispanics."""
    return Tables(SMALL, blocks.hierarchy, TableCounts.from_counts(blocks.hierarchy, SMALL, blocks.people))


def large_schema(structural_zeros: bool = False) -> Schema:
    """Return ethnicity 2 x race 63 x voting age 2 x residence type 8: 2,016 cells, 1,890 with a structural zero."""
    several = tuple("+".join(part) for size in range(2, 7) for part in combinations(RACES, size))
    attributes = {
        "hispanic": ("no", "yes"),
        "race": (*RACES, *several),
        "voting_age": ("under_18", "over_17"),
        "residence": RESIDENCES,
    }
    return Schema(attributes, (NO_YOUNG_SOLDIERS,) if structural_zeros else ())


def large_tables(blocks: Blocks, seed: int = 0, structural_zeros: bool = False) -> Tables:
    """Return simulated tables of 2,016 cells: every block keeps its people, Hispanics and single races of others.

    The rest of the cells are drawn: races of Hispanics, combinations, ages, and quarters in three blocks of a hundred.
    """
    rng = np.random.default_rng(seed)
    schema = large_schema(structural_zeros)
    block, hispanic, race, people = _races(blocks.people, len(schema.attributes["race"]), rng)
    young = rng.binomial(people, _UNDER_18)
    kind, share = _quarters(len(blocks.people), rng)
    parts = []
    for age, count in enumerate((young, people - young)):
        allowed = (kind[block] != RESIDENCES.index("military")) | (age == 1)
        lodged = rng.binomial(count, np.where(allowed, share[block], 0.0))
        parts.append((block, hispanic, race, np.full(block.size, age), np.zeros(block.size, np.int64), count - lodged))
        parts.append((block, hispanic, race, np.full(block.size, age), kind[block], lodged))
    leaf, *codes, counts = (np.concatenate(columns).astype(np.int64) for columns in zip(*parts, strict=True))
    met = counts > 0
    cells = schema.encode({name: code[met] for name, code in zip(schema.names, codes, strict=True)})
    tables = TableCounts.from_microdata(blocks.hierarchy, schema, leaf[met], cells, counts[met])
    return Tables(schema, blocks.hierarchy, tables)


def frames(counts: TableCounts, levels: Sequence[str]) -> dict[str, Any]:
    """Return tables in the form in which a release reads them: "records" with their counts, and "hierarchy"."""
    import pyarrow as pa

    tree, schema = counts.hierarchy, counts.schema
    ids = np.array([f"r{leaf}" for leaf in range(len(tree.leaves))])
    paths = np.array([tree.paths[leaf].split("/") for leaf in tree.leaves])
    leaf = np.repeat(np.arange(ids.size), np.diff(counts.offsets))
    codes = schema.decode(counts.cells)
    values = {name: np.array(schema.attributes[name])[codes[name]] for name in schema.names}
    regions = dict(zip(levels, paths.T, strict=True))
    return {
        "records": pa.table({"region_id": ids[leaf], **values, "count": counts.counts}),
        "hierarchy": pa.table({"region_id": ids, **regions}),
    }


def _counts(row: dict[str, str]) -> list[int]:
    *races, hispanic = (int(row[column]) for column in COLUMNS)
    return [*races, int(row["pop"]) - sum(races) - hispanic, hispanic]


def _races(people: Ints, races: int, rng: np.random.Generator) -> tuple[Ints, Ints, Ints, Ints]:
    """Return runs of (block, hispanic, race of 63, people): combinations fall off steeply in their order."""
    several = 0.8 ** np.arange(races - len(RACES))
    several /= several.sum()
    tables = np.zeros((len(people), 2, races), np.int64)
    tables[:, 0, :5] = people[:, :5]
    mixed = np.concatenate([np.zeros(5), [1 - _COMBINED], _COMBINED * several])
    tables[:, 0] += rng.multinomial(people[:, 5], mixed / mixed.sum())
    of_hispanics = np.concatenate([_HISPANIC_RACES, (1 - _HISPANIC_RACES.sum()) * several])
    tables[:, 1] = rng.multinomial(people[:, 6], of_hispanics / of_hispanics.sum())
    block, hispanic, race = np.nonzero(tables)
    return block, hispanic, race, tables[block, hispanic, race]


def _quarters(blocks: int, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """Return each block's type of group quarters, 1..7, and the share of its people who live there."""
    kind = rng.choice(len(_QUARTERS), blocks, p=_QUARTERS / _QUARTERS.sum()) + 1
    return kind, np.where(rng.random(blocks) < _WITH_QUARTERS, rng.beta(2, 2, blocks), 0.0)
