"""Variances of estimated sizes by parametric bootstrap, and what they change in matching and merging.

The paper's variances (section 5.1) are rough: they suppose that a run's groups moved together or not at all, and know
nothing of bias. Here a region's estimated histogram takes the truth's place: noise of the known law is added to it
again and again, each noisy answer is estimated as the real one was, and every run gets the mean squared error of its
groups, matched by rank. It reads sealed answers and draws its own randomness: post-processing, at no cost in privacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError
from coco_opt.groups.consistency import matching
from coco_opt.groups.estimates import SizeEstimate
from coco_opt.groups.estimators import FitOptions, estimate
from coco_opt.histograms import CountOfCounts, Hierarchy, emd
from coco_opt.privacy import Measurement, Measurements, SeededNoise, measure

if TYPE_CHECKING:
    from coco_opt.groups.release import GroupsMethod

FloatArray = NDArray[np.float64]
Histograms = tuple[CountOfCounts, ...]
Variances = Literal["paper", "bootstrap", "oracle", "average"]
VARIANCES: tuple[Variances, ...] = get_args(Variances)

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
    measurement: Measurement,
    estimated: SizeEstimate,
    options: FitOptions,
    solvers: SolverChoices,
    *,
    rng: np.random.Generator,
    replicates: int = REPLICATES,
) -> SizeEstimate:
    """Return a region's estimate with variances from ``replicates`` noisy answers about the estimate itself.

    ``estimated`` is ``estimate(measurement, options, solvers)``. ``rng`` gives the seeds of the noise; it protects
    nothing. Raises ProblemError for fewer than one replicate. O(replicates x a fit).
    """
    if replicates < 1:
        raise ProblemError("the bootstrap needs at least one replicate")
    errors = np.zeros(estimated.counts.size)
    supposed = estimated.histogram
    if supposed.groups == 0:
        return estimated
    for _ in range(replicates):
        again = _measured_again(measurement, supposed, SeededNoise(int(rng.integers(2**62))))
        errors += squared_errors(estimated, estimate(again, options, solvers).histogram)
    return with_errors(estimated, errors, replicates)


def _measured_again(measurement: Measurement, supposed: CountOfCounts, source: SeededNoise) -> Measurement:
    """Return an answer to the same query with the same law of noise about other data, pooled where it was."""
    geometric = measurement.mechanism == "geometric"
    return measure(
        supposed,
        measurement.query,
        region=measurement.region,
        groups=measurement.groups,
        max_size=measurement.max_size,
        epsilon=measurement.amount if geometric else None,
        rho=None if geometric else measurement.amount,
        neighbours=measurement.neighbours,
        source=source,
        loss="l2" if measurement.pooled else "l1",
        raw_limit=0 if measurement.pooled else measurement.groups,
    )


def compare_variances(
    measurements: Measurements,
    truth: Sequence[CountOfCounts],
    method: GroupsMethod,
    *,
    rng: np.random.Generator,
    replicates: int = REPLICATES,
    solvers: SolverChoices | None = None,
) -> dict[Variances, Histograms]:
    """Return what Algorithm 1 makes of one set of measurements with each kind of variances, for experiments.

    "paper": section 5.1; "bootstrap": of this module; "oracle": the squared error each run really made, which
    reads the ``truth`` and is more than any variance could know; "average": none, sizes are averaged. Every level must
    be measured (ProblemError). O(regions x replicates x a fit).
    """
    chosen = SolverChoices() if solvers is None else solvers
    hierarchy = measurements.hierarchy
    paper, booted = [], []
    for region, level in enumerate(hierarchy.level.tolist()):
        answer, options = measurements[region], method.fit_options(level)
        paper.append(estimate(answer, options, chosen))
        booted.append(bootstrap_variances(answer, paper[-1], options, chosen, rng=rng, replicates=replicates))
    oracle = [with_errors(one, squared_errors(one, true), 1) for one, true in zip(paper, truth, strict=True)]

    def merged(estimates: Sequence[SizeEstimate], merge: Literal["weighted", "average"]) -> Histograms:
        return tuple(matching(hierarchy, estimates, chosen, merge=merge, rounding=method.rounding))

    return {
        "paper": merged(paper, "weighted"),
        "bootstrap": merged(booted, "weighted"),
        "oracle": merged(oracle, "weighted"),
        "average": merged(paper, "average"),
    }


def errors_by_level(
    hierarchy: Hierarchy, histograms: Sequence[CountOfCounts], truth: Sequence[CountOfCounts]
) -> FloatArray:
    """Return the mean earth mover's distance of a region at each level, float64[levels], in entities."""
    errors = np.array([emd(a, b) for a, b in zip(histograms, truth, strict=True)], dtype=np.float64)
    return np.asarray(np.add.reduceat(errors, hierarchy.level_start[:-1]) / np.diff(hierarchy.level_start))
