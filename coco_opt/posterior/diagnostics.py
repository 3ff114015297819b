"""Convergence of several chains: split R-hat and effective sample sizes, for many scalars at once.

Sources: Gelman and Rubin 1992; split chains as in Gelman et al. 2013, section 11.4; the effective size with Geyer's
1992 initial monotone positive sequence as in Vehtari et al. 2021, section 3.2 (without rank normalisation).
"""

from __future__ import annotations

import numpy as np

from coco_opt.array_types import Floats

_ROUNDED = 1e-9  # more than the rounding of floating point takes off a number of draws


def central_ranks(draws: int, coverage: float) -> tuple[int, int]:
    """Return the places, among so many draws in rising order, of the ends of a central interval, both included.

    As likely as one more draw, the true answer has any rank among the draws, from 0 to their number.
    """
    outside = max(int(np.floor(0.5 * (1.0 - coverage) * (draws + 1) + _ROUNDED)) - 1, 0)
    return outside, draws - 1 - outside


def _split(draws: Floats) -> Floats:
    """Return the chains' halves as chains of their own; the middle one of an odd number of draws is left out."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])


def _variances(chains: Floats) -> tuple[Floats, Floats]:
    """Return the mean variance within chains, and the pooled estimate, which includes the variance between them."""
    n = chains.shape[1]
    within = chains.var(axis=1, ddof=1).mean(axis=0)
    between = chains.mean(axis=1).var(axis=0, ddof=1)
    return within, within * (n - 1) / n + between


def split_r_hat(draws: Floats) -> Floats:
    """Return R-hat of draws (chains, n >= 4, scalars): 1 where all are equal, infinite where only the chains differ."""
    within, pooled = _variances(_split(draws))
    with np.errstate(divide="ignore", invalid="ignore"):
        r_hat: Floats = np.sqrt(pooled / within)
    return np.where(pooled == 0.0, 1.0, r_hat)


def effective_size(draws: Floats) -> Floats:
    """Return the effective sample sizes of draws (chains, n >= 4, scalars) for their means; all if none differ."""
    chains = _split(draws)
    m, n, _ = chains.shape
    within, pooled = _variances(chains)
    away = chains - chains.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(away, n=2 * n, axis=1)
    covariance = np.fft.irfft(spectrum * spectrum.conj(), axis=1)[:, :n].mean(axis=0) / n
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = 1.0 - (within - covariance * n / (n - 1)) / pooled
    rho[0] = 1.0
    pairs = rho[: n - n % 2].reshape(n // 2, 2, -1).sum(axis=1)
    positive = np.logical_and.accumulate(pairs > 0.0, axis=0)
    sums = np.where(positive, np.minimum.accumulate(pairs, axis=0), 0.0).sum(axis=0)
    total = float(m * n)
    size = total / np.maximum(2.0 * sums - 1.0, 1.0 / np.log10(max(total, 10.0)))
    return np.where(pooled == 0.0, total, np.minimum(size, total))
