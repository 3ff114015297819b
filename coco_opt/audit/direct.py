"""The direct estimate: log-ratios of frequencies in runs on two neighbouring databases (Flaxman 2019, section 2.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError


@dataclass(frozen=True, eq=False, slots=True)
class DirectEstimate:
    """Log-ratios log P[D] / P[D'] at integer errors ``k``, int64[m]: of "error = k" and of "error >= k", float64[m].

    NaN where an event never happened on one side. The ratios are noisy: where few runs are in an event they say next
    to nothing, and their maximum is biased upwards.
    """

    k: Ints
    equal: Floats
    at_least: Floats

    @property
    def maximum(self) -> tuple[float, float]:
        """Largest |log-ratio| of either kind, NaN where there is none."""
        return _largest(self.equal), _largest(self.at_least)


def direct_estimate(first: NDArray[Any], second: NDArray[Any]) -> DirectEstimate:
    """Return the estimate from the errors of one cell, one a run, on D and on D', both relative to D's exact count.

    Errors that are not integers are rounded down to unit bins. Raises ProblemError without runs. O(runs log runs).
    """
    if len(first) == 0 or len(second) == 0:
        raise ProblemError("a direct estimate needs runs on both databases")
    first_errors, second_errors = (np.floor(np.asarray(errors)).astype(np.int64) for errors in (first, second))
    low = min(int(first_errors.min()), int(second_errors.min()))
    points = max(int(first_errors.max()), int(second_errors.max())) - low + 1
    counts = [np.bincount(errors - low, minlength=points) for errors in (first_errors, second_errors)]
    above = [np.cumsum(count[::-1])[::-1] for count in counts]
    return DirectEstimate(
        np.arange(low, low + points, dtype=np.int64),
        _log_ratio(counts[0] / first_errors.size, counts[1] / second_errors.size),
        _log_ratio(above[0] / first_errors.size, above[1] / second_errors.size),
    )


def _log_ratio(first: Floats, second: Floats) -> Floats:
    both = (first > 0) & (second > 0)
    ratio = np.full(first.size, np.nan)
    ratio[both] = np.log(first[both] / second[both])
    return ratio


def _largest(ratios: Floats) -> float:
    return float(np.nanmax(np.abs(ratios))) if np.isfinite(ratios).any() else float("nan")
