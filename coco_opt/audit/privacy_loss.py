"""Flaxman's less-obvious estimate: empirical privacy loss from the residuals of one run (Flaxman 2019, section 2.3).

One person changes a count by at most one. If all residuals were identically distributed, the log-ratio of their
density at neighbouring values would therefore be the privacy loss of a count. It is an estimate: neither an upper nor a
lower bound. Residuals of post-processed counts are not identically distributed, correlations between counts are not
seen, and the density is smoothed; rely on ``lower_bound`` instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.audit.density import unit_grid_density
from coco_opt.audit.residuals import ResidualCounts
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
