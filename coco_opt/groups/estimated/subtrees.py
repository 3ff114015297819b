"""Regions estimated one by one, and made to agree, as tasks: every subtree below a level is one of its own.

Down to the level that has enough regions for many tasks, each region is fitted, and matched with its parent's (Kuo et
al. 2018, Algorithm 1); nothing above a region depends on what lies below it but by the sums at the end. So the rest is
a task a subtree: fit its regions, match them from its root down, add its leaves up. Which level that is, and how many
subtrees make a task, changes no bit: every step is the same, and sums are of integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from coco_opt.choices import Certificate, SolverChoices
from coco_opt.execution import Count, Executor, Shared, even_tasks
from coco_opt.groups.answers import GroupsAnswers
from coco_opt.groups.estimated.bootstrap import bootstrap_variances, public_redraws
from coco_opt.groups.estimated.consistency import match_and_merge
from coco_opt.groups.estimated.estimates import SizeEstimate
from coco_opt.groups.estimated.estimators import estimate
from coco_opt.groups.estimated.method import GroupsMethod
from coco_opt.histograms import CountOfCounts, Hierarchy

Progress = Callable[[int, int], None]
Certificates = tuple[Certificate, ...]

LEAST_SUBTREES = 32
"""Regions of a level from which its subtrees are tasks."""


@dataclass(frozen=True, eq=False, slots=True)
class RegionFits:
    """The task to fit consecutive regions of one level; returns their estimates and the certificates earned."""

    answers: Shared[GroupsAnswers]
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
    Returns the histograms in the hierarchy's order, those of a level together, and the certificates earned.
    """

    answers: Shared[GroupsAnswers]
    method: GroupsMethod
    solvers: SolverChoices
    tops: Shared[Sequence[SizeEstimate]] | None

    def __call__(self, regions: range) -> tuple[list[list[CountOfCounts]], Certificates]:
        """Estimate the regions and all below them."""
        answers, own = self.answers.value, self.solvers.fresh()
        levels = answers.hierarchy.levels_below(regions)
        if self.method.consistency == "none":
            return [[one.histogram for one in _fits(answers, self.method, own, below)] for below in levels], (
                own.certificates
            )
        if self.tops is None:
            leaves = _fits(answers, self.method, own, levels[-1])
        else:
            first = answers.hierarchy.level_range(int(answers.hierarchy.level[regions.start])).start
            leaves = list(self.tops.value[regions.start - first : regions.stop - first])
            for above, below in pairwise(levels):
                fits = _fits(answers, self.method, own, below)
                leaves = matched(answers.hierarchy, above, leaves, fits, own, self.method)
        return summed(answers.hierarchy, levels, [leaf.histogram for leaf in leaves]), own.certificates


def estimate_subtrees(
    answers: GroupsAnswers,
    method: GroupsMethod,
    solvers: SolverChoices,
    executor: Executor,
    progress: Progress | None = None,
) -> list[CountOfCounts]:
    """Return one histogram a region, in the hierarchy's order, by "matching", "bottom_up" or "none".

    ``progress`` is told the regions fitted and their number. The needed levels must have been measured.
    """
    hierarchy, matching = answers.hierarchy, method.consistency == "matching"
    cut = _cut(hierarchy)
    above = range(cut + 1) if matching else range(cut) if method.consistency == "none" else range(0)
    count = Count(len(hierarchy.leaves) if method.consistency == "bottom_up" else hierarchy.regions, progress)
    with executor.share(answers) as shared:
        chunks = [chunk for level in above for chunk in _chunks(hierarchy.level_range(level), executor.workers)]
        fits = executor.map(RegionFits(shared, method, solvers), chunks, lambda place, _: count.add(len(chunks[place])))
        estimates = [one for found, certificates in fits for one in found]
        for _, certificates in fits:
            solvers.merge(certificates)
        subtrees = hierarchy.level_range(cut)
        if matching:
            tops = estimates[:1]
            for level in range(cut):
                below = hierarchy.level_range(level + 1)
                tops = matched(
                    hierarchy, hierarchy.level_range(level), tops, estimates[below.start : below.stop], solvers, method
                )
            if subtrees == hierarchy.leaves:
                levels = [hierarchy.level_range(level) for level in range(hierarchy.levels)]
                return _joined(summed(hierarchy, levels, [top.histogram for top in tops]))
            with executor.share(tops) as held:
                parts = _mapped(Subtrees(shared, method, solvers, held), hierarchy, cut, executor, count)
        else:
            parts = _mapped(Subtrees(shared, method, solvers, None), hierarchy, cut, executor, count)
    histograms = [_joined([part[level] for part in parts]) for level in range(hierarchy.levels - cut)]
    if method.consistency == "none":
        return [*(one.histogram for one in estimates), *_joined(histograms)]
    levels = [hierarchy.level_range(level) for level in range(cut + 1)]
    return [*_joined(summed(hierarchy, levels, histograms[0])[:-1]), *_joined(histograms)]


def _mapped(
    task: Subtrees, hierarchy: Hierarchy, cut: int, executor: Executor, count: Count
) -> list[list[list[CountOfCounts]]]:
    chunks = _chunks(hierarchy.level_range(cut), executor.workers)
    fitted = [
        sum(len(level) for level in hierarchy.levels_below(chunk)[task.tops is not None :])
        if task.method.consistency != "bottom_up"
        else len(hierarchy.levels_below(chunk)[-1])
        for chunk in chunks
    ]
    found = executor.map(task, chunks, lambda place, _: count.add(fitted[place]))
    for _, certificates in found:
        task.solvers.merge(certificates)
    return [part for part, _ in found]


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
    found: list[SizeEstimate] = []
    for parent, estimated in zip(parents, merged, strict=True):
        children = hierarchy.children(parent)
        own = fits[children.start - first : children.stop - first]
        found += match_and_merge(estimated, own, solvers, merge=method.merge, rounding=method.rounding)
    return found


def summed(hierarchy: Hierarchy, levels: Sequence[range], lowest: Sequence[CountOfCounts]) -> list[list[CountOfCounts]]:
    """Return the histograms of consecutive regions of levels that follow each other, from those of the lowest."""
    found = [list(lowest)]
    for above, below in zip(reversed(levels[:-1]), reversed(levels[1:]), strict=True):
        children = (hierarchy.children(region) for region in above)
        parts = (found[0][one.start - below.start : one.stop - below.start] for one in children)
        found.insert(0, [CountOfCounts.total(part) for part in parts])
    return found


def _fits(answers: GroupsAnswers, method: GroupsMethod, solvers: SolverChoices, regions: range) -> list[SizeEstimate]:
    found = []
    for region in regions:
        answer, options = answers[region], method.fit_options(int(answers.hierarchy.level[region]))
        fitted = estimate(answer, options, solvers)
        if method.redraws:
            fitted = bootstrap_variances(answer, fitted, options, solvers, rng=public_redraws(region))
        found.append(fitted)
    return found


def _cut(hierarchy: Hierarchy) -> int:
    """Return the level whose subtrees are tasks: the first with enough regions, else the leaves'."""
    enough = np.flatnonzero(np.diff(hierarchy.level_start) >= LEAST_SUBTREES)
    return int(enough[0]) if enough.size else hierarchy.levels - 1


def _chunks(regions: range, workers: int) -> list[range]:
    """Return consecutive regions cut into tasks."""
    return [regions[places.start : places.stop] for places in even_tasks(len(regions), workers)]


def _joined(parts: Sequence[Sequence[CountOfCounts]]) -> list[CountOfCounts]:
    return [one for part in parts for one in part]
