"""Unattributed and universal histograms (Hay et al. 2010): sorted counts, and counts of any range of a domain."""

from __future__ import annotations

from coco_opt.ranges.domain import DomainTree
from coco_opt.ranges.fan_out import PredictedError, choose_fan_out, predict_errors
from coco_opt.ranges.heuristics import round_nonnegative, zero_subtrees
from coco_opt.ranges.measurement import RangeMeasurement, measure_ranges
from coco_opt.ranges.unattributed import SortedMeasurement, measure_sorted
from coco_opt.ranges.universal import RangeAnswers, UniversalHistogram

__all__ = [
    "DomainTree",
    "PredictedError",
    "RangeAnswers",
    "RangeMeasurement",
    "SortedMeasurement",
    "UniversalHistogram",
    "choose_fan_out",
    "measure_ranges",
    "measure_sorted",
    "predict_errors",
    "round_nonnegative",
    "zero_subtrees",
]
