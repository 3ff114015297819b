"""Unattributed histograms: a noisy multiset of counts, such as a graph's degrees (Hay et al. 2010, section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError
from coco_opt.privacy.budget import Neighbours, noise_scale
from coco_opt.privacy.noise import NoiseSource
from coco_opt.problem import MAX_INTEGER
from coco_opt.problems.isotonic import IsotonicL1, IsotonicL2, TieRule
from coco_opt.ranges.heuristics import round_nonnegative


@dataclass(frozen=True, eq=False, slots=True)
class SortedMeasurement:
    """Counts (n,) sorted in increasing order, then noised: int64, read-only. S~ of the paper.

    Sorting does not raise the sensitivity (Proposition 3). ``scale`` is the noise's, ``epsilon`` the cost.
    """

    values: NDArray[np.int64]
    scale: Fraction
    epsilon: Fraction
    private: bool

    def __post_init__(self) -> None:
        if self.values.ndim != 1 or self.values.dtype != np.int64:
            raise ProblemError("a measurement of sorted counts is a vector of int64")
        self.values.setflags(write=False)

    def sorted_rounded(self) -> NDArray[np.int64]:
        """Return S~r: sorted, and rounded to the nearest nonnegative integer; O(n log n)."""
        return round_nonnegative(np.sort(self.values))

    def isotonic(
        self,
        loss: Literal["l1", "l2"] = "l2",
        *,
        lower: float = -np.inf,
        upper: float = np.inf,
        ties: TieRule = "upper",
        solvers: SolverChoices | None = None,
    ) -> NDArray[Any]:
        """Return S-bar: the nearest nondecreasing sequence in squares (the paper's) or absolute values.

        The paper sets no bounds; ``lower=0`` uses that counts are nonnegative. SolverError where the chosen solver
        misses its tolerance.
        """
        solve = (solvers or SolverChoices()).solve
        if loss == "l2":
            return solve(IsotonicL2(self.values, lower=lower, upper=upper))
        if loss == "l1":
            return solve(IsotonicL1(self.values, lower=lower, upper=upper, ties=ties))
        raise ProblemError(f"loss must be 'l1' or 'l2', not {loss!r}")


def measure_sorted(
    counts: ArrayLike,
    epsilon: Fraction,
    *,
    source: NoiseSource,
    neighbours: Neighbours = "add_remove",
    label: str = "counts",
) -> SortedMeasurement:
    """Return the sorted private counts with double-geometric noise of scale 1 / epsilon (replaced entity: 2 / epsilon).

    Raises ProblemError for counts that are no nonnegative integers or noise that was already drawn under this label.
    """
    exact = np.asarray(counts)
    if exact.ndim != 1 or exact.dtype.kind not in "iu" or (exact < 0).any():
        raise ProblemError("counts must be a vector of nonnegative integers")
    if exact.size and int(exact.max()) > MAX_INTEGER:
        raise ProblemError("counts must be at most 2^53")
    scale = noise_scale(1 if neighbours == "add_remove" else 2, epsilon)
    ranked = np.sort(exact.astype(np.int64))
    noisy = source.stream(scale, measurement="sorted", region=label).add_to(ranked)
    return SortedMeasurement(noisy, scale, epsilon, source.private)
