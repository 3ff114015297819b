"""The paper's baselines: a line that no method is expected to beat, and two estimates that fail.

None of them can be released: the omniscient line reads the truth, mean-consistency gives negative and fractional
tables, and clipped naive gives the wrong number of groups. They exist to be compared with the valid methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coco_experiments.groups import Case, Levels
from coco_opt.array_types import Floats, Ints
from coco_opt.errors import InputError, ProblemError
from coco_opt.groups.noisy_measurements import GroupsMeasurements, RegionMeasurement
from coco_opt.histograms import CountOfCounts, Hierarchy, emd_cumulative
from coco_opt.kernels import tree_passes
from coco_opt.privacy import Cost, Measurement, Sensitivity

INTEGER_TOLERANCE = 1e-9  # cells nearer to an integer, relative to the largest cell, count as integers


def omniscient(case: Case, costs: Sequence[Cost]) -> Levels:
    """Return the error (entities a region) by level of a method that knows which sizes occur where, and noises those.

    A region of d distinct sizes costs d standard deviations of noise, d sqrt(2) / epsilon for Laplace noise; a level's
    line is the mean over its regions, infinite where it has no budget. Kuo et al. 2018, section 6.2, "Interpreting
    error".
    """
    means = case.by_level(np.array([histogram.distinct for histogram in case.truth], dtype=np.float64))
    noise = (np.sqrt(cost.distribution(Sensitivity(1, 1)).nominal_variance) if cost else np.inf for cost in costs)
    # A level without groups has no error, whatever its noise.
    return tuple(float(mean * deviation) if mean else 0.0 for mean, deviation in zip(means, noise, strict=True))


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

    Hay et al. 2010, section 4, on the noisy H[j] of each size j, weighted by 1 / variance. Kuo et al. 2018, section 5,
    says why it fails: H[j] becomes negative and fractional, and misses the public number of groups. Raises ProblemError
    where a level's query is not "sizes" or the leaves were not measured. O(regions x K) time and memory.
    """
    answers, tree = GroupsMeasurements(measurement), measurement.hierarchy
    if tree.levels - 1 not in answers.measured_levels:
        raise ProblemError("mean-consistency needs the leaves' counts: give their level a share of the budget")
    # Zeros of infinite variance where nothing was measured.
    table, variance = np.zeros((answers.max_size + 1, tree.regions)), np.full(tree.regions, np.inf)
    for region, answer in enumerate(answers):
        if answer is not None:
            table[:, region], variance[region] = _sizes(answer), answer.distribution.variance
    fitted = [tree_passes.fit(tree.first_child, cells, variance) for cells in table]
    return MeanConsistency(tree, np.stack(fitted, axis=1))


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
