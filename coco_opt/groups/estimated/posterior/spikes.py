"""Sizes that hold far more groups than their neighbours: round numbers, or a kind of group of one size.

A prior that is smooth over sizes would deny them to every region, against any number of groups. They are found in the
noisy answers themselves, before any estimate: an estimate would keep what it believed once.
"""

from __future__ import annotations

import numpy as np

from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimated.posterior.prior import BoolArray, FloatArray, only_last, reaching, smoothed
from coco_opt.groups.estimated.posterior.survey import Answers, Survey

_EXCESS = 4.0  # standard deviations beyond which a size stands alone
_VAGUE = 1e-9  # weight of what a level says of sizes that its buckets do not tell apart


def standing_alone(survey: Survey, reach: float) -> BoolArray:
    """Return which sizes 0 .. K must not be smoothed over k +- reach k: the last, and those far above their neighbours.

    Found one by one, the plainest first, for one raises the mean of the others. O(answers + found K).
    """
    counts, variance = told_counts(survey)
    alone = only_last(counts.size)
    while True:
        means = smoothed(counts, reaching(counts.size, reach), alone)
        excess = np.where(alone, 0.0, (counts - means) / np.sqrt(np.maximum(means, 0.0) + variance))
        found = int(np.argmax(excess))
        if excess[found] <= _EXCESS:
            return alone
        alone[found] = True


def told_counts(survey: Survey) -> tuple[FloatArray, FloatArray]:
    """Return what answers tell of the root's groups of each size, float64[K + 1], and the variances of that.

    Differences of neighbouring answers, all regions of a level added, and levels weighed by their variances; infinite
    where no level tells a size from its neighbours.
    """
    sizes, levels = survey.max_size + 1, survey.levels()
    # Answers to one question about all regions of a level; a region asked twice begins another set.
    sets: dict[tuple[int, int], list[Answers]] = {}
    asked = np.zeros(levels.size, np.int64)
    for one in survey.answers:
        sets.setdefault((int(levels[one.region]), int(asked[one.region])), []).append(one)
        asked[one.region] += 1
    weights, weighted, sharp = np.zeros(sizes), np.zeros(sizes), np.zeros(sizes)
    for (level, _), answers in sets.items():
        buckets = answers[0].question
        alike = all(one.question is buckets for one in answers) and len(answers) == int((levels == level).sum())
        if not isinstance(buckets, Buckets) or not alike or int(buckets.end[-1]) < survey.max_size:
            continue
        weight = 1.0 / (2.0 * sum(one.law.variance for one in answers))
        told = _told_apart(buckets, survey.max_size)
        each = weight * np.where(told, 1.0, _VAGUE)
        counts = _differences(buckets, np.sum([one.values for one in answers], axis=0), int(survey.groups[0]), sizes)
        weights, weighted, sharp = weights + each, weighted + each * counts, sharp + weight * told
    with np.errstate(divide="ignore"):
        return weighted / np.maximum(weights, 1e-300), 1.0 / sharp


def _told_apart(buckets: Buckets, max_size: int) -> BoolArray:
    """Return the sizes 0 .. max_size whose own cell and the one before are asked alone; the last cell is public."""
    single = np.zeros(max_size + 1, bool)
    single[buckets.begin[buckets.end - buckets.begin == 1]] = True
    single[max_size] = True
    told: BoolArray = single & np.append(True, single[:-1])
    return told


def _differences(buckets: Buckets, sums: FloatArray, groups: int, sizes: int) -> FloatArray:
    """Return the groups of each size from noisy sums, the cumulative counts rising evenly between buckets' middles."""
    middle = 0.5 * (buckets.begin + buckets.end - 1)
    rows = np.interp(np.arange(sizes - 1), middle, sums / (buckets.end - buckets.begin))
    return np.diff(rows, prepend=0.0, append=float(groups))
