"""Means of seeded runs next to reference values: standard errors and how far apart two means are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of independent runs and its standard error, None for a single run."""

    value: float
    standard_error: float | None
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        """Return the mean of at least one value; the standard error is the sample deviation over sqrt(runs)."""
        runs = len(values)
        spread = float(np.std(values, ddof=1)) / math.sqrt(runs) if runs > 1 else None
        return cls(float(np.mean(values)), spread, runs)

    def cells(self, name: str = "measured") -> dict[str, float | None]:
        """Return the mean under a name and its standard error, as cells of a table."""
        return {name: self.value, "standard error": self.standard_error}

    @property
    def signed(self) -> str | None:
        """Return a mean difference and its standard error in words, None for a single run."""
        return None if self.standard_error is None else f"{self.value:+,.1f} +- {self.standard_error:,.1f}"


def ranks_among(draws: NDArray[Any], true: NDArray[Any]) -> tuple[Floats, Floats]:
    """Return between which ranks, 0 to 1, each truth (rows, 1) lies among sorted draws (rows, draws).

    A truth has the ranks of one more draw, and where draws equal it, all of theirs.
    """
    ranks = draws.shape[1] + 1
    return (draws < true).sum(axis=1) / ranks, ((draws <= true).sum(axis=1) + 1) / ranks


def between_ranks(first: Floats, end: Floats, edges: Floats) -> Floats:
    """Return which share of each truth's ranks, first to end (rows,), lies between edges, float64[rows, edges - 1]."""
    cut = np.clip(end[:, None], edges[:-1], edges[1:]) - np.clip(first[:, None], edges[:-1], edges[1:])
    return np.asarray(cut / (end - first)[:, None], np.float64)


def inside_by_ranks(draws: NDArray[Any], true: NDArray[Any], coverage: float) -> Floats:
    """Return to what degree each truth (rows, 1) lies in the central interval of sorted draws (rows, draws), 0 to 1.

    It is inside by the share of its ranks that lie in the middle (mid-p). If it were a draw, the mean would be the
    coverage.
    """
    tail = 0.5 * (1.0 - coverage)
    return between_ranks(*ranks_among(draws, true), np.array([tail, 1.0 - tail]))[:, 0]


@dataclass(frozen=True, slots=True)
class Reference:
    """A mean measured elsewhere: the standard deviation of one run (0 where unknown) and the number of runs."""

    value: float
    deviation: float
    runs: int

    def standard_errors_from(self, mean: Mean) -> float:
        """Return |difference| in combined standard errors, sqrt(s^2 / runs here + s^2 / runs there).

        s is the reference's deviation for both, so that wild runs here cannot widen the band they are judged by.
        """
        combined = self.deviation * math.sqrt(1.0 / mean.runs + 1.0 / self.runs)
        return abs(mean.value - self.value) / combined
