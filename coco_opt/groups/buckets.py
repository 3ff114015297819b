"""Buckets of sizes: which cumulative counts are measured as one sum.

One entity more or less changes one cell of Hc[0..K-1] by one. Sums over disjoint buckets therefore have the sensitivity
of single cells, whatever the buckets are. Buckets by growth follow the rule that a bucket should hold about as many
groups as the noise lets one distinguish.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from coco_opt.array_types import Flags, Ints
from coco_opt.errors import ProblemError


@dataclass(frozen=True, eq=False, slots=True)
class Buckets:
    """Ranges of cells, ``begin`` to ``end`` (exclusive), int64, in order and disjoint; cells may be left out."""

    begin: Ints
    end: Ints

    def __post_init__(self) -> None:
        begin, end = self.begin, self.end
        if begin.ndim != 1 or begin.shape != end.shape or begin.size == 0:
            raise ProblemError("buckets need one begin and one end each, and there must be at least one")
        if (begin < 0).any() or (begin >= end).any() or (begin[1:] < end[:-1]).any():
            raise ProblemError("buckets must be ranges of cells in order that share no cell")

    @classmethod
    def cells(cls, max_size: int) -> Buckets:
        """Return one bucket a cell: 0 .. max_size - 1."""
        return cls.from_edges(np.arange(max_size + 1))

    @classmethod
    def from_edges(cls, edges: ArrayLike) -> Buckets:
        """Return the buckets edges[j] .. edges[j + 1] - 1; ProblemError unless edges rise."""
        bounds = np.asarray(edges, np.int64)
        if bounds.ndim != 1 or bounds.size < 2:
            raise ProblemError("buckets need at least two edges")
        return cls(bounds[:-1], bounds[1:])

    @classmethod
    def from_starts(cls, starts: ArrayLike, max_size: int) -> Buckets:
        """Return the buckets of all cells 0 .. max_size - 1 that begin at ``starts``, the first of which is 0."""
        begins = np.atleast_1d(np.asarray(starts, np.int64))
        if begins.size == 0 or begins[0] != 0:
            raise ProblemError("buckets of all cells begin at size 0")
        return cls.from_edges(np.append(begins, max_size))

    @classmethod
    def by_growth(cls, max_size: int, growth: float) -> Buckets:
        """Return buckets of max(1, floor(growth begin)) cells, the last cut off at max_size; growth 0: cells."""
        if max_size < 1 or not growth >= 0.0:
            raise ProblemError("buckets by growth need a largest size of at least 1 and a growth of at least 0")
        edges = [0]
        while edges[-1] < max_size:
            edges.append(min(edges[-1] + max(1, int(growth * edges[-1])), max_size))
        return cls.from_edges(edges)

    @property
    def count(self) -> int:
        """Return the number of buckets."""
        return self.begin.size

    def of_cells(self, max_size: int) -> bool:
        """Return whether every cell 0 .. max_size - 1 is a bucket of its own."""
        return self.count == max_size and int(self.end[-1]) == max_size

    def check(self, query: str, max_size: int) -> None:
        """Raise ProblemError unless they sum up all cells of the query "cumulative"."""
        if query != "cumulative":
            raise ProblemError(f"buckets are sums of cumulative counts: they cannot be used with the query {query!r}")
        if self.begin[0] != 0 or self.end[-1] != max_size or (self.begin[1:] != self.end[:-1]).any():
            raise ProblemError(f"buckets must hold every size from 0 to below max_size = {max_size:,} exactly once")

    def separated(self, max_size: int) -> Flags:
        """Return the sizes 0 .. max_size that sums tell from their neighbours, bool[max_size + 1].

        Their own cell and the one before are buckets of one cell; the last cell is public.
        """
        single = np.zeros(max_size + 1, np.bool_)
        single[self.begin[self.end - self.begin == 1]] = True
        single[max_size] = True
        separated: Flags = single & np.append(True, single[:-1])
        return separated

    def sums(self, cumulative: ArrayLike) -> Ints:
        """Return the sums over the buckets of cumulative counts (..., at least the last end), the true answers."""
        table = np.asarray(cumulative, np.int64)
        running = np.concatenate([np.zeros((*table.shape[:-1], 1), np.int64), np.cumsum(table, axis=-1)], axis=-1)
        summed: Ints = running[..., self.end] - running[..., self.begin]
        return summed


@dataclass(frozen=True, slots=True)
class Split:
    """The cells 0 .. ``at`` - 1 of Hc, then the sizes of *all* groups in order, those below ``at`` counted as ``at``.

    An entity more or less moves a group from one size to the next, s to s + 1. Below ``at`` this changes one cell and
    no rank, because both sizes count as ``at``. From ``at`` on it changes one rank and no cell. If either boundary were
    one further, the step at ``at`` - 1 or at ``at`` would count in both. Ranks of only the groups above ``at`` would
    reveal how many there are.
    """

    at: int

    def __post_init__(self) -> None:
        if self.at < 1:
            raise ProblemError("a split is at a size of at least 1")

    def check(self, query: str, max_size: int) -> None:
        """Raise ProblemError unless it splits the query "cumulative" below the largest size."""
        if query != "cumulative":
            raise ProblemError(f"a split is for cumulative counts only: it cannot be used with the query {query!r}")
        if self.at >= max_size:
            message = f"a split must be below max_size = {max_size:,}, because all ranks from there on are equal"
            raise ProblemError(message)

    def answers(self, cumulative: Ints, ranks: Ints) -> Ints:
        """Return the true answers from Hc[0..K-1] and the sorted sizes up to K, int64[at + G]."""
        return np.concatenate([cumulative[: self.at], np.maximum(ranks, self.at)])


Scheme = Buckets | Split
"""What is measured of cumulative counts in place of single cells."""


def same_buckets(partitions: Iterable[Buckets | None]) -> bool:
    """Return whether partitions are all the same; None means single sizes."""
    return len({None if partition is None else partition.begin.tobytes() for partition in partitions}) <= 1
