"""Two neighbouring databases of a hierarchy and the cells of a query in which they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.privacy import Neighbours, Query

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class NeighbourPair:
    """D and D', one histogram a region in the hierarchy's order, which differ by one entity; ``what`` says how.

    ``changed`` are the regions in which they differ, root first. Both have the same public group counts.
    """

    hierarchy: Hierarchy
    first: tuple[CountOfCounts, ...]
    second: tuple[CountOfCounts, ...]
    what: str

    @property
    def group_counts(self) -> Ints:
        """Return the public number of groups of every region."""
        return np.array([histogram.groups for histogram in self.first], dtype=np.int64)

    @property
    def changed(self) -> tuple[int, ...]:
        """Return the regions in which the two differ, in the hierarchy's order."""
        pairs = enumerate(zip(self.first, self.second, strict=True))
        return tuple(region for region, (one, two) in pairs if not one.equals(two))


def neighbour_pair(
    histograms: Sequence[CountOfCounts], hierarchy: Hierarchy, max_size: int, neighbours: Neighbours = "add_remove"
) -> NeighbourPair:
    """Return a pair that isolates one entity: the largest group below ``max_size`` of the smallest leaf grows by one.

    Large groups stand alone in their cells, and a small leaf has little to hide in. "replace" takes the entity from
    the smallest nonempty other group of that leaf, or of another leaf. Sizes are clamped to the public bound first.
    Raises ProblemError where no group can grow or give.
    """
    clamped = [histogram.clamp(max_size) for histogram in histograms]
    leaves = sorted(hierarchy.leaves, key=lambda leaf: clamped[leaf].groups)
    grown = next(((leaf, size) for leaf in leaves for size in _growing(clamped[leaf], max_size)), None)
    if grown is None:
        raise ProblemError(f"no group is smaller than max_size = {max_size}: there is no neighbour to audit with")
    leaf, size = grown
    moves = [(leaf, size, size + 1)]
    what = f"one entity added to a group of {size:,} in {hierarchy.paths[leaf]!r}"
    if neighbours == "replace":
        giver, given = _giver(clamped, [leaf, *(other for other in leaves if other != leaf)], leaf, size)
        moves.append((giver, given, given - 1))
        what += f", taken from a group of {given:,} in {hierarchy.paths[giver]!r}"
    second = list(clamped)
    for region, before, after in moves:
        for touched in (region, *hierarchy.ancestors(region)):
            second[touched] = resized(second[touched], before, after)
    return NeighbourPair(hierarchy, tuple(clamped), tuple(second), what)


def resized(histogram: CountOfCounts, before: int, after: int) -> CountOfCounts:
    """Return the histogram after one group of size ``before`` became one of size ``after``."""
    at = int(np.searchsorted(histogram.sizes, before))
    if at == histogram.distinct or histogram.sizes[at] != before:
        raise ProblemError("there is no group of that size to change")
    counts = histogram.counts.copy()
    counts[at] -= 1
    return CountOfCounts.from_runs(np.append(histogram.sizes, after), np.append(counts, 1))


def _growing(histogram: CountOfCounts, max_size: int) -> list[int]:
    return [int(size) for size in histogram.sizes[histogram.sizes < max_size][-1:]]


def _giver(histograms: Sequence[CountOfCounts], leaves: Sequence[int], grown: int, size: int) -> tuple[int, int]:
    for leaf in leaves:
        for other, count in zip(histograms[leaf].sizes.tolist(), histograms[leaf].counts.tolist(), strict=True):
            # The group that grows cannot give as well: that would change nothing.
            if other > 0 and count - (leaf == grown and other == size) > 0:
                return leaf, other
    raise ProblemError("no other group has an entity to give: there is no neighbour to audit with")


@dataclass(frozen=True, eq=False, slots=True)
class ChangedCells:
    """The cells of a query in which D and D' differ, and both answers there: int64[m] each."""

    cells: Ints
    first: Ints
    second: Ints


def changed_cells(first: CountOfCounts, second: CountOfCounts, query: Query, max_size: int) -> ChangedCells:
    """Compare the exact answers of one region to "naive", "cumulative" or "rank".

    Cells are sizes, or ranks from 0. Found on runs: O(runs) plus the number of changed cells, whatever ``max_size``
    and the number of groups are.
    """
    if first.equals(second):
        nothing = np.empty(0, np.int64)
        return ChangedCells(nothing, nothing, nothing)
    if query == "rank":
        return _stepwise(*first.rank_runs(), *second.rank_runs())
    sizes = np.union1d(first.sizes, second.sizes)
    one, two = (_count_at(histogram, sizes) for histogram in (first, second))
    if query == "naive":
        differ = one != two
        return ChangedCells(sizes[differ], one[differ], two[differ])
    stops = np.append(sizes[1:], max_size)
    return _stepwise(np.cumsum(one), stops, np.cumsum(two), stops, int(sizes[0]) if sizes.size else 0)


def _count_at(histogram: CountOfCounts, sizes: Ints) -> Ints:
    counts = np.zeros(sizes.size, np.int64)
    counts[np.searchsorted(sizes, histogram.sizes)] = histogram.counts
    return counts


def _stepwise(one: Ints, one_stops: Ints, two: Ints, two_stops: Ints, start: int = 0) -> ChangedCells:
    """Compare two step functions: value k holds on the cells stops[k-1] .. stops[k] - 1, the first from ``start``."""
    stops = np.union1d(one_stops, two_stops)
    starts = np.concatenate([[start], stops[:-1]])
    first = one[np.searchsorted(one_stops, starts, side="right")]
    second = two[np.searchsorted(two_stops, starts, side="right")]
    differ = np.flatnonzero((first != second) & (stops > starts))
    lengths = (stops - starts)[differ]
    runs = [np.arange(starts[k], stops[k], dtype=np.int64) for k in differ]
    cells = np.concatenate([np.empty(0, np.int64), *runs])
    return ChangedCells(cells, np.repeat(first[differ], lengths), np.repeat(second[differ], lengths))
