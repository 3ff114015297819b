"""Two neighbouring tables of groups, and the counts of a table or a release that an audit compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.groups.answers import max_size_of
from coco_opt.groups.asked.private import PrivateCounts
from coco_opt.groups.estimated.estimate import GroupsResult
from coco_opt.histograms import CountOfCounts
from coco_opt.privacy import Asked
from coco_opt.releases.kind import Neighbours


def neighbouring(counts: PrivateCounts, asked: Asked) -> Neighbours:
    """Return a pair that isolates one entity: the largest group below ``max_size`` of the smallest leaf grows by one.

    Large groups stand alone in their cells, and a small leaf has little to hide in. "replace" takes the entity from
    the smallest nonempty other group of that leaf, or of another leaf. Sizes are clamped to the public bound first.
    Raises ProblemError where no group can grow or give.
    """
    tree, max_size = counts.hierarchy, max_size_of(asked)
    leaves = [counts.leaf(leaf).clamp(max_size) for leaf in range(len(tree.leaves))]
    order = sorted(range(len(leaves)), key=lambda leaf: leaves[leaf].groups)
    grown = next(((leaf, size) for leaf in order for size in _growing(leaves[leaf], max_size)), None)
    if grown is None:
        raise ProblemError(f"no group is smaller than max_size = {max_size}: there is no neighbour to audit with")
    leaf, size = grown
    moves = [(leaf, size, size + 1)]
    names = tree.paths[tree.leaves.start :]
    words = f"one entity added to a group of {size:,} in {names[leaf]!r}"
    if asked.neighbours == "replace":
        giver, given = _giver(leaves, [leaf, *(other for other in order if other != leaf)], leaf, size)
        moves.append((giver, given, given - 1))
        words += f", taken from a group of {given:,} in {names[giver]!r}"
    changed = list(leaves)
    for place, before, after in moves:
        changed[place] = resized(changed[place], before, after)
    return Neighbours(PrivateCounts.of_leaves(tree, leaves), PrivateCounts.of_leaves(tree, changed), words)


def resized(histogram: CountOfCounts, before: int, after: int) -> CountOfCounts:
    """Return the histogram after one group of size ``before`` became one of size ``after``."""
    at = int(np.searchsorted(histogram.sizes, before))
    if at == histogram.distinct or histogram.sizes[at] != before:
        raise ProblemError("there is no group of that size to change")
    counts = histogram.counts.copy()
    counts[at] -= 1
    return CountOfCounts.from_runs(np.append(histogram.sizes, after), np.append(counts, 1))


def _growing(histogram: CountOfCounts, max_size: int) -> list[int]:
    return [int(size) for size in histogram.sizes[histogram.sizes < max_size][-1:]]


def _giver(leaves: Sequence[CountOfCounts], order: Sequence[int], grown: int, size: int) -> tuple[int, int]:
    for leaf in order:
        for other, count in zip(leaves[leaf].sizes.tolist(), leaves[leaf].counts.tolist(), strict=True):
            # The group that grows cannot give as well: that would change nothing.
            if other > 0 and count - (leaf == grown and other == size) > 0:
                return leaf, other
    raise ProblemError("no other group has an entity to give: there is no neighbour to audit with")


def cumulative_counts(asked: Asked, table: PrivateCounts | GroupsResult) -> Mapping[str, NDArray[Any]]:
    """Return the cumulative counts of every level's regions, one after the other, cells 0..max_size-1, int64.

    One entity changes one cell a region by one. Of a table the cells from a region's largest group on are masked: there
    the released count is the public number of groups nearly always, and its residual says nothing.
    """
    tree, max_size = asked.hierarchy, max_size_of(asked)
    exact = isinstance(table, PrivateCounts)
    histograms = table.histograms() if isinstance(table, PrivateCounts) else table.histograms
    levels: dict[str, NDArray[Any]] = {}
    for level in range(tree.levels):
        regions = [histograms[region].clamp(max_size) for region in tree.level_range(level)]
        counts = np.concatenate([one.cumulative(max_size)[:-1] for one in regions])
        if exact:
            cells = np.arange(max_size)
            levels[asked.levels[level]] = np.ma.MaskedArray(
                counts, np.concatenate([cells >= one.max_size for one in regions])
            )
        else:
            levels[asked.levels[level]] = counts
    return levels
