"""Problems of every kind taken from one measurement, cut to any size, so that all solvers meet the same data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.choices import SolverChoices
from coco_opt.groups import FitOptions, SizeEstimate, estimate
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.privacy import Measurement, NoiseSource, Query, measure
from coco_opt.privacy.mechanism import Budget, amount_of, mechanism_of
from coco_opt.problem import Problem
from coco_opt.problems import ControlledRounding, GroupMatching, IsotonicL1, IsotonicL2, SimplexProjection
from coco_opt.runs.planted import CorruptedPav
from coco_opt.solver import Solver

AnyProblem = Problem[Any, Any]
_FEW_PAIRS = 100


@dataclass(frozen=True, eq=False, slots=True)
class Instance:
    """A problem of one kind that can be made with at most ``size`` unknowns; ``largest`` is all there are.

    ``planted`` is a solver that answers wrongly, to be caught.
    """

    kind: str
    largest: int
    make: Callable[[int], AnyProblem]
    planted: Solver | None = None


@dataclass(frozen=True, eq=False, slots=True)
class RootMeasurements:
    """Noisy answers about the root and its children: enough for one problem of every kind.

    ``vector`` is the root's answer to its configured query (cumulative for naive), ``cells`` its naive one.
    """

    vector: Measurement
    cells: Measurement
    children: tuple[Measurement, ...]
    fit: FitOptions


def measure_root(
    histograms: list[CountOfCounts],
    hierarchy: Hierarchy,
    group_counts: NDArray[np.int64],
    *,
    queries: tuple[Query, ...],
    fit: FitOptions,
    budget: Budget,
    max_size: int,
    source: NoiseSource,
) -> RootMeasurements:
    """Measure the root twice and its children once; for seeded noise only, as no budget covers it."""
    pure = mechanism_of(budget) == "geometric"

    def ask(region: int, query: Query) -> Measurement:
        level = int(hierarchy.level[region])
        amount = budget.levels[level] or amount_of(budget)
        return measure(
            histograms[region],
            query,
            region=hierarchy.paths[region],
            groups=int(group_counts[region]),
            max_size=max_size,
            epsilon=amount if pure else None,
            rho=None if pure else amount,
            neighbours=budget.neighbours,
            source=source,
            loss="l1",
        )

    first: Query = "cumulative" if queries[0] == "naive" else queries[0]
    children = hierarchy.children(0)
    return RootMeasurements(
        vector=ask(0, first),
        cells=ask(0, "naive"),
        children=tuple(ask(child, queries[int(hierarchy.level[child])]) for child in children),
        fit=fit,
    )


def instances(root: RootMeasurements, solvers: SolverChoices) -> list[Instance]:
    """Return one instance of every kind of problem; matching only where the root has children."""
    y = root.vector.values
    upper = root.vector.max_size if root.vector.query == "rank" else root.vector.groups
    ties = root.fit.ties
    cells = root.cells.values
    found = [
        Instance("isotonic_l2", y.size, lambda n: IsotonicL2(y[:n], lower=0, upper=upper), CorruptedPav()),
        Instance("isotonic_l1", y.size, lambda n: IsotonicL1(y[:n], lower=0, upper=upper, ties=ties)),
        Instance("simplex_projection", cells.size, lambda n: SimplexProjection(cells[:n], _total(cells[:n]))),
        Instance("controlled_rounding", cells.size, lambda n: _rounding(cells[:n], solvers)),
    ]
    if root.children and root.vector.groups:
        found.append(_matching(root, solvers))
    return found


def _total(cells: NDArray[np.int64]) -> int:
    """Return a total for a cut vector: a noisy sum, so it tells nothing that was not measured."""
    return max(1, int(cells.sum()))


def _rounding(cells: NDArray[np.int64], solvers: SolverChoices) -> AnyProblem:
    total = _total(cells)
    return ControlledRounding(solvers.solve(SimplexProjection(cells, total)), total)


def _matching(root: RootMeasurements, solvers: SolverChoices) -> Instance:
    parent = estimate(root.vector, root.fit, solvers)
    children = [estimate(child, root.fit, solvers) for child in root.children]
    runs = parent.sizes.size * sum(child.sizes.size for child in children)
    return Instance("group_matching", runs, lambda n: cut_matching(parent, children, n))


def cut_matching(parent: SizeEstimate, children: list[SizeEstimate], pairs: int) -> GroupMatching:
    """Return the matching of the smallest groups only, with at most ``pairs`` pairs of runs (one pair at least).

    Exhaustive search tries orders of single groups: where few pairs are wanted, each run is left one group.
    """
    if pairs <= _FEW_PAIRS:
        parent, children = _single(parent), [_single(child) for child in children]
    groups = min(int(parent.counts.sum()), sum(int(child.counts.sum()) for child in children))
    runs = int(np.searchsorted(np.cumsum(parent.counts), groups, side="right"))
    while runs > 1:
        problem = _smallest(parent, children, runs)
        if problem.variables <= pairs:
            return problem
        runs = min(runs - 1, max(1, int(runs * (pairs / problem.variables) ** 0.5)))
    problem = _smallest(parent, children, 1) if runs else _one_pair(parent, children)
    return problem if problem.variables <= pairs else _one_pair(parent, children)


def _single(estimate: SizeEstimate) -> SizeEstimate:
    return replace(estimate, counts=np.ones_like(estimate.counts))


def _smallest(parent: SizeEstimate, children: list[SizeEstimate], runs: int) -> GroupMatching:
    """Return the matching of the parent's first runs with as many of the children's smallest groups."""
    left = int(parent.counts[:runs].sum())
    order = sorted((int(size), child, k) for child, one in enumerate(children) for k, size in enumerate(one.sizes))
    kept: list[list[int]] = [[] for _ in children]
    for _, child, k in order:
        take = min(left, int(children[child].counts[k]))
        left -= take
        if take:
            kept[child].append(take)
    sizes = [one.sizes[: len(counts)] for one, counts in zip(children, kept, strict=True)]
    offsets = np.cumsum([0, *(len(counts) for counts in kept)], dtype=np.int64)
    counts = np.array([count for child in kept for count in child], dtype=np.int64)
    return GroupMatching(parent.sizes[:runs], parent.counts[:runs], np.concatenate(sizes), counts, offsets)


def _one_pair(parent: SizeEstimate, children: list[SizeEstimate]) -> GroupMatching:
    child = next(child for child in children if child.sizes.size)
    groups = np.array([min(int(parent.counts[0]), int(child.counts[0]))])
    return _smallest(
        replace(parent, sizes=parent.sizes[:1], counts=groups),
        [replace(child, sizes=child.sizes[:1], counts=groups)],
        1,
    )
