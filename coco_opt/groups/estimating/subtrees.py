"""Estimating regions individually, and making them agree, as parallel tasks of regions or of subtrees below a level.

``matching`` is Algorithm 1, top-down matching and merging; ``bottom_up`` sums the leaves; ``none`` leaves every region
as it was estimated.

Down to the level that has enough regions for many tasks, each region is fitted, and matched with its parent (Kuo et
al. 2018, Algorithm 1). Nothing above a region depends on what lies below it, except the sums at the end. Below that
level each subtree is one task: fit its regions, and match them from its root down. The choice of the level, and the
number of subtrees in a task, do not change any bit: every step is the same, and sums are of integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np

from coco_opt.activity import Progress
from coco_opt.choices import Certificate, SolverChoices
from coco_opt.execution import Count, Executor, Shared, even_tasks
from coco_opt.groups.estimating.estimators import SizeEstimate, bootstrap_variances, estimate, public_redraws
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.noisy_measurements import GroupsMeasurements
from coco_opt.histograms import CountOfCounts, Hierarchy, sum_of_leaves
from coco_opt.kernels.merging import Merge, Rounding, merge_runs
from coco_opt.problems import GroupMatching

ValueT = TypeVar("ValueT")
Done = tuple[list[ValueT], tuple[Certificate, ...], int]
"""What a task returns: one value a region, the certificates of its problems, and how many regions it fitted."""

LEAST_SUBTREES = 32
"""The least number of regions of a level at which its subtrees become tasks."""


@dataclass(frozen=True, eq=False, slots=True)
class RegionFits:
    """The task to fit consecutive regions of one level."""

    answers: Shared[GroupsMeasurements]
    method: GroupsMethod
    solvers: SolverChoices

    def __call__(self, regions: range) -> Done[SizeEstimate]:
        """Fit the regions."""
        own = self.solvers.fresh()
        return _fits(self.answers.value, self.method, own, regions), own.certificates, len(regions)


@dataclass(frozen=True, eq=False, slots=True)
class Histograms:
    """The task to estimate the histograms of consecutive regions of one level, or of the leaves below them.

    ``tops`` are estimates of the level's regions, merged with all above them: then all regions below are fitted, and
    matched down to the leaves. Without any each of the regions is fitted by itself.
    """

    answers: Shared[GroupsMeasurements]
    method: GroupsMethod
    solvers: SolverChoices
    tops: Shared[Sequence[SizeEstimate]] | None = None

    def __call__(self, regions: range) -> Done[CountOfCounts]:
        """Estimate the regions, or the leaves below them."""
        answers, method, own = self.answers.value, self.method, self.solvers.fresh()
        if self.tops is None:
            return [fit.histogram for fit in _fits(answers, method, own, regions)], own.certificates, len(regions)
        _, places = answers.hierarchy.within_level(regions)
        estimates, levels = list(self.tops.value[places]), answers.hierarchy.levels_below(regions)
        for above, below in pairwise(levels):
            fits = _fits(answers, method, own, below)
            estimates = matched(answers.hierarchy, above, estimates, fits, own, method)
        return [leaf.histogram for leaf in estimates], own.certificates, sum(map(len, levels[1:]))


def estimate_subtrees(
    answers: GroupsMeasurements,
    method: GroupsMethod,
    solvers: SolverChoices,
    executor: Executor,
    progress: Progress | None = None,
) -> list[CountOfCounts]:
    """Return one histogram a region, in the hierarchy's order, by "matching", "bottom_up" or "none".

    ``progress`` is called with the number of fitted regions and their total. The needed levels must be measured.
    """
    hierarchy, cut = answers.hierarchy, _cut(answers.hierarchy)
    levels = [hierarchy.level_range(level) for level in range(hierarchy.levels)]
    count = Count(len(hierarchy.leaves) if method.consistency == "bottom_up" else hierarchy.regions, progress)

    def run(task: Callable[[range], Done[ValueT]], levels: Sequence[range]) -> list[ValueT]:
        """Return what a task makes of every region of some levels."""
        chunks = [
            level[places.start : places.stop] for level in levels for places in even_tasks(len(level), executor.workers)
        ]
        results = executor.map(task, chunks, lambda _, result: count.add(result[2]))
        for _, certificates, _ in results:
            solvers.merge(certificates)
        return [value for values, _, _ in results for value in values]

    with executor.share(answers) as shared:
        if method.consistency == "none":
            return run(Histograms(shared, method, solvers), levels)
        if method.consistency == "bottom_up":
            return sum_of_leaves(hierarchy, run(Histograms(shared, method, solvers), levels[-1:]))
        fits = run(RegionFits(shared, method, solvers), levels[: cut + 1])
        tops = matched_down(hierarchy, fits, solvers, method, last=cut)
        if cut == hierarchy.levels - 1:
            return sum_of_leaves(hierarchy, [top.histogram for top in tops])
        with executor.share(tops) as shared_tops:
            return sum_of_leaves(
                hierarchy, run(Histograms(shared, method, solvers, shared_tops), levels[cut : cut + 1])
            )


def matched(
    hierarchy: Hierarchy,
    parents: range,
    merged: Sequence[SizeEstimate],
    fits: Sequence[SizeEstimate],
    solvers: SolverChoices,
    method: GroupsMethod,
) -> list[SizeEstimate]:
    """Return the estimates of the children of consecutive regions, merged with those of their parents."""
    first = int(hierarchy.first_child[parents.start])
    estimates: list[SizeEstimate] = []
    for parent, estimated in zip(parents, merged, strict=True):
        children = hierarchy.children(parent)
        own = fits[children.start - first : children.stop - first]
        estimates += match_and_merge(estimated, own, solvers, merge=method.merge, rounding=method.rounding)
    return estimates


def matched_down(
    hierarchy: Hierarchy, estimates: Sequence[SizeEstimate], solvers: SolverChoices, method: GroupsMethod, *, last: int
) -> list[SizeEstimate]:
    """Return the estimates of the regions of the ``last`` level, merged with all above them.

    The root's own estimate is used (Algorithm 1). O(runs log runs) a region.
    """
    merged = list(estimates[:1])
    for level in range(last):
        below = hierarchy.level_range(level + 1)
        fits = estimates[below.start : below.stop]
        merged = matched(hierarchy, hierarchy.level_range(level), merged, fits, solvers, method)
    return merged


def matching(
    hierarchy: Hierarchy, estimates: Sequence[SizeEstimate], solvers: SolverChoices, method: GroupsMethod
) -> list[CountOfCounts]:
    """Return every region's histogram by Algorithm 1; those published are the leaves' sums (back-substitution)."""
    leaves = matched_down(hierarchy, estimates, solvers, method, last=hierarchy.levels - 1)
    return sum_of_leaves(hierarchy, [leaf.histogram for leaf in leaves])


def match_and_merge(
    parent: SizeEstimate,
    children: Sequence[SizeEstimate],
    solvers: SolverChoices,
    *,
    merge: Merge = "weighted",
    rounding: Rounding = "half_up",
) -> list[SizeEstimate]:
    """Return the children's estimates with every group's size merged with its match's at the parent."""
    # Imported here: it brings the compiled kernels with it.
    from coco_opt.kernels.matching import Matches

    offsets = np.cumsum([0, *(child.sizes.size for child in children)], dtype=np.int64)
    sizes, counts, variances = (
        np.concatenate([getattr(child, field) for child in children]) for field in ("sizes", "counts", "variances")
    )
    flow = solvers.solve(GroupMatching(parent.sizes, parent.counts, sizes, counts, offsets))
    matches = Matches(flow.parent_run, flow.child_run, flow.count)
    merged = merge_runs(matches, parent.sizes, parent.variances, sizes, variances, offsets, merge, rounding)
    pieces = zip(merged.offsets[:-1], merged.offsets[1:], strict=True)
    return [SizeEstimate(merged.sizes[a:b], merged.counts[a:b], merged.variances[a:b]) for a, b in pieces]


def _fits(
    answers: GroupsMeasurements, method: GroupsMethod, solvers: SolverChoices, regions: range
) -> list[SizeEstimate]:
    fits = []
    for region in regions:
        answer, options = answers[region], method.fit_options(int(answers.hierarchy.level[region]))
        fitted = estimate(answer, options, solvers)
        if method.redraws:
            fitted = bootstrap_variances(answer, fitted, options, solvers, rng=public_redraws(region))
        fits.append(fitted)
    return fits


def _cut(hierarchy: Hierarchy) -> int:
    """Return the level whose subtrees are tasks: the first with enough regions, else the leaves'."""
    enough = np.flatnonzero(np.diff(hierarchy.level_start) >= LEAST_SUBTREES)
    return int(enough[0]) if enough.size else hierarchy.levels - 1
