"""Noise and isotonic regression of sorted sizes in one draw, in time that does not grow with the groups.

The isotonic fit in squares is the slope of the greatest convex minorant of the partial sums. For n equal true values
v the minorant's face lengths are distributed as the cycle lengths of a uniform random permutation of n, and given the
lengths the face sums are independent sums of that many noises (Abramson and Pitman 2011, after Sparre Andersen). So a
run of n is drawn as its faces: m_1 uniform on 1..n, m_2 on 1..n - m_1, ..., each with the sum m v + NB(m, p) -
NB(m, p), p = 1 - exp(-1/s), sorted by mean; the minorant of the runs together is the minorant of these faces, which the
caller's isotonic regression finds. No raw noisy vector exists, and the sampler is numpy's: for experiments only.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.choices import SolverChoices
from coco_opt.groups import sensitivity
from coco_opt.groups.estimating.estimates import SizeEstimate
from coco_opt.groups.estimating.estimators import SAME_BLOCK
from coco_opt.histograms import CountOfCounts
from coco_opt.kernels.merging import round_sizes
from coco_opt.privacy import Epsilon
from coco_opt.problems import IsotonicL2


def face_lengths(counts: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return (run, length) of the faces of every run: the cycle lengths of random permutations of ``counts``.

    O(sum of log counts) in as many vector steps as the run with the most faces has.
    """
    runs, lengths = [], []
    open_runs, left = np.flatnonzero(counts > 0), counts[counts > 0]
    while left.size:
        drawn = rng.integers(1, left + 1)
        runs.append(open_runs)
        lengths.append(drawn)
        left = left - drawn
        open_runs, left = open_runs[left > 0], left[left > 0]
    if not runs:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return np.concatenate(runs), np.concatenate(lengths)


def noisy_faces(histogram: CountOfCounts, scale: Fraction, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return (sums, lengths) of blocks of noisy sorted sizes whose isotonic fit is distributed as the groups' own.

    ``scale`` is that of the double-geometric noise of one group; sums in entities, lengths in groups.
    """
    run, length = face_lengths(histogram.counts, rng)
    success = -math.expm1(-1.0 / float(scale))
    noise = rng.negative_binomial(length, success) - rng.negative_binomial(length, success)
    sums = histogram.sizes[run] * length + noise
    # Equal or nearly equal means in another order are pooled by the caller's regression, or round alike.
    order = np.lexsort((sums / length, run))
    return sums[order].astype(np.int64), length[order].astype(np.int64)


def estimate_ranks(
    histogram: CountOfCounts, *, max_size: int, epsilon: Fraction, rng: np.random.Generator, solvers: SolverChoices
) -> SizeEstimate:
    """Return the estimate with loss l2 of a region's noisy ranks, in distribution that of all its groups; NOT PRIVATE.

    As ``coco_opt.groups.estimating.estimators`` makes it: fitted sizes are rounded half up, the variance of a group is
    that of one noise over the groups pooled with it.
    """
    distribution = Epsilon(epsilon).distribution(sensitivity("ranks", "add_remove"))
    sums, lengths = noisy_faces(histogram.clamp(max_size), distribution.scale, rng)
    if sums.size == 0:
        return SizeEstimate.from_histogram(CountOfCounts.empty(), 0.0)
    fitted = solvers.solve(IsotonicL2(sums / lengths, lengths, lower=0, upper=max_size))
    starts = np.flatnonzero(np.append(True, np.diff(fitted) > SAME_BLOCK))
    pooled = np.add.reduceat(lengths, starts)
    return SizeEstimate(round_sizes(fitted[starts], "half_up"), pooled, distribution.nominal_variance / pooled)
