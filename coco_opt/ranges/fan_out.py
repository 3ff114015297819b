"""Which fan-out to measure with: the predicted error of H-bar, known before any noise is drawn.

As in Qardaji, Yang and Li 2013 the criterion is the mean variance over range queries; here it is computed from the
exact posterior of the very tree and noise instead of an asymptotic formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError
from coco_opt.privacy import Cost, Neighbours
from coco_opt.ranges.domain import DomainTree
from coco_opt.ranges.precision import Precision, noise_of

FAN_OUTS: tuple[int, ...] = (2, 3, 4, 6, 8, 10, 12, 16, 24, 32, 64)
_PLACES = 64
_FEW = 16  # cells, over which a bias does not add up to much
_CLEARLY = 2 / 3  # cells alone are chosen below this share of the best tree's predicted standard error


@dataclass(frozen=True, slots=True)
class PredictedError:
    """The mean variance of H-bar over a workload of ranges for one fan-out (None: cells only)."""

    fan_out: int | None
    height: int
    mean_variance: float


def predict_errors(
    cells: int,
    cost: Cost,
    *,
    fan_outs: Sequence[int | None] = (None, *FAN_OUTS),
    ranges: tuple[ArrayLike, ArrayLike] | None = None,
    neighbours: Neighbours = "add_remove",
) -> tuple[PredictedError, ...]:
    """Return the predicted error of each fan-out, least first, for ranges begin:end.

    ``cost`` is that of the whole tree. The default workload has sizes 2^i at places spread evenly. Needs public
    numbers only. O(cells) a fan-out.
    """
    if not fan_outs:
        raise ProblemError("give at least one fan-out to choose from")
    begin, end = _spread(cells) if ranges is None else ranges
    if np.size(begin) == 0:
        raise ProblemError("give at least one range to predict errors of")
    rows = []
    for fan_out in fan_outs:
        domain = DomainTree(cells, fan_out)
        spread = Precision(domain, noise_of(domain, cost, neighbours)).ranges(begin, end)
        rows.append(PredictedError(fan_out, domain.height, float(spread.mean())))
    return tuple(sorted(rows, key=lambda row: row.mean_variance))


def choose_fan_out(
    cells: int,
    cost: Cost,
    *,
    ranges: tuple[ArrayLike, ArrayLike] | None = None,
    neighbours: Neighbours = "add_remove",
) -> int | None:
    """Return the fan-out of least predicted error, None where measuring the cells alone is clearly best.

    The prediction is that of the unbiased estimate. Made nonnegative, cells measured alone are biased where most are
    empty, and over long ranges the bias adds up (to ten times a tree's error at 1,024 cells), while the intervals of a
    tree bound it. So on more than a few cells a tree is chosen unless the cells' predicted standard error is below two
    thirds of its own.
    """
    predicted = predict_errors(cells, cost, ranges=ranges, neighbours=neighbours)
    trees = [row for row in predicted if row.fan_out is not None]
    alone = next((row.mean_variance for row in predicted if row.fan_out is None), np.inf)
    worth = 1.0 if cells <= _FEW else _CLEARLY**2
    if not trees or alone < worth * trees[0].mean_variance:
        return None
    return trees[0].fan_out


def evenly(cells: int, size: int) -> tuple[Ints, Ints]:
    """Return 64 ranges begin:end of ``size`` cells at places spread evenly; a place may occur twice."""
    places = np.unique(np.linspace(0, cells - size, _PLACES).astype(np.int64))
    begin = np.resize(places, _PLACES)
    return begin, begin + size


def _spread(cells: int) -> tuple[Ints, Ints]:
    sizes = [1 << power for power in range(cells.bit_length())]
    begins, ends = zip(*(evenly(cells, size) for size in sizes), strict=True)
    return np.concatenate(begins), np.concatenate(ends)
