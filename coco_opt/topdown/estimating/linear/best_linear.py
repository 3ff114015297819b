"""Which linear estimates a measurement gets: one tree per query, or matrices where those leave information out."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from coco_opt.errors import ProblemError
from coco_opt.topdown.estimating.linear.constrained_trees import constrained_trees
from coco_opt.topdown.estimating.linear.information import FullInformation, full_information, joint_cells, kinds_of
from coco_opt.topdown.estimating.linear.linear_estimates import LinearEstimates
from coco_opt.topdown.estimating.linear.low_rank import LowRankInformation, low_rank_information
from coco_opt.topdown.estimating.linear.query_trees import LinearStage

if TYPE_CHECKING:
    from coco_opt.topdown.noisy_measurements import TableMeasurements


MOST_ATOMS = 96
"""Joint cells, or directions, up to which matrices are used by default: seconds for a state's blocks."""

_ALIKE = 1e-12


def best_linear(
    measured: TableMeasurements, full: bool | None = None, stage: LinearStage | None = None
) -> LinearEstimates:
    """Return the best linear unbiased estimates of a measurement, or nearly the best where those cost too much.

    The trees of ``linear_stage`` are the best where every level is measured in the same proportions and nothing is
    exact. Else ``full_information`` is, which is taken up to ``MOST_ATOMS`` joint cells, and beyond them its form by
    ``low_rank_information``, if so many directions suffice. What is left are the trees, corrected to the exact
    constraints of each region; ``stage`` holds these trees where they were computed before. ``full`` asks for full
    information (True, at any size) or for the trees (False). Raises ProblemError where it is requested and does not fit
    in memory.
    """
    if full:
        try:
            return full_information(measured)
        except MemoryError:
            raise ProblemError(
                "full information needs too much memory: measure fewer different cells, or leave out full=True"
            ) from None
    if full is None and not trees_are_best(measured):
        for form in (_by_matrices, low_rank_information):
            with suppress(MemoryError):
                estimates = form(measured, MOST_ATOMS)
                if estimates is not None:
                    return estimates
    return constrained_trees(measured, stage)


def _by_matrices(measured: TableMeasurements, most: int) -> LinearEstimates | None:
    """Return full information of up to ``most`` joint cells, else None."""
    return full_information(measured) if joint_cells(measured) <= most else None


def is_full(estimates: LinearEstimates) -> bool:
    """Return whether estimates use all answers and constraints together."""
    return isinstance(estimates, FullInformation | LowRankInformation)


def trees_are_best(measured: TableMeasurements) -> bool:
    """Return whether nothing is exact and all measured regions have the same queries in the same proportions."""
    hierarchy, levels = measured.hierarchy, range(measured.hierarchy.levels)
    for level in levels:
        constraints = measured.constraints_of(hierarchy.level_range(level))
        if constraints is not None and (constraints.lower == constraints.upper).any():
            return False
    precisions, _ = kinds_of(measured)
    shares = precisions[precisions.any(axis=1)]
    shares /= shares.sum(axis=1, keepdims=True)
    return bool((np.abs(shares - shares[0]) <= _ALIKE).all())


__all__ = ["LinearEstimates", "LinearStage", "best_linear", "is_full", "trees_are_best"]
