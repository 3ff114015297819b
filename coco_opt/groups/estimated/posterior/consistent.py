"""The posterior of a measurement, the whole consistent table of least expected error, and its intervals.

The expected earth mover's distance of a consistent table, all regions added, is a sum of convex costs of its cumulative
counts, each told by the posterior of one count alone: ``coco_opt.problems.ExpectedDistance`` of what was drawn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from coco_opt.choices import SolverChoices
from coco_opt.groups.answers import GroupsAnswers
from coco_opt.groups.estimated.intervals import Intervals
from coco_opt.groups.estimated.nearest import nearest, whole_histograms
from coco_opt.groups.estimated.posterior.prior import IntArray, PriorOptions
from coco_opt.groups.estimated.posterior.sampler import Posterior, SamplerOptions, sample_posterior
from coco_opt.groups.estimated.posterior.survey import survey_of
from coco_opt.histograms import CountOfCounts
from coco_opt.privacy import Measurement
from coco_opt.problems import ExpectedDistance

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Convergence:
    """How far the chains can be trusted: ``converged`` before their cap, the prior's kind, draws and sweeps.

    Three counts of every region are watched: its entities, its groups of size 0 and those up to the middle size.
    ``r_hat`` is the worst split R-hat of all, ``effective`` their least effective sample size, ``unsettled`` the number
    of regions with an R-hat above what is asked of 95 % of a level's (``SamplerOptions``).
    """

    converged: bool
    prior: str
    draws: int
    sweeps: int
    r_hat: float
    effective: float
    unsettled: int


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
        )


def posterior_estimate(
    measurement: Measurement,
    solvers: SolverChoices,
    *,
    sizes: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    options: SamplerOptions | None = None,
    prior: PriorOptions | None = None,
) -> PosteriorEstimate:
    """Return the posterior's estimate from answers about cumulative counts, buckets of them or ranks, at any levels.

    ``sizes``: count draws of H too, which intervals need. The sampler's seed comes from the measurement, so that the
    same answers give the same table, on any number of threads. Chains that did not converge are reported, not refused.
    Raises ProblemError where sizes were asked, SolverError where no solver leaves a whole table.
    """
    survey = survey_of(GroupsAnswers(measurement))
    chosen = prior or PriorOptions()
    how = options or SamplerOptions(threads=threads)
    drawn = sample_posterior(survey, seed_of(measurement), prior=chosen, options=how, sizes=sizes, progress=progress)
    problem = ExpectedDistance(survey.parent, survey.groups, drawn.cumulative.marginals(), total=drawn.draws)
    whole, gap = nearest(problem, solvers)
    told = Convergence(
        drawn.converged,
        chosen.kind,
        drawn.draws,
        drawn.sweeps,
        float(drawn.r_hat.max()),
        float(drawn.effective.min()),
        int((drawn.r_hat > how.r_hat).any(axis=1).sum()),
    )
    return PosteriorEstimate(whole, survey.groups, drawn, told, gap)


def seed_of(measurement: Measurement) -> int:
    """Return the seed of the sampler: a digest of what was asked and answered, which has nothing of the noise's key."""
    code = hashlib.sha256(b"coco-opt posterior" + bytes.fromhex(measurement.asked.digest))
    for answers in measurement.answers:
        code.update(answers.values.astype("<i8").tobytes())
    return int.from_bytes(code.digest()[:16], "big")
