"""Simulated tables like a census's: any number of blocks, any schema, from a seed, written batch by batch.

Everything here is MADE. The tree has a census's shape (state, county, tract, block group, block; a nation above several
states), sizes of blocks are heavy-tailed and four in ten empty, tracts differ in their shares, and persons of a block
come in households alike, so that tables are sparse. No more than a batch of tracts and the tree above the blocks is
held in memory, whatever the number of blocks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.topdown.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

Form = Literal["parquet", "csv"]

LEVELS = ("state", "county", "tract", "block_group", "block")
NATION = "nation"
REGIONS, PERSONS, CONFIG = "regions", "persons", "tables.toml"

_A_GROUP, _A_TRACT, _A_COUNTY = 29, 3, 24  # blocks, block groups and tracts in a region of that level, on average
_SPREADS = (0.8, 0.4, 1.0, 0.7)  # of their logarithms: blocks by group, groups by tract, tracts by county, by state
_EMPTY, _MEDIAN, _TAIL = 0.4, 31.0, 1.25  # blocks without persons; persons of the others, and of their logarithm
_FALL = 1.5  # how fast the shares of an attribute's values fall: rank ** -1.5
_ALIKE = 0.5  # persons who are as the person before them in their block
_LIKE_ALL = 20.0  # how near a tract's shares are to all persons'
_TRACTS = 64  # of a batch


@dataclass(frozen=True, eq=False)
class GeneratedCensus:
    """A made census of ``blocks`` blocks in ``states`` states, its persons in the cells of a schema.

    The same arguments give the same persons. Raises ValueError for fewer than one block a state.
    """

    schema: Schema
    blocks: int
    seed: int
    states: int = 1
    nation: ClassVar[bool] = False  # whether a single state lies in a nation too

    def __post_init__(self) -> None:
        if not 1 <= self.states <= self.blocks:
            raise ValueError("every state needs a block at least")

    @property
    def levels(self) -> tuple[str, ...]:
        """Return the names of the levels, root first."""
        return (NATION, *LEVELS) if self.nation or self.states > 1 else LEVELS

    @property
    def regions_above(self) -> tuple[int, int, int]:
        """Return the numbers of block groups, tracts and counties."""
        counts, total = [], self.blocks
        for size in (_A_GROUP, _A_TRACT, _A_COUNTY):
            total = max(self.states, round(total / size))
            counts.append(total)
        return counts[0], counts[1], counts[2]

    @cached_property
    def children(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Return how many counties each state has, tracts each county, groups each tract and blocks each group."""
        rng = np.random.default_rng([self.seed, 0])
        counts: list[Ints] = []
        total = self.blocks
        for parts, spread in zip((*self.regions_above, self.states), _SPREADS, strict=True):
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
        sizes[rng.random(tract.size) < _EMPTY] = 0
        block = np.repeat(np.arange(tract.size), sizes)
        # Cumulative shares of all tracts one after the other: tract t's lie between t and t + 1.
        ends = np.cumsum(self._shares(int(tract[-1]) + 1, rng), axis=1)
        ends = ends / ends[:, -1:] + np.arange(len(ends))[:, None]
        drawn = np.searchsorted(ends.reshape(-1), tract[block] + rng.random(block.size), side="right")
        cell = np.minimum(drawn - tract[block] * self.schema.size, self.schema.size - 1)
        new = rng.random(block.size) >= _ALIKE
        new[1:] |= block[1:] != block[:-1]
        new[:1] = True
        cell = cell[np.maximum.accumulate(np.where(new, np.arange(block.size), 0))]
        keys, persons = np.unique(block * self.schema.size + cell, return_counts=True)
        return keys // self.schema.size, keys % self.schema.size, persons.astype(np.int64)

    def _shares(self, tracts: int, rng: np.random.Generator) -> Floats:
        """Return each tract's weights of the allowed cells [tracts, cells]: a product of shares by attribute."""
        weights = np.ones((tracts, self.schema.size))
        for name, codes in self.schema.decode(np.arange(self.schema.size)).items():
            values = len(self.schema.attributes[name])
            falling = np.arange(1, values + 1) ** -_FALL
            of_values = rng.gamma(_LIKE_ALL * falling / falling.sum(), size=(tracts, values)) + 1e-9
            weights *= (of_values / of_values.sum(axis=1, keepdims=True))[:, codes]
        return weights

    def write(self, folder: Path, form: Form = "parquet") -> int:
        """Write the tables "regions" and "persons" into a folder, batch by batch; return the number of persons.

        Each holds ``region_id``; regions have a column a level, persons one an attribute and ``count``, one row a cell
        of a block that has any.
        """
        written = 0
        with Writer(folder / f"{REGIONS}.{form}") as regions, Writer(folder / f"{PERSONS}.{form}") as persons:
            for batch in self.batches():
                written += self._write(batch, regions, persons)
        return written

    def _write(self, batch: Batch, regions: Writer, persons: Writer) -> int:
        """Write the rows of a batch; return its persons."""
        ids = batch.ids
        regions.write({"region_id": ids, **batch.names(self.levels)})
        persons.write({"region_id": ids.take(batch.block), **self._values(batch.cell), "count": batch.persons})
        return int(batch.persons.sum())

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

        return pc.binary_join_element_wise(*self.names(LEVELS).values(), "")

    def names(self, levels: Sequence[str]) -> dict[str, pa.Array]:
        """Return the name of each block's region of every level: digits, as a census has them."""
        import pyarrow as pa

        widths = dict(zip(LEVELS, (2, 3, 6, 2, 4), strict=True))
        nation = {NATION: pa.array([NATION] * self.codes[0].size, pa.string())} if levels[0] == NATION else {}
        digits = (_digits(code, width) for code, width in zip(self.codes, widths.values(), strict=True))
        return {**nation, **dict(zip(LEVELS, digits, strict=True))}


class Writer:
    """A table that is written part by part, each a row group in Parquet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: Any = None

    def __enter__(self) -> Writer:
        return self

    def write(self, columns: Mapping[str, Any]) -> None:
        """Write some rows; the first ones say what the columns are."""
        import pyarrow as pa
        import pyarrow.csv as pcsv
        import pyarrow.parquet as pq

        rows = pa.table(dict(columns))
        if self._path.suffix == ".csv":
            plain = [pa.string() if pa.types.is_dictionary(field.type) else field.type for field in rows.schema]
            rows = rows.cast(pa.schema(list(zip(rows.column_names, plain, strict=True))))
        if self._open is None:
            make: Callable[..., Any] = pq.ParquetWriter if self._path.suffix == ".parquet" else pcsv.CSVWriter
            self._open = make(self._path, rows.schema)
        self._open.write_table(rows)

    def __exit__(self, *_: object) -> None:
        if self._open is not None:
            self._open.close()


def config_text(
    schema: Schema,
    queries: Sequence[str],
    shares: Sequence[Sequence[Fraction]],
    privacy: Mapping[str, str],
    *,
    seed: int,
    form: Form = "parquet",
    facilities: tuple[str, str, Sequence[str]] | None = None,
) -> str:
    """Return a configuration that asks ``queries`` of simulated tables with seeded noise, states' totals exact.

    ``shares`` are one list for all levels, or one a level; ``privacy`` the keys that say what may be spent.
    ``facilities`` are a table's name, an attribute and its values that are types. Lists and texts of JSON are TOML's
    too.
    """
    listed = [[str(share) for share in level] for level in shares]
    attributes = "\n".join(f"{name} = {json.dumps(list(values))}" for name, values in schema.attributes.items())
    groupings = "\n".join(
        f"[topdown.groupings.{name}]\nof = {json.dumps(grouping.of)}\n[topdown.groupings.{name}.groups]\n"
        + "\n".join(f"{group} = {json.dumps(values)}" for group, values in grouping.groups.items())
        for name, grouping in schema.groupings.items()
    )
    spent = "\n".join(f"{key} = {value}" for key, value in privacy.items())
    zeros = f"structural_zeros = {json.dumps(list(schema.structural_zeros))}\n" if schema.structural_zeros else ""
    of_types = "" if facilities is None else f"\n[topdown.facilities]\nattribute = {json.dumps(facilities[1])}\n"
    of_types += "".join(f"types.{name} = {{}}\n" for name in (facilities[2] if facilities else ()))
    counted = "" if facilities is None else f'facilities = "{facilities[0]}.{form}"\n'
    return f"""# Simulated data and seeded noise: NOT PRIVATE
[data]
records = "{PERSONS}.{form}"
hierarchy = "{REGIONS}.{form}"
{counted}
[privacy]
{spent}
neighbours = "replace"
noise = "seeded"
seed = {seed}

[topdown]
workload = {json.dumps(list(queries))}
strategy = {json.dumps(list(queries))}
shares = {json.dumps(listed if len(listed) > 1 else listed[0])}
{zeros}invariants = [{{ query = "total", level = "state" }}]
{of_types}
[topdown.attributes]
{attributes}

{groupings}
"""


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
