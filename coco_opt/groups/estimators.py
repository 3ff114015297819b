"""One region's group sizes from its noisy measurement (Kuo et al. 2018, sections 4.1 to 4.3 and 5.1).

Each estimator is a named optimisation problem followed by rounding, and gives every group's size a variance:

* naive: projection onto a simplex, then controlled rounding; the noise of one cell is v, so the sizes of the
  H[j] groups estimated at j get v / H[j], by the argument of section 5.1.2 (the paper gives none for naive);
* rank: isotonic regression of the noisy sorted sizes; v / |S|, S the groups pooled together (section 5.1.1);
* cumulative: isotonic regression of the noisy cumulative counts; 2 v / H[j] (section 5.1.2).

Here v is the noise variance of a cell: 2 s^2 for geometric noise of scale s = sensitivity / epsilon, as in the paper,
and sigma^2 for discrete Gaussian noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError
from coco_opt.groups.estimates import IntArray, SizeEstimate
from coco_opt.histograms import CountOfCounts
from coco_opt.kernels.merging import Rounding, round_sizes
from coco_opt.privacy import Measurement
from coco_opt.problems import ControlledRounding, IsotonicL1, IsotonicL2, SimplexProjection
from coco_opt.problems.isotonic import TIE_RULES, TieRule

Loss = Literal["l1", "l2"]
LOSSES: tuple[Loss, ...] = ("l1", "l2")

# Fitted sizes closer than this (entities) count as one pooled block: exact solvers return equal values, others nearly.
SAME_BLOCK = 1e-6


@dataclass(frozen=True, slots=True)
class FitOptions:
    """How a noisy vector becomes whole numbers: the loss, the tie rule for p = 1 and the rounding rule."""

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


def estimate(measurement: Measurement, options: FitOptions, solvers: SolverChoices) -> SizeEstimate:
    """Return the estimated sizes of a region's groups; exactly ``measurement.groups`` of them."""
    if measurement.groups == 0:
        return SizeEstimate.from_histogram(CountOfCounts.empty(), 0.0)
    return _ESTIMATORS[measurement.query](measurement, options, solvers)


def noise_variance(measurement: Measurement) -> float:
    """Return the variance of the noise of one cell, in the square of its unit: the paper's 2 s^2, or sigma^2."""
    if measurement.mechanism == "geometric":
        # Rounded in this order, not once at the end: estimates of equal data stay equal to the last bit.
        return 2.0 * float(measurement.scale) ** 2
    return float(measurement.variance)


def _naive(measurement: Measurement, options: FitOptions, solvers: SolverChoices) -> SizeEstimate:
    fractional = solvers.solve(SimplexProjection(measurement.values, measurement.groups))
    whole = solvers.solve(ControlledRounding(fractional, measurement.groups))
    histogram = CountOfCounts.from_dense(whole)
    return SizeEstimate.from_histogram(histogram, noise_variance(measurement))


def _cumulative(measurement: Measurement, options: FitOptions, solvers: SolverChoices) -> SizeEstimate:
    fitted = _isotonic(measurement.values, None, measurement.groups, options, solvers)
    cumulative = np.append(_whole(fitted, options.rounding), measurement.groups)
    histogram = CountOfCounts.from_dense(np.diff(cumulative, prepend=0))
    return SizeEstimate.from_histogram(histogram, 2.0 * noise_variance(measurement))


def _rank(measurement: Measurement, options: FitOptions, solvers: SolverChoices) -> SizeEstimate:
    lengths = measurement.lengths
    if lengths is not None and options.loss != "l2":
        raise ProblemError(f"region {measurement.region!r}: an answer pooled by means can only be fitted with loss l2")
    values = measurement.values if lengths is None else measurement.values / lengths
    fitted = _isotonic(values, lengths, measurement.max_size, options, solvers)
    entries = np.ones(values.size, dtype=np.int64) if lengths is None else lengths
    starts = np.flatnonzero(np.append(True, np.diff(fitted) > SAME_BLOCK))
    pooled = np.add.reduceat(entries, starts)
    sizes = _whole(fitted[starts], options.rounding)
    return SizeEstimate(sizes, pooled, noise_variance(measurement) / pooled)


def _isotonic(
    values: NDArray[Any],
    weights: IntArray | None,
    upper: int,
    options: FitOptions,
    solvers: SolverChoices,
) -> NDArray[Any]:
    if options.loss == "l2":
        return solvers.solve(IsotonicL2(values, weights, lower=0, upper=upper))
    return solvers.solve(IsotonicL1(values, weights, lower=0, upper=upper, ties=options.ties))


def _whole(values: NDArray[Any], rounding: Rounding) -> IntArray:
    return values if values.dtype == np.int64 else round_sizes(values, rounding)


_ESTIMATORS = {"naive": _naive, "rank": _rank, "cumulative": _cumulative}
