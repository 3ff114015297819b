"""Variances of estimated sizes by parametric bootstrap.

The paper's variances (section 5.1) are rough: they assume that a run's groups moved together or not at all, and ignore
bias. Here a region's estimated histogram takes the place of the truth. Noise of the known distribution is added to it
repeatedly, and each noisy answer is estimated as the real one was. Every run gets the mean squared error of its groups,
matched by rank. The bootstrap reads sealed answers and draws its own randomness: it is post-processing and costs no
privacy.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError
from coco_opt.groups.estimating.estimators import FitOptions, SizeEstimate, estimate
from coco_opt.groups.noisy_measurements import RegionMeasurement
from coco_opt.groups.queries import exact_answers
from coco_opt.histograms import CountOfCounts
from coco_opt.privacy import SeededNoise

REPLICATES = 20
_PUBLIC_SEED = 2018


def squared_errors(estimated: SizeEstimate, other: CountOfCounts) -> Floats:
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


def with_errors(estimated: SizeEstimate, errors: Floats, draws: int) -> SizeEstimate:
    """Return the estimate with the mean of ``errors``, summed over ``draws`` and each run's groups, as variances.

    One additional group, wrong by one entity, is counted too, because no finite sample shows that a size is exact.
    """
    return replace(estimated, variances=(errors + 1.0) / (draws * estimated.counts + 1.0))


def public_redraws(region: int) -> np.random.Generator:
    """Return the generator of a region's redrawn noise, from a fixed seed and the region's number alone.

    The noise is added to public estimates, so it needs no secret. It is a function of public values, and therefore the
    same whenever, and in whatever order, a sealed run is estimated.
    """
    return np.random.default_rng((_PUBLIC_SEED, region))


def bootstrap_variances(
    answer: RegionMeasurement,
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
    assumed = estimated.histogram
    if assumed.groups == 0:
        return estimated
    exact = exact_answers(assumed, answer.query, answer.max_size, answer.scheme)
    for _ in range(replicates):
        source = SeededNoise(int(rng.integers(2**62)))
        stream = answer.distribution.opened(source, measurement=answer.query, region=answer.region)
        redrawn = replace(answer, stored=stream.add_to(exact))
        errors += squared_errors(estimated, estimate(redrawn, options, solvers).histogram)
    return with_errors(estimated, errors, replicates)
