"""What is kept of draws: how often each cell of a table had each value, in windows about the values it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.groups.estimated.posterior.chains import MoveChain, RowChain
from coco_opt.groups.estimated.posterior.prior import FloatArray, IntArray
from coco_opt.problems import Marginals

_ROOM = 2  # groups beyond the values seen in burn-in that every cell's window of counts has at least


@dataclass(frozen=True, eq=False, slots=True)
class Counted:
    """How often each value was drawn, cell by cell of a table (regions, cells), in groups.

    Region v and cell i had the value low[v, i] + j in ``counts[start[v cells + i] + j]`` of the ``draws``; values
    outside were counted at the nearer end.
    """

    low: NDArray[np.int32]
    start: IntArray
    counts: NDArray[np.uint16]
    draws: int

    def quantile(self, part: int, of: int, *, upper: bool = False) -> IntArray:
        """Return the lower (or upper) quantile part / of, int64[regions, cells]; of Hc nondecreasing in a region."""
        from coco_opt.kernels import posterior_record

        if not 0 <= part <= of or of < 1:
            raise ProblemError("a quantile is a part of a whole, between 0 and 1")
        found = np.empty(self.low.shape, np.int64)
        posterior_record.quantile(self.low, self.start, self.counts, self.draws, part, of, upper, found)
        return found

    def marginals(self) -> Marginals:
        """Return the distributions of all cells: the values drawn, each weighed by its number of draws."""
        drawn = np.flatnonzero(self.counts)
        cell = np.searchsorted(self.start, drawn, side="right") - 1
        atoms = drawn - self.start[cell] + self.low.ravel()[cell]
        ends = np.searchsorted(drawn, self.start)
        return Marginals(self.low.shape, ends, atoms, self.counts[drawn].astype(np.int64))


@dataclass(frozen=True, eq=False, slots=True)
class Windows:
    """The windows of all cells: ``low`` int32[regions, cells]; cell n has the places start[n] to start[n + 1]."""

    low: NDArray[np.int32]
    start: IntArray


class Range:
    """The lowest and highest value that each cell of a table (regions, cells) was seen with, int32."""

    lowest: NDArray[np.int32]
    highest: NDArray[np.int32]

    def see(self, table: IntArray, *, anew: bool = False) -> None:
        """Widen by a table; ``anew``: begin with it."""
        from coco_opt.kernels import posterior_record

        if anew:
            self.lowest, self.highest = table.astype(np.int32), table.astype(np.int32)
        else:
            posterior_record.widen(table, self.lowest, self.highest)

    def windows(self, groups: IntArray) -> Windows:
        """Return windows with room on both sides, within 0 and the regions' groups."""
        slack = _ROOM + (self.highest - self.lowest) // 2
        low = np.maximum(self.lowest - slack, 0).astype(np.int32)
        high = np.minimum(self.highest + slack, groups[:, None])
        return Windows(low, np.concatenate([np.zeros(1, np.int64), np.cumsum(high - low + 1, dtype=np.int64)]))


class Tally:
    """Counts one chain's tables."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self.counts = np.zeros(int(windows.start[-1]), np.uint16)
        self.sums = np.zeros(windows.low.shape, np.int64)
        self.outside = 0

    def count(self, table: IntArray) -> None:
        """Count a table."""
        from coco_opt.kernels import posterior_record

        low, start = self.windows.low, self.windows.start
        self.outside += posterior_record.count(table, low, start, self.counts, self.sums)


def together(tallies: Sequence[Tally], draws: int) -> Counted:
    """Return the counts of all chains."""
    first, *others = tallies
    counts = sum((one.counts for one in others), start=first.counts)
    return Counted(first.windows.low, first.windows.start, counts, draws)


def size_counts(table: IntArray, groups: IntArray) -> IntArray:
    """Return H (regions, K + 1) from Hc (regions, K) and the regions' groups."""
    from coco_opt.kernels import posterior_record

    sizes = np.empty((table.shape[0], table.shape[1] + 1), np.int64)
    posterior_record.differences(table, groups, sizes)
    return sizes


class Recorder:
    """What is kept of one chain's draws: counts of Hc, of H where windows for it are given, and traces of scalars."""

    def __init__(
        self,
        chain: MoveChain | RowChain,
        table: IntArray,
        groups: IntArray,
        windows: tuple[Windows, Windows | None],
        probe: int,
    ) -> None:
        self.chain, self.table, self.groups, self.probe = chain, table, groups, probe
        cumulative, sizes = windows
        self.cumulative = Tally(cumulative)
        self.sizes = None if sizes is None else Tally(sizes)
        self.trace: list[FloatArray] = []

    def take(self, draws: int, thin: int) -> None:
        """Take so many draws, ``thin`` sweeps apart."""
        for _ in range(draws):
            self.chain.advance(thin)
            self.chain.fill(self.table)
            self.cumulative.count(self.table)
            if self.sizes is not None:
                self.sizes.count(size_counts(self.table, self.groups))
            scalars = self.table.sum(axis=1), self.table[:, 0], self.table[:, self.probe]
            self.trace.append(np.stack(scalars, axis=1).astype(np.float64).ravel())
