"""Private numbers of groups, for hierarchies whose Groups table is not public (Kuo et al. 2018, footnote 4).

Neighbours differ by one group, whatever its size: added or removed, or moved to another region ("replace"). That is
another unit of privacy than the rest of the package protects, so the counts' budget is an account of its own. What is
hidden, and what is not:

* the counts alone hide whether a group exists and, with "replace", in which region it lies;
* the sizes measured afterwards, of histograms brought to these counts by ``with_group_count``, hide single entities
  only: a whole group shifts many cells, so that its privacy loss is up to max_size times that of an entity;
* nothing is hidden where the exact counts show elsewhere: in a public Groups table, or in the ranks' number of cells.

A region's count changes by at most 1, so noise of scale 1 / epsilon or variance 1 / (2 rho) is added to it at every
level that has a share (a moved group changes two regions of a level: twice that).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import InputError, ProblemError
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.privacy import (
    Asked,
    Cost,
    Exact,
    Measurement,
    Neighbours,
    NoiseSource,
    Question,
    Sensitivity,
    add_noise,
)

Int64 = NDArray[np.int64]

KIND = "group counts"
MAX_GROUPS = 2**40  # in one region; far above any data, and sums of counts and noise keep all digits in a float


def measure_group_counts(
    hierarchy: Hierarchy,
    group_counts: Int64,
    *,
    costs: Sequence[Cost],
    neighbours: Neighbours,
    source: NoiseSource,
) -> Measurement:
    """Return the noisy numbers of groups of all regions of the levels that have a budget; before the wall.

    ``group_counts`` int64[regions] are PRIVATE here and must sum up the tree. ``costs`` come one a level, root first
    (zero: not measured). Everything is checked before the first noise is drawn: raises ProblemError for public
    parameters or noise already drawn, InputError for counts that are negative, above 2^40 or do not add up. O(regions).
    """
    if len(costs) != hierarchy.levels:
        raise ProblemError(f"{hierarchy.levels} levels need as many costs")
    changed = 2 if neighbours == "replace" else 1  # regions of a level, each by one group: L1 and squared L2 alike
    sensitivity = Sensitivity(changed, changed)
    questions = tuple(Question(level, KIND, "groups", 1, sensitivity, cost) for level, cost in enumerate(costs) if cost)
    names = tuple(f"level {level}" for level in range(hierarchy.levels))
    asked = Asked(KIND, hierarchy, names, questions, neighbours)
    for question in questions:
        question.law  # noqa: B018 - raises for noise so wide that counts would leave int64
    _check_counts(hierarchy, group_counts)
    parts = (
        Exact(question, hierarchy.paths[region], group_counts[region : region + 1])
        for question in questions
        for region in hierarchy.level_range(question.level)
    )
    answers = add_noise(questions, parts, hierarchy, {}, source)
    return Measurement(asked, answers, source.name, source.private)


def with_group_count(histogram: CountOfCounts, groups: int) -> CountOfCounts:
    """Return the histogram with a released number of groups: its smallest left out, or groups of size 0 added.

    PRIVATE in and out, before the wall: what ``measure_hierarchy`` takes beside counts that are not exact. In order of
    size one entity changes one group by one, and no group changes it by more here: no query's sensitivity grows. Raises
    ProblemError for a negative number. O(runs).
    """
    if groups < 0:
        raise ProblemError("a number of groups must not be negative")
    if groups > histogram.groups:
        return CountOfCounts.total([histogram, CountOfCounts.from_runs([0], [groups - histogram.groups])])
    sizes, stops = histogram.rank_runs()
    kept = np.minimum(histogram.counts, np.maximum(stops - (histogram.groups - groups), 0))
    return CountOfCounts.from_runs(sizes[kept > 0], kept[kept > 0])


def _check_counts(hierarchy: Hierarchy, counts: Int64) -> None:
    if counts.dtype != np.int64 or counts.shape != (hierarchy.regions,):
        raise InputError("bad-shape", "group counts are int64, one for each region")
    if counts.min() < 0 or counts.max() > MAX_GROUPS:
        raise InputError("bad-group-count", "numbers of groups must be between 0 and 2^40")
    if not np.array_equal(hierarchy.aggregate(counts[hierarchy.leaves.start :]), counts):
        raise InputError("group-count-mismatch", "a region's number of groups is not the sum of its children's")
