"""Ascent of the bound that prices of a tree's sums prove: averaged subgradients with steps of Polyak's length.

The subgradient at some prices is, in every inner region's cell, its best row less the sum of its children's. Averaging
it over rounds separates cells out of balance from those that merely swing between two best rows (the volume
algorithm of Barahona and Anbil 2000); the step goes as far as would close the gap to a target if the bound were linear.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.problems.expected_distance.data import DistanceData

_FACTOR = 0.25  # of Polyak's length, at first: a longer step overshoots where most cells are in balance
_KEEP = 0.7  # of the average direction, from one round to the next
_PATIENCE = 4  # rounds without a better bound before steps are halved


def cell_prices(data: DistanceData) -> Ints:
    """Return prices (regions, cells), in parts, that are optimal cell by cell, the order of rows left out."""
    from coco_opt.kernels import expected_distance_cells

    prices, order = np.empty(data.marginals.shape, np.int64), np.zeros(data.marginals.shape, np.int64)
    expected_distance_cells.solve_cells(data.costs, data.shape, order, False, np.empty_like(prices), prices)  # noqa: FBT003
    return data.limited(prices)


class Ascent:
    """The best prices met so far, in parts, and the lower bound on the objective that they prove, in parts.

    ``state`` holds the best rows under the prices of the last ``look``; ``balanced`` says whether they add up and are
    therefore an optimal table.
    """

    def __init__(self, data: DistanceData, prices: Ints, threads: int | None = 1) -> None:
        from coco_opt.kernels import expected_distance_rows

        self.done, self.balanced = 0, False
        self.best = prices
        self.state = expected_distance_rows.State.nothing(*prices.shape)
        self._kernel, self._data = expected_distance_rows, data
        self._threads = max(1, min(threads or os.cpu_count() or 1, data.tree.nodes))
        self._inner = np.flatnonzero(~data.tree.is_leaf)
        self._off, self._average = np.empty_like(prices), np.zeros(())
        self._now: Floats = prices[self._inner].astype(np.float64)
        self._factor, self._stale = _FACTOR, 0
        self._tried = prices
        self.bound = self._value = self.look(prices)

    def rounds(self, rounds: int, target: int) -> None:
        """Take some rounds towards a target in parts, an objective that some table reaches."""
        if rounds > 0 and not self.balanced:
            self.look(self._tried)
        for _ in range(rounds):
            if self.balanced or self.bound >= target:
                return
            self._step(target)

    def _step(self, target: int) -> None:
        off = self._off[self._inner].astype(np.float64)
        self._average = _KEEP * self._average + (1.0 - _KEEP) * off if self.done else off
        steep = float(np.square(self._average).sum())
        if steep > 0.0:
            self._now += self._factor * max(target - self._value, 0) / steep * self._average
        prices = np.zeros_like(self.best)
        prices[self._inner] = self._now
        self._tried = self._data.limited(prices)
        self._value, self.done, self._stale = self.look(self._tried), self.done + 1, self._stale + 1
        if self._value > self.bound:
            self.bound, self.best, self._stale = self._value, self._tried, 0
        if self._stale >= _PATIENCE:
            self._factor, self._stale = 0.5 * self._factor, 0

    def look(self, prices: Ints) -> int:
        """Return the bound that prices prove, in parts; ``state`` and ``balanced`` then describe them."""
        data, step = self._data, self._threads

        def part(begin: int) -> None:
            self._kernel.best_rows(data.costs, data.shape, prices, begin, step, self.state)

        if step == 1:
            part(0)
        else:
            with ThreadPoolExecutor(step) as pool:
                list(pool.map(part, range(step)))
        self._kernel.imbalance(data.tree.parent, self.state.best, self._off)
        self.balanced = not self._off.any()
        return data.at_zero + int(sum(self.state.value.sum(axis=1).tolist()))
