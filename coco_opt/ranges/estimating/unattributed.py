"""Unattributed histograms: a multiset of counts, such as a graph's degrees, from noise (Hay et al. 2010, section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Ints
from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError
from coco_opt.privacy import Measurement, NoiseDistribution
from coco_opt.problems import IsotonicL1, IsotonicL2
from coco_opt.problems.isotonic import TieRule
from coco_opt.ranges.interval_counts import SORTED


@dataclass(frozen=True, eq=False, slots=True)
class SortedCounts:
    """Counts (n,) sorted in increasing order, then noised: int64, read-only. S~ of the paper.

    ``distribution`` is that of each count's noise. Raises ProblemError for another shape or type.
    """

    values: Ints
    distribution: NoiseDistribution

    def __post_init__(self) -> None:
        if self.values.ndim != 1 or self.values.dtype != np.int64:
            raise ProblemError("a measurement of sorted counts is a vector of int64")
        self.values.setflags(write=False)

    @classmethod
    def of(cls, measurement: Measurement) -> SortedCounts:
        """Return the counts of a measurement; ProblemError for a measurement of another kind."""
        if measurement.measurement_plan.kind != SORTED:
            raise ProblemError(f"a measurement of {measurement.measurement_plan.kind} holds no sorted counts")
        (answers,) = measurement.answers
        return cls(answers.values, answers.query.distribution)

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
