"""Implied constraints on a region's classes, found where a table violates them: cuts, added only where needed.

A region's class counts extend to its leaves if leaves exist that meet all constraints below and add up to them. Two
oracles confirm this, or return a constraint that every extendable table meets and this table does not:

* ``flow``: where every leaf has a known total and bounds on single classes, a flow from classes through leaves. By
  Hoffman's theorem a set S of classes whose people exceed their capacity is cut off,

      x(S)  <=  sum over leaves of  min(upper(S), total - lower(rest)),

  which for all S, with the region's total, is necessary and sufficient, in integers too.
* ``projection``: elsewhere the leaves' fractional tables are variables of a linear program (lifting), and its prices
  are the constraint: sufficient for fractional tables, and for integer tables where the matrix is totally unimodular.

Cuts are added to a run's splits where a region's table would not extend to its leaves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from time import time
from typing import Literal

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.topdown.constraint import UNBOUNDED
from coco_opt.topdown.feasibility.programs import solved, tightened
from coco_opt.topdown.feasibility.system import ConstraintSystem
from coco_opt.topdown.rows import Constraints, infinite, integer_matrix

Oracle = Literal["flow", "projection"]

_SCALE = 2**30  # flows are integers of 32 bits
_NEAR = 1e-6
_LARGEST_WEIGHT = 12  # prices are scaled to integers by denominators up to this


@dataclass(frozen=True, eq=False, slots=True)
class Cut:
    """weights @ classes <= upper, both integer: weights int64[classes]."""

    weights: Ints
    upper: int


@dataclass(frozen=True, eq=False)
class CutOracle:
    """Decides whether class counts of a region extend to its leaves under all constraints below it.

    By maximum flow where leaves' totals are known, unless ``flows`` is False: then always by projection.
    """

    system: ConstraintSystem
    flows: bool = True

    @cached_property
    def box(self) -> tuple[Ints, Ints]:
        """Return what single leaves leave each variable (``programs.tightened``)."""
        return tightened(self.system)

    @cached_property
    def totals(self) -> Ints | None:
        """Return every leaf's known total int64[leaves] where nothing else but single classes is bound, else None."""
        if not self.flows:
            return None
        last, leaf_totals = self.system.hierarchy.levels - 1, None
        for row in self.system.rows:
            single = np.count_nonzero(row.coefficients) == 1 and row.coefficients.max() == 1
            counts_all = bool((row.coefficients == 1).all())
            if row.level == last and counts_all and np.array_equal(row.lower, row.upper):
                leaf_totals = row.lower
            elif row.level < last or not (single or counts_all):
                return None
        return leaf_totals

    @property
    def kind(self) -> Oracle:
        """Return the oracle that the constraints' structure allows."""
        return "projection" if self.totals is None else "flow"

    def violated(self, level: int, region: int, classes: Floats | Ints) -> Cut | None:
        """Return a cut that the class counts of a region violate; None where they extend (or none was found)."""
        starts = self.system.leaf_starts[level]
        leaves = slice(int(starts[region]), int(starts[region + 1]))
        if self.totals is not None and self.totals[leaves].sum() < _SCALE:
            return self._by_flow(leaves, np.asarray(classes, np.float64), self.totals[leaves])
        return self._by_projection(level, region, leaves, np.asarray(classes, np.float64))

    def cut_of(self, leaves: slice, chosen: Flags, totals: Ints) -> Cut:
        """Return Hoffman's cut of a set of classes bool[classes]."""
        lower, upper = (side[leaves] for side in self.box)
        inside = upper[:, chosen]
        most = np.minimum(inside, totals[:, None]).sum(axis=1)
        capacity = np.minimum(most, totals - lower[:, ~chosen].sum(axis=1))
        return Cut(chosen.astype(np.int64), int(capacity.sum()))

    def _by_flow(self, leaves: slice, classes: Floats, totals: Ints) -> Cut | None:
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow

        lower, upper = (side[leaves] for side in self.box)
        scale = max(1, min(2**16, _SCALE // max(1, int(totals.sum()))))
        if np.array_equal(classes, np.rint(classes)):
            scale = 1
        demand = np.maximum(np.floor(scale * (classes - lower.sum(axis=0)) + 0.5), 0).astype(np.int64)
        # Of a class that has too few people nothing is asked: the others have too many then, as the total is known.
        arcs, leaf_capacity = scale * np.minimum(upper - lower, totals[:, None]), scale * (totals - lower.sum(axis=1))
        count, nodes = classes.size, len(arcs)
        size = count + nodes + 2
        source, sink = size - 2, size - 1
        leaf, kind = np.nonzero(arcs)
        rows = np.concatenate([np.full(count, source), kind, count + np.arange(nodes)])
        columns = np.concatenate([np.arange(count), count + leaf, np.full(nodes, sink)])
        arc_capacity = np.concatenate([demand, arcs[leaf, kind], leaf_capacity]).astype(np.int32)
        graph = csr_array((arc_capacity, (rows, columns)), shape=(size, size))
        flow = maximum_flow(graph, source, sink)
        if flow.flow_value >= demand.sum() - (0 if scale == 1 else count):
            return None
        residual = csr_array(graph - flow.flow)
        residual.eliminate_zeros()
        residual.data = (residual.data > 0).astype(np.int32)
        residual.eliminate_zeros()
        reached = breadth_first_order(residual, source, directed=True, return_predecessors=False)
        chosen = np.zeros(count, np.bool_)
        chosen[reached[reached < count]] = True
        cut = self.cut_of(leaves, chosen, totals)
        return cut if classes @ cut.weights > cut.upper + _NEAR else None

    def _by_projection(self, level: int, region: int, leaves: slice, classes: Floats) -> Cut | None:
        """Return the price of the least distance from class counts that extend."""
        from scipy.sparse import csr_array, eye_array, hstack, kron, vstack

        count, most = classes.size, infinite(self.box[1][leaves].reshape(-1))
        matrix, low, high = self.system.matrix(self.system.within(level, region, region + 1))
        below = csr_array(matrix.tocsc()[:, np.arange(leaves.start * count, leaves.stop * count)])
        sums, eye = (
            kron(np.ones((1, most.size // count)), eye_array(count), format="csr"),
            eye_array(count, format="csr"),
        )
        lifted = vstack([hstack([below, csr_array((low.size, 2 * count))]), hstack([sums, eye, -eye])])
        cost, ends = np.repeat([0.0, 1.0], [most.size, 2 * count]), np.append(most, np.full(2 * count, np.inf))
        nearest = solved(cost, (lifted, np.append(low, classes), np.append(high, classes)), 0.0, ends)
        if nearest.z is None or nearest.dual is None:
            return None
        if cost @ nearest.z <= _NEAR * max(1.0, float(np.abs(classes).max(initial=0.0))):
            return None
        weights = _integer_weights(nearest.dual.rows[low.size :])
        largest = (
            None if weights is None else solved(-(weights @ sums).astype(np.float64), (below, low, high), 0.0, most)
        )
        if weights is None or largest is None or largest.z is None:
            return None
        value = float((weights @ sums) @ largest.z)
        upper = int(np.floor(value + _NEAR * max(1.0, abs(value))))
        return Cut(weights, upper) if classes @ weights > upper + _NEAR else None


def _integer_weights(prices: Floats) -> Ints | None:
    """Return the prices times their smallest common denominator, None where it is large."""
    for denominator in range(1, _LARGEST_WEIGHT + 1):
        scaled = prices * denominator
        if (np.abs(scaled - np.rint(scaled)) <= _NEAR * denominator).all():
            return np.rint(scaled).astype(np.int64)
    return None


ROUNDS = 40
"""Times that one split is solved again with more cuts; the failsafe follows where that is not enough."""


@dataclass(frozen=True, eq=False)
class Cutting:
    """The cuts found so far, by region; a region's tables are part of one split only, so threads do not interfere."""

    oracle: CutOracle
    cuts: dict[int, list[Cut]] = field(default_factory=dict)
    unchecked: set[int] = field(default_factory=set)  # regions for which the time for cuts was over
    deadline: float = float("inf")  # seconds since the epoch, after which no cut is looked for

    @property
    def count(self) -> int:
        """Return the number of cuts found."""
        return sum(len(cuts) for cuts in self.cuts.values())

    @property
    def sorted(self) -> tuple[tuple[int, Cut], ...]:
        """Return all cuts with their regions, in the regions' order."""
        return tuple((region, cut) for region in sorted(self.cuts) for cut in self.cuts[region])

    def fresh(self) -> Cutting:
        """Return the same oracle and deadline without cuts, for one task."""
        return Cutting(self.oracle, deadline=self.deadline)

    def add(self, cuts: Iterable[tuple[int, Cut]], unchecked: Iterable[int] = ()) -> None:
        """Add the cuts of a task or of an interrupted run, and the regions for which a task had no time."""
        for region, cut in cuts:
            self.cuts.setdefault(region, []).append(cut)
        self.unchecked.update(unchecked)

    def added(self, constraints: Constraints | None, regions: range) -> Constraints | None:
        """Return what binds consecutive regions with their cuts, one row for each set of weights."""
        rows: dict[bytes, Ints] = {}
        for region in regions:
            rows.update({cut.weights.tobytes(): cut.weights for cut in self.cuts.get(region, ())})
        if not rows:
            return constraints
        labels = self.oracle.system.classes.labels
        upper = np.full((len(regions), len(rows)), UNBOUNDED)
        place = {key: at for at, key in enumerate(rows)}
        for at, region in enumerate(regions):
            for cut in self.cuts.get(region, ()):
                column = place[cut.weights.tobytes()]
                upper[at, column] = min(int(upper[at, column]), cut.upper)
        operator, names = (
            integer_matrix(np.stack(list(rows.values()))[:, labels]),
            ("an implied constraint",) * len(rows),
        )
        cuts = Constraints(operator, np.full_like(upper, -UNBOUNDED), upper, names)
        return cuts if constraints is None else Constraints.stacked([constraints, cuts])

    def cut(self, regions: range, tables: Floats | Ints) -> bool:
        """Add a cut for every region whose table [regions, cells] violates one; return whether there was any."""
        system, any_new = self.oracle.system, False
        level = int(system.hierarchy.level[regions.start])
        if level == system.hierarchy.levels - 1:
            return False
        if time() > self.deadline:
            self.unchecked.update(regions)
            return False
        first = system.hierarchy.level_range(level).start
        for region, classes in zip(regions, system.classes.operator.apply(tables), strict=True):
            new = self.oracle.violated(level, region - first, classes)
            if new is not None:
                self.cuts.setdefault(region, []).append(new)
                any_new = True
        return any_new
