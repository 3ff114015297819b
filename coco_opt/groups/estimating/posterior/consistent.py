"""The posterior of a measurement, the consistent integer table of least expected error, and its intervals.

The expected earth mover's distance of a consistent table, all regions added, is a sum of convex costs of its cumulative
counts, each determined by the posterior of one count: ``coco_opt.problems.ExpectedDistance`` of the draws.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from coco_opt.activity import Progress, doing
from coco_opt.array_types import Ints
from coco_opt.choices import SolverChoices
from coco_opt.execution import Threads
from coco_opt.groups.estimating.intervals import SUMMARIES, Intervals, SummaryIntervals
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.estimating.nearest import integer_histograms, nearest
from coco_opt.groups.estimating.posterior.convergence import Convergence, compared_classes
from coco_opt.groups.estimating.posterior.in_buckets import finest_buckets, widen_in_buckets
from coco_opt.groups.estimating.posterior.observations import Survey, survey_of
from coco_opt.groups.estimating.posterior.prior import PriorOptions
from coco_opt.groups.estimating.posterior.recording import summaries, summary_values
from coco_opt.groups.estimating.posterior.sampler import Posterior, SamplerOptions, groups_a_leaf, sample_posterior
from coco_opt.groups.estimating.posterior.sparse import (
    MANY_CELLS,
    MANY_GROUPS,
    MANY_IN_CELLS,
    SparseDraws,
    SparseSampler,
    fewer_chains,
    has_parents,
    sparse_estimate,
)
from coco_opt.groups.estimating.subtrees import estimate_subtrees
from coco_opt.groups.noisy_measurements import GroupsMeasurements
from coco_opt.histograms import CountOfCounts
from coco_opt.posterior.seeds import answers_seed
from coco_opt.privacy import Measurement
from coco_opt.problems import ExpectedDistance


@dataclass(frozen=True, eq=False, slots=True)
class PosteriorEstimate:
    """The table of least expected error, int64[regions, K] cumulative counts, and the draws behind it.

    ``uncertified_gap`` is the relative gap that its solver left, 0 where the table is certified best for the draws.
    """

    cumulative: Ints
    group_counts: Ints
    posterior: Posterior
    convergence: Convergence
    uncertified_gap: float

    @property
    def histograms(self) -> list[CountOfCounts]:
        """Return one consistent histogram a region."""
        return integer_histograms(self.cumulative, self.group_counts)

    def intervals(self, coverage: float) -> Intervals:
        """Return the posterior's intervals of H and Hc, equal tails, widened to hold the released values.

        ``coverage`` is a lower bound on the posterior probability that an interval holds its count. Needs draws of H.
        """
        drawn, groups = self.posterior, self.group_counts[:, None]
        assert drawn.sizes is not None
        tail = (1 - Fraction(str(coverage))) / 2
        low, high = (tail.numerator, tail.denominator), (tail.denominator - tail.numerator, tail.denominator)
        cumulative = np.concatenate([self.cumulative, groups], axis=1)
        sizes = np.diff(cumulative, axis=1, prepend=0)
        return Intervals(
            coverage,
            np.minimum(drawn.sizes.quantile(*low), sizes),
            np.maximum(drawn.sizes.quantile(*high, upper=True), sizes),
            np.minimum(np.concatenate([drawn.quantile(*low), groups], axis=1), cumulative),
            np.maximum(np.concatenate([drawn.quantile(*high, upper=True), groups], axis=1), cumulative),
            self._summaries(low, high),
        )

    def _summaries(self, low: tuple[int, int], high: tuple[int, int]) -> SummaryIntervals:
        drawn, groups = self.posterior.summaries, self.group_counts
        assert drawn is not None
        value = summaries(self.cumulative, groups)
        ends = np.minimum(drawn.quantile(*low), value), np.maximum(drawn.quantile(*high, upper=True), value)
        return SummaryIntervals(SUMMARIES, *(summary_values(values, groups) for values in (value, *ends)))


def posterior_estimate(
    measurement: Measurement,
    solvers: SolverChoices,
    *,
    sizes: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    options: SamplerOptions | None = None,
    prior: PriorOptions | None = None,
    also: Sequence[Measurement] = (),
) -> PosteriorEstimate:
    """Return the posterior's estimate from answers about cumulative counts, buckets of them or ranks, at any levels.

    ``also`` are more measurements of the same groups, for example from a later year's budget: all are estimated
    together, and their costs add up. ``sizes``: also count draws of H and of summaries, which intervals need. The
    sampler's seed is computed from the measurements, so the same answers give the same table on any number of threads.
    Chains that did not converge are reported, not refused. Raises ProblemError where sizes were measured or
    measurements do not fit together, SolverError where no solver returns an integer table.
    """
    survey = survey_of(*map(GroupsMeasurements, (measurement, *also)))
    chosen = prior or PriorOptions()
    how = options or SamplerOptions(threads=threads)
    drawn = sample_posterior(
        survey, seed_of(measurement, *also), prior=chosen, options=how, sizes=sizes, progress=progress
    )
    problem = ExpectedDistance(survey.parent, survey.groups, drawn.cumulative.marginals(), total=drawn.draws)
    with doing("choosing the integer table of least expected error"):
        table, gap = nearest(problem, solvers)
    return PosteriorEstimate(table, survey.groups, drawn, _convergence(survey, drawn, chosen, how), gap)


def _convergence(
    survey: Survey, drawn: Posterior | SparseDraws, prior: PriorOptions, options: SamplerOptions
) -> Convergence:
    met = options.criterion.met(drawn.r_hat, drawn.effective)
    return Convergence(
        options.criterion,
        met.size,
        tuple(np.flatnonzero(~met).tolist()),
        float(drawn.r_hat.max()),
        float(drawn.effective.min()),
        prior.kind,
        drawn.draws,
        drawn.sweeps,
        drawn.prior_moved,
        drawn.single,
        tuple(each for each in compared_classes(survey, drawn.distances) if each.refutes),
    )


@dataclass(frozen=True, eq=False, slots=True)
class IntegerEstimate:
    """The released part of a posterior: integer histograms of all regions, intervals if requested, and convergence.

    ``uncertified_gap`` is as in ``PosteriorEstimate``.
    """

    histograms: Sequence[CountOfCounts]
    intervals: Intervals | None
    uncertified_gap: float
    convergence: Convergence


def integer_estimate(
    measurement: Measurement,
    solvers: SolverChoices,
    *,
    coverage: float = 0.0,
    threads: int | None = None,
    progress: Progress | None = None,
    also: Sequence[Measurement] = (),
    many: int = MANY_CELLS,
    seconds: float = math.inf,
    options: SamplerOptions | None = None,
) -> IntegerEstimate:
    """Return ``posterior_estimate`` and its intervals of a coverage above 0, of any number of regions.

    With more than ``many`` regions x sizes, draws are stored by the sizes that occur (``posterior.sparse``). The same
    holds where leaves have thousands of groups, or tens of thousands if all answers are about cells, because trades mix
    better there than other moves and complete rows. This requires that all leaves lie on one level below the root.
    Once draws have taken about ``seconds``, no more rounds begin; ``options`` state this and more in their place.
    """
    survey = survey_of(*map(GroupsMeasurements, (measurement, *also)))
    options = options or SamplerOptions(seconds=seconds, threads=threads)
    if not draws_sparse(survey, many):
        estimate = posterior_estimate(
            measurement, solvers, sizes=coverage > 0.0, progress=progress, options=options, also=also
        )
        histograms = estimate.histograms
        intervals = estimate.intervals(coverage) if coverage else None
        if intervals is not None:
            widen_in_buckets(intervals, histograms, finest_buckets(survey))
        return IntegerEstimate(histograms, intervals, estimate.uncertified_gap, estimate.convergence)
    prior, how = PriorOptions(), fewer_chains(options, survey.parent.size)
    near, seed = _matched_leaves(GroupsMeasurements(measurement), solvers, threads), seed_of(measurement, *also)
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        drawn = SparseSampler(survey, seed, prior, how, near, progress).sample(pool)
    with doing("choosing the integer table of least expected error"):
        estimate_by_size = sparse_estimate(drawn, solvers, coverage)
    if estimate_by_size.intervals is not None:
        widen_in_buckets(estimate_by_size.intervals, estimate_by_size.histograms, finest_buckets(survey))
    return IntegerEstimate(
        estimate_by_size.histograms,
        estimate_by_size.intervals,
        estimate_by_size.uncertified_gap,
        _convergence(survey, drawn, prior, how),
    )


def draws_sparse(survey: Survey, many: int = MANY_CELLS) -> bool:
    """Return whether draws are stored by the sizes that occur: see ``integer_estimate``."""
    traded = groups_a_leaf(survey) >= (MANY_IN_CELLS if survey.of_rows else MANY_GROUPS)
    return has_parents(survey) and (survey.parent.size * survey.max_size > many or traded)


def seed_of(*measurements: Measurement) -> int:
    """Return the seed of the sampler: a digest of the plan and the noisy answers, independent of the noise's key."""
    pieces: list[bytes] = []
    for measurement in measurements:
        pieces.append(bytes.fromhex(measurement.measurement_plan.digest))
        pieces += [answers.values.astype("<i8").tobytes() for answers in measurement.answers]
    return answers_seed("coco-opt posterior", pieces)


def _matched_leaves(answers: GroupsMeasurements, solvers: SolverChoices, threads: int | None) -> list[CountOfCounts]:
    """Return the leaves' histograms by matching, near the answers of all levels; none if a level was not measured."""
    hierarchy = answers.hierarchy
    if len(answers.measured_levels) < hierarchy.levels:
        return []
    method = GroupsMethod("l1", consistency="matching")
    executor = Threads(threads or os.cpu_count() or 1)
    return list(estimate_subtrees(answers, method, solvers.fresh(), executor)[hierarchy.leaves.start :])
