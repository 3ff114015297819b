"""Made data for small runs: households and a long tail of large groups, from a seed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.tables.private import PrivateCounts


def group_sizes(groups: int, max_size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the sizes of ``groups`` groups, int64 in 1..max_size, unsorted: most small, one in ten log-uniform."""
    small = rng.geometric(0.4, groups)
    large = np.exp(rng.uniform(0.0, np.log(max_size), groups)).astype(np.int64)
    sizes = np.where(rng.random(groups) < 0.9, small, large)
    return np.clip(sizes, 1, max_size).astype(np.int64)


def made_counts(parents: int, leaves: int, groups: int, max_size: int, rng: np.random.Generator) -> PrivateCounts:
    """Return three levels: a root, ``parents`` regions and ``leaves`` in each, ``groups`` groups in every leaf."""
    paths = [("all", f"part{p}", f"leaf{p}-{leaf}") for p in range(parents) for leaf in range(leaves)]
    hierarchy = Hierarchy.from_paths(paths)
    histograms = [CountOfCounts.from_ranks(group_sizes(groups, max_size, rng)) for _ in paths]
    rows = sum(histogram.distinct for histogram in histograms)
    return PrivateCounts(
        hierarchy,
        hierarchy.aggregate(np.array([histogram.groups for histogram in histograms], np.int64)),
        np.cumsum([0, *(histogram.distinct for histogram in histograms)], dtype=np.int64),
        np.concatenate([histogram.sizes for histogram in histograms]),
        np.concatenate([histogram.counts for histogram in histograms]),
        rows,
        rows,
    )
