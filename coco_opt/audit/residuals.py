"""Residuals (released minus exact) as a distribution: distinct values and how often each occurred."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError


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
