"""From draws to a released histogram: integer counts of least expected squared error, and intervals of any range."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from coco_opt.activity import Progress
from coco_opt.array_types import Floats, Ints
from coco_opt.posterior.chains import central_ranks
from coco_opt.ranges.estimating.posterior.sampler import Sampled, SamplerOptions, sample_counts
from coco_opt.ranges.interval_counts import IntervalCounts
from coco_opt.ranges.workload import Workload

_TOGETHER = 2**22  # drawn answers that are sorted together
_PASSES = 4  # over the ends of a list of ranges


@dataclass(frozen=True, eq=False)
class RangeDraws:
    """Draws of the cells' counts int[draws, cells], and the counts int64[cells] that were released."""

    cells: NDArray[np.int32] | Ints
    released: Ints

    @cached_property
    def _running(self) -> NDArray[np.int32] | Ints:
        """Return the drawn sums of the first cells [cells + 1, draws]."""
        sums = np.zeros((self.cells.shape[1] + 1, self.cells.shape[0]), self.cells.dtype)
        np.cumsum(self.cells.T, axis=0, out=sums[1:])
        return sums

    def answers(self, begin: Ints, end: Ints) -> NDArray[np.int32] | Ints:
        """Return the draws of ranges begin:end [k, draws]."""
        return self._running[end] - self._running[begin]

    def interval(self, begin: Ints, end: Ints, coverage: float) -> tuple[Ints, Ints]:
        """Return the ends, both included, of central intervals of ranges begin:end (k,), which hold the release."""
        low, high = np.empty((2, begin.size), np.int64)
        first, last = central_ranks(self.cells.shape[0], coverage)
        step = max(1, _TOGETHER // self.cells.shape[0])
        for start in range(0, begin.size, step):
            part = slice(start, start + step)
            drawn = np.sort(self.answers(begin[part], end[part]), axis=1)
            low[part], high[part] = drawn[:, first], drawn[:, last]
        sums = np.concatenate([[0], np.cumsum(self.released)])
        released = sums[end] - sums[begin]
        return np.minimum(low, released), np.maximum(high, released)


@dataclass(frozen=True, eq=False, slots=True)
class RangesPosterior:
    """Draws of all cells' counts, the integer counts released from them, and what these cost.

    ``excess`` is the mean over the workload of the squared distance (entities squared) between the released answer and
    the posterior mean. The posterior mean has the least expected squared error of any estimate, so no integer counts
    are better by more than this.
    """

    sampled: Sampled
    draws: RangeDraws
    excess: float

    @classmethod
    def of(
        cls,
        counts: IntervalCounts,
        workload: Workload | None = None,
        options: SamplerOptions | None = None,
        *,
        threads: int = 1,
        progress: Progress | None = None,
    ) -> RangesPosterior:
        """Sample, and release the counts that are best for a workload (default: all ranges)."""
        sampled = sample_counts(counts, options, threads=threads, progress=progress)
        aim = workload or Workload.of(counts.domain.cells)
        sums = np.concatenate([[0.0], np.cumsum(sampled.cells.mean(axis=0))])
        ends = rounded_sums(sums, aim)
        return cls(sampled, RangeDraws(sampled.cells, np.diff(ends)), mean_square(ends - sums, aim))


def rounded_sums(sums: Floats, workload: Workload) -> Ints:
    """Return integer sums of the first cells, int64 (cells + 1,), nondecreasing from 0, near fractional sums.

    For all ranges and for all prefixes they have the least mean square distance. For a list of ranges each sum is the
    best given the others.
    """
    floors = np.floor(sums)
    parts = sums - floors
    if workload.name == "prefixes":
        return np.asarray(floors + (parts >= 0.5), np.int64)
    # The mean square over all ranges is the variance of the distances, the first of which is 0: round up all parts from
    # some part on.
    order = np.argsort(-parts, kind="stable")
    falling = parts[order]
    number = np.arange(sums.size + 1)
    squares = np.concatenate([[0.0], np.cumsum(1.0 - 2.0 * falling)]) + (parts**2).sum()
    loss = sums.size * squares - (number - parts.sum()) ** 2
    # Equal parts are rounded alike, so that sums do not fall; a part of 0 stays.
    possible = np.concatenate([[True], falling[1:] < falling[:-1], [False]]) & np.append(True, falling > 0.0)
    up = int(np.argmin(np.where(possible, loss, np.inf)))
    ends = floors.astype(np.int64)
    ends[order[:up]] += 1
    return ends if workload.name == "ranges" else _improved(ends, sums, workload)


def _improved(ends: Ints, sums: Floats, workload: Workload) -> Ints:
    """Move single sums to where the squares of the listed ranges that end there are least."""
    other = np.concatenate([workload.end, workload.begin])
    order = np.argsort(np.concatenate([workload.begin, workload.end]), kind="stable")
    other = other[order]
    starts = np.searchsorted(np.concatenate([workload.begin, workload.end])[order], np.arange(sums.size + 1))
    ends = ends.copy()
    for _ in range(_PASSES):
        before = ends.copy()
        for place in np.flatnonzero(np.diff(starts)).tolist():
            if place == 0:
                continue
            linked = other[starts[place] : starts[place + 1]]
            best = np.rint(sums[place] + (ends[linked] - sums[linked]).mean())
            most = ends[place + 1] if place + 1 < ends.size else best
            ends[place] = int(np.clip(best, ends[place - 1], max(most, ends[place - 1])))
        if (ends == before).all():
            break
    return ends


def mean_square(errors: Floats, workload: Workload) -> float:
    """Return the mean square of the errors of a workload's ranges, from those of the sums of the first cells."""
    if workload.name == "ranges":
        return float((errors.size * (errors @ errors) - errors.sum() ** 2) / workload.size)
    difference = errors[workload.end] - errors[workload.begin]
    return float(difference @ difference / difference.size)
