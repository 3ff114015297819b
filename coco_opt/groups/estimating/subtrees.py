"""Estimating regions individually, and making them agree, as parallel tasks: one task for each subtree below a level.

``matching`` is Algorithm 1, top-down matching and merging; ``bottom_up`` sums the leaves; ``none`` leaves every region
as it was estimated.

Down to the level that has enough regions for many tasks, each region is fitted, and matched with its parent (Kuo et
al. 2018, Algorithm 1). Nothing above a region depends on what lies below it, except the sums at the end. Below that
level each subtree is one task: fit its regions, match them from its root down, and add up its leaves. The choice of the
level, and the number of subtrees in a task, do not change any bit: every step is the same, and sums are of integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from coco_opt.activity import Progress
from coco_opt.choices import Certificate, SolverChoices
from coco_opt.execution import Count, Executor, Shared, even_tasks
from coco_opt.groups.estimating.bootstrap import bootstrap_variances, public_redraws
from coco_opt.groups.estimating.estimators import SizeEstimate, estimate
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.noisy_measurements import GroupsMeasurements
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.kernels.merging import Merge, Rounding, merge_runs
from coco_opt.problems import GroupMatching

Certificates = tuple[Certificate, ...]

LEAST_SUBTREES = 32
"""The least number of regions of a level at which its subtrees become tasks."""


@dataclass(frozen=True, eq=False, slots=True)
class RegionFits:
    """The task to fit consecutive regions of one level; returns their estimates and their certificates."""

    answers: Shared[GroupsMeasurements]
    method: GroupsMethod
    solvers: SolverChoices

    def __call__(self, regions: range) -> tuple[list[SizeEstimate], Certificates]:
        """Fit the regions."""
        own = self.solvers.fresh()
        return _fits(self.answers.value, self.method, own, regions), own.certificates


@dataclass(frozen=True, eq=False, slots=True)
class Subtrees:
    """The task to estimate all regions in and below consecutive regions of one level.

    ``tops`` are estimates of the level's regions, merged with all above them; None where regions are not matched.
    Returns the histograms in the hierarchy's order, those of a level together, and the certificates.
    """

    answers: Shared[GroupsMeasurements]
    method: GroupsMethod
    solvers: SolverChoices
    tops: Shared[Sequence[SizeEstimate]] | None

    def __call__(self, regions: range) -> tuple[list[list[CountOfCounts]], Certificates]:
        """Estimate the regions and all below them."""
        answers, own = self.answers.value, self.solvers.fresh()
        levels = answers.hierarchy.levels_below(regions)
        if self.method.consistency == "none":
            return [[fit.histogram for fit in _fits(answers, self.method, own, below)] for below in levels], (
                own.certificates
            )
        if self.tops is None:
            leaves = _fits(answers, self.method, own, levels[-1])
        else:
            first = answers.hierarchy.level_range(int(answers.hierarchy.level[regions.start])).start
            leaves = list(self.tops.value[regions.start - first : regions.stop - first])
            for above, below in pairwise(levels):
                fits = _fits(answers, self.method, own, below)
                leaves = matched(
                    answers.hierarchy, above, leaves, fits, own, merge=self.method.merge, rounding=self.method.rounding
                )
        return summed(answers.hierarchy, levels, [leaf.histogram for leaf in leaves]), own.certificates


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
    hierarchy, matching = answers.hierarchy, method.consistency == "matching"
    cut = _cut(hierarchy)
    above = range(cut + 1) if matching else range(cut) if method.consistency == "none" else range(0)
    count = Count(len(hierarchy.leaves) if method.consistency == "bottom_up" else hierarchy.regions, progress)
    with executor.share(answers) as shared:
        chunks = [chunk for level in above for chunk in _chunks(hierarchy.level_range(level), executor.workers)]
        fits = executor.map(RegionFits(shared, method, solvers), chunks, lambda place, _: count.add(len(chunks[place])))
        estimates = [fit for chunk_fits, certificates in fits for fit in chunk_fits]
        for _, certificates in fits:
            solvers.merge(certificates)
        subtrees = hierarchy.level_range(cut)
        if matching:
            tops = matched_down(hierarchy, estimates, solvers, last=cut, merge=method.merge, rounding=method.rounding)
            if subtrees == hierarchy.leaves:
                return sum_of_leaves(hierarchy, [top.histogram for top in tops])
            with executor.share(tops) as shared_tops:
                parts = _subtree_histograms(
                    Subtrees(shared, method, solvers, shared_tops), hierarchy, cut, executor, count
                )
        else:
            parts = _subtree_histograms(Subtrees(shared, method, solvers, None), hierarchy, cut, executor, count)
    histograms = [_concatenated([part[level] for part in parts]) for level in range(hierarchy.levels - cut)]
    if method.consistency == "none":
        return [*(fit.histogram for fit in estimates), *_concatenated(histograms)]
    levels = [hierarchy.level_range(level) for level in range(cut + 1)]
    return [*_concatenated(summed(hierarchy, levels, histograms[0])[:-1]), *_concatenated(histograms)]


def _subtree_histograms(
    task: Subtrees, hierarchy: Hierarchy, cut: int, executor: Executor, count: Count
) -> list[list[list[CountOfCounts]]]:
    chunks = _chunks(hierarchy.level_range(cut), executor.workers)
    counts = [
        sum(len(level) for level in hierarchy.levels_below(chunk)[task.tops is not None :])
        if task.method.consistency != "bottom_up"
        else len(hierarchy.levels_below(chunk)[-1])
        for chunk in chunks
    ]
    results = executor.map(task, chunks, lambda place, _: count.add(counts[place]))
    for _, certificates in results:
        task.solvers.merge(certificates)
    return [part for part, _ in results]


def matched(
    hierarchy: Hierarchy,
    parents: range,
    merged: Sequence[SizeEstimate],
    fits: Sequence[SizeEstimate],
    solvers: SolverChoices,
    *,
    merge: Merge = "weighted",
    rounding: Rounding = "half_up",
) -> list[SizeEstimate]:
    """Return the estimates of the children of consecutive regions, merged with those of their parents."""
    first = int(hierarchy.first_child[parents.start])
    estimates: list[SizeEstimate] = []
    for parent, estimated in zip(parents, merged, strict=True):
        children = hierarchy.children(parent)
        own = fits[children.start - first : children.stop - first]
        estimates += match_and_merge(estimated, own, solvers, merge=merge, rounding=rounding)
    return estimates


def matched_down(
    hierarchy: Hierarchy,
    estimates: Sequence[SizeEstimate],
    solvers: SolverChoices,
    *,
    last: int | None = None,
    merge: Merge = "weighted",
    rounding: Rounding = "half_up",
) -> list[SizeEstimate]:
    """Return the estimates of the regions of the ``last`` level (default: the leaves), merged with all above them.

    The root's own estimate is used (Algorithm 1). O(runs log runs) a region.
    """
    merged = list(estimates[:1])
    for level in range(hierarchy.levels - 1 if last is None else last):
        parents, below = hierarchy.level_range(level), hierarchy.level_range(level + 1)
        fits = estimates[below.start : below.stop]
        merged = matched(hierarchy, parents, merged, fits, solvers, merge=merge, rounding=rounding)
    return merged


def matching(
    hierarchy: Hierarchy,
    estimates: Sequence[SizeEstimate],
    solvers: SolverChoices,
    *,
    merge: Merge = "weighted",
    rounding: Rounding = "half_up",
) -> list[CountOfCounts]:
    """Return every region's histogram by Algorithm 1; those published are the leaves' sums (back-substitution)."""
    leaves = matched_down(hierarchy, estimates, solvers, merge=merge, rounding=rounding)
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


def summed(hierarchy: Hierarchy, levels: Sequence[range], lowest: Sequence[CountOfCounts]) -> list[list[CountOfCounts]]:
    """Return the histograms of consecutive regions of levels that follow each other, from those of the lowest."""
    histograms = [list(lowest)]
    for above, below in zip(reversed(levels[:-1]), reversed(levels[1:]), strict=True):
        children = (hierarchy.children(region) for region in above)
        parts = (histograms[0][family.start - below.start : family.stop - below.start] for family in children)
        histograms.insert(0, [CountOfCounts.total(part) for part in parts])
    return histograms


def sum_of_leaves(hierarchy: Hierarchy, leaves: Sequence[CountOfCounts]) -> list[CountOfCounts]:
    """Return the histogram of every region from those of the leaves, in the hierarchy's order."""
    levels = [hierarchy.level_range(level) for level in range(hierarchy.levels)]
    return _concatenated(summed(hierarchy, levels, leaves))


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


def _chunks(regions: range, workers: int) -> list[range]:
    """Return consecutive regions cut into tasks."""
    return [regions[places.start : places.stop] for places in even_tasks(len(regions), workers)]


def _concatenated(parts: Sequence[Sequence[CountOfCounts]]) -> list[CountOfCounts]:
    return [histogram for part in parts for histogram in part]
