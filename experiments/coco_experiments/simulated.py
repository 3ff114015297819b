"""Simulated data for small runs: households and a long tail of large groups, from a seed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.histograms import Hierarchy


def group_sizes(groups: int, max_size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the sizes of ``groups`` groups, int64 in 1..max_size, unsorted: most small, one in ten log-uniform."""
    small = rng.geometric(0.4, groups)
    large = np.exp(rng.uniform(0.0, np.log(max_size), groups)).astype(np.int64)
    sizes = np.where(rng.random(groups) < 0.9, small, large)
    return np.clip(sizes, 1, max_size).astype(np.int64)


def counts_of_runs(
    hierarchy: Hierarchy, leaf: NDArray[np.int64], sizes: NDArray[np.int64], counts: NDArray[np.int64]
) -> PrivateCounts:
    """Return private counts from runs in any order: ``counts[k]`` groups of ``sizes[k]`` in leaf ``leaf[k]``.

    Leaves count from 0 within ``hierarchy.leaves``; runs of one leaf and size are added up, empty ones dropped.
    O(runs log runs).
    """
    order = np.lexsort((sizes, leaf))
    order = order[counts[order] > 0]
    leaf, sizes, counts = leaf[order], sizes[order], counts[order]
    new = np.ones(leaf.size, dtype=bool)
    new[1:] = (leaf[1:] != leaf[:-1]) | (sizes[1:] != sizes[:-1])
    first = np.flatnonzero(new)
    merged = np.add.reduceat(counts, first) if first.size else counts
    leaves = len(hierarchy.leaves)
    groups = np.zeros(leaves, np.int64)
    np.add.at(groups, leaf, counts)
    offsets = np.searchsorted(leaf[first], np.arange(leaves + 1)).astype(np.int64)
    rows = int(first.size)
    return PrivateCounts(hierarchy, hierarchy.aggregate(groups), offsets, sizes[first], merged, rows, rows)


def generated_counts(parents: int, leaves: int, groups: int, max_size: int, rng: np.random.Generator) -> PrivateCounts:
    """Return three levels: a root, ``parents`` regions and ``leaves`` in each, ``groups`` groups in every leaf."""
    paths = [("all", f"part{p}", f"leaf{p}-{leaf}") for p in range(parents) for leaf in range(leaves)]
    hierarchy = Hierarchy.from_paths(paths)
    sizes = np.concatenate([group_sizes(groups, max_size, rng) for _ in paths])
    leaf = np.repeat(np.arange(len(paths), dtype=np.int64), groups)
    return counts_of_runs(hierarchy, leaf, sizes, np.ones(sizes.size, np.int64))
