"""A simulated country in the proportions of the United States in 2010, written by tract: any part of fifty states.

Everything here is simulated. The numbers of regions by level, the persons of a block, the shares of race, ethnicity and
voting age, and who lives in group quarters are those of the 2010 census for the country; how they differ between tracts
and blocks is drawn. A block is one that has residents: of 11 million census blocks, 6.2 million had. No more than a
batch of tracts and the tree above the blocks is held in memory, whatever the number of blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coco_experiments.topdown.data import RACES, RESIDENCES, large_schema
from coco_opt.array_types import Ints
from coco_opt.topdown.schema import Schema, ValueGroups

if TYPE_CHECKING:
    import pyarrow as pa

LEVELS = ("nation", "state", "county", "tract", "block_group", "block")
REGIONS, PERSONS, FACILITIES = "regions", "persons", "facilities"
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
_SPREADS = (0.8, 0.4, 1.0, 0.7)  # of their logarithms: blocks by group, groups by tract, tracts by county, by state
_TRACTS = 64  # of a batch
_LIKE_ALL = 6.0  # how near a tract's shares are to the country's


def schema() -> Schema:
    """Return the redistricting schema: 2,016 cells, 1,890 without children in military quarters."""
    fine = large_schema(structural_zeros=True)
    groups = ValueGroups("residence", {name: list(values) for name, values in QUARTERS.items()})
    return Schema(fine.attributes, fine.structural_zeros, {"quarters": groups})


@dataclass(frozen=True, eq=False)
class GeneratedCountry:
    """A simulated country of ``blocks`` blocks in ``states`` states; the same arguments give the same persons.

    Raises ValueError for fewer than one block a state.
    """

    blocks: int
    seed: int
    states: int

    def __post_init__(self) -> None:
        if not 1 <= self.states <= self.blocks:
            raise ValueError("every state needs a block at least")

    @classmethod
    def of(cls, states: int, seed: int, part: float = 1.0) -> GeneratedCountry:
        """Return so many of fifty states, each with a part of its blocks."""
        return cls(max(states, round(part * states * BLOCKS / STATES)), seed, states)

    @cached_property
    def schema(self) -> Schema:
        """Return the redistricting schema."""
        return schema()

    @cached_property
    def children(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Return how many counties each state has, tracts each county, groups each tract and blocks each group."""
        rng = np.random.default_rng([self.seed, 0])
        counts: list[Ints] = []
        total = self.blocks
        above = [max(self.states, round(self.blocks * count / BLOCKS)) for count in (GROUPS, TRACTS, COUNTIES)]
        for parts, spread in zip((*above, self.states), _SPREADS, strict=True):
            counts.append(_shared_out(total, parts, spread, rng))
            total = parts
        groups, tracts, counties, states = counts
        return states, counties, tracts, groups

    def batches(self) -> Iterator[Batch]:
        """Yield all blocks and persons, some tracts at a time, in the tree's order. O(persons log cells)."""
        states, counties, tracts, groups = self.children
        above = (_owners(states), _places(states), _owners(counties), _places(counties))
        first_group = np.concatenate([[0], np.cumsum(tracts)])
        for number, start in enumerate(range(0, tracts.size, _TRACTS)):
            batch = np.arange(start, min(start + _TRACTS, tracts.size))
            some = slice(first_group[start], first_group[batch[-1] + 1])
            group_tract, group_place = np.repeat(batch, tracts[batch]), _places(tracts[batch])
            of_block = np.repeat(np.arange(group_tract.size), groups[some])
            tract = group_tract[of_block]
            county = above[2][tract]
            codes = (above[0][county], above[1][county], above[3][tract], group_place[of_block], _places(groups[some]))
            rng = np.random.default_rng([self.seed, 1, number])
            yield Batch(codes, *self._persons(tract - start, rng))

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

    def write(self, folder: Path) -> int:
        """Write the tables "regions", "persons" and "facilities" into a folder; return the number of persons.

        Regions have a column a level, persons a row a cell of a block that has any, facilities a column a type.
        """
        written = 0
        with (
            Writer(folder / f"{REGIONS}.parquet") as regions,
            Writer(folder / f"{PERSONS}.parquet") as persons,
            Writer(folder / f"{FACILITIES}.parquet") as facilities,
        ):
            for batch in self.batches():
                ids = batch.ids
                regions.write({"region_id": ids, **batch.names})
                values = self._values(batch.cell)
                persons.write({"region_id": ids.take(batch.block), **values, "count": batch.persons})
                written += int(batch.persons.sum())
                blocks, counts = facilities_of(self.schema, batch)
                types = dict(zip(RESIDENCES[1:], counts.T, strict=True))
                facilities.write({"region_id": ids.take(blocks), **types})
        return written

    def _values(self, cells: Ints) -> dict[str, Any]:
        import pyarrow as pa

        return {
            name: pa.DictionaryArray.from_arrays(
                pa.array(code.astype(np.int32)), pa.array(self.schema.attributes[name], pa.string())
            )
            for name, code in self.schema.decode(cells).items()
        }


@dataclass(frozen=True, eq=False, slots=True)
class Batch:
    """Some blocks and their persons: ``persons[k]`` in cell ``cell[k]`` of block ``block[k]``, blocks from 0 here.

    ``codes`` are the places, from 0, of each block's state, county, tract, group and itself within the region above.
    """

    codes: tuple[Ints, Ints, Ints, Ints, Ints]
    block: Ints
    cell: Ints
    persons: Ints

    @property
    def ids(self) -> pa.Array:
        """Return the blocks' ids, which are their names from the state's on."""
        import pyarrow.compute as pc

        return pc.binary_join_element_wise(*list(self.names.values())[1:], "")

    @property
    def names(self) -> dict[str, pa.Array]:
        """Return the name of each block's region of every level: digits, as a census has them."""
        import pyarrow as pa

        digits = (_digits(code, width) for code, width in zip(self.codes, (2, 3, 6, 2, 4), strict=True))
        nation = pa.array([LEVELS[0]] * self.codes[0].size, pa.string())
        return dict(zip(LEVELS, (nation, *digits), strict=True))


class Writer:
    """A Parquet file that is written part by part, each a row group."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: Any = None

    def __enter__(self) -> Writer:
        return self

    def write(self, columns: Mapping[str, Any]) -> None:
        """Write some rows; the first ones say what the columns are."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = pa.table(dict(columns))
        if self._open is None:
            self._open = pq.ParquetWriter(self._path, rows.schema)
        self._open.write_table(rows)

    def __exit__(self, *_: object) -> None:
        if self._open is not None:
            self._open.close()


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


def _shared_out(total: int, parts: int, spread: float, rng: np.random.Generator) -> Ints:
    """Return int64[parts], each at least 1, that sum to ``total``: the rest falls by log-normal weights."""
    weights = rng.lognormal(0.0, spread, parts)
    return 1 + rng.multinomial(total - parts, weights / weights.sum()).astype(np.int64)


def _owners(counts: Ints) -> Ints:
    """Return which region above each one lies in."""
    return np.repeat(np.arange(counts.size), counts)


def _places(counts: Ints) -> Ints:
    """Return each region's place within the one above."""
    return np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)


def _digits(places: Ints, width: int) -> pa.Array:
    """Return places, counted from 1, as texts of at least so many digits."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.utf8_lpad(pc.cast(pa.array(places + 1), pa.string()), width, "0")
