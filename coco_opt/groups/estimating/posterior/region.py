"""The posterior of one region from answers about its cells, exact up to windows whose omitted mass is bounded.

Model and passes: ``coco_opt.kernels.posterior_region``. Bucketed answers couple many cells and have no small state; use
the sampler for them (``coco_opt.groups.estimating.posterior.sampler``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.errors import ProblemError
from coco_opt.groups.estimating.posterior.observations import code_of
from coco_opt.groups.estimating.posterior.prior import FloatArray, IntArray, increment_prior
from coco_opt.privacy import NoiseDistribution

_NEGLIGIBLE = 1e-12  # mass below which a state leaves the window
_MARGIN = 3


@dataclass(frozen=True, slots=True)
class RowOptions:
    """How a row is estimated: ``reach`` of the smoothing over sizes, the most rounds, and when they stop.

    ``edge_mass`` is the largest posterior mass allowed at the end of a cell's window; windows grow until it holds.
    """

    reach: float = 0.1
    most_rounds: int = 40
    tolerance: float = 1e-5
    edge_mass: float = 1e-9


@dataclass(frozen=True, eq=False, slots=True)
class RowPosterior:
    """The marginals of Hc[0..K-1] in windows, in groups; cell i has low[i] + j with ``marginal[start[i] + j]``.

    ``mean`` float64[K]; ``q`` and ``rho`` float64[K + 1] the fitted prior; ``log_likelihood`` up to a constant of the
    answers; ``rounds`` of expectation maximisation; ``edge_mass`` the largest mass at a window's end.
    """

    low: IntArray
    start: IntArray
    marginal: FloatArray
    mean: FloatArray
    q: FloatArray
    rho: FloatArray
    log_likelihood: float
    rounds: int
    edge_mass: float

    def quantiles(self, probabilities: ArrayLike) -> IntArray:
        """Return int64[probabilities, K]: the smallest counts whose distribution function reaches each probability."""
        from coco_opt.kernels import posterior_region

        levels = np.atleast_1d(np.asarray(probabilities, np.float64))
        window = posterior_region.Window(self.low, self.start)
        values: IntArray = posterior_region.quantiles(window, self.marginal, levels)
        return values

    @property
    def median(self) -> IntArray:
        """Return the lower medians, int64[K], nondecreasing: the estimate of least expected distance."""
        medians: IntArray = self.quantiles(0.5)[0]
        return medians


def row_posterior(
    answers: NDArray[np.int64],
    groups: int,
    distribution: NoiseDistribution,
    options: RowOptions | None = None,
) -> RowPosterior:
    """Return the posterior of one region's cumulative counts from one answer a cell.

    ``answers`` int64[K], about Hc[0..K-1]; ``groups`` the public G; ``distribution`` that of their noise. q and rho are
    fitted by expectation maximisation, smoothed over sizes, until the log-likelihood no longer rises. Raises
    ProblemError for other arrays or distributions. O(K window) a round.
    """
    from coco_opt.kernels import isotonic_l1, posterior_region

    chosen = options or RowOptions()
    y = np.asarray(answers)
    if y.ndim != 1 or y.size == 0 or y.dtype.kind not in "iu":
        raise ProblemError("the answers of a region must be a vector of at least one integer")
    if groups < 0:
        raise ProblemError("a region needs a number of groups of at least 0")
    code, steepness = code_of(distribution)
    y = y.astype(np.int64)
    center = isotonic_l1.fit(y, 0, groups)
    half = int(np.ceil(8.0 * float(distribution.spread))) + _MARGIN
    low, high = np.maximum(center - half, 0), np.minimum(center + half, groups)
    q, rho = _first_prior(center, groups, chosen.reach)
    best, rounds = -np.inf, 0
    while True:
        window = posterior_region.Window(low, np.concatenate([[0], np.cumsum(high - low + 1)]))
        weight = posterior_region.likelihoods(window, y, code, steepness)
        prior = posterior_region.Increments(q, rho)
        log_likelihood, marginal, mean, moved = posterior_region.forward_backward(window, weight, prior, groups)
        rounds += 1
        if log_likelihood == -np.inf:
            raise ProblemError("no nondecreasing counts near the answers are possible: check the noise distribution")
        low, high, edge = _next_window(window, marginal, groups)
        log_likelihood += _omitted_log_weight(window, y, code, steepness)
        settled = log_likelihood <= best + chosen.tolerance * abs(best) or rounds >= chosen.most_rounds
        best = max(best, log_likelihood)
        if settled and (edge <= chosen.edge_mass or rounds >= 2 * chosen.most_rounds):
            return RowPosterior(window.low, window.start, marginal, mean, q, rho, log_likelihood, rounds, edge)
        if not settled:
            q, rho = increment_prior(moved, np.diff(mean, prepend=0.0, append=groups), chosen.reach)


def _first_prior(center: IntArray, groups: int, reach: float) -> tuple[FloatArray, FloatArray]:
    """Return q and rho of the isotonic fit; its flat stretches are too long, so half a jump is added everywhere."""
    increments = np.diff(center, prepend=0, append=groups).astype(np.float64)
    return increment_prior(0.5 * (increments > 0) + 0.5 * np.minimum(1.0, increments.mean()), increments, reach)


def _next_window(
    window: tuple[IntArray, IntArray], marginal: FloatArray, groups: int
) -> tuple[IntArray, IntArray, float]:
    """Return windows around the states of non-negligible mass, and the largest mass at an end that is not a bound."""
    low, start = window
    width = np.diff(start)
    cell = np.repeat(np.arange(low.size), width)
    value = low[cell] + np.arange(marginal.size) - start[cell]
    likely = marginal > _NEGLIGIBLE
    lowest = np.full(low.size, np.iinfo(np.int64).max)
    highest = np.full(low.size, -1)
    np.minimum.at(lowest, cell[likely], value[likely])
    np.maximum.at(highest, cell[likely], value[likely])
    bottom, top = marginal[start[:-1]], marginal[start[1:] - 1]
    edge = max(
        float(np.max(bottom, where=low > 0, initial=0.0)),
        float(np.max(top, where=low + width - 1 < groups, initial=0.0)),
    )
    # Where an end has mass, the window was too small and grows by its own width.
    slack_low = np.where(bottom > _NEGLIGIBLE, width, _MARGIN)
    slack_high = np.where(top > _NEGLIGIBLE, width, _MARGIN)
    return np.maximum(lowest - slack_low, 0), np.minimum(highest + slack_high, groups), edge


def _omitted_log_weight(window: tuple[IntArray, IntArray], y: IntArray, code: int, steepness: float) -> float:
    """Return the part of the log-likelihood that the kernel omits by scaling each cell's largest weight to 1."""
    low, start = window
    high = low + np.diff(start) - 1
    away = np.maximum(np.maximum(low - y, y - high), 0).astype(np.float64)
    return float(-steepness * (away if code == 0 else away**2).sum())
