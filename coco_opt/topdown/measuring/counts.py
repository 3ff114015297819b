"""The private tables of all regions as sparse runs: few cells of few regions are occupied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from coco_opt.array_types import Ints
from coco_opt.errors import InputError
from coco_opt.histograms.arrays import as_int64, check_nonnegative, rising, summed
from coco_opt.histograms.hierarchy import Hierarchy
from coco_opt.operators import Grouping, Operator, identity
from coco_opt.topdown.schema import Schema

MAX_PEOPLE = 2**53  # sums of counts stay exact in float64 too
BLOCK = 1 << 19  # cells of dense tables, or answers, in memory at a time


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class TableCounts:
    """Hold the number of people in each cell of each leaf, as runs sorted by leaf and cell; private.

    Build it with ``from_counts`` (dense tables) or ``from_microdata`` (records).

    Parameters
    ----------
    hierarchy : Hierarchy
        The regions.
    schema : Schema
        The cells.
    offsets : ndarray of int64, shape (leaves + 1,)
        Leaf k, counted from 0 in ``hierarchy.leaves``, has the runs ``offsets[k]`` to ``offsets[k + 1] - 1``.
    cells : ndarray of int64, shape (runs,)
        Positions among the schema's allowed cells, increasing within a leaf.
    counts : ndarray of int64, shape (runs,)
        People, above 0.
    rows_read : int, default 0
        The number of records that they were counted from, if any.

    Raises
    ------
    InputError
        bad-shape, bad-runs, nonpositive-count, too-many-people; no message holds a value.

    Notes
    -----
    O(runs) time and memory.

    Examples
    --------
    >>> from coco_opt import Hierarchy, Schema, TableCounts
    >>> tree = Hierarchy.from_paths([("land", "north"), ("land", "south")])
    >>> people = TableCounts.from_counts(tree, Schema({"sex": ["female", "male"]}), [[90, 95], [30, 25]])
    >>> people.level_tables(0).tolist()
    [[120, 120]]
    """

    hierarchy: Hierarchy
    schema: Schema
    offsets: Ints
    cells: Ints
    counts: Ints
    rows_read: int = 0
    _starts: tuple[Ints, ...] = field(init=False)

    def __post_init__(self) -> None:
        for name in ("offsets", "cells", "counts"):
            array = as_int64(getattr(self, name), name)
            array = array.copy() if array.flags.writeable else array  # no caller can change it
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        _check_runs(self)
        object.__setattr__(self, "_starts", self.hierarchy.leaf_starts())

    def __reduce__(self) -> tuple[Callable[..., TableCounts], tuple[Any, ...]]:
        # Counts that were checked once are not checked again in every task that reads some of them.
        return _unpickled, tuple(getattr(self, name) for name in self.__dataclass_fields__)

    @classmethod
    def from_microdata(
        cls,
        hierarchy: Hierarchy,
        schema: Schema,
        leaves: npt.ArrayLike,
        cells: npt.ArrayLike,
        counts: npt.ArrayLike | None = None,
    ) -> TableCounts:
        """Count records in any order: leaf from 0 within ``hierarchy.leaves``, allowed cell, people (default 1).

        Records of the same leaf and cell are added up, and zeros dropped. Raises InputError (bad-shape, unknown-leaf,
        unknown-cell, negative-count) without any value. O(records log records), O(records) for few leaves and cells.
        """
        leaf, cell = as_int64(leaves, "leaves"), as_int64(cells, "cells")
        people = np.ones(leaf.size, np.int64) if counts is None else as_int64(counts, "counts").copy()
        if not leaf.size == cell.size == people.size:
            raise InputError("bad-shape", "leaves, cells and counts must have one entry a record")
        check_nonnegative(people, "negative-count", "counts")
        for array, size, code in ((leaf, len(hierarchy.leaves), "unknown-leaf"), (cell, schema.size, "unknown-cell")):
            if array.size and not 0 <= int(array.min()) <= int(array.max()) < size:
                raise InputError(code, f"leaves and cells are numbered from 0: one lies outside 0..{size - 1}")
        return cls.from_keys(hierarchy, schema, leaf * schema.size + cell, people)

    @classmethod
    def from_keys(cls, hierarchy: Hierarchy, schema: Schema, keys: Ints, people: Ints) -> TableCounts:
        """Build from cells numbered leaf by leaf (leaf * size + cell), in any order; the same cells are added up.

        Rising ``keys`` without empty cells are used as they are, and their ``people`` must not be changed afterwards.
        Raises InputError (too-many-people). O(keys log keys), O(keys) where they rise already.
        """
        _check_people(people)  # before any sum, which could wrap around
        return cls._of_keys(hierarchy, schema, *summed(keys, people))

    @classmethod
    def from_counts(cls, hierarchy: Hierarchy, schema: Schema, tables: npt.ArrayLike) -> TableCounts:
        """Build from dense tables.

        Parameters
        ----------
        hierarchy : Hierarchy
            The regions.
        schema : Schema
            The cells.
        tables : array_like of int, shape (leaves, size)
            The people in each allowed cell of each leaf, at least 0.

        Raises
        ------
        InputError
            A count is negative, or the shape is wrong.
        """
        dense = as_int64(tables, "tables", ndim=2)
        if dense.shape != (len(hierarchy.leaves), schema.size):
            raise InputError("bad-shape", f"tables must be {len(hierarchy.leaves)} leaves by {schema.size} cells")
        check_nonnegative(dense, "negative-count", "tables")
        keys = np.flatnonzero(dense)
        return cls._of_keys(hierarchy, schema, keys, dense.reshape(-1)[keys])

    @classmethod
    def _of_keys(cls, hierarchy: Hierarchy, schema: Schema, keys: Ints, counts: Ints) -> TableCounts:
        ends = np.arange(len(hierarchy.leaves) + 1, dtype=np.int64) * schema.size
        arrays = np.searchsorted(keys, ends), keys % schema.size, counts if counts.base is None else counts.copy()
        for array in arrays:
            array.setflags(write=False)
        return cls(hierarchy, schema, *arrays)

    @property
    def arrays(self) -> tuple[Ints, ...]:
        """Return all private arrays: only equal data give equal arrays."""
        return self.offsets, self.cells, self.counts

    def identity(self) -> dict[str, int]:
        """Return row counts for the run's *private* record: reading refuses a table that is not counted completely."""
        read = {"rows_read": self.rows_read, "rows_counted": self.rows_read, "rows_rejected": 0}
        return {**read, "persons": int(self.counts.sum()), "cells_occupied": int(self.cells.size)}

    def tables_of(self, regions: range) -> Ints:
        """Return the dense tables of consecutive regions of one level, int64[regions, size]."""
        return self.answers_to(identity(self.schema.size), regions)

    def level_tables(self, level: int) -> Ints:
        """Return the dense tables of all regions of a level, int64[regions of level, size]; mind the memory."""
        return self.tables_of(self.hierarchy.level_range(level))

    def answers_to(self, operator: Operator, regions: range) -> Ints:
        """Return the exact answers of consecutive regions of one level, int64[regions, answers].

        Sums over groups of cells use the runs, in O(runs + answers); others use dense tables, a block at a time.
        """
        if operator.cells != self.schema.size:
            raise InputError("bad-shape", f"an operator over {self.schema.size} cells is needed")
        if isinstance(operator, Grouping):
            return self._sums(operator, regions)
        out = np.empty((len(regions), operator.answers), np.int64)
        step = max(1, BLOCK // max(1, self.schema.size))
        for start in range(0, len(regions), step):
            out[start : start + step] = operator.apply(self.tables_of(regions[start : start + step]))
        return out

    def _sums(self, operator: Grouping, regions: range) -> Ints:
        bounds = self.offsets[self._starts_of(regions)]
        sums = np.zeros((len(regions), operator.answers), np.int64)
        # Some runs at a time: in integers of 64 bits nothing rounds, and what is in between stays small.
        begin = 0
        while begin < len(regions):
            end = max(begin + 1, int(np.searchsorted(bounds, bounds[begin] + BLOCK, side="right")) - 1)
            runs = slice(int(bounds[begin]), int(bounds[end]))
            group = operator.labels[self.cells[runs]]
            place = np.repeat(np.arange(begin, end) * operator.answers, np.diff(bounds[begin : end + 1])) + group
            counted = group >= 0
            np.add.at(sums.reshape(-1), place[counted], self.counts[runs][counted])
            begin = end
        return sums

    def _starts_of(self, regions: range) -> Ints:
        if not len(regions) or regions.step != 1:
            raise InputError("unknown-region", "give one or more consecutive regions")
        level, places = self.hierarchy.within_level(regions)
        if regions.stop > self.hierarchy.level_range(level).stop:
            raise InputError("unknown-region", "the regions must lie on one level")
        return self._starts[level][places.start : places.stop + 1]

    def __repr__(self) -> str:
        return f"TableCounts({self.hierarchy!r}, {self.schema!r}: private)"


def _unpickled(*values: Any) -> TableCounts:
    counts = object.__new__(TableCounts)
    for name, value in zip(TableCounts.__dataclass_fields__, values, strict=True):
        for array in value if name == "_starts" else (value,):
            if isinstance(array, np.ndarray):
                array.setflags(write=False)
        object.__setattr__(counts, name, value)
    return counts


def _check_runs(tables: TableCounts) -> None:
    offsets, cells, counts = tables.offsets, tables.cells, tables.counts
    leaves = len(tables.hierarchy.leaves)
    if offsets.size != leaves + 1 or cells.size != counts.size:
        raise InputError("bad-shape", f"{leaves} leaves need {leaves + 1} offsets, and every run a cell and a count")
    if offsets[0] != 0 or offsets[-1] != cells.size or not rising(offsets):
        raise InputError("bad-runs", "offsets must rise from 0 to the number of runs")
    if cells.size and not 0 <= int(cells.min()) <= int(cells.max()) < tables.schema.size:
        raise InputError("bad-runs", f"cells must lie in 0..{tables.schema.size - 1}")
    for begin in range(1, cells.size, BLOCK):
        end = min(begin + BLOCK, cells.size)
        rises = cells[begin:end] > cells[begin - 1 : end - 1]
        first, last = np.searchsorted(offsets, [begin, end])
        rises[offsets[first:last] - begin] = True
        if not rises.all():
            raise InputError("bad-runs", "the cells of a leaf must be increasing")
    if counts.size and counts.min() <= 0:
        raise InputError("nonpositive-count", "every count must be positive")
    _check_people(counts)


def _check_people(counts: Ints) -> None:
    if counts.size and int(counts.max()) * counts.size > MAX_PEOPLE and sum(counts.tolist()) > MAX_PEOPLE:
        raise InputError("too-many-people", "the counts must sum to at most 2^53")
