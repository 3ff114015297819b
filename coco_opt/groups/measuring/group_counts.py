"""Private numbers of groups, where the Groups table is not public (Kuo et al. 2018, footnote 4): before the noise.

Neighbours then differ by one entity and, where it is alone in its group, by that group too; or by one empty group.
Under "replace" an entity, or an empty group, is moved. A level's numbers of groups so change by one in all (by two
where one group goes and another comes), and the answers about sizes by no more than with public numbers, because they
count from above (``coco_opt.groups.queries``). Hiding a group of s entities costs s times the sizes' part and once
the counts'.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coco_opt.errors import InputError
from coco_opt.histograms import CountOfCounts, Hierarchy

MAX_GROUPS = 2**40  # in one region; far above any data, and sums of counts and noise keep all digits in a float


def check_group_counts(hierarchy: Hierarchy, truth: Sequence[CountOfCounts]) -> None:
    """Raise InputError where a private number of groups cannot be measured; the message never shows it.

    too-large: it is above 2^40; group-count-mismatch: it is not the sum of its children's.
    """
    counts = np.array([histogram.groups for histogram in truth], np.int64)
    if counts.max() > MAX_GROUPS:
        raise InputError("too-large", "a region has more than 2^40 groups")
    if not np.array_equal(hierarchy.aggregate(counts[hierarchy.leaves.start :]), counts):
        raise InputError("group-count-mismatch", "a region's number of groups is not the sum of its children's")
