"""A region's estimated group sizes as runs, with the variance of each group's size."""

from __future__ import annotations

from dataclasses import dataclass

from coco_opt.array_types import Floats, Ints
from coco_opt.histograms import CountOfCounts


@dataclass(frozen=True, eq=False, slots=True)
class SizeEstimate:
    """Runs of groups in order of estimated size: ``counts[k]`` groups of ``sizes[k]`` entities.

    sizes (r,) nondecreasing; counts (r,) positive; variances (r,) of one group's size, in entities squared. Equal
    sizes may come in several runs of different variance.
    """

    sizes: Ints
    counts: Ints
    variances: Floats

    @property
    def histogram(self) -> CountOfCounts:
        """Return the count-of-counts histogram of the estimate."""
        return CountOfCounts.from_runs(self.sizes, self.counts)

    @classmethod
    def from_histogram(cls, histogram: CountOfCounts, variance_times_count: float) -> SizeEstimate:
        """Return the runs of a histogram whose sizes have variance ``variance_times_count / count``."""
        return cls(histogram.sizes, histogram.counts, variance_times_count / histogram.counts)
