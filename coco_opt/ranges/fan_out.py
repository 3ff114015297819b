"""Which fan-out to measure with: the predicted error of H-bar, known before any noise is drawn.

As in Qardaji, Yang and Li 2013 the criterion is the mean variance over range queries; here it is computed from the
exact posterior of the very tree and noise instead of an asymptotic formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.errors import ProblemError
from coco_opt.privacy.budget import Neighbours, noise_scale
from coco_opt.privacy.planner import geometric_variance
from coco_opt.problems.tree_posterior import TreePosterior
from coco_opt.ranges.domain import DomainTree
from coco_opt.ranges.measurement import sensitivity

FAN_OUTS: tuple[int, ...] = (2, 3, 4, 6, 8, 10, 12, 16, 24, 32, 64)
_PLACES = 64


@dataclass(frozen=True, slots=True)
class PredictedError:
    """The mean variance of H-bar over a workload of ranges for one fan-out (None: cells only)."""

    fan_out: int | None
    height: int
    mean_variance: float


def predict_errors(
    cells: int,
    epsilon: Fraction,
    *,
    fan_outs: Sequence[int | None] = (None, *FAN_OUTS),
    ranges: tuple[ArrayLike, ArrayLike] | None = None,
    neighbours: Neighbours = "add_remove",
) -> tuple[PredictedError, ...]:
    """Return the predicted error of each fan-out, least first, for ranges begin:end.

    The default workload has sizes 2^i at places spread evenly. Needs public numbers only. O(cells) a fan-out.
    """
    if not fan_outs:
        raise ProblemError("give at least one fan-out to choose from")
    begin, end = _spread(cells) if ranges is None else ranges
    if np.size(begin) == 0:
        raise ProblemError("give at least one range to predict errors of")
    rows = []
    for fan_out in fan_outs:
        domain = DomainTree(cells, fan_out)
        begins, ends = domain.checked(begin, end)
        scale = noise_scale(sensitivity(domain, neighbours), epsilon)
        variance = np.full(domain.tree.nodes, geometric_variance(float(scale)))
        variance[: domain.first_leaf] = np.inf if fan_out is None else variance[0]
        _, spread = TreePosterior.from_variances(domain.tree, variance).ranges(
            domain.first_leaf + begins, domain.first_leaf + ends
        )
        rows.append(PredictedError(fan_out, domain.height, float(spread.mean())))
    return tuple(sorted(rows, key=lambda row: row.mean_variance))


def choose_fan_out(
    cells: int,
    epsilon: Fraction,
    *,
    ranges: tuple[ArrayLike, ArrayLike] | None = None,
    neighbours: Neighbours = "add_remove",
) -> int | None:
    """Return the fan-out of least predicted error, None where measuring the cells alone is best."""
    return predict_errors(cells, epsilon, ranges=ranges, neighbours=neighbours)[0].fan_out


def _spread(cells: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    begins, ends = [], []
    size = 1
    while size <= cells:
        places = np.unique(np.linspace(0, cells - size, _PLACES).astype(np.int64))
        begins.append(np.resize(places, _PLACES))
        ends.append(begins[-1] + size)
        size *= 2
    return np.concatenate(begins), np.concatenate(ends)
