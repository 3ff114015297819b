"""Count-of-counts histograms as runs, their distance, and the hierarchy of regions."""

from __future__ import annotations

from coco_opt.histograms.counts import CountOfCounts, emd, emd_cumulative, errors_by_level, histograms_of, sum_of_leaves
from coco_opt.histograms.hierarchy import Hierarchy

__all__ = ["CountOfCounts", "Hierarchy", "emd", "emd_cumulative", "errors_by_level", "histograms_of", "sum_of_leaves"]
