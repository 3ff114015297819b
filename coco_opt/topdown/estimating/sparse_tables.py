"""Integer tables of a level stored as runs of nonzero cells: most cells of most regions are empty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError
from coco_opt.execution.temporary_storage import stored_array
from coco_opt.histograms.arrays import summed


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class SparseTables:
    """The tables of consecutive regions, k having the runs ``offsets[k]:offsets[k + 1]`` of ``cells`` and ``counts``.

    ``offsets`` int64[regions + 1], ``cells`` and ``counts`` int64[runs], cells increasing within a region, ``size`` the
    number of cells of a table. Raises ProblemError where the arrays do not fit together.
    """

    offsets: Ints
    cells: Ints
    counts: Ints
    size: int

    def __post_init__(self) -> None:
        for name in ("offsets", "cells", "counts"):
            array = np.asarray(getattr(self, name), dtype=np.int64)
            array = array.copy() if array.flags.writeable and array.base is not None else array
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        offsets, cells = self.offsets, self.cells
        if offsets.size < 1 or offsets[0] != 0 or offsets[-1] != cells.size or (np.diff(offsets) < 0).any():
            raise ProblemError("offsets must rise from 0 to the number of runs")
        if cells.size != self.counts.size:
            raise ProblemError("every run needs a cell and a count")
        if cells.size and not 0 <= int(cells.min()) <= int(cells.max()) < self.size:
            raise ProblemError(f"cells must lie in 0..{self.size - 1}")

    @classmethod
    def of(cls, tables: Ints) -> SparseTables:
        """Return dense tables int64[regions, size] as runs."""
        region, cells = np.nonzero(tables)
        offsets = np.searchsorted(region, np.arange(len(tables) + 1))
        return cls(offsets, cells, tables[region, cells], tables.shape[1])

    @classmethod
    def empty(cls, regions: int, size: int) -> SparseTables:
        """Return empty tables."""
        no_runs = np.zeros(0, np.int64)
        return cls(np.zeros(regions + 1, np.int64), no_runs, no_runs, size)

    @classmethod
    def of_runs(cls, regions: Ints, cells: Ints, counts: Ints, shape: tuple[int, int]) -> SparseTables:
        """Return tables of a shape (regions, size) from nonzero counts, regions in any order, cells rising in each."""
        order = np.argsort(regions, kind="stable")
        offsets = np.searchsorted(regions[order], np.arange(shape[0] + 1))
        return cls(offsets, cells[order], counts[order], shape[1])

    @classmethod
    def joined(cls, parts: Iterable[SparseTables]) -> SparseTables:
        """Return the tables of several parts, one after the other; ProblemError for none or other sizes.

        Large tables lie in a file (``coco_opt.execution.temporary_storage``).
        """
        several = list(parts)
        if len({part.size for part in several}) != 1:
            raise ProblemError("tables of one size are needed to join them")
        runs = np.cumsum([0] + [part.cells.size for part in several])
        offsets = [part.offsets[1:] + start for part, start in zip(several, runs, strict=False)]
        arrays = (
            stored_array([np.zeros(1, np.int64), *offsets]),
            stored_array([part.cells for part in several]),
            stored_array([part.counts for part in several]),
        )
        return cls(*arrays, several[0].size)

    @property
    def regions(self) -> int:
        """Return the number of regions."""
        return self.offsets.size - 1

    @property
    def owners(self) -> Ints:
        """Return the region of every run, int64[runs]."""
        return np.repeat(np.arange(self.regions), np.diff(self.offsets))

    def dense(self, begin: int = 0, end: int | None = None) -> Ints:
        """Return the tables of regions begin:end, int64[regions, size]; mind the memory."""
        stop = self.regions if end is None else end
        runs = slice(int(self.offsets[begin]), int(self.offsets[stop]))
        out = np.zeros((stop - begin, self.size), np.int64)
        rows = np.repeat(np.arange(stop - begin), np.diff(self.offsets[begin : stop + 1]))
        out[rows, self.cells[runs]] = self.counts[runs]
        return out

    def part(self, begin: int, end: int) -> SparseTables:
        """Return the tables of regions begin:end."""
        first, last = int(self.offsets[begin]), int(self.offsets[end])
        offsets = self.offsets[begin : end + 1] - first
        return SparseTables(offsets, self.cells[first:last], self.counts[first:last], self.size)

    def with_parts(self, parts: Mapping[int, SparseTables]) -> SparseTables:
        """Return the tables with those of some regions replaced: each part's, from its first region on."""
        pieces, at = [], 0
        for first in sorted(parts):
            pieces += [self.part(at, first), parts[first]]
            at = first + parts[first].regions
        return SparseTables.joined([*pieces, self.part(at, self.regions)]) if parts else self

    def summed(self, starts: Sequence[int] | Ints) -> SparseTables:
        """Return the sums over consecutive groups of regions, each from its start to the next start."""
        groups = np.searchsorted(np.asarray(starts), np.arange(self.regions), side="right") - 1
        keys = groups[self.owners] * self.size + self.cells
        keys, counts = summed(keys, self.counts)
        ends = np.arange(len(starts) + 1, dtype=np.int64) * self.size
        return SparseTables(np.searchsorted(keys, ends), keys % self.size, counts, self.size)

    def __repr__(self) -> str:
        return f"SparseTables({self.regions:,} regions x {self.size:,} cells, {self.cells.size:,} nonzero)"
