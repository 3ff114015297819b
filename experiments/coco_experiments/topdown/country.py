"""A simulated country in the proportions of the United States in 2010, written by tract: any part of fifty states.

Everything here is simulated. The numbers of regions by level, the persons of a block, the shares of race, ethnicity and
voting age, and who lives in group quarters are those of the 2010 census for the country; how they differ between tracts
and blocks is drawn. A block is one that has residents: of 11 million census blocks, 6.2 million had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from coco_experiments.topdown.census import PERSONS, REGIONS, Batch, Form, GeneratedCensus, Writer
from coco_experiments.topdown.data import RACES, RESIDENCES, large_schema
from coco_opt.array_types import Ints
from coco_opt.topdown.schema import Schema, ValueGroups

FACILITIES = "facilities"
STATES, COUNTIES, TRACTS, GROUPS, BLOCKS = 50, 3_143, 74_000, 220_000, 6_200_000
QUARTERS = {
    "households": RESIDENCES[:1],
    "institutional": RESIDENCES[1:5],
    "other": RESIDENCES[5:],
}

_MEDIAN, _TAIL = 22.0, 1.25  # persons of a block in households, and the spread of their logarithm: 48.5 on average
_WITH_QUARTERS, _QUARTERS_MEDIAN = 0.02, 30.0  # blocks that have group quarters; persons there: 66 on average
_A_FACILITY = 60  # persons in group quarters for each further facility
_TYPES = np.array([2.26, 0.15, 1.50, 0.07, 2.52, 0.34, 1.14])  # million persons by type of group quarters
_HISPANIC, _UNDER_18 = 0.163, 0.24
_RACES = (
    np.array([196.8, 37.7, 2.2, 14.5, 0.48, 0.60, 5.97]),  # million persons, not Hispanic: six races, then several
    np.array([26.7, 1.24, 0.69, 0.21, 0.06, 18.5, 3.04]),  # Hispanic
)
_FALL = 0.8  # each combination of races has this part of the one before
_ALIKE = 0.5  # persons of a block whose race and ethnicity are those of the one before
_LIKE_ALL = 6.0  # how near a tract's shares are to the country's


def schema() -> Schema:
    """Return the redistricting schema: 2,016 cells, 1,890 without children in military quarters."""
    fine = large_schema(structural_zeros=True)
    groups = ValueGroups("residence", {name: list(values) for name, values in QUARTERS.items()})
    return Schema(fine.attributes, fine.structural_zeros, {"quarters": groups})


@dataclass(frozen=True, eq=False)
class GeneratedCountry(GeneratedCensus):
    """A simulated country of some states; its ``schema`` is that of this module. See ``GeneratedCensus``."""

    nation: ClassVar[bool] = True

    @classmethod
    def of(cls, states: int, seed: int, part: float = 1.0) -> GeneratedCountry:
        """Return so many of fifty states, each with a part of its blocks."""
        return cls(schema(), max(states, round(part * states * BLOCKS / STATES)), seed, states)

    @property
    def regions_above(self) -> tuple[int, int, int]:
        """Return the numbers of block groups, tracts and counties."""
        groups, tracts, counties = (
            max(self.states, round(self.blocks * count / BLOCKS)) for count in (GROUPS, TRACTS, COUNTIES)
        )
        return groups, tracts, counties

    def _persons(self, tract: Ints, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
        """Return the runs of a batch's blocks, which lie in these tracts: block, cell and persons."""
        sizes = np.ceil(rng.lognormal(np.log(_MEDIAN), _TAIL, tract.size)).astype(np.int64)
        places = np.flatnonzero(rng.random(tract.size) < _WITH_QUARTERS)
        inmates = np.ceil(rng.lognormal(np.log(_QUARTERS_MEDIAN), _TAIL, places.size)).astype(np.int64)
        types = rng.choice(_TYPES.size, places.size, p=_TYPES / _TYPES.sum()) + 1
        block = np.concatenate([np.repeat(np.arange(tract.size), sizes), np.repeat(places, inmates)])
        residence = np.concatenate([np.zeros(sizes.sum(), np.int64), np.repeat(types, inmates)])
        under_18 = _under_18(tract, block, residence, rng)
        kind = _kinds(tract, block, self.schema.attributes["race"], rng)
        product = (kind * 2 + ~under_18) * len(RESIDENCES) + residence  # voting_age: under_18, over_17
        keys, persons = np.unique(block * self.schema.size + self.schema.position[product], return_counts=True)
        return keys // self.schema.size, keys % self.schema.size, persons.astype(np.int64)

    def write(self, folder: Path, form: Form = "parquet") -> int:
        """Write the tables "regions", "persons" and "facilities" into a folder; return the number of persons."""
        written = 0
        with (
            Writer(folder / f"{REGIONS}.{form}") as regions,
            Writer(folder / f"{PERSONS}.{form}") as persons,
            Writer(folder / f"{FACILITIES}.{form}") as facilities,
        ):
            for batch in self.batches():
                written += self._write(batch, regions, persons)
                blocks, counts = facilities_of(self.schema, batch)
                types = dict(zip(RESIDENCES[1:], counts.T, strict=True))
                facilities.write({"region_id": batch.ids.take(blocks), **types})
        return written


def facilities_of(fine: Schema, batch: Batch) -> tuple[Ints, Ints]:
    """Return the blocks of a batch with facilities, and how many of each type, int64[blocks, types]."""
    residence = fine.decode(batch.cell)["residence"]
    persons = np.zeros((batch.codes[0].size, len(RESIDENCES)), np.int64)
    np.add.at(persons, (batch.block, residence), batch.persons)
    counts = np.where(persons > 0, 1 + persons // _A_FACILITY, 0)[:, 1:]
    blocks = np.flatnonzero(counts.any(axis=1))
    return blocks, counts[blocks]


def _under_18(tract: Ints, block: Ints, residence: Ints, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return who is under 18: all in juvenile quarters, nobody in others, a tract's share in households."""
    young = rng.beta(20 * _UNDER_18, 20 * (1 - _UNDER_18), int(tract[-1]) + 1)[tract[block]]
    juvenile = RESIDENCES.index("juvenile")
    return np.where(residence == 0, rng.random(block.size) < young, residence == juvenile)


def _kinds(tract: Ints, block: Ints, races: Sequence[str], rng: np.random.Generator) -> Ints:
    """Return every person's ethnicity and race as one number, 63 races each; neighbours are often alike."""
    combined = _FALL ** np.arange(len(races) - len(RACES))
    tracts = int(tract[-1]) + 1
    of_country = [np.concatenate([row[:-1], row[-1] * combined / combined.sum()]) / row.sum() for row in _RACES]
    shares = [rng.gamma(_LIKE_ALL * row, size=(tracts, row.size)) + 1e-9 for row in of_country]
    hispanic = rng.beta(_LIKE_ALL * _HISPANIC, _LIKE_ALL * (1 - _HISPANIC), (tracts, 1))
    weights = [
        part * row / row.sum(axis=1, keepdims=True) for part, row in zip((1 - hispanic, hispanic), shares, strict=True)
    ]
    # Cumulative shares of all tracts one after the other: tract t's lie between t and t + 1.
    ends = np.cumsum(np.hstack(weights), axis=1)
    ends = ends / ends[:, -1:] + np.arange(tracts)[:, None]
    own = tract[block]
    drawn = np.searchsorted(ends.reshape(-1), own + rng.random(block.size), side="right") - own * ends.shape[1]
    kind = np.minimum(drawn, ends.shape[1] - 1)
    new = rng.random(block.size) >= _ALIKE
    new[1:] |= block[1:] != block[:-1]
    new[:1] = True
    alike: Ints = kind[np.maximum.accumulate(np.where(new, np.arange(block.size), 0))]
    return alike
