"""Records of draws: how often each cell of a table had each value, in windows around its values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.groups.estimating.intervals import QUANTILES
from coco_opt.groups.estimating.posterior.chains import MoveChain
from coco_opt.posterior.comparison import Distances
from coco_opt.problems import Marginals

_MARGIN = 2  # groups that every cell's window extends at least beyond the values seen in burn-in


@dataclass(frozen=True, eq=False, slots=True)
class Counted:
    """How often each value was drawn, cell by cell of a table (regions, cells), in groups.

    Region v and cell i had the value low[v, i] + j in ``counts[start[v cells + i] + j]`` of the ``draws``; values
    outside were counted at the nearer end.
    """

    low: NDArray[Any]
    start: Ints
    counts: NDArray[np.uint16]
    draws: int

    def inside(self, table: Ints, coverage: Fraction) -> Floats:
        """Return to what degree each value of a table is within the middle ``coverage`` of its cell's draws, 0 to 1.

        A value at an end counts in part, by where its own draws end. If the values were draws too, the mean would equal
        the coverage, however coarse they are (the mid-p rule, Lancaster 1961, at both ends).
        """
        tail, begin, width = (1 - coverage) / 2, self.start[:-1], np.diff(self.start)
        place, running = (table - self.low).ravel(), np.append(0, np.cumsum(self.counts, dtype=np.int64))
        mass = self.counts[np.minimum(begin + np.clip(place, 0, width), self.counts.size - 1)].astype(np.int64)
        mass = tail.denominator * np.where((place >= 0) & (place < width), mass, 0)
        below = tail.denominator * (running[begin + np.clip(place, 0, width)] - running[begin])
        lowest, highest = tail.numerator * self.draws, (tail.denominator - tail.numerator) * self.draws
        between = np.minimum(below + mass, highest) - np.maximum(below, lowest)
        shares: Floats = np.where(
            mass > 0, np.maximum(between, 0) / np.maximum(mass, 1), (lowest < below) & (below < highest)
        )
        return shares.reshape(table.shape)

    def quantile(self, part: int, of: int, *, upper: bool = False) -> Ints:
        """Return the lower (or upper) quantile part / of, int64[regions, cells]; of Hc nondecreasing in a region."""
        from coco_opt.kernels import posterior_record

        if not 0 <= part <= of or of < 1:
            raise ProblemError("a quantile must be a fraction between 0 and 1")
        quantiles = np.empty(self.low.shape, np.int64)
        posterior_record.quantile(self.low, self.start, self.counts, self.draws, part, of, upper, quantiles)
        return quantiles

    def marginals(self) -> Marginals:
        """Return the distributions of all cells: the drawn values, each weighted by its number of draws."""
        drawn = np.flatnonzero(self.counts)
        cell = np.searchsorted(self.start, drawn, side="right") - 1
        atoms = drawn - self.start[cell] + self.low.ravel()[cell]
        ends = np.searchsorted(drawn, self.start)
        return Marginals(self.low.shape, ends, atoms, self.counts[drawn].astype(np.int64))


@dataclass(frozen=True, eq=False, slots=True)
class Windows:
    """The windows of all cells: ``low`` int32[regions, cells]; cell n has the places start[n] to start[n + 1]."""

    low: NDArray[Any]
    start: Ints


@dataclass(frozen=True, eq=False, slots=True)
class View:
    """What is recorded of a draw: a table computed of its cumulative counts, its largest values, and their type."""

    of: Callable[[Ints], Ints]
    most: Ints
    kind: type[np.int32] | type[np.int64] = np.int32


def views_of(groups: Ints, max_size: int, *, sizes: bool) -> list[View]:
    """Return the view of Hc (regions, K) and, with ``sizes``, those of H and of the regions' ``summaries``.

    A view of H has one array for all draws: allocating memory takes several times as long as filling it.
    """
    cumulative = View(lambda table: table, groups[:, None])
    if not sizes:
        return [cumulative]
    into = np.empty((groups.size, max_size + 1), np.int64)
    largest = np.full((groups.size, 1 + len(QUANTILES)), max_size)
    most = np.column_stack([groups * max_size, groups, largest])
    return [
        cumulative,
        View(lambda table: size_counts(table, groups, into), groups[:, None]),
        View(lambda table: summaries(table, groups), most, np.int64),
    ]


class Range:
    """The lowest and highest value that each cell of a view was seen with."""

    lowest: NDArray[Any]
    highest: NDArray[Any]

    def __init__(self, view: View) -> None:
        self._view = view

    def see(self, table: Ints, *, anew: bool = False) -> None:
        """Widen by the view of a draw; ``anew``: begin with it."""
        values = self._view.of(table)
        if anew:
            self.lowest, self.highest = values.astype(self._view.kind), values.astype(self._view.kind)
        else:
            np.minimum(self.lowest, values, out=self.lowest, casting="same_kind")
            np.maximum(self.highest, values, out=self.highest, casting="same_kind")

    def windows(self) -> Windows:
        """Return windows with margins on both sides, within 0 and the largest values."""
        slack = _MARGIN + (self.highest - self.lowest) // 2
        low = np.maximum(self.lowest - slack, 0).astype(self._view.kind)
        high = np.minimum(self.highest + slack, self._view.most)
        return Windows(low, np.concatenate([np.zeros(1, np.int64), np.cumsum(high - low + 1, dtype=np.int64)]))


class Tally:
    """Counts one chain's tables."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self.counts = np.zeros(int(windows.start[-1]), np.uint16)
        self.sums = np.zeros(windows.low.shape, np.int64)

    def count(self, table: Ints) -> None:
        """Count a table."""
        from coco_opt.kernels import posterior_record

        low, start = self.windows.low, self.windows.start
        posterior_record.count(table, low, start, self.counts, self.sums)


def together(tallies: Sequence[Tally], draws: int) -> Counted:
    """Return the counts of all chains."""
    first, *others = tallies
    counts = sum((tally.counts for tally in others), start=first.counts)
    return Counted(first.windows.low, first.windows.start, counts, draws)


def size_counts(table: Ints, groups: Ints, into: Ints) -> Ints:
    """Return H (regions, K + 1) from Hc (regions, K) and the regions' groups, in ``into``."""
    into[:, 0] = table[:, 0]
    np.subtract(table[:, 1:], table[:, :-1], out=into[:, 1:-1])
    np.subtract(groups, table[:, -1], out=into[:, -1])
    return into


def summaries(table: Ints, groups: Ints) -> Ints:
    """Return int64[regions, 3 + quantiles] of Hc (regions, K): entities, groups of size 1, the largest size, QUANTILES.

    The quantile p is the smallest size that at least the share p of the groups do not exceed; 0 without groups.
    """
    from coco_opt.kernels import posterior_record

    denominator, parts = parts_of_quantiles()
    rows = np.empty((table.shape[0], 3 + parts.size), np.int64)
    posterior_record.summarise(table, groups, denominator, parts, rows)
    return rows


def parts_of_quantiles() -> tuple[int, Ints]:
    """Return QUANTILES as a common denominator and integer numerators."""
    denominator = math.lcm(*(quantile.denominator for quantile in QUANTILES))
    return denominator, np.array([int(quantile * denominator) for quantile in QUANTILES])


def summary_values(counted: Ints, groups: Ints) -> Floats:
    """Return ``summaries`` as SUMMARIES, float64: the first two divided by the regions' groups; NaN where none."""
    values = counted.astype(np.float64)
    some = groups > 0
    values[some, :2] /= groups[some, None]
    values[~some] = np.nan
    return values


def compared(table: Ints, probe: int) -> Floats:
    """Return float64[regions x 3], the counts by which chains are compared (``convergence.COUNTS``)."""
    # The entities are a constant less the sum of all cumulative counts.
    scalars = table.sum(axis=1), table[:, 0], table[:, probe]
    return np.stack(scalars, axis=1).astype(np.float64).ravel()


class Recorder:
    """The record of one chain's draws: the counts of each view in its windows, and traces of scalars."""

    def __init__(
        self, chain: MoveChain, table: Ints, views: Sequence[View], windows: Sequence[Windows], probe: int
    ) -> None:
        self.chain, self.table, self.views, self.probe = chain, table, views, probe
        self.tallies = [Tally(each) for each in windows]
        self.trace: list[Floats] = []
        self.distances = Distances(chain.residual.size)

    def take(self, draws: int, thin: int) -> None:
        """Take so many draws, ``thin`` sweeps apart."""
        for _ in range(draws):
            self.chain.advance(thin)
            self.chain.fill(self.table)
            for view, tally in zip(self.views, self.tallies, strict=True):
                tally.count(view.of(self.table))
            self.trace.append(compared(self.table, self.probe))
            self.distances.take(self.chain.residual)
