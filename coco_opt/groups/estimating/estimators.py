"""One region's group sizes from its noisy answer (Kuo et al. 2018, sections 4.1 to 4.3 and 5.1).

Each estimator is a named optimisation problem followed by rounding, and gives every group's size a variance:

* sizes (the naive estimator): projection onto a simplex, then controlled rounding; the noise of one cell is v, so the
  sizes of the H[j] groups estimated at j get v / H[j], by the argument of section 5.1.2 (the paper gives none);
* ranks: isotonic regression of the noisy sorted sizes; v / |S|, S the groups pooled together (section 5.1.1);
* cumulative: isotonic regression of the noisy cumulative counts; 2 v / H[j] (section 5.1.2);
* buckets: isotonic regression of the buckets' means, weighed by their widths n; 2 v / (n^2 H[j]) + (n^2 - 1) / 12.

* split: isotonic regression of the cells, which gives the number of groups below the split, and of the ranks, of which
  the largest are used for the other groups; each as above.

The regression of buckets is isotonic regression of the sums: a nondecreasing row with its cells replaced by their
bucket's mean has the same sums and is nondecreasing within the same bounds. So some best row is constant in every
bucket, where the loss is that of the means with weights n (p = 1) or n^2 (p = 2). The estimate rises evenly between the
buckets' middles instead, because jumps at the edges would put all groups of a bucket at its first size.

Here v is the distribution's nominal variance: 2 s^2 for geometric noise of scale s, as in the paper, and sigma^2 for
Gaussian noise.

These variances are rough: they assume that a run's groups moved together or not at all, and ignore bias. In a
parametric bootstrap a region's estimated histogram takes the place of the truth. Noise of the known distribution is
added to it repeatedly, and each noisy answer is estimated as the real one was. Every run gets the mean squared error of
its groups, matched by rank. The bootstrap reads sealed answers and draws its own randomness: it is post-processing and
costs no privacy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError
from coco_opt.groups.noisy_measurements import Loss, RegionMeasurement
from coco_opt.groups.queries import MeasuredQuery, exact_answers
from coco_opt.histograms import CountOfCounts
from coco_opt.kernels.merging import Rounding, round_sizes
from coco_opt.privacy import SeededNoise
from coco_opt.problems import ControlledRounding, IsotonicL1, IsotonicL2, SimplexProjection
from coco_opt.problems.isotonic import TIE_RULES, TieRule


@dataclass(frozen=True, eq=False, slots=True)
class SizeEstimate:
    """Runs of groups in order of estimated size: ``counts[k]`` groups of ``sizes[k]`` entities.

    sizes (r,) nondecreasing; counts (r,) positive; variances (r,) of one group's size, in entities squared. Equal
    sizes may come in several runs of different variance.
    """

    sizes: Ints
    counts: Ints
    variances: Floats

    @property
    def histogram(self) -> CountOfCounts:
        """Return the count-of-counts histogram of the estimate."""
        return CountOfCounts.from_runs(self.sizes, self.counts)

    @classmethod
    def from_histogram(cls, histogram: CountOfCounts, variance_times_count: float) -> SizeEstimate:
        """Return the runs of a histogram whose sizes have variance ``variance_times_count / count``."""
        return cls(histogram.sizes, histogram.counts, variance_times_count / histogram.counts)


LOSSES: tuple[Loss, ...] = get_args(Loss)

# Fitted sizes closer than this (entities) count as one pooled block: exact solvers return equal values, others nearly.
SAME_BLOCK = 1e-6


@dataclass(frozen=True, slots=True)
class FitOptions:
    """How a noisy vector becomes integers: the loss, the tie rule for p = 1 and the rounding rule."""

    loss: Loss = "l1"
    ties: TieRule = "upper"
    rounding: Rounding = "half_up"

    def __post_init__(self) -> None:
        check_choice("loss", self.loss, LOSSES)
        check_choice("ties", self.ties, TIE_RULES)
        check_choice("rounding", self.rounding, get_args(Rounding))


def check_choice(option: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise ProblemError unless the value of an option is one of its choices."""
    if value not in choices:
        raise ProblemError(f"{option} must be one of {', '.join(choices)}, not {value!r}")


def estimate(answer: RegionMeasurement, options: FitOptions, solvers: SolverChoices) -> SizeEstimate:
    """Return the estimated sizes of a region's groups; exactly ``answer.groups`` of them."""
    if answer.groups == 0:
        return SizeEstimate.from_histogram(CountOfCounts.empty(), 0.0)
    return _ESTIMATORS[answer.query](answer, options, solvers)


def _sizes(answer: RegionMeasurement, options: FitOptions, solvers: SolverChoices) -> SizeEstimate:
    fractional = solvers.solve(SimplexProjection(answer.values, answer.groups))
    counts = solvers.solve(ControlledRounding(fractional, answer.groups))
    return SizeEstimate.from_histogram(CountOfCounts.from_dense(counts), answer.distribution.nominal_variance)


def _cumulative(answer: RegionMeasurement, options: FitOptions, solvers: SolverChoices) -> SizeEstimate:
    fitted = _isotonic(answer.values, answer.groups, options, solvers)
    # A fit has far fewer steps than cells: what follows works on the sizes where it rises.
    starts = np.flatnonzero(np.append(True, fitted[1:] != fitted[:-1]))
    levels = np.append(_integer_values(fitted[starts], options.rounding), answer.groups)
    counts = np.diff(levels, prepend=0)
    filled = counts != 0
    histogram = CountOfCounts(np.append(starts, fitted.size)[filled], counts[filled])
    return SizeEstimate.from_histogram(histogram, 2.0 * answer.distribution.nominal_variance)


def _buckets(answer: RegionMeasurement, options: FitOptions, solvers: SolverChoices) -> SizeEstimate:
    assert answer.buckets is not None
    begin, end = answer.buckets.begin, answer.buckets.end
    width = (end - begin).astype(np.float64)
    weights = width if options.loss == "l1" else np.square(width)
    fitted = _isotonic(answer.values / width, answer.groups, options, solvers, weights)
    knots, heights = np.append(0.5 * (begin + end - 1), answer.max_size), np.append(fitted, answer.groups)
    rising = np.interp(np.arange(answer.max_size), knots, heights)
    cumulative = np.append(_integer_values(rising, options.rounding), answer.groups)
    histogram = CountOfCounts.from_dense(np.diff(cumulative, prepend=0))
    place = np.searchsorted(end, histogram.sizes, side="right").clip(max=width.size - 1)
    spread = np.square(width[place])
    variances = 2.0 * answer.distribution.nominal_variance / (spread * histogram.counts) + (spread - 1.0) / 12.0
    return SizeEstimate(histogram.sizes, histogram.counts, variances)


def _ranks(answer: RegionMeasurement, options: FitOptions, solvers: SolverChoices) -> SizeEstimate:
    if answer.large and options.loss == "l2":
        values, lengths = _pooled_blocks(answer)
        fitted = _isotonic(values, answer.max_size, options, solvers, lengths.astype(np.float64))
    else:
        fitted = _isotonic(answer.values, answer.max_size, options, solvers)
        lengths = np.ones(fitted.size, np.int64)
    starts = np.flatnonzero(np.append(True, np.diff(fitted) > SAME_BLOCK))
    pooled = np.add.reduceat(lengths, starts)
    return SizeEstimate(
        _integer_values(fitted[starts], options.rounding), pooled, answer.distribution.nominal_variance / pooled
    )


def _pooled_blocks(answer: RegionMeasurement) -> tuple[Floats, Ints]:
    """Return means and lengths of the blocks of adjacent violators among a region's cells, pooled piece by piece.

    The least squares fit is constant on each block. There the loss is that of the block's mean, weighted by its length
    (plus a constant), so the problem of the blocks is solved and certified. Sums are integers, so the means equal those
    of a fit of all cells together, to the bit. Memory: the blocks and a piece.
    """
    # Imported here: it brings the compiled kernels with it.
    from coco_opt.kernels.isotonic_l2 import BlockStream

    stream = BlockStream()
    for _, piece in answer.pieces():
        stream.push(piece)
    sums, lengths = stream.blocks()
    return sums / lengths, lengths


def _split(answer: RegionMeasurement, options: FitOptions, solvers: SolverChoices) -> SizeEstimate:
    assert answer.split is not None
    at = answer.split.at
    rising = _integer_values(_isotonic(answer.values[:at], answer.groups, options, solvers), options.rounding)
    counts = np.diff(rising, prepend=0)
    filled, below = counts > 0, int(rising[-1])
    # Among the ranks, sizes below the split count as the split: the first ``below`` ranks belong to them.
    fitted = np.maximum(_isotonic(answer.values[at:], answer.max_size, options, solvers)[below:], at)
    starts = np.flatnonzero(np.append(True, np.diff(fitted) > SAME_BLOCK)) if fitted.size else np.zeros(0, np.int64)
    pooled, noise = np.diff(starts, append=fitted.size), answer.distribution.nominal_variance
    return SizeEstimate(
        np.append(np.flatnonzero(filled), _integer_values(fitted[starts], options.rounding)),
        np.append(counts[filled], pooled),
        np.append(2.0 * noise / counts[filled], noise / pooled),
    )


def _isotonic(
    values: NDArray[Any], upper: int, options: FitOptions, solvers: SolverChoices, weights: Floats | None = None
) -> NDArray[Any]:
    if options.loss == "l2":
        return solvers.solve(IsotonicL2(values, weights, lower=0, upper=upper))
    return solvers.solve(IsotonicL1(values, weights, lower=0, upper=upper, ties=options.ties))


def _integer_values(values: NDArray[Any], rounding: Rounding) -> Ints:
    return values if values.dtype == np.int64 else round_sizes(values, rounding)


_ESTIMATORS: Mapping[MeasuredQuery, Callable[[RegionMeasurement, FitOptions, SolverChoices], SizeEstimate]] = {
    "sizes": _sizes,
    "ranks": _ranks,
    "cumulative": _cumulative,
    "buckets": _buckets,
    "split": _split,
}


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
