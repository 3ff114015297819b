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
from coco_opt.groups.estimating.intervals import SUMMARIES, Intervals, SummaryIntervals, widen_in_buckets
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.estimating.posterior.convergence import Convergence, compared_classes
from coco_opt.groups.estimating.posterior.observations import Survey, survey_of
from coco_opt.groups.estimating.posterior.prior import PriorOptions
from coco_opt.groups.estimating.posterior.recording import Counted, summaries, summary_values
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
from coco_opt.histograms import CountOfCounts, histograms_of
from coco_opt.posterior.chains import answers_seed
from coco_opt.privacy import Measurement
from coco_opt.problems import ExpectedDistance

_CHOOSING = "choosing the integer table of least expected error"


@dataclass(frozen=True, eq=False, slots=True)
class PosteriorEstimate:
    """The consistent integer table of least expected error, its intervals if requested, and the draws behind it.

    ``uncertified_gap`` is the relative gap that its solver left, 0 where the table is certified best for the draws.
    """

    histograms: list[CountOfCounts]
    intervals: Intervals | None
    uncertified_gap: float
    convergence: Convergence
    drawn: Posterior | SparseDraws


def posterior_estimate(
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
) -> PosteriorEstimate:
    """Return the posterior's estimate from answers about cumulative counts, buckets of them or ranks, at any levels.

    ``also`` are more measurements of the same groups, for example from a later year's budget: all are estimated
    together, and their costs add up. The sampler's seed is computed from the measurements, so the same answers give the
    same table on any number of threads. Chains that did not converge are reported, not refused.

    With more than ``many`` regions x sizes, draws are stored by the sizes that occur (``posterior.sparse``). The same
    holds where leaves have thousands of groups, or tens of thousands if all answers are about cells, because trades mix
    better there than other moves and complete rows. This requires that all leaves lie on one level below the root.
    Once draws have taken about ``seconds``, no more rounds begin; ``options`` state this and more in their place.

    Raises ProblemError where sizes were measured or measurements do not fit together, SolverError where no solver
    returns an integer table.
    """
    survey = survey_of(*map(GroupsMeasurements, (measurement, *also)))
    options, seed = options or SamplerOptions(seconds=seconds, threads=threads), seed_of(measurement, *also)
    drawn: Posterior | SparseDraws
    if draws_sparse(survey, many):
        options = fewer_chains(options, survey.parent.size)
        near = _matched_leaves(GroupsMeasurements(measurement), solvers, threads)
        with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
            drawn = SparseSampler(survey, seed, PriorOptions(), options, near, progress).sample(pool)
        with doing(_CHOOSING):
            histograms, intervals, gap = sparse_estimate(drawn, solvers, coverage)
    else:
        drawn = sample_posterior(survey, seed, options=options, sizes=coverage > 0.0, progress=progress)
        with doing(_CHOOSING):
            histograms, intervals, gap = dense_estimate(survey, drawn, solvers, coverage)
    if intervals is not None:
        widen_in_buckets(intervals, histograms, survey.finest_buckets)
    return PosteriorEstimate(histograms, intervals, gap, convergence_of(survey, drawn, options), drawn)


def dense_estimate(
    survey: Survey, drawn: Posterior, solvers: SolverChoices, coverage: float
) -> tuple[list[CountOfCounts], Intervals | None, float]:
    """Return the table of least expected error of draws, intervals of a coverage above 0, and the uncertified gap.

    Intervals of H and Hc have equal tails, and are widened to hold the released values. ``coverage`` is a lower bound
    on the posterior probability that an interval holds its count.
    """
    problem = ExpectedDistance(survey.parent, survey.groups, drawn.cumulative.marginals(), total=drawn.draws)
    table, gap = solvers.nearest(problem)
    histograms = histograms_of(table, survey.groups)
    if not coverage:
        return histograms, None, gap
    assert drawn.sizes is not None
    assert drawn.summaries is not None
    tail, groups = (1 - Fraction(str(coverage))) / 2, survey.groups[:, None]
    ends = (tail.numerator, tail.denominator), (tail.denominator - tail.numerator, tail.denominator)

    def held(counted: Counted, released: Ints) -> tuple[Ints, Ints]:
        """Return both ends of the intervals of a table, with the released values inside."""
        lower, upper = counted.quantile(*ends[0]), counted.quantile(*ends[1], upper=True)
        return np.minimum(lower, released), np.maximum(upper, released)

    sizes = held(drawn.sizes, np.diff(np.concatenate([table, groups], axis=1), axis=1, prepend=0))
    lower, upper = (np.concatenate([end, groups], axis=1) for end in held(drawn.cumulative, table))
    value = summaries(table, survey.groups)
    of_regions = (summary_values(values, survey.groups) for values in (value, *held(drawn.summaries, value)))
    intervals = Intervals(coverage, *sizes, lower, upper, SummaryIntervals(SUMMARIES, *of_regions))
    return histograms, intervals, gap


def convergence_of(survey: Survey, drawn: Posterior | SparseDraws, options: SamplerOptions) -> Convergence:
    """Return which regions' chains have met the criterion, and what the answers say against the draws."""
    met = options.criterion.met(drawn.r_hat, drawn.effective)
    return Convergence(
        options.criterion,
        met.size,
        tuple(np.flatnonzero(~met).tolist()),
        float(drawn.r_hat.max()),
        float(drawn.effective.min()),
        PriorOptions.kind,
        drawn.draws,
        drawn.sweeps,
        drawn.prior_moved,
        drawn.single,
        tuple(each for each in compared_classes(survey, drawn.distances) if each.refutes),
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
