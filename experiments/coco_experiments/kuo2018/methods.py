"""The methods the paper compares, and joint estimation, as values: a name and a function of one seed's draws.

Draws are noisy estimates of a case, level by level, made when a method first asks for them and then kept. Methods
compared under one seed share whatever they have in common: Hc x Hg and Hc x Hc read the same root.

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
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import ClassVar

import numpy as np

from coco_experiments.groups import Case, split_evenly
from coco_opt.array_types import Ints
from coco_opt.choices import SolverChoices
from coco_opt.groups import Query, RegionMeasurement, exact_answers, sensitivity
from coco_opt.groups.estimating.convex import convex
from coco_opt.groups.estimating.estimators import SAME_BLOCK, FitOptions, SizeEstimate, estimate
from coco_opt.groups.estimating.joint import joint
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.estimating.subtrees import matching
from coco_opt.groups.noisy_measurements import Loss
from coco_opt.histograms import CountOfCounts, sum_of_leaves
from coco_opt.kernels.merging import Merge, Rounding, round_sizes
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


_QUERIES: dict[str, Query] = {"Hc": "cumulative", "Hg": "ranks", "naive": "sizes"}
Histograms = Sequence[CountOfCounts]


@dataclass(frozen=True, slots=True)
class Method:
    """A way from one seed's draws and a total epsilon to one histogram a region; ``most_runs`` caps dear ones.

    ``consistent`` says whether children sum to their parents: without that a method is no candidate for the best.
    """

    name: str
    run: Callable[[Draws, Fraction], Histograms]
    most_runs: int | None = None
    consistent: bool = True


def combinations(levels: int) -> list[tuple[str, ...]]:
    """Return every choice of Hc or Hg a level, root first."""
    return list(product(("Hc", "Hg"), repeat=levels))


def matched(choice: Sequence[str], merge: Merge = "weighted", rounding: Rounding = "half_up") -> Method:
    """Return Algorithm 1 with an estimator a level, total epsilon split evenly."""
    method = GroupsMethod(consistency="matching", merge=merge, rounding=rounding)

    def run(draws: Draws, epsilon: Fraction) -> Histograms:
        each = draws.estimates(queries_of(choice), split_evenly(epsilon, len(choice)))
        return matching(draws.case.hierarchy, each, draws.solvers, method)

    kind = "" if (merge, rounding) == ("weighted", "half_up") else f", {merge} {rounding.replace('_', ' ')}"
    return Method(f"matching {' x '.join(choice)}{kind}", run)


def alone(choice: Sequence[str]) -> Method:
    """Return every region's own estimate, total epsilon split evenly: not consistent."""

    def run(draws: Draws, epsilon: Fraction) -> Histograms:
        return [each.histogram for each in draws.estimates(queries_of(choice), split_evenly(epsilon, len(choice)))]

    return Method(f"no consistency {' x '.join(choice)}", run, consistent=False)


def leaves_only(estimator: str) -> Method:
    """Return bottom-up: the whole epsilon on the leaves, upper levels are sums."""

    def run(draws: Draws, epsilon: Fraction) -> Histograms:
        levels = draws.case.levels
        budgets = [Fraction(0)] * (levels - 1) + [epsilon]
        tree, estimates = draws.case.hierarchy, draws.estimates(queries_of((estimator,) * levels), budgets)
        return sum_of_leaves(tree, [estimates[leaf].histogram for leaf in tree.leaves])

    return Method(f"bottom-up {estimator}", run)


def jointly(loss: Loss, most_runs: int | None = None) -> Method:
    """Return joint estimation of all regions from cumulative counts, rounded to integer consistent tables."""

    def run(draws: Draws, epsilon: Fraction) -> Histograms:
        noisy = draws.measurement("cumulative", split_evenly(epsilon, draws.case.levels))
        return joint(noisy, draws.solvers, loss=loss).histograms

    return Method(f"joint p = {loss[1]}", run, most_runs)


def convexly(estimator: str, loss: Loss, most_runs: int | None = None) -> Method:
    """Return the exact convex program a size (Fioretto et al. 2021), on H (naive) or Hc, total epsilon split evenly."""

    def run(draws: Draws, epsilon: Fraction) -> Histograms:
        noisy = draws.measurement(_QUERIES[estimator], split_evenly(epsilon, draws.case.levels))
        return convex(noisy, GroupsMethod(loss, consistency="convex"), draws.solvers)

    return Method(f"convex program on {'H' if estimator == 'naive' else estimator}, p = {loss[1]}", run, most_runs)


def queries_of(choice: Sequence[str]) -> list[Query]:
    """Return the queries of estimators called Hc, Hg or naive."""
    return [_QUERIES[name] for name in choice]
