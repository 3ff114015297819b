"""The paper's baselines: a line that no method is expected to beat, and two estimates that fail.

None of them can be released: the omniscient line reads the truth, mean-consistency gives negative and fractional
tables, and clipped naive gives the wrong number of groups. They exist to be compared with the valid methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import InputError, ProblemError
from coco_opt.groups.noisy_measurements import GroupsMeasurements, RegionMeasurement
from coco_opt.histograms import CountOfCounts, Hierarchy, emd_cumulative
from coco_opt.privacy import Cost, Measurement, Sensitivity

INTEGER_TOLERANCE = 1e-9  # cells nearer to an integer, relative to the largest cell, count as integers


@dataclass(frozen=True, eq=False, slots=True)
class OmniscientError:
    """Expected error of a region by level, float64[levels] each, in entities; infinite where a level has no budget.

    ``deviation`` counts one standard deviation of noise a distinct size, as the paper does; ``absolute`` counts the
    noise's mean absolute value, which is what its error would be on average.
    """

    deviation: Floats
    absolute: Floats


def omniscient(hierarchy: Hierarchy, truth: Sequence[CountOfCounts], costs: Sequence[Cost]) -> OmniscientError:
    """Return the error expected of a method that knows which sizes occur where, and adds noise to those only.

    For experiments: it reads the ``truth``, one histogram a region. A region of d distinct sizes costs
    d sqrt(2) / epsilon, with Laplace noise of scale 1 / epsilon a size (absolute: d / epsilon); for a cost in rho,
    Gaussian noise of variance 1 / (2 rho) a size. Means over a level's regions. Kuo et al. 2018, section 6.2,
    "Interpreting error". Raises ProblemError unless one cost a level and one histogram a region are given.
    """
    if len(costs) != hierarchy.levels or len(truth) != hierarchy.regions:
        raise ProblemError("the omniscient line needs a cost for every level and a histogram for every region")
    distinct = np.array([histogram.distinct for histogram in truth], dtype=np.float64)
    means = np.add.reduceat(distinct, hierarchy.level_start[:-1]) / np.diff(hierarchy.level_start)
    distributions = [cost.distribution(Sensitivity(1, 1)) if cost else None for cost in costs]
    deviation = np.array(
        [np.inf if distribution is None else np.sqrt(distribution.nominal_variance) for distribution in distributions]
    )
    absolute = np.array(
        [np.inf if distribution is None else distribution.mean_absolute for distribution in distributions]
    )
    return OmniscientError(_times(means, deviation), _times(means, absolute))


def _times(distinct: Floats, noise: Floats) -> Floats:
    # A level without groups has no error, whatever its noise: 0 x infinity is 0 here.
    return np.where(distinct > 0, distinct, 1.0) * np.where(distinct > 0, noise, 0.0)


@dataclass(frozen=True, eq=False, slots=True)
class MeanConsistency:
    """Consistent tables of H[0..K], float64[regions, K + 1] in groups, that are not histograms."""

    hierarchy: Hierarchy
    table: Floats

    @property
    def negative(self) -> float:
        """Return the share of cells below zero."""
        return float(np.mean(self.table < 0))

    @property
    def fractional(self) -> float:
        """Return the share of cells that are not integers."""
        largest = max(1.0, float(np.abs(self.table).max()))
        return float(np.mean(np.abs(self.table - np.rint(self.table)) > INTEGER_TOLERANCE * largest))


def mean_consistency(measurement: Measurement) -> MeanConsistency:
    """Return the least squares tables in which every cell of a parent is the sum of its children's.

    Hay et al. 2010, section 4, on the noisy H[j] of each size j, weighted by 1 / variance; all cells together, because
    the weights do not depend on the size. Kuo et al. 2018, section 5, says why it fails: H[j] becomes negative and
    fractional, and misses the public number of groups. Raises ProblemError where a level's query is not "sizes" or the
    leaves were not measured. O(regions x K) time and memory.
    """
    y, variance = _answers(GroupsMeasurements(measurement))
    tree = measurement.hierarchy
    z, spread = y, variance.copy()
    below = np.zeros(tree.regions)
    for level in range(tree.levels - 2, -1, -1):
        parents, starts, children = _families(tree, level)
        below[parents] = np.add.reduceat(spread[children], starts)
        total = np.add.reduceat(z[children], starts, axis=0)
        # Written so that a level without answers, of infinite variance, takes its children's sums.
        part = 1.0 / (1.0 + below[parents] / variance[parents])
        z[parents] += (total - z[parents]) * part[:, None]
        spread[parents] = part * below[parents]
    for level in range(tree.levels - 1):
        parents, starts, children = _families(tree, level)
        excess = (z[parents] - np.add.reduceat(z[children], starts, axis=0)) / below[parents][:, None]
        z[children] += spread[children][:, None] * excess[tree.parent[children] - parents.start]
    return MeanConsistency(tree, z)


def _families(hierarchy: Hierarchy, level: int) -> tuple[slice, Ints, slice]:
    """Return a level's regions, where the children of each begin in the level below, and the level below."""
    parents, below = hierarchy.level_range(level), hierarchy.level_range(level + 1)
    starts = hierarchy.first_child[parents.start : parents.stop] - below.start
    return slice(parents.start, parents.stop), starts, slice(below.start, below.stop)


def _answers(answers: GroupsMeasurements) -> tuple[Floats, Floats]:
    """Return the noisy table (regions, K + 1), zeros where nothing was measured, and the variances (regions,)."""
    hierarchy = answers.hierarchy
    if hierarchy.levels - 1 not in answers.measured_levels:
        raise ProblemError("mean-consistency needs the leaves' counts: give their level a share of the budget")
    table = np.zeros((hierarchy.regions, answers.max_size + 1))
    variance = np.full(hierarchy.regions, np.inf)
    for region, answer in enumerate(answers):
        if answer is not None:
            table[region], variance[region] = _sizes(answer), answer.distribution.variance
    return table, variance


def _sizes(answer: RegionMeasurement) -> Ints:
    if answer.query != "sizes":
        raise ProblemError(f"the query of region {answer.region!r} is {answer.query!r}: this baseline needs 'sizes'")
    return answer.values


def clipped_naive(answer: RegionMeasurement) -> CountOfCounts:
    """Return the noisy H with its negative cells set to zero: naive without the constraint that H sums to G.

    Half of the noise of every empty cell stays, so the number of groups is wrong by about the noise scale times
    K / 2 and the error grows like K^2 (the published naive errors are of this size). Compare it by
    ``cumulative_distance``. Raises ProblemError for another query.
    """
    return CountOfCounts.from_dense(np.maximum(_sizes(answer), 0))


def cumulative_distance(a: CountOfCounts, b: CountOfCounts, max_size: int) -> int:
    """Return sum_i |Hc_a[i] - Hc_b[i]| over i = 0 .. max_size, also where the numbers of groups differ.

    It is the earth mover's distance where they agree; otherwise each group too many or too few is moved to
    max_size + 1. O(max_size). Raises InputError where a group is larger than ``max_size``.
    """
    if max(a.max_size, b.max_size) > max_size:
        raise InputError("size-above-bound", f"a group is larger than max_size = {max_size}; clamp first")
    # One cell further, which both end with, makes the numbers of groups equal.
    ends = max(a.groups, b.groups)
    return emd_cumulative(*(np.append(histogram.cumulative(max_size), ends) for histogram in (a, b)))
