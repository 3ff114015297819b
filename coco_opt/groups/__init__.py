"""Differentially private hierarchical group sizes (Kuo et al. 2018): estimators, matching, merging, consistency.

``measuring`` runs before the noise: it reads and counts, measures a hierarchy (``measure_hierarchy``), and chooses a
method on private data. ``estimating`` runs after the noise: it post-processes sealed measurements, and holds the
baselines that experiments on simulated data use. ``kind`` makes both a kind of release.
"""

from __future__ import annotations

from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimating.estimate import GroupsResult, estimate_groups
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.measuring.measure import measure_hierarchy
from coco_opt.groups.noisy_measurements import GroupsMeasurements, RegionMeasurement
from coco_opt.groups.queries import QUERIES, Query, exact_answers, sensitivity

__all__ = [
    "QUERIES",
    "Buckets",
    "GroupsMeasurements",
    "GroupsMethod",
    "GroupsResult",
    "Query",
    "RegionMeasurement",
    "estimate_groups",
    "exact_answers",
    "measure_hierarchy",
    "sensitivity",
]
