"""What chains of any kind share: their seeds, how long they may run, and when they have converged.

Seeds come from noisy answers alone, independent of the noise's key, and seconds are counted in moves, so that answers
always give the same bits. Convergence is judged by split R-hat and effective sample sizes, for many scalars at once.

Sources: Gelman and Rubin 1992; split chains as in Gelman et al. 2013, section 11.4; the effective size with Geyer's
1992 initial monotone positive sequence as in Vehtari et al. 2021, section 3.2 (without rank normalisation).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from coco_opt.array_types import Flags, Floats

MOVES_A_SECOND = 5e6  # of a table's chains on two cores, as measured; other work is stated in such moves
_ROUNDED = 1e-9  # more than the rounding of floating point takes off a number of draws


def answers_seed(label: str, pieces: Iterable[bytes]) -> int:
    """Return a seed of 128 bits from noisy answers and their plans; ``label`` names the kind."""
    code = hashlib.sha256(label.encode())
    for piece in pieces:
        code.update(piece)
    return int.from_bytes(code.digest()[:16], "big")


def chain_words(seed: int, chains: int, *kind: int) -> list[np.uint64]:
    """Return the first word of each chain's generator; kinds that share a seed state numbers of their own."""
    return [np.random.SeedSequence([seed, *kind, n]).generate_state(1, np.uint64)[0] for n in range(chains)]


def sweeps_within(seconds: float, moves: float) -> float:
    """Return how many sweeps, each of so many moves of all chains together, take so many seconds on two cores."""
    return MOVES_A_SECOND * seconds / max(moves, 1.0)


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


@dataclass(frozen=True, slots=True)
class Criterion:
    """What each of a region's compared counts must satisfy: a largest split R-hat and a least effective sample size."""

    r_hat: float = 1.1
    effective: float = 25.0

    def met(self, r_hat: Floats, effective: Floats) -> Flags:
        """Return which regions have converged (regions,), from the diagnostics of their counts (regions, counts)."""
        return np.asarray(((r_hat <= self.r_hat) & (effective >= self.effective)).all(axis=1))

    def distance(self, r_hat: Floats, effective: Floats) -> Floats:
        """Return how far regions are from the criterion (regions,): at most 1 where they meet it."""
        return np.asarray(np.maximum((r_hat - 1.0) / (self.r_hat - 1.0), self.effective / effective).max(axis=1))

    def account(self, settled: Flags, r_hat: float, effective: float) -> dict[str, Any]:
        """Return a manifest's account of chains: which of them ``settled``, the worst R-hat and effective size."""
        return {
            "converged": bool(settled.all()),
            "criterion": {"r_hat_at_most": self.r_hat, "effective_size_at_least": self.effective},
            "worst_r_hat": r_hat if math.isfinite(r_hat) else None,
            "least_effective_size": effective,
        }
