"""The posterior of a measurement, the whole consistent table of least expected error, and its intervals.

The expected earth mover's distance of a consistent table, all regions added, is a sum of convex costs of its cumulative
counts, each told by the posterior of one count alone: ``coco_opt.problems.ExpectedDistance`` of what was drawn.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from coco_opt.choices import SolverChoices
from coco_opt.execution import Threads
from coco_opt.groups.answers import GroupsAnswers
from coco_opt.groups.estimated.intervals import SUMMARIES, Intervals, SummaryIntervals
from coco_opt.groups.estimated.method import GroupsMethod
from coco_opt.groups.estimated.nearest import nearest, whole_histograms
from coco_opt.groups.estimated.posterior.prior import IntArray, PriorOptions
from coco_opt.groups.estimated.posterior.recorded import summaries, summary_values
from coco_opt.groups.estimated.posterior.sampler import Posterior, SamplerOptions, groups_a_leaf, sample_posterior
from coco_opt.groups.estimated.posterior.sparse import (
    MANY_CELLS,
    MANY_GROUPS,
    MANY_IN_CELLS,
    SparseDraws,
    SparseSampler,
    fewer_chains,
    has_parents,
    sparse_estimate,
)
from coco_opt.groups.estimated.posterior.survey import survey_of
from coco_opt.groups.estimated.subtrees import estimate_subtrees
from coco_opt.histograms import CountOfCounts
from coco_opt.privacy import Measurement
from coco_opt.problems import ExpectedDistance

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Convergence:
    """How far the chains can be trusted: ``converged`` before their cap, the prior's kind, draws and sweeps.

    Three counts of every region are watched: its entities, its groups of size 0 and those up to the middle size.
    ``r_hat`` is the worst split R-hat of all, ``effective`` their least effective sample size, ``unsettled`` the number
    of regions with an R-hat above what is asked of 95 % of a level's, ``prior_moved`` the part of all groups for which
    the prior still changed when it was frozen (``SamplerOptions``).
    """

    converged: bool
    prior: str
    draws: int
    sweeps: int
    r_hat: float
    effective: float
    unsettled: int
    prior_moved: float


@dataclass(frozen=True, eq=False, slots=True)
class PosteriorEstimate:
    """The table of least expected error, int64[regions, K] cumulative counts, and what was drawn to find it.

    ``unproved`` is the relative gap that its solver left open, 0 where the table is proved best for what was drawn.
    """

    whole: IntArray
    group_counts: IntArray
    posterior: Posterior
    convergence: Convergence
    unproved: float

    @property
    def histograms(self) -> list[CountOfCounts]:
        """Return one consistent histogram a region."""
        return whole_histograms(self.whole, self.group_counts)

    def intervals(self, coverage: float) -> Intervals:
        """Return the posterior's intervals of H and Hc, equal tails, widened to hold the released values.

        ``coverage`` is the chance under the posterior that an interval holds its count, at least. Needs draws of H.
        """
        drawn, groups = self.posterior, self.group_counts[:, None]
        assert drawn.sizes is not None
        tail = (1 - Fraction(str(coverage))) / 2
        low, high = (tail.numerator, tail.denominator), (tail.denominator - tail.numerator, tail.denominator)
        cumulative = np.concatenate([self.whole, groups], axis=1)
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
        value = summaries(self.whole, groups)
        ends = np.minimum(drawn.quantile(*low), value), np.maximum(drawn.quantile(*high, upper=True), value)
        return SummaryIntervals(SUMMARIES, *(summary_values(one, groups) for one in (value, *ends)))


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

    ``also`` are more measurements of the same groups, as of a later year's budget: all are estimated together, and what
    they cost adds up. ``sizes``: count draws of H and of summaries too, which intervals need. The sampler's seed comes
    from the measurements, so that the same answers give the same table, on any number of threads. Chains that did not
    converge are reported, not refused. Raises ProblemError where sizes were asked or measurements do not fit together,
    SolverError where no solver leaves a whole table.
    """
    survey = survey_of(*map(GroupsAnswers, (measurement, *also)))
    chosen = prior or PriorOptions()
    how = options or SamplerOptions(threads=threads)
    drawn = sample_posterior(
        survey, seed_of(measurement, *also), prior=chosen, options=how, sizes=sizes, progress=progress
    )
    problem = ExpectedDistance(survey.parent, survey.groups, drawn.cumulative.marginals(), total=drawn.draws)
    whole, gap = nearest(problem, solvers)
    return PosteriorEstimate(whole, survey.groups, drawn, _told(drawn, chosen, how), gap)


def _told(drawn: Posterior | SparseDraws, prior: PriorOptions, options: SamplerOptions) -> Convergence:
    return Convergence(
        drawn.converged,
        prior.kind,
        drawn.draws,
        drawn.sweeps,
        float(drawn.r_hat.max()),
        float(drawn.effective.min()),
        int((drawn.r_hat > options.r_hat).any(axis=1).sum()),
        drawn.prior_moved,
    )


@dataclass(frozen=True, eq=False, slots=True)
class WholeEstimate:
    """What is released of a posterior: whole histograms of all regions, intervals if asked, and how far to trust both.

    ``unproved`` is as in ``PosteriorEstimate``.
    """

    histograms: Sequence[CountOfCounts]
    intervals: Intervals | None
    unproved: float
    convergence: Convergence


def whole_estimate(
    measurement: Measurement,
    solvers: SolverChoices,
    *,
    coverage: float = 0.0,
    threads: int | None = None,
    progress: Progress | None = None,
    also: Sequence[Measurement] = (),
    many: int = MANY_CELLS,
) -> WholeEstimate:
    """Return ``posterior_estimate`` and its intervals of a coverage above 0, of any number of regions.

    Of more than ``many`` regions x sizes draws are kept by the sizes that occur (``posterior.sparse``), and so they are
    where leaves have thousands of groups, or tens of thousands if all answers are about cells: there trades mix better
    than other moves and whole rows. All leaves must lie on one level below the root for that.
    """
    survey = survey_of(*map(GroupsAnswers, (measurement, *also)))
    traded = groups_a_leaf(survey) >= (MANY_IN_CELLS if survey.only_cells else MANY_GROUPS)
    if not has_parents(survey) or (survey.parent.size * survey.max_size <= many and not traded):
        found = posterior_estimate(
            measurement, solvers, sizes=coverage > 0.0, threads=threads, progress=progress, also=also
        )
        intervals = found.intervals(coverage) if coverage else None
        return WholeEstimate(found.histograms, intervals, found.unproved, found.convergence)
    prior, how = PriorOptions(), fewer_chains(SamplerOptions(threads=threads))
    near, seed = _matched(GroupsAnswers(measurement), solvers, threads), seed_of(measurement, *also)
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        drawn = SparseSampler(survey, seed, prior, how, near, progress).sample(pool)
    made = sparse_estimate(drawn, solvers, coverage)
    return WholeEstimate(made.histograms, made.intervals, made.unproved, _told(drawn, prior, how))


def seed_of(*measurements: Measurement) -> int:
    """Return the seed of the sampler: a digest of what was asked and answered, which has nothing of the noise's key."""
    code = hashlib.sha256(b"coco-opt posterior")
    for measurement in measurements:
        code.update(bytes.fromhex(measurement.asked.digest))
        for answers in measurement.answers:
            code.update(answers.values.astype("<i8").tobytes())
    return int.from_bytes(code.digest()[:16], "big")


def _matched(answers: GroupsAnswers, solvers: SolverChoices, threads: int | None) -> list[CountOfCounts]:
    """Return the leaves' histograms by matching, near the answers of all levels; none where a level has none."""
    hierarchy = answers.hierarchy
    if len(answers.measured_levels) < hierarchy.levels:
        return []
    method = GroupsMethod("l1", consistency="matching")
    by = Threads(threads or os.cpu_count() or 1)
    return list(estimate_subtrees(answers, method, solvers.fresh(), by)[hierarchy.leaves.start :])
