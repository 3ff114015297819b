"""Workloads of ranges: their mean variance under a tree, and the least that any strategy could reach.

The bound is that of Li and Miklau 2013: queries W, one entity in one of n cells, and noise of variance v for a
sensitivity of 1 cost a sum of squared errors of at least v (sum of W's singular values)^2 / n, whatever linear queries
are measured. It holds for Laplace noise too, because no column has a smaller L1 than L2 norm, but is not reached there.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.privacy import Cost, Neighbours
from coco_opt.ranges.domain import DomainTree
from coco_opt.ranges.interval_counts import Precision, noise_of

Named = Literal["ranges", "prefixes"]
NAMED: tuple[Named, ...] = get_args(Named)

_DENSE = 1_024  # ranges, or cells between their ends, up to which singular values are computed


@dataclass(frozen=True, eq=False, slots=True)
class Workload:
    """Ranges of cells that count alike: all of a domain ("ranges"), all prefixes, or a list (``name`` "list").

    ``begin`` and ``end`` int64 (k,) are the ranges begin:end, without those of "ranges", which are too many to list.
    """

    name: str
    cells: int
    begin: Ints
    end: Ints

    @classmethod
    def of(cls, cells: int, ranges: Named | tuple[ArrayLike, ArrayLike] = "ranges") -> Workload:
        """Return a workload by name or from a list of ranges begin:end of cells; ProblemError without any."""
        none = np.empty(0, np.int64)
        if isinstance(ranges, str):
            if ranges not in NAMED:
                raise ProblemError(f"a workload is {', '.join(NAMED)} or a list of ranges, not {ranges!r}")
            ends = np.arange(1, cells + 1) if ranges == "prefixes" else none
            return cls(ranges, cells, np.zeros_like(ends), ends)
        begin, end = (np.atleast_1d(np.asarray(side, np.int64)) for side in ranges)
        if begin.size == 0 or begin.shape != end.shape or (begin < 0).any() or (begin >= end).any():
            raise ProblemError("give at least one range, each begin below its end")
        if (end > cells).any():
            raise ProblemError(f"a range ends beyond the {cells:,} cells of the domain")
        return cls("list", cells, begin, end)

    @property
    def size(self) -> int:
        """Return the number of ranges."""
        return self.cells * (self.cells + 1) // 2 if self.name == "ranges" else self.begin.size

    def overlaps(self, width: int) -> float:
        """Return the sum over all ranges and all blocks of ``width`` cells of their overlap's square; O(cells + k)."""
        if self.name == "ranges":
            last = np.arange(1, self.cells + 1, dtype=np.float64)
            first = np.floor((last - 1) / width) * width
            return float((self.cells + 1 - last) @ (last * last - first * (first + 1)))
        begin, end = self.begin.astype(np.float64), self.end.astype(np.float64)
        first, last = np.floor(begin / width), np.floor((end - 1) / width)
        cut = ((first + 1) * width - begin) ** 2 + (end - last * width) ** 2 + (last - first - 1) * float(width) ** 2
        return float(np.where(first == last, (end - begin) ** 2, cut).sum())

    def variance(self, precision: Precision) -> float:
        """Return the mean variance of an answer; O(cells x height x fan-out), or O(k x height x fan-out).

        With P_j the prefixes' errors, all ranges sum to (n + 1) sum var P_j - var sum P_j.
        """
        if self.name != "ranges":
            return float(precision.ranges(self.begin, self.end).mean())
        ends = np.arange(1, self.cells + 1)
        prefixes = float(precision.ranges(np.zeros_like(ends), ends).sum())
        together = precision.combination(np.arange(self.cells, 0, -1))
        return ((self.cells + 1) * prefixes - together) / self.size

    def singular_values(self) -> Floats | None:
        """Return the singular values of the workload on the cells that it tells apart; None for too large a list.

        Those of all ranges and all prefixes are known: their Gram matrices are inverses of second differences.
        """
        n = self.cells
        step = np.arange(1, n + 1)
        if self.name == "ranges":
            return np.asarray(np.sqrt(n + 1) / (2 * np.sin(step * np.pi / (2 * (n + 1)))))
        if self.name == "prefixes":
            return np.asarray(1 / (2 * np.sin((2 * step - 1) * np.pi / (2 * (2 * n + 1)))))
        cuts = np.unique(np.concatenate([self.begin, self.end]))
        if cuts.size > _DENSE:
            return None
        first, behind = np.searchsorted(cuts, self.begin), np.searchsorted(cuts, self.end)
        gram = _gram(first, behind, cuts.size - 1)
        gram = gram[np.ix_(*(np.flatnonzero(gram.diagonal()),) * 2)]
        return np.asarray(np.sqrt(np.maximum(np.linalg.eigvalsh(gram)[::-1], 0.0)))

    def least_variance(self, cost: Cost, neighbours: Neighbours = "add_remove") -> float | None:
        """Return a mean variance that no unbiased linear strategy is below, with continuous noise; None if unknown.

        If entities are replaced, differences of columns have the sensitivity: columns may be moved together, for the
        total is public, so the largest singular value falls away, and by Jung's theorem the variance doubles.
        """
        values = self.singular_values()
        if values is None:
            return None
        n = values.size
        if neighbours == "replace":
            return 2 * unit_variance(cost) * float(values[1:].sum()) ** 2 / n / self.size
        return unit_variance(cost) * float(values.sum()) ** 2 / n / self.size


def over_bound(
    domain: DomainTree, workload: Workload, cost: Cost, neighbours: Neighbours = "add_remove"
) -> float | None:
    """Return the mean variance of a workload over the least of any strategy, with continuous noise; None if unknown.

    The ratio does not depend on the amount of the cost. Integer noise is compared at a small one, where it is as good
    as continuous.
    """
    small = type(cost)(Fraction(1, 1_000))
    least = workload.least_variance(small, neighbours)
    if least is None or least == 0.0:
        return None
    return workload.variance(Precision(domain, noise_of(domain, small, neighbours))) / least


def unit_variance(cost: Cost) -> float:
    """Return the variance of the continuous noise of a query of sensitivity 1."""
    amount = float(cost.amount)
    return 2 / amount**2 if cost.precision_power == 2 else 1 / (2 * amount)


def _gram(first: Ints, behind: Ints, cells: int) -> Floats:
    """Return how many ranges hold both of two cells, float64[cells, cells]."""
    changes = np.zeros((cells + 1, cells + 1))
    for rows, columns, sign in ((first, first, 1), (first, behind, -1), (behind, first, -1), (behind, behind, 1)):
        np.add.at(changes, (rows, columns), sign)
    return np.asarray(changes.cumsum(axis=0).cumsum(axis=1)[:-1, :-1])
