"""Differentially private hierarchical group sizes (Kuo et al. 2018): estimators, matching, merging, consistency.

Before the wall, for they read private histograms or numbers of groups: ``noisy_min_selection`` and
``random_stopping_selection`` on ``PrivateGroups``, ``measure_group_counts`` and ``with_group_count``. For experiments
only, as they read the truth: ``omniscient``, ``compare_variances`` and ``errors_by_level``. All else is
post-processing of sealed measurements.
"""

from __future__ import annotations

from coco_opt.groups.baselines import (
    MeanConsistency,
    OmniscientError,
    clipped_naive,
    cumulative_distance,
    mean_consistency,
    omniscient,
)
from coco_opt.groups.bootstrap import bootstrap_variances, compare_variances, errors_by_level
from coco_opt.groups.convex import convex
from coco_opt.groups.estimates import SizeEstimate
from coco_opt.groups.estimators import FitOptions, estimate
from coco_opt.groups.group_counts import (
    GroupCountMeasurements,
    estimate_group_counts,
    measure_group_counts,
    with_group_count,
)
from coco_opt.groups.joint import joint
from coco_opt.groups.release import GroupsMethod, GroupsResult, estimate_groups
from coco_opt.groups.selection import (
    Candidate,
    PrivateGroups,
    Selection,
    noisy_min_selection,
    random_stopping_selection,
)

__all__ = [
    "Candidate",
    "FitOptions",
    "GroupCountMeasurements",
    "GroupsMethod",
    "GroupsResult",
    "MeanConsistency",
    "OmniscientError",
    "PrivateGroups",
    "Selection",
    "SizeEstimate",
    "bootstrap_variances",
    "clipped_naive",
    "compare_variances",
    "convex",
    "cumulative_distance",
    "errors_by_level",
    "estimate",
    "estimate_group_counts",
    "estimate_groups",
    "joint",
    "mean_consistency",
    "measure_group_counts",
    "noisy_min_selection",
    "omniscient",
    "random_stopping_selection",
    "with_group_count",
]
