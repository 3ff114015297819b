"""How far off the posterior's estimate will be, by level, from public facts and a supposed law of sizes alone.

The count of groups of at most i entities, Hc[i], is taken for a Gaussian bridge: from 0 to the public G it grows by
increments of variance G pi(i) where a group has size i with chance pi(i), as Poisson counts of the sum G do. Noisy sums
over buckets are linear in it, so that its posterior variance is exact. All regions of a level are taken to be alike:
then what tells siblings apart and what they have in common are told by independent answers, level by level. Neither
is true of data, but a ratio of two predictions tells which questions are better.

Cells are taken together to grid cells of some per cent of their size. Between them the bridge is exact; inside them it
is a free random walk, whose cosine modes are told by all questions of finer buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from coco_opt.groups.buckets import Buckets

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

GRID_GROWTH = 0.03
_MEAN_ABSOLUTE = (2.0 / np.pi) ** 0.5  # of a standard normal number


@dataclass(frozen=True, eq=False, slots=True)
class Regions:
    """Regions of a level, all alike: their number a level and the groups of one, float64[levels], root first."""

    count: FloatArray
    groups: FloatArray


class Predictor:
    """Predicts errors for one law of sizes: ``chances`` float64[K + 1] of sum 1, K = max_size."""

    def __init__(self, regions: Regions, chances: FloatArray, growth: float = GRID_GROWTH) -> None:
        self._regions = regions
        self._grid = _Grid(Buckets.by_growth(chances.size - 1, growth), chances)

    def errors(self, buckets: Sequence[Buckets], variances: FloatArray) -> FloatArray:
        """Return the predicted mean distance (entities) of a region at each level, float64[levels], root first.

        ``buckets`` are what each level is asked, single cells too, with noise of ``variances`` float64[levels]
        (infinite where nothing is asked). A count's error is that of a normal number, or its variance where that is
        less: whole numbers that are rarely off, are off by one. O(levels x grid cells^3).
        """
        count, groups, grid = self._regions.count, self._regions.groups, self._grid
        told = [grid.told(one) for one in buckets]
        variance, errors = np.zeros(grid.width.size), []
        for level in range(count.size):
            # A region's descendants of a level, added up, tell of it with their noises added up.
            precisions = [count[level] / (count[below] * variances[below]) for below in range(level, count.size)]
            own = grid.posterior(float(groups[level]), told[level:], precisions)
            siblings = count[level] / count[level - 1] if level else 1.0
            variance = own if level == 0 else variance / siblings**2 + (1.0 - 1.0 / siblings) * own
            errors.append(float(grid.width @ np.minimum(_MEAN_ABSOLUTE * np.sqrt(variance), variance)))
        return np.array(errors)


@dataclass(frozen=True, eq=False, slots=True)
class _Told:
    """What a question with unit noise tells: information float64[cells, cells] of a grid's means, and widths there."""

    information: FloatArray
    widths: FloatArray


class _Grid:
    """Ranges of cells, and the law of the bridge on them."""

    def __init__(self, cells: Buckets, chances: FloatArray) -> None:
        self.cells, self.width = cells, (cells.end - cells.begin).astype(np.float64)
        below = np.concatenate([[0.0], np.cumsum(chances)])
        self._slope = (below[cells.end] - below[cells.begin]) / self.width
        self._reached = np.interp(0.5 * (cells.begin + cells.end - 1), np.arange(chances.size), below[1:])
        self._known: dict[int, tuple[Buckets, _Told]] = {}

    @cached_property
    def _bridge(self) -> FloatArray:
        at = self._reached
        return np.asarray(np.minimum.outer(at, at) - np.outer(at, at))

    def told(self, buckets: Buckets) -> _Told:
        """Return what sums over buckets tell of the grid's means; O(buckets + cells^2), kept for the next time."""
        if id(buckets) not in self._known:
            self._known[id(buckets)] = buckets, self._told(buckets)
        return self._known[id(buckets)][1]

    def _told(self, buckets: Buckets) -> _Told:
        begin, end, size = buckets.begin, buckets.end, self.width.size
        first = np.searchsorted(self.cells.end, begin, side="right")
        last = np.searchsorted(self.cells.end, end - 1, side="right")
        information = np.zeros((size, size))
        inside = first == last
        np.add.at(information, (first[inside], first[inside]), np.square(end - begin)[inside].astype(np.float64))
        for one in np.flatnonzero(~inside):
            at = slice(int(first[one]), int(last[one]) + 1)
            shared = np.minimum(self.cells.end[at], end[one]) - np.maximum(self.cells.begin[at], begin[one])
            information[at, at] += np.outer(shared, shared)
        place = np.searchsorted(end, self.cells.begin, side="right").clip(max=buckets.count - 1)
        return _Told(information, (end - begin)[place].astype(np.float64))

    def posterior(self, groups: float, told: Sequence[_Told], precisions: Sequence[float]) -> FloatArray:
        """Return the variance of a cell's count in each grid cell, on average, given answers of some precisions."""
        information = np.sum([one.information * part for one, part in zip(told, precisions, strict=True)], axis=0)
        prior = groups * self._bridge
        left = np.linalg.solve(np.eye(self.width.size) + prior @ information, prior)
        between: FloatArray = np.maximum(np.diag(left), 0.0)
        return between + self._inside(groups, told, precisions)

    def _inside(self, groups: float, told: Sequence[_Told], precisions: Sequence[float]) -> FloatArray:
        """Return the mean variance within each grid cell of a free walk about its mean.

        Of n cells mode k = 1 .. n - 1 has the variance step / (2 - 2 cos(pi k / n)); sums over buckets of b cells tell
        the modes k < n / b, with b times the precision of a single cell's.
        """
        found = np.zeros(self.width.size)
        for at in np.flatnonzero(self.width > 1.0):
            cells = self.width[at]
            mode = np.arange(1.0, cells)
            walk = groups * self._slope[at] / (2.0 - 2.0 * np.cos(np.pi * mode / cells))
            known = np.zeros(mode.size)
            for one, part in zip(told, precisions, strict=True):
                known[mode < cells / one.widths[at]] += part * one.widths[at]
            found[at] = float((walk / (1.0 + walk * known)).sum()) / cells
        return found
