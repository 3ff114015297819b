"""Variances of estimated sizes by parametric bootstrap.

The paper's variances (section 5.1) are rough: they suppose that a run's groups moved together or not at all, and know
nothing of bias. Here a region's estimated histogram takes the truth's place: noise of the known law is added to it
again and again, each noisy answer is estimated as the real one was, and every run gets the mean squared error of its
groups, matched by rank. It reads sealed answers and draws its own randomness: post-processing, at no cost in privacy.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError
from coco_opt.groups.answers import RegionAnswer
from coco_opt.groups.estimated.estimates import SizeEstimate
from coco_opt.groups.estimated.estimators import FitOptions, estimate
from coco_opt.groups.queries import exact_answers
from coco_opt.histograms import CountOfCounts
from coco_opt.privacy import SeededNoise

FloatArray = NDArray[np.float64]

REPLICATES = 20
_PUBLIC_SEED = 2018


def squared_errors(estimated: SizeEstimate, other: CountOfCounts) -> FloatArray:
    """Return the sum over each run's groups of (size - other's size of the same rank)^2, float64[runs].

    In entities squared; O(runs log runs). Raises ProblemError where the numbers of groups differ.
    """
    stops = np.cumsum(estimated.counts, dtype=np.int64)
    sizes, other_stops = other.rank_runs()
    if int(estimated.counts.sum()) != other.groups:
        raise ProblemError("squared errors compare estimates of the same number of groups")
    ends = np.union1d(stops, other_stops)
    starts = np.concatenate([np.zeros(min(1, ends.size), np.int64), ends[:-1]])
    run = np.searchsorted(stops, starts, side="right")
    apart = (estimated.sizes[run] - sizes[np.searchsorted(other_stops, starts, side="right")]).astype(np.float64)
    sums = np.bincount(run, weights=apart * apart * (ends - starts), minlength=estimated.counts.size)
    return sums.astype(np.float64)


def with_errors(estimated: SizeEstimate, errors: FloatArray, draws: int) -> SizeEstimate:
    """Return the estimate with the mean of ``errors``, summed over ``draws`` and each run's groups, as variances.

    One further group, wrong by one entity, is counted in: no finite sample shows that a size is exact.
    """
    return replace(estimated, variances=(errors + 1.0) / (draws * estimated.counts + 1.0))


def public_redraws(region: int) -> np.random.Generator:
    """Return the generator a release redraws a region's noise from: of a fixed seed and the region's place alone.

    Redraws are laid over estimates that are public, so they need no secret; being a function of public facts they are
    the same whenever, and in whatever order, a sealed run is estimated.
    """
    return np.random.default_rng((_PUBLIC_SEED, region))


def bootstrap_variances(
    answer: RegionAnswer,
    estimated: SizeEstimate,
    options: FitOptions,
    solvers: SolverChoices,
    *,
    rng: np.random.Generator,
    replicates: int = REPLICATES,
) -> SizeEstimate:
    """Return a region's estimate with variances from ``replicates`` noisy answers about the estimate itself.

    ``estimated`` is ``estimate(answer, options, solvers)``. ``rng`` gives the seeds of the noise; it protects
    nothing. Raises ProblemError for fewer than one replicate. O(replicates x a fit).
    """
    if replicates < 1:
        raise ProblemError("the bootstrap needs at least one replicate")
    errors = np.zeros(estimated.counts.size)
    supposed = estimated.histogram
    if supposed.groups == 0:
        return estimated
    exact = exact_answers(supposed, answer.query, answer.max_size, answer.scheme)
    for _ in range(replicates):
        source = SeededNoise(int(rng.integers(2**62)))
        stream = answer.law.opened(source, measurement=answer.query, region=answer.region)
        again = replace(answer, stored=stream.add_to(exact))
        errors += squared_errors(estimated, estimate(again, options, solvers).histogram)
    return with_errors(estimated, errors, replicates)
