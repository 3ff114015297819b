"""Flaxman's less-obvious estimate: empirical privacy loss from the residuals of one run (Flaxman 2019, section 2.3).

One person changes a count by at most one. If all residuals were identically distributed, the log-ratio of their
density at neighbouring values would therefore be the privacy loss of a count. It is an estimate: neither an upper nor a
lower bound. Residuals of post-processed counts are not identically distributed, correlations between counts are not
seen, and the density is smoothed; rely on ``lower_bound`` instead.

Residuals (released minus exact) as a distribution: distinct values and how often each occurred.

Gaussian kernel density of residuals on a grid of unit steps: exact sums, truncated only below double precision.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError

BANDWIDTH = 0.15
RANGE_FACTOR = 2.0
PERCENTILE = 95.0
LEAST_RANGE = 3.0

CAVEAT = "an estimate from residuals: neither an upper nor a lower bound"


@dataclass(frozen=True, eq=False, slots=True)
class PrivacyLoss:
    """The estimate on unit bins: bin ``centres`` float64[m], ``counts`` int64[m], ``density`` float64[m], loss [m-1].

    loss[i] = log density[i] / density[i+1], belonging to centres[i]; NaN where a density is zero in doubles.
    ``deviation`` and ``bandwidth`` are in units of the residuals (entities or groups), as is ``residual_range``, K.
    """

    centres: Floats
    counts: Ints
    density: Floats
    loss: Floats
    deviation: float
    bandwidth: float
    residual_range: float

    @property
    def maximum(self) -> float:
        """Largest |loss| over |k| <= K; it depends on the run, because it grows with the noise of the tails."""
        return float(np.nanmax(np.abs(self.loss)))

    def mean_between(self, low: float, high: float) -> float:
        """Return the mean |loss| over low <= |k| <= high: the plateau of geometric noise; NaN for no such bin."""
        size = np.abs(self.centres[:-1])
        inside = (size >= low) & (size <= high) & np.isfinite(self.loss)
        return float(np.abs(self.loss[inside]).mean()) if inside.any() else float("nan")


def empirical_privacy_loss(
    residuals: ResidualCounts | Floats | Ints,
    *,
    bandwidth: float = BANDWIDTH,
    range_factor: float = RANGE_FACTOR,
    percentile: float = PERCENTILE,
) -> PrivacyLoss:
    """Estimate the privacy loss from residuals by a Gaussian kernel density on unit bins.

    ``bandwidth`` is a factor on the residuals' standard deviation. K = range_factor x max(|q|, |100 - q| percentile),
    q = ``percentile``, and at least 3 so that there are ratios; bins have the edges -K, -K + 1, ... below K. Raises
    ProblemError where all residuals are equal or there are fewer than two. Source: Flaxman 2019, section 2.3, with
    the values of his code (range factor 2.0, where the text mentions 1.5).
    """
    counts = residuals if isinstance(residuals, ResidualCounts) else ResidualCounts.of(residuals)
    deviation = counts.deviation
    if deviation == 0:
        raise ProblemError("all residuals are equal: there is no density to take ratios of")
    reach = residual_range(counts, range_factor=range_factor, percentile=percentile)
    edges = np.asarray(np.arange(int(np.ceil(2 * reach))) - reach, dtype=np.float64)
    centres = edges[:-1] + 0.5
    width = bandwidth * deviation
    density = unit_grid_density(counts, float(centres[0]), centres.size, width)
    with np.errstate(divide="ignore"):
        logs = np.where(density > 0, np.log(density), np.nan)
    return PrivacyLoss(centres, counts.histogram(edges), density, -np.diff(logs), deviation, width, reach)


def residual_range(
    residuals: ResidualCounts, *, range_factor: float = RANGE_FACTOR, percentile: float = PERCENTILE
) -> float:
    """Return K, the largest |residual| that the estimate uses, in units of the residuals; at least 3."""
    ends = [abs(residuals.percentile(q)) for q in (100.0 - percentile, percentile)]
    return max(LEAST_RANGE, range_factor * max(ends))


@dataclass(frozen=True, eq=False, slots=True)
class ResidualCounts:
    """Hold distinct residuals, float64[r] strictly increasing, and their counts, int64[r] > 0.

    Millions of integer residuals have a few hundred distinct values, so every statistic takes time in r. Raises
    ProblemError for arrays of another form.
    """

    values: Floats
    counts: Ints

    def __post_init__(self) -> None:
        if self.values.shape != self.counts.shape or self.values.ndim != 1:
            raise ProblemError("residuals need one count a value")
        if not np.all(np.isfinite(self.values)) or np.any(np.diff(self.values) <= 0) or np.any(self.counts <= 0):
            raise ProblemError("residual values must be finite and increase strictly, and counts be positive")

    @classmethod
    def of(cls, residuals: NDArray[Any]) -> ResidualCounts:
        """Count the residuals of any shape; O(n log n)."""
        values, counts = np.unique(np.asarray(residuals).ravel(), return_counts=True)
        return cls(values.astype(np.float64), counts.astype(np.int64))

    @classmethod
    def total(cls, parts: Iterable[ResidualCounts]) -> ResidualCounts:
        """Return the distribution of all parts together."""
        distributions = list(parts)
        if not distributions:
            return cls(np.empty(0), np.empty(0, np.int64))
        values, where = np.unique(np.concatenate([part.values for part in distributions]), return_inverse=True)
        counts = np.zeros(values.size, np.int64)
        np.add.at(counts, where, np.concatenate([part.counts for part in distributions]))
        return cls(values, counts)

    @property
    def n(self) -> int:
        """Number of residuals."""
        return int(self.counts.sum())

    @property
    def deviation(self) -> float:
        """Standard deviation with n - 1 in the denominator, as scipy's density takes it; 0 for one residual."""
        if self.n < 2:
            return 0.0
        mean = float(self.values @ self.counts) / self.n
        return float(np.sqrt(((self.values - mean) ** 2 @ self.counts) / (self.n - 1)))

    def percentile(self, percent: float) -> float:
        """Return a percentile, linear between order statistics as numpy.percentile has it; O(r)."""
        if self.n == 0:
            raise ProblemError("no residuals: there is no percentile")
        rank = percent / 100.0 * (self.n - 1)
        below = int(np.floor(rank))
        stops = np.cumsum(self.counts)
        indices = np.searchsorted(stops, [below, min(below + 1, self.n - 1)], side="right")
        low, high = self.values[indices]
        return float(low + (high - low) * (rank - below))

    def histogram(self, edges: Floats) -> Ints:
        """Return the counts in half-open bins edges[i] <= x < edges[i+1], int64[edges - 1]."""
        before = np.concatenate([[0], np.cumsum(self.counts)])
        return np.diff(before[np.searchsorted(self.values, edges, side="left")]).astype(np.int64)


_UNDERFLOW = 39.0  # exp(-x^2 / 2) is 0 in doubles beyond
_CHUNK = 1 << 12


def unit_grid_density(residuals: ResidualCounts, start: float, points: int, bandwidth: float) -> Floats:
    """Return the density at start, start + 1, ..., float64[points], for an absolute ``bandwidth``.

    Equals scipy.stats.gaussian_kde at those points. Residuals on one unit lattice (counts minus counts) are binned
    without loss and convolved, O((points + bandwidth) bandwidth) however many there are; others are summed directly,
    O(distinct values x points). Raises ProblemError for a bandwidth that is not above 0 or no residuals.
    """
    if not bandwidth > 0:
        raise ProblemError("a kernel density needs a bandwidth above zero: are all residuals equal?")
    if residuals.n == 0:
        raise ProblemError("a kernel density needs residuals")
    offsets = residuals.values - residuals.values[0]
    on_lattice = bool(np.all(offsets == np.rint(offsets)))
    sums = _convolution if on_lattice else _direct_sums
    density = sums(residuals, start, points, bandwidth) / (residuals.n * bandwidth * math.sqrt(2.0 * math.pi))
    return np.asarray(density, dtype=np.float64)


def _convolution(residuals: ResidualCounts, start: float, points: int, bandwidth: float) -> Floats:
    reach = int(np.ceil(_UNDERFLOW * bandwidth)) + 1
    # The lattice point at or below the first grid point; ``shift`` in [0, 1) is the same for all grid points.
    first = int(np.floor(start - residuals.values[0]))
    shift = start - residuals.values[0] - first
    steps = np.rint(residuals.values - residuals.values[0]).astype(np.int64) - first + reach
    near = (steps >= 0) & (steps < points + 2 * reach)
    counts = np.zeros(points + 2 * reach)
    counts[steps[near]] = residuals.counts[near]
    lags = np.arange(-reach, reach + 1) + shift
    kernel = np.exp(-0.5 * (lags / bandwidth) ** 2)
    return np.convolve(counts, kernel, mode="valid")


def _direct_sums(residuals: ResidualCounts, start: float, points: int, bandwidth: float) -> Floats:
    grid = start + np.arange(points)
    sums = np.zeros(points)
    for start_index in range(0, residuals.values.size, _CHUNK):
        chunk = slice(start_index, start_index + _CHUNK)
        z = (grid[:, None] - residuals.values[chunk]) / bandwidth
        sums += np.exp(-0.5 * z * z) @ residuals.counts[chunk]
    return sums
