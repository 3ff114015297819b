"""What is known without sampling: error bounds of unattributed and universal histograms.

Errors are expected squared errors; ``height`` is the number of nodes from a leaf to the root of a complete tree, whose
answers all have noise of scale height / epsilon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from coco_opt.array_types import Floats, Ints


@dataclass(frozen=True, eq=False, slots=True)
class EqualRuns:
    """The runs of equal true values that Theorem 2 speaks of: ``lengths`` int64 (distinct,), sum n."""

    lengths: Ints

    @classmethod
    def of(cls, ranks: Ints) -> EqualRuns:
        """Return the runs of sorted counts (n,)."""
        return cls(np.unique(ranks, return_counts=True)[1].astype(np.int64))

    @property
    def distinct(self) -> int:
        """Return the number of distinct values, d in the paper."""
        return self.lengths.size

    @property
    def log_cubed(self) -> float:
        """Return sum_r log^3 n_r (natural logarithm), the term of Theorem 2 whose constant is unknown."""
        return float((np.log(self.lengths) ** 3).sum())

    def theorem2(self, epsilon: float) -> float:
        """Return sum_r (log^3 n_r + 1) / epsilon^2: Theorem 2's shape with both constants set to 1."""
        return (self.log_cubed + self.distinct) / epsilon**2

    def harmonic(self, epsilon: float) -> float:
        """Return sum_r 2 H(n_r) / epsilon^2, H harmonic numbers: a bound on the error of S-bar without constants.

        The fit is at most as far from the truth as the fit of each run's noise alone (the tangent cone's). The expected
        squared length of n independent equal noises' isotonic fit is their variance times the expected number of
        blocks, H(n) (Sparre Andersen), as block sums have the variance of their length.
        """
        numbers = np.cumsum(1.0 / np.arange(1, int(self.lengths.max(initial=1)) + 1))
        return 2.0 * float(numbers[self.lengths - 1].sum()) / epsilon**2


def noisy_ranks_error(n: int, epsilon: float) -> float:
    """Return the error of S~: 2 n / epsilon^2."""
    return 2.0 * n / epsilon**2


def noisy_ranks_deviation(n: int, epsilon: float) -> float:
    """Return the standard deviation of S~'s squared error in one draw of Laplace noise: sqrt(20 n) / epsilon^2."""
    return math.sqrt(20.0 * n) / epsilon**2


def unit_range_error(size: Ints, epsilon: float) -> Floats:
    """Return the error of L~ for ranges of these sizes: 2 size / epsilon^2 (section 4.2)."""
    return np.asarray(2.0 * size / epsilon**2, dtype=np.float64)


def range_bound(height: int, epsilon: float, fan_out: int = 2) -> float:
    """Return Theorem 4 (iii) with its constant: at most k height nodes of variance 2 height^2 / epsilon^2 each."""
    return fan_out * height * 2.0 * height**2 / epsilon**2


def most_improved_factor(height: int, fan_out: int = 2) -> float:
    """Return Theorem 4 (iv): how many times H~ errs more than H-bar, at least, over all leaves but the outermost."""
    return (2.0 * (height - 1) * (fan_out - 1) - fan_out) / 3.0


def useful_error(height: int, epsilon: float, delta: float) -> float:
    """Return Appendix E's bound on the absolute error of H~ over all ranges at once, with probability 1 - delta.

    Binary tree, at most m = 2 height noises of scale b = height / epsilon a range, and a union over all n (n + 1) / 2
    ranges: nu sqrt(8 log(2 / delta')) with nu = b max(sqrt(m), sqrt(log(2 / delta'))) (Corollary 1 of the paper's
    reference 5, Chan, Shi and Song; the constants are theirs).
    """
    leaves = 2 ** (height - 1)
    each = math.log(2.0 / (delta / (leaves * (leaves + 1) / 2)))
    spread = height / epsilon * max(math.sqrt(2 * height), math.sqrt(each))
    return spread * math.sqrt(8 * each)
