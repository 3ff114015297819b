"""Making regions agree: children's histograms must sum to their parent's (Kuo et al. 2018, section 5).

``matching`` is Algorithm 1, top-down matching and merging; ``bottom_up`` sums the leaves; ``none`` leaves every
region as it was estimated. All return one histogram a region, in the hierarchy's order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coco_opt.choices import SolverChoices
from coco_opt.groups.estimating.estimates import SizeEstimate
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.kernels.merging import Merge, Rounding, merge_runs
from coco_opt.problems import GroupMatching


def matching(
    hierarchy: Hierarchy,
    estimates: Sequence[SizeEstimate],
    solvers: SolverChoices,
    *,
    merge: Merge = "weighted",
    rounding: Rounding = "half_up",
) -> list[CountOfCounts]:
    """Match every region's groups with its children's and merge their sizes, root to leaves (Algorithm 1).

    The root's own estimate is used; published histograms are the leaves' sums (back-substitution), so they are
    integer, nonnegative and consistent. O(runs log runs) a region.
    """
    current = list(estimates)
    for parent in range(hierarchy.regions):
        children = hierarchy.children(parent)
        if len(children) == 0:
            break
        merged = match_and_merge(
            current[parent], [current[child] for child in children], solvers, merge=merge, rounding=rounding
        )
        for child, estimate in zip(children, merged, strict=True):
            current[child] = estimate
    return sum_of_leaves(hierarchy, [current[leaf].histogram for leaf in hierarchy.leaves])


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


def bottom_up(hierarchy: Hierarchy, estimates: Sequence[SizeEstimate]) -> list[CountOfCounts]:
    """Return the leaves' estimates and their sums; ``estimates`` of inner regions are not read."""
    return sum_of_leaves(hierarchy, [estimates[leaf].histogram for leaf in hierarchy.leaves])


def separate(estimates: Sequence[SizeEstimate]) -> list[CountOfCounts]:
    """Return every region's own estimate: parents and children do not agree."""
    return [estimate.histogram for estimate in estimates]


def sum_of_leaves(hierarchy: Hierarchy, leaves: Sequence[CountOfCounts]) -> list[CountOfCounts]:
    """Return the histogram of every region from those of the leaves, in the hierarchy's order."""
    totals: list[CountOfCounts] = [CountOfCounts.empty()] * hierarchy.regions
    for leaf, histogram in zip(hierarchy.leaves, leaves, strict=True):
        totals[leaf] = histogram
    for region in reversed(range(hierarchy.regions)):
        children = hierarchy.children(region)
        if len(children):
            totals[region] = CountOfCounts.total(totals[child] for child in children)
    return totals
