"""Noisy counts of a domain's intervals, or of its sorted cells: the measurement plan, and the measurement.

To audit a measurement, two vectors of counts differ by one entity, chosen to be the easiest to tell apart by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import (
    Cost,
    Drawing,
    Exact,
    LevelQuery,
    Measurement,
    MeasurementPlan,
    Neighbours,
    NoiseSource,
    Pair,
    Sensitivity,
)
from coco_opt.problem import MAX_INTEGER
from coco_opt.ranges.domain import DomainTree
from coco_opt.ranges.interval_counts import RANGES, SORTED, Outside, parameters_of

_INTERVALS = "entities in every interval of the tree over the domain, the whole domain first"
_LEVEL = "entities in every interval of one level of the tree over the domain"
_CELLS = "entities in every cell of the domain"
_RANKED = "entities in each cell, smallest count first"


def plan_ranges(
    domain: DomainTree,
    cost: Cost,
    *,
    neighbours: Neighbours = "add_remove",
    outside: Outside = "refuse",
    label: str = "domain",
) -> MeasurementPlan:
    """Return the measurement plan: the counts of all intervals of a domain in one region, called ``label``."""
    queries = []
    costs = (cost,) if domain.shares is None else cost.shared(domain.shares)
    parts = zip(domain.measured_parts, domain.sensitivities(neighbours), costs, strict=True)
    for level, (part, sensitivity, share) in enumerate(parts):
        intervals = len(range(domain.tree.nodes)[part])
        words = _CELLS if domain.fan_out is None else _INTERVALS if domain.shares is None else _LEVEL
        name = RANGES if domain.shares is None else f"{RANGES}, level {level}"
        queries.append(LevelQuery(0, name, words, intervals, sensitivity, share))
    return _plan_of(RANGES, queries, label, neighbours, parameters_of(domain, outside))


def exact_intervals(measurement_plan: MeasurementPlan, domain: DomainTree, cells: ArrayLike) -> tuple[Exact, ...]:
    """Return the exact answers to every query from the private counts (entities) of the cells.

    Raises ProblemError for counts that are no nonnegative integers or sum beyond 2^53.
    """
    counts = domain.counts(cells)
    if (counts < 0).any() or int(counts[0]) > MAX_INTEGER:
        raise ProblemError("counts must be nonnegative and sum to at most 2^53")
    label = measurement_plan.hierarchy.names[0]
    parts = zip(measurement_plan.queries, domain.measured_parts, strict=True)
    return tuple(Exact(query, label, counts[part]) for query, part in parts)


def measure_ranges(
    counts: ArrayLike,
    cost: Cost,
    *,
    source: NoiseSource,
    fan_out: int | Sequence[int] | None = 16,
    shares: Sequence[Fraction] | None = None,
    neighbours: Neighbours = "add_remove",
    label: str = "domain",
) -> Measurement:
    """Return noisy counts of every interval of a tree over the cells.

    Parameters
    ----------
    counts : array_like of int, shape (cells,)
        PRIVATE: the entities in each cell, at least 0.
    cost : Epsilon or Rho
        The cost of all intervals together.
    source : NoiseSource
        Where the noise comes from, such as ``SeededNoise`` or ``OpenDPNoise``.
    fan_out : int, sequence of int or None, default 16
        Children of a node of the tree, or a number for each level above the cells, the root first; None measures the
        cells alone.
    shares : sequence of Fraction, optional
        The share of the cost of each level of the tree, the root first; equal parts if they are left out.
    neighbours : {"add_remove", "replace"}, default "add_remove"
        By what neighbouring data sets differ: one entity is added or removed, or moved to another cell.
    label : str, default "domain"
        A name of the domain. Noise is drawn only once under one label.

    Returns
    -------
    Measurement
        Intervals, noisy integers, noise distribution and cost.

    Raises
    ------
    ProblemError
        Counts are no nonnegative integers, or noise was drawn under this label already.

    Notes
    -----
    O(cells). Source: Hay et al. 2010, section 4.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from coco_opt import Epsilon, SeededNoise, measure_ranges
    >>> measure_ranges([3, 1, 4, 1], Epsilon(Fraction(1)), source=SeededNoise(7)).cost == Epsilon(Fraction(1))
    True
    """
    cells = _unmasked(counts)
    domain = DomainTree(cells.size, fan_out, shares=shares)
    measurement_plan = plan_ranges(domain, cost, neighbours=neighbours, label=label)
    return Drawing.of(measurement_plan, exact_intervals(measurement_plan, domain, cells), source).measurement()


def measure_sorted(
    counts: ArrayLike,
    cost: Cost,
    *,
    source: NoiseSource,
    neighbours: Neighbours = "add_remove",
    label: str = "counts",
) -> Measurement:
    """Return the sorted private counts with noise; how many counts there are is public.

    Parameters
    ----------
    counts : array_like of int, shape (n,)
        PRIVATE: counts of entities in any order, at least 0.
    cost : Epsilon or Rho
        The cost.
    source : NoiseSource
        Where the noise comes from, such as ``SeededNoise`` or ``OpenDPNoise``.
    neighbours : {"add_remove", "replace"}, default "add_remove"
        By what neighbouring data sets differ.
    label : str, default "counts"
        A name of the counts. Noise is drawn only once under one label.

    Returns
    -------
    Measurement
        The noisy counts in the order of the true counts; ``IsotonicL2`` or ``IsotonicL1`` makes them nondecreasing.

    Raises
    ------
    ProblemError
        Counts are no nonnegative integers, or noise was drawn under this label already.

    Notes
    -----
    Sorting does not raise the sensitivity: it is 1, or 2 for a replaced entity (Hay et al. 2010, Proposition 3).
    O(n log n).

    Examples
    --------
    >>> from fractions import Fraction
    >>> from coco_opt import Epsilon, SeededNoise, measure_sorted
    >>> len(measure_sorted([5, 2, 9], Epsilon(Fraction(1)), source=SeededNoise(3)).answers[0].values)
    3
    """
    exact = _unmasked(counts)
    if exact.ndim != 1 or exact.dtype.kind not in "iu" or (exact < 0).any():
        raise ProblemError("counts must be a vector of nonnegative integers")
    if exact.size and int(exact.max()) > MAX_INTEGER:
        raise ProblemError("counts must be at most 2^53")
    changed = 2 if neighbours == "replace" else 1
    query = LevelQuery(0, SORTED, _RANKED, exact.size, Sensitivity(changed, changed), cost)
    measurement_plan = _plan_of(SORTED, [query], label, neighbours, {})
    part = Exact(query, label, np.sort(exact.astype(np.int64)))
    return Drawing.of(measurement_plan, [part], source).measurement()


def _plan_of(
    kind: str, queries: Sequence[LevelQuery], label: str, neighbours: Neighbours, parameters: Mapping[str, Any]
) -> MeasurementPlan:
    hierarchy = Hierarchy(np.array([-1]), (label,))
    return MeasurementPlan(kind, hierarchy, ("all",), tuple(queries), neighbours, parameters)


def _unmasked(counts: ArrayLike) -> NDArray[Any]:
    if np.ma.is_masked(counts):
        raise ProblemError("counts are a masked array: fill or drop what is masked first")
    return np.asarray(counts)


def cell_pair(counts: ArrayLike, neighbours: Neighbours = "add_remove") -> Pair[Ints]:
    """Return a pair of counts of the same cells that isolates one entity: the largest count grows by one.

    A large count stands alone among the sorted counts, and making counts nonnegative rarely touches it. "replace" takes
    the entity from the farthest other cell that has one, whose path in a tree shares least. Raises ProblemError
    where there is no cell to grow or none to give.
    """
    first = np.array(counts, dtype=np.int64)
    if first.ndim != 1 or first.size == 0:
        raise ProblemError("counts must be a vector of at least one cell")
    grown = int(np.argmax(first))
    second = first.copy()
    second[grown] += 1
    words = f"one entity added to a cell of {int(first[grown]):,}"
    if neighbours == "replace":
        givers = np.flatnonzero((first > 0) & (np.arange(first.size) != grown))
        if givers.size == 0:
            raise ProblemError("no other cell has an entity to give: there is no neighbour to audit with")
        giver = int(givers[np.argmax(np.abs(givers - grown))])
        second[giver] -= 1
        words += f", taken from a cell of {int(first[giver]):,}"
    return Pair(first, second, words)
