"""Count-of-counts histograms as runs, their conversions and distance, and the hierarchy of regions."""

from __future__ import annotations

from coco_opt.histograms.conversions import (
    cumulative_to_dense,
    cumulative_to_ranks,
    dense_to_cumulative,
    dense_to_ranks,
    ranks_to_cumulative,
    ranks_to_dense,
)
from coco_opt.histograms.counts import CountOfCounts
from coco_opt.histograms.distance import emd, emd_cumulative
from coco_opt.histograms.hierarchy import Hierarchy

__all__ = [
    "CountOfCounts",
    "Hierarchy",
    "cumulative_to_dense",
    "cumulative_to_ranks",
    "dense_to_cumulative",
    "dense_to_ranks",
    "emd",
    "emd_cumulative",
    "ranks_to_cumulative",
    "ranks_to_dense",
]
