"""One seed's noisy estimates of a case, level by level, made when a method first asks for them and then kept.

Methods compared under one seed share whatever they have in common: Hc x Hg and Hc x Hc read the same root.

Noise and isotonic regression of sorted sizes are one draw, in time that does not grow with the groups. The isotonic fit
in squares is the slope of the greatest convex minorant of the partial sums. For n equal true values v the minorant's
face lengths are distributed as the cycle lengths of a uniform random permutation of n, and given the lengths the face
sums are independent sums of that many noises (Abramson and Pitman 2011, after Sparre Andersen). So a run of n is drawn
as its faces: m_1 uniform on 1..n, m_2 on 1..n - m_1, ..., each with the sum m v + NB(m, p) - NB(m, p), p = 1 -
exp(-1/s), sorted by mean; the minorant of the runs together is the minorant of these faces, which the caller's isotonic
regression finds. No raw noisy vector exists, and the sampler is numpy's: for experiments only.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import ClassVar

import numpy as np

from coco_experiments.groups import Case
from coco_opt.array_types import Ints
from coco_opt.choices import SolverChoices
from coco_opt.groups import Query, RegionMeasurement, exact_answers, sensitivity
from coco_opt.groups.estimating.estimators import SAME_BLOCK, FitOptions, SizeEstimate, estimate
from coco_opt.groups.noisy_measurements import Loss
from coco_opt.histograms import CountOfCounts
from coco_opt.kernels.merging import round_sizes
from coco_opt.privacy import Epsilon, Measurement, NoiseSource, SeededNoise
from coco_opt.privacy.noise import NoiseStream
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


EMPTY = SizeEstimate.from_histogram(CountOfCounts.empty(), 0.0)
_LOSSES: dict[Query, Loss] = {"cumulative": "l1", "ranks": "l2", "sizes": "l2"}

LABEL = "NOT PRIVATE, not even in parallel composition: the differences of regions are exact"


def answer_of(
    truth: CountOfCounts, query: Query, *, region: str, max_size: int, epsilon: Fraction, source: NoiseSource
) -> RegionMeasurement:
    """Return a region's noisy measurement as a release would measure it, for an entity added or removed."""
    distribution = Epsilon(epsilon).distribution(sensitivity(query, "add_remove"))
    stream = distribution.opened(source, measurement=query, region=region)
    values = stream.add_to(exact_answers(truth, query, max_size))
    return RegionMeasurement(query, region, truth.groups, max_size, distribution, values)


class SharedNoise:
    """Give every region one and the same noise, in a scale of its own; NOT PRIVATE, not even in parallel composition.

    The paper's published Table 4 is what one seed for all regions gives. Two regions with the same noise reveal the
    exact difference of their counts, so this source lives in the experiments and no release can name it.
    """

    name: ClassVar[str] = "shared by all regions"
    private: ClassVar[bool] = False

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def stream(self, scale: Fraction, *, measurement: str, region: str) -> NoiseStream:
        """Open the seed's noise from its beginning, whatever the region is."""
        return SeededNoise(self.seed).stream(scale, measurement=measurement, region="every region")

    def __repr__(self) -> str:
        return f"SharedNoise(seed={self.seed}) ({LABEL})"


class Draws:
    """Noisy estimates of a case under one seed; NOT PRIVATE, and with ``shared`` all regions have one noise."""

    def __init__(self, case: Case, seed: int, *, shared: bool = False) -> None:
        self.case, self.seed, self.shared = case, seed, shared
        self.solvers = SolverChoices()
        self._levels: dict[tuple[object, ...], list[SizeEstimate]] = {}

    def level(
        self, level: int, query: Query, epsilon: Fraction, options: FitOptions | None = None
    ) -> list[SizeEstimate]:
        """Return the estimates of a level's regions from measurements of ``epsilon`` each."""
        chosen = options or FitOptions(_LOSSES[query])
        key = (level, query, epsilon, chosen)
        if key not in self._levels:
            regions = self.case.hierarchy.level_range(level)

            def fit(region: int) -> SizeEstimate:
                if query == "ranks" and not self.shared:
                    return self._ranks(region, epsilon)
                return estimate(self.answer(region, query, epsilon), chosen, self.solvers)

            with ThreadPoolExecutor(os.cpu_count()) as pool:
                self._levels[key] = list(pool.map(fit, regions))
        return self._levels[key]

    def estimates(self, queries: Sequence[Query], epsilons: Sequence[Fraction]) -> list[SizeEstimate]:
        """Return one estimate a region, empty on levels without a budget."""
        fits: list[SizeEstimate] = []
        for level, (query, epsilon) in enumerate(zip(queries, epsilons, strict=True)):
            if epsilon:
                fits += self.level(level, query, epsilon)
            else:
                fits += [EMPTY] * len(self.case.hierarchy.level_range(level))
        return fits

    def answer(self, region: int, query: Query, epsilon: Fraction) -> RegionMeasurement:
        """Return a region's noisy measurement."""
        path, truth, source = self.case.hierarchy.paths[region], self.case.truth[region], self._source()
        return answer_of(truth, query, region=path, max_size=self.case.max_size, epsilon=epsilon, source=source)

    def _ranks(self, region: int, epsilon: Fraction) -> SizeEstimate:
        """Return a region's estimate from ranks with loss l2, by the exact shortcut."""
        # A seed's sequence of its own for every region: the region's path, as a number anyone can compute.
        rng = np.random.default_rng([self.seed, zlib.crc32(self.case.hierarchy.paths[region].encode())])
        truth, max_size = self.case.truth[region], self.case.max_size
        return estimate_ranks(truth, max_size=max_size, epsilon=epsilon, rng=rng, solvers=self.solvers)

    def measurement(self, query: Query | Sequence[Query], epsilons: Sequence[Fraction]) -> Measurement:
        """Return the answers of all measured levels to one query, or to one a level, as a release would measure them.

        Answers about sizes and cumulative ones are those that ``level`` reads; ranks are not (it takes a shortcut).
        """
        return self.case.measured(self._source(), [Epsilon(epsilon) for epsilon in epsilons], query)

    def _source(self) -> NoiseSource:
        # A new source each time: one seed's noise may be read twice here, for nothing is released.
        return SharedNoise(self.seed) if self.shared else SeededNoise(self.seed)
