"""Gaussian kernel density of residuals on a grid of unit steps: exact sums, truncated only below double precision."""

from __future__ import annotations

import math

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.audit.residuals import ResidualCounts
from coco_opt.errors import ProblemError

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
