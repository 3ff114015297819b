"""Many splits under lower bounds on classes of cells, by prices on the few bounds that bind.

With the classes' counts A x and their lower bounds l, the split that minimises f(x) has the dual

    maximise over prices p >= 0    min over x of  f(x) - p' (A x - l),

and a price is a linear term for the cells of a class in a child: what a shift of the answers to single cells by
p / (2 weight) adds to f. So a priced split is a split of the same kind, and many go to one compiled call. Each price is
moved by the secant method until its class has its bound; f(x) - min + p' (A x - l) bounds the distance to the optimum.
Where most bounds of a few children bind, prices disturb each other and may not settle: such parents are not certified.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.problems.topdown_split.level import Judged, LevelSplitter, SplitLevel

_ROUNDS = 16
_NEAR = 1e-5  # persons that a class may be off its bound while prices are sought
_MORE = 1e-9  # persons beyond the bound that mending moves


class Priced(NamedTuple):
    """The tables of all parents, how they are judged with the prices, and which of them are worth it."""

    tables: Floats
    judged: Judged
    rested: Flags


@dataclass(frozen=True, eq=False)
class PricedBounds:
    """Splits ``problem`` with ``lower`` bounds float64[children, classes]; ``labels`` int64[all cells] are the classes.

    Every cell of a class must be measured by itself, or nothing is found.
    """

    problem: SplitLevel
    labels: Ints
    lower: Floats

    def solve(self, splitter: LevelSplitter) -> Priced:
        """Return tables that keep the bounds; each round splits all parents once."""
        slope, price = self._slope(), np.zeros(self.lower.shape)
        before, excess_before = price, np.zeros(self.lower.shape)
        tables, rested = splitter.split_level(self.problem)
        for _ in range(_ROUNDS):
            excess = self._sums(tables) - self.lower
            off = np.where(price > 0.0, np.abs(excess), -excess) > _NEAR
            if not off.any() or not (slope[off] > 0.0).all():
                break
            step = -excess / np.where(slope > 0.0, slope, 1.0)
            moved, rise = price - before, excess - excess_before
            secant = np.divide(-excess * moved, rise, out=step, where=(moved != 0.0) & (rise * moved > 0.0))
            before, excess_before = price, excess
            price = np.where(off, np.maximum(0.0, price + secant), price)
            tables, rested = splitter.split_level(self._with(price))
        self._mend(tables, price)
        return Priced(tables, self._judged(tables, price), rested)

    def _judged(self, tables: Floats, price: Floats) -> Judged:
        """Return the objectives and violations without prices, and the gaps that the prices certify."""
        plain, priced = self.problem.judge(tables), self._with(price).judge(tables)
        paid = (price * np.maximum(0.0, self._sums(tables) - self.lower)).sum(axis=1)
        gap = priced.gap + np.add.reduceat(paid, self.problem.children[:-1])
        return Judged(plain.objective, gap, plain.violation)

    def _sums(self, tables: Floats) -> Floats:
        """Return the persons of every class in every child."""
        cells, child = self.problem.pairs
        label = self.labels[cells]
        used, shape = label >= 0, self.lower.shape
        sums = np.bincount(child[used] * shape[1] + label[used], tables[used], shape[0] * shape[1])
        return np.asarray(sums, np.float64).reshape(shape)

    def _curvature(self, cells: Ints, child: Ints) -> tuple[Ints, Floats, Floats]:
        """Return for pairs of cells and children a row that measures the cell alone, its value there and its weight.

        The weight is 0 where there is none.
        """
        rows = self.problem.rows
        alone = np.flatnonzero(np.diff(rows.start) == 1)
        row_of = np.full(rows.shape[1], -1, np.int64)
        row_of[rows.cell[rows.start[alone]]] = alone
        row = row_of[cells]
        weight = self.problem.weights[child, self.problem.query_of[row]]
        return row, rows.value[rows.start[row]], np.where(row >= 0, weight, 0.0)

    def _slope(self) -> Floats:
        """Return about how many persons a class in a child gains for a price of 1, 0 where no price can be paid."""
        cells, child = self.problem.pairs
        label = self.labels[cells]
        used = np.flatnonzero((label >= 0) & ~self.problem.shut_pairs)
        _, value, weight = self._curvature(cells[used], child[used])
        gains = np.divide(0.5, weight * value**2, out=np.zeros(used.size), where=weight > 0.0)
        place, size = child[used] * self.lower.shape[1] + label[used], self.lower.size
        slope = np.asarray(np.bincount(place, gains, size), np.float64)
        slope[np.unique(place[weight <= 0.0])] = 0.0
        return slope.reshape(self.lower.shape)

    def _with(self, price: Floats) -> SplitLevel:
        """Return the problem with answers to single cells shifted by the prices."""
        cells, child = self.problem.pairs
        label = self.labels[cells]
        used = np.flatnonzero((label >= 0) & (price[child, label] > 0.0))
        row, value, weight = self._curvature(cells[used], child[used])
        answers = self.problem.answers.copy()
        answers[child[used], row] += price[child[used], label[used]] / (2.0 * weight * value)
        return replace(self.problem, answers=answers)

    def _mend(self, tables: Floats, price: Floats) -> None:
        """Move what classes are short of their bounds, which is little, from the child that has most of a cell."""
        problem, short = self.problem, self.lower - self._sums(tables)
        for child, of_class in np.argwhere(short > 0.0).tolist():
            parent = int(np.searchsorted(problem.children, child, side="right")) - 1
            own = child - int(problem.children[parent])
            cells = problem.cells[problem.starts[parent] : problem.starts[parent + 1]]
            table = tables[problem.places[parent] : problem.places[parent + 1]].reshape(cells.size, -1)
            rows = np.flatnonzero(self.labels[cells] == of_class)
            others = price[problem.children[parent] : problem.children[parent + 1], of_class] == 0.0
            others[own] = False
            givers = np.where(others, table[rows], -np.inf)
            cell, giver = np.unravel_index(int(givers.argmax()), givers.shape) if givers.size else (0, own)
            moved = short[child, of_class] + _MORE
            if givers.size and givers[cell, giver] >= moved and moved <= 1.0:
                table[rows[cell], giver] -= moved
                table[rows[cell], own] += moved
