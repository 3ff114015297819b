"""Sizes that have far more groups than their neighbours: round numbers, or a kind of group with a single size.

A prior that is smooth over sizes would exclude them in every region, whatever the number of groups. They are detected
in the noisy answers, before any estimate, because an estimate would keep its first assumption.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimating.posterior.observations import Answers, Survey
from coco_opt.groups.estimating.posterior.prior import only_last, reaching, smoothed

_EXCESS = 4.0  # standard deviations beyond which a size stands alone
_VAGUE = 1e-9  # weight of a level's answers for sizes that its buckets do not separate


def isolated_sizes(survey: Survey, reach: float) -> Flags:
    """Return which sizes 0 .. K must not be smoothed over k +- reach k: the last, and those far above their neighbours.

    They are found one by one, the clearest first, because each raises the mean of the others. O(answers + spikes K).
    """
    counts, variance = informed_counts(survey)
    alone = only_last(counts.size)
    while True:
        means = smoothed(counts, reaching(counts.size, reach), alone)
        excess = np.where(alone, 0.0, (counts - means) / np.sqrt(np.maximum(means, 0.0) + variance))
        size = int(np.argmax(excess))
        if excess[size] <= _EXCESS:
            return alone
        alone[size] = True


@dataclass(frozen=True, eq=False, slots=True)
class CountSet:
    """The answers to one query about the ``regions`` of a level, all of them, whose ``variance`` is that of one answer.

    ``distinct`` (K + 1,) are the sizes that they separate.
    """

    level: int
    regions: Ints
    answers: Sequence[Answers]
    buckets: Buckets
    variance: float
    distinct: Flags

    def counts(self, groups: Ints, sizes: int) -> Floats:
        """Return the regions' noisy groups of sizes 0 .. ``sizes`` - 1, float64[regions, sizes], without their sum."""
        return np.stack(
            [
                _differences(self.buckets, block.values, int(groups[block.region]), self.distinct.size)[:sizes]
                for block in self.answers
            ]
        )


def count_sets(survey: Survey) -> Iterator[CountSet]:
    """Yield the answers by level that count groups by size; a region's second answers are another set."""
    levels = survey.levels()
    sets: dict[tuple[int, int], list[Answers]] = {}
    blocks_before = np.zeros(levels.size, np.int64)
    for block in survey.answers:
        sets.setdefault((int(levels[block.region]), int(blocks_before[block.region])), []).append(block)
        blocks_before[block.region] += 1
    for (level, _), answers in sets.items():
        buckets = answers[0].query
        alike = all(block.query is buckets for block in answers) and len(answers) == int((levels == level).sum())
        if not isinstance(buckets, Buckets) or not alike or int(buckets.end[-1]) < survey.max_size:
            continue
        regions = np.array([block.region for block in answers])
        variance = sum(float(block.distribution.variance) for block in answers) / len(answers)
        yield CountSet(level, regions, answers, buckets, variance, _distinct_sizes(buckets, survey.max_size))


def informed_counts(survey: Survey) -> tuple[Floats, Floats]:
    """Return the answers' estimate of the root's groups of each size, float64[K + 1], and its variances.

    Neighbouring answers are differenced, regions of a level added, and levels weighted by their variances. A variance
    is infinite where no level separates a size from its neighbours.
    """
    sizes = survey.max_size + 1
    weights, weighted, sharp = np.zeros((3, sizes))
    for level in count_sets(survey):
        weight = 1.0 / (2.0 * sum(block.distribution.variance for block in level.answers))
        each = weight * np.where(level.distinct, 1.0, _VAGUE)
        sums = np.sum([block.values for block in level.answers], axis=0)
        counts = _differences(level.buckets, sums, int(survey.groups[0]), sizes)
        weights, weighted, sharp = weights + each, weighted + each * counts, sharp + weight * level.distinct
    with np.errstate(divide="ignore"):
        return weighted / np.maximum(weights, 1e-300), 1.0 / sharp


def _distinct_sizes(buckets: Buckets, max_size: int) -> Flags:
    """Return the sizes 0 .. max_size whose own cell and the one before are single buckets; the last cell is public."""
    single = np.zeros(max_size + 1, bool)
    single[buckets.begin[buckets.end - buckets.begin == 1]] = True
    single[max_size] = True
    distinct: Flags = single & np.append(True, single[:-1])
    return distinct


def _differences(buckets: Buckets, sums: Ints, groups: int, sizes: int) -> Floats:
    """Return the groups of each size from noisy sums, the cumulative counts rising evenly between buckets' middles."""
    middle = 0.5 * (buckets.begin + buckets.end - 1)
    rows = np.interp(np.arange(sizes - 1), middle, sums / (buckets.end - buckets.begin))
    return np.diff(rows, prepend=0.0, append=float(groups))
