"""Unattributed and universal histograms (Hay et al. 2010): sorted counts, and counts of any range of a domain."""

from __future__ import annotations

from coco_opt.ranges.domain import DomainTree
from coco_opt.ranges.estimating.universal import (
    RangeIntervals,
    RangeMeasurements,
    UniversalHistogram,
    round_nonnegative,
    zero_subtrees,
)
from coco_opt.ranges.interval_counts import IntervalCounts
from coco_opt.ranges.measuring.measure import measure_ranges, measure_sorted
from coco_opt.ranges.strategy import OptimisedTree, PredictedError, choose_fan_out, optimised_tree, predict_errors
from coco_opt.ranges.workload import Workload, over_bound

__all__ = [
    "DomainTree",
    "IntervalCounts",
    "OptimisedTree",
    "PredictedError",
    "RangeIntervals",
    "RangeMeasurements",
    "UniversalHistogram",
    "Workload",
    "choose_fan_out",
    "measure_ranges",
    "measure_sorted",
    "optimised_tree",
    "over_bound",
    "predict_errors",
    "round_nonnegative",
    "zero_subtrees",
]
