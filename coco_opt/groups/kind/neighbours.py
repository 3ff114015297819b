"""Two neighbouring tables of groups, and the counts of a table or a release that an audit compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.groups.estimating.estimate import GroupsResult
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.groups.noisy_measurements import has_private_counts, max_size_of
from coco_opt.groups.queries import FROM_ABOVE, MeasuredQuery, exact_answers
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.privacy import MeasurementPlan
from coco_opt.releases.kind import Neighbours


def neighbouring(counts: PrivateCounts, measurement_plan: MeasurementPlan) -> Neighbours:
    """Return a pair that isolates one entity: the largest group below ``max_size`` of the smallest leaf grows by one.

    Large groups stand alone in their cells, and a small leaf has little to hide in. "replace" takes the entity from
    the smallest nonempty other group of that leaf, or of another leaf. Sizes are clamped to the public bound first.
    Where the numbers of groups are private, the entity brings a group of its own. Raises ProblemError where no group
    can grow or give.
    """
    tree, max_size = counts.hierarchy, max_size_of(measurement_plan)
    leaves = [counts.leaf(leaf).clamp(max_size) for leaf in range(len(tree.leaves))]
    if has_private_counts(measurement_plan):
        return _with_a_group(tree, leaves, measurement_plan)
    order = sorted(range(len(leaves)), key=lambda leaf: leaves[leaf].groups)
    grown = next(((leaf, size) for leaf in order for size in _growing(leaves[leaf], max_size)), None)
    if grown is None:
        raise ProblemError(f"no group is smaller than max_size = {max_size}: there is no neighbour to audit with")
    leaf, size = grown
    moves = [(leaf, size, size + 1)]
    names = tree.paths[tree.leaves.start :]
    words = f"one entity added to a group of {size:,} in {names[leaf]!r}"
    if measurement_plan.neighbours == "replace":
        giver, giver_size = _giver(leaves, [leaf, *(candidate for candidate in order if candidate != leaf)], leaf, size)
        moves.append((giver, giver_size, giver_size - 1))
        words += f", taken from a group of {giver_size:,} in {names[giver]!r}"
    changed = list(leaves)
    for place, before, after in moves:
        changed[place] = resized(changed[place], before, after)
    return Neighbours(PrivateCounts.of_leaves(tree, leaves), PrivateCounts.of_leaves(tree, changed), words)


def _with_a_group(tree: Hierarchy, leaves: Sequence[CountOfCounts], measurement_plan: MeasurementPlan) -> Neighbours:
    """Return a pair in which the smallest leaf gains a group of one entity, for "replace" moved from another leaf."""
    order = sorted(range(len(leaves)), key=lambda leaf: leaves[leaf].groups)
    names, changed = tree.paths[tree.leaves.start :], list(leaves)
    changed[order[0]] = CountOfCounts.total([leaves[order[0]], CountOfCounts.from_runs([1], [1])])
    words = f"one entity in a group of its own added to {names[order[0]]!r}"
    if measurement_plan.neighbours == "replace":
        giver = next((leaf for leaf in order[1:] if 1 in leaves[leaf].sizes), None)
        if giver is None:
            raise ProblemError("no other leaf has a group of one entity: there is no neighbour to audit with")
        changed[giver] = resized(leaves[giver], 1, None)
        words += f", taken with its group from {names[giver]!r}"
    return Neighbours(PrivateCounts.of_leaves(tree, leaves), PrivateCounts.of_leaves(tree, changed), words)


def resized(histogram: CountOfCounts, before: int, after: int | None) -> CountOfCounts:
    """Return the histogram after a group of size ``before`` changed to size ``after``, or was removed for None."""
    place = int(np.searchsorted(histogram.sizes, before))
    if place == histogram.distinct or histogram.sizes[place] != before:
        raise ProblemError("there is no group of that size to change")
    counts = histogram.counts.copy()
    counts[place] -= 1
    if after is None:
        return CountOfCounts.from_runs(histogram.sizes[counts > 0], counts[counts > 0])
    return CountOfCounts.from_runs(np.append(histogram.sizes, after), np.append(counts, 1))


def _growing(histogram: CountOfCounts, max_size: int) -> list[int]:
    return [int(size) for size in histogram.sizes[histogram.sizes < max_size][-1:]]


def _giver(leaves: Sequence[CountOfCounts], order: Sequence[int], grown: int, size: int) -> tuple[int, int]:
    for leaf in order:
        for giver_size, count in zip(leaves[leaf].sizes.tolist(), leaves[leaf].counts.tolist(), strict=True):
            # The group that grows cannot give as well: that would change nothing.
            if giver_size > 0 and count - (leaf == grown and giver_size == size) > 0:
                return leaf, giver_size
    raise ProblemError("no other group has an entity to give: there is no neighbour to audit with")


def cumulative_counts(
    measurement_plan: MeasurementPlan, table: PrivateCounts | GroupsResult
) -> Mapping[str, NDArray[Any]]:
    """Return the cumulative counts of every level's regions in order, cells 0..max_size-1, int64.

    Where the numbers of groups are private, they count the groups above each size, since the group that an entity
    brings would change all cumulative counts. One entity changes one cell of a region by one. For a private table the
    cells from a region's largest group on are masked: there the released count is nearly always the number of groups,
    and its residual carries no information.
    """
    tree, max_size = measurement_plan.hierarchy, max_size_of(measurement_plan)
    exact = isinstance(table, PrivateCounts)
    query: MeasuredQuery = FROM_ABOVE["cumulative"] if has_private_counts(measurement_plan) else "cumulative"
    histograms = table.histograms() if isinstance(table, PrivateCounts) else table.histograms
    levels: dict[str, NDArray[Any]] = {}
    for level in range(tree.levels):
        level_histograms = [histograms[region].clamp(max_size) for region in tree.level_range(level)]
        counts = np.concatenate([exact_answers(histogram, query, max_size) for histogram in level_histograms])
        if exact:
            cells = np.arange(max_size)
            levels[measurement_plan.levels[level]] = np.ma.MaskedArray(
                counts, np.concatenate([cells >= histogram.max_size for histogram in level_histograms])
            )
        else:
            levels[measurement_plan.levels[level]] = counts
    return levels
