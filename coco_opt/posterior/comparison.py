"""Whether unbiased noisy answers refute a posterior, by how far they lie from its means.

If a posterior with means m and variances v of the answers holds, and an unbiased estimate L of each (a noisy answer, or
a combination of several) has the variance e, then, because m is a conditional mean,

    E (L - m)^2 = e - E v,

whatever the noise (Stein 1981). What the squared distances have beyond that, over many answers, is what the model gets
wrong: it is refuted where this is a large share of the sum of e and more than chance. Only noisy answers and draws are
read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coco_opt.array_types import Floats, Ints

_SHARE = 0.25  # of the sum of e
_TAILS = 6.0  # variance of a square over its squared mean, with heavy tails

CLEAR = 3.0
"""Standard errors that are enough."""


@dataclass(frozen=True, slots=True)
class Excess:
    """Sums over answers: of e, of (L - m)^2 - (e - v), and of the latter's variances."""

    error: float = 0.0
    excess: float = 0.0
    variance: float = 0.0

    @classmethod
    def of(cls, distance: Floats, variance: Floats, error: Floats, *, by_model: bool = False) -> Excess:
        """Return that of L - m, v and e, all of one shape; an answer with e = 0 is exact.

        Variances are those of the squares that there are, or ``by_model`` those that the model expects.
        """
        expected = np.where(error > 0.0, error - variance, 0.0)
        beyond = distance**2 - expected
        spread = _TAILS * expected**2 if by_model else beyond**2
        return cls(float(error.sum()), float(beyond.sum()), float(spread.sum()))

    def __add__(self, other: Excess) -> Excess:
        return Excess(self.error + other.error, self.excess + other.excess, self.variance + other.variance)

    @property
    def share(self) -> float:
        """Return the excess as a share of the sum of e."""
        return self.excess / self.error if self.error else 0.0

    def refutes(self, clear: float = CLEAR) -> bool:
        """Return whether the answers refute the posterior, by so many standard errors."""
        return bool(self.excess > max(_SHARE * self.error, clear * self.variance**0.5))


class Distances:
    """Means and variances of drawn values less their noisy answers, for up to ``MOST`` of them, evenly spread."""

    MOST = 2**20

    def __init__(self, answers: int) -> None:
        self.step = max(1, -(-answers // self.MOST))
        self.draws, self.sums, self.squares = 0, *np.zeros((2, -(-answers // self.step)))

    def take(self, distance: Ints) -> None:
        """Add a draw, int64[answers]."""
        some = distance[:: self.step].astype(np.float64)
        self.draws += 1
        self.sums += some
        self.squares += some**2

    def __add__(self, other: Distances) -> Distances:
        total = Distances(0)
        total.step, total.draws = self.step, self.draws + other.draws
        total.sums, total.squares = self.sums + other.sums, self.squares + other.squares
        return total

    def moments(self) -> tuple[Floats, Floats]:
        """Return the means and variances, float64[answers taken]."""
        means = self.sums / max(self.draws, 1)
        return means, np.maximum(self.squares / max(self.draws, 1) - means**2, 0.0)
