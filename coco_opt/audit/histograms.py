"""Universal and unattributed histograms as mechanisms to audit (Hay et al. 2010), and neighbours for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

from coco_opt.audit.measured import Floats, Ints, Sources
from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError
from coco_opt.privacy import Neighbours, NoiseSource
from coco_opt.problems.tree import Tree
from coco_opt.problems.tree_least_squares import TreeLeastSquares
from coco_opt.ranges import (
    DomainTree,
    RangeMeasurement,
    SortedMeasurement,
    UniversalHistogram,
    measure_ranges,
    measure_sorted,
)
from coco_opt.ranges.universal import Estimator

SortedEstimator = Literal["noisy", "l2", "l1"]

_FOREST_NODES = 1 << 19


@dataclass(frozen=True, eq=False, slots=True)
class CellPair:
    """D and D', counts of the same cells, int64[cells] (entities), which differ by one entity; ``what`` says how."""

    first: Ints
    second: Ints
    what: str


def cell_pair(counts: ArrayLike, neighbours: Neighbours = "add_remove") -> CellPair:
    """Return a pair that isolates one entity: the largest count grows by one.

    A large count stands alone among the sorted ones, and making counts nonnegative rarely touches it. "replace" takes
    the entity from the farthest other cell that has one, whose path in a tree shares least. Raises ProblemError
    where there is no cell to grow or none to give.
    """
    first = np.array(counts, dtype=np.int64)
    if first.ndim != 1 or first.size == 0:
        raise ProblemError("counts must be a vector of at least one cell")
    grown = int(np.argmax(first))
    second = first.copy()
    second[grown] += 1
    what = f"one entity added to a cell of {int(first[grown]):,}"
    if neighbours == "replace":
        givers = np.flatnonzero((first > 0) & (np.arange(first.size) != grown))
        if givers.size == 0:
            raise ProblemError("no other cell has an entity to give: there is no neighbour to audit with")
        giver = int(givers[np.argmax(np.abs(givers - grown))])
        second[giver] -= 1
        what += f", taken from a cell of {int(first[giver]):,}"
    return CellPair(first, second, what)


class CellsMechanism(Protocol):
    """A release about a vector of private counts: measured with noise, then post-processed."""

    @property
    def epsilon(self) -> Fraction:
        """What one release costs."""

    @property
    def sources(self) -> Sources:
        """Make a fresh noise source for each run."""

    @property
    def name(self) -> str:
        """What is released, in words."""

    def exact(self, cells: Ints) -> Ints:
        """Return the exact counts that the released ones stand for."""

    def parts(self, cells: int) -> Mapping[str, slice]:
        """Return the groups of released counts whose residuals are looked at together."""

    def measured(self, cells: Ints, source: NoiseSource) -> Any:
        """Return the noisy measurement, which holds int64 ``values`` and the noise's ``scale``."""

    def released(self, measurement: Any) -> Floats:
        """Return the released counts."""

    def noisy(self, measurement: Any) -> slice:
        """Return which of a measurement's values carry noise."""

    def released_rows(self, measurement: Any, rows: Ints) -> Floats:
        """Return the releases of many measurements that differ in their values only: one a row."""


@dataclass(frozen=True, eq=False, slots=True)
class UniversalMechanism:
    """A universal histogram: noisy interval counts of a domain and one of ``UniversalHistogram``'s estimators."""

    epsilon: Fraction
    sources: Sources
    estimator: Estimator = "nonnegative"
    fan_out: int | None = 16
    neighbours: Neighbours = "add_remove"
    solvers: SolverChoices = field(default_factory=SolverChoices)

    @property
    def name(self) -> str:
        """Return what is released, in words."""
        return f"universal histogram ({self.estimator})"

    def exact(self, cells: Ints) -> Ints:
        """Return the exact counts of all intervals, int64[nodes]."""
        return DomainTree(cells.size, self.fan_out).counts(cells)

    def parts(self, cells: int) -> Mapping[str, slice]:
        """Return the cells, and the wider intervals where they are measured."""
        first = DomainTree(cells, self.fan_out).first_leaf
        wider = {} if first == 0 or self.fan_out is None else {"wider intervals": slice(0, first)}
        return {"cells": slice(first, None), **wider}

    def measured(self, cells: Ints, source: NoiseSource) -> RangeMeasurement:
        """Return the noisy counts of all intervals."""
        return measure_ranges(cells, self.epsilon, source=source, fan_out=self.fan_out, neighbours=self.neighbours)

    def released(self, measurement: RangeMeasurement) -> Floats:
        """Return the estimates of all intervals, float64[nodes]."""
        return UniversalHistogram.fit(measurement, self.estimator, self.solvers).nodes

    def noisy(self, measurement: RangeMeasurement) -> slice:
        """Return all intervals but a root that is not measured."""
        return slice(1 if measurement.domain.fan_out is None else 0, None)

    def released_rows(self, measurement: RangeMeasurement, rows: Ints) -> Floats:
        """Return the estimates of each row's intervals, float64[rows, nodes].

        Least squares of many rows are one problem: trees side by side under a root nobody measured do not meet.
        """
        if self.estimator == "noisy" and self.fan_out is not None:
            return rows.astype(np.float64)
        if self.estimator in ("noisy", "zeroed"):
            return np.array([self.released(replace(measurement, values=row.copy())) for row in rows])
        step = max(1, _FOREST_NODES // rows.shape[1])
        parts = [self._solved(measurement, rows[start : start + step]) for start in range(0, len(rows), step)]
        return np.concatenate(parts)

    def _solved(self, measurement: RangeMeasurement, rows: Ints) -> Floats:
        domain, copies = measurement.domain, len(rows)
        variances = np.tile(measurement.variances, (copies, 1))
        problem = TreeLeastSquares(
            _forest(domain, copies),
            _side_by_side(domain, rows.astype(np.float64), 0.0),
            _side_by_side(domain, variances, np.inf),
            lower=0.0 if self.estimator == "nonnegative" else -np.inf,
        )
        return _apart(domain, self.solvers.solve(problem), copies)


@dataclass(frozen=True, eq=False, slots=True)
class UnattributedMechanism:
    """An unattributed histogram: sorted counts with noise (S~), or their isotonic fit (S-bar; squares or absolute)."""

    epsilon: Fraction
    sources: Sources
    estimator: SortedEstimator = "l2"
    neighbours: Neighbours = "add_remove"
    solvers: SolverChoices = field(default_factory=SolverChoices)

    @property
    def name(self) -> str:
        """Return what is released, in words."""
        return f"unattributed histogram ({self.estimator})"

    def exact(self, cells: Ints) -> Ints:
        """Return the sorted counts, int64[cells]."""
        return np.sort(cells)

    def parts(self, cells: int) -> Mapping[str, slice]:
        """Return all ranks together."""
        return {"ranks": slice(None)}

    def measured(self, cells: Ints, source: NoiseSource) -> SortedMeasurement:
        """Return the noisy sorted counts."""
        return measure_sorted(cells, self.epsilon, source=source, neighbours=self.neighbours)

    def released(self, measurement: SortedMeasurement) -> Floats:
        """Return the released counts by rank, float64[cells]."""
        if self.estimator == "noisy":
            return measurement.values.astype(np.float64)
        return np.asarray(measurement.isotonic(self.estimator, solvers=self.solvers), dtype=np.float64)

    def noisy(self, measurement: SortedMeasurement) -> slice:
        """Return all ranks."""
        return slice(None)

    def released_rows(self, measurement: SortedMeasurement, rows: Ints) -> Floats:
        """Return the released counts of each row, float64[rows, cells]."""
        return np.array([self.released(replace(measurement, values=row.copy())) for row in rows])


def _forest(domain: DomainTree, copies: int) -> Tree:
    """Return ``copies`` of a domain's tree under one root, level by level and copy by copy within a level."""
    starts = domain.level_start
    parents = [np.array([-1]), np.zeros(copies, np.int64)]
    for above, (start, stop) in zip(starts[:-2], pairwise(starts[1:]), strict=True):
        own = domain.tree.parent[start:stop] - above
        width = int(start - above)
        parents.append((1 + copies * above + np.arange(copies)[:, None] * width + own).ravel())
    return Tree(np.concatenate(parents))


def _side_by_side(domain: DomainTree, rows: Floats, root: float) -> Floats:
    """Return one value a node of the forest from one row a copy, and the root's."""
    levels = [rows[:, start:stop].ravel() for start, stop in pairwise(domain.level_start)]
    return np.concatenate([[root], *levels])


def _apart(domain: DomainTree, nodes: Floats, copies: int) -> Floats:
    """Return one row a copy from the nodes of the forest."""
    starts = domain.level_start
    levels = [nodes[1 + copies * a : 1 + copies * b].reshape(copies, -1) for a, b in pairwise(starts)]
    return np.concatenate(levels, axis=1)
