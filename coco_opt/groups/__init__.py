"""Differentially private hierarchical group sizes (Kuo et al. 2018): estimators, matching, merging, consistency.

``measuring`` runs before the noise: it reads and counts, measures a hierarchy (``measure_hierarchy``), and chooses a
method on private data. ``estimating`` runs after the noise: it post-processes sealed measurements, and holds the
baselines that experiments on simulated data use. ``kind`` makes both a kind of release.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from coco_opt.lazy_names import lazy_names

if TYPE_CHECKING:
    from coco_opt.groups.buckets import Buckets as Buckets
    from coco_opt.groups.estimating.estimate import GroupsResult as GroupsResult
    from coco_opt.groups.estimating.estimate import estimate_groups as estimate_groups
    from coco_opt.groups.estimating.method import GroupsMethod as GroupsMethod
    from coco_opt.groups.measuring.measure import measure_hierarchy as measure_hierarchy
    from coco_opt.groups.noisy_measurements import GroupsMeasurements as GroupsMeasurements
    from coco_opt.groups.noisy_measurements import RegionMeasurement as RegionMeasurement
    from coco_opt.groups.queries import QUERIES as QUERIES
    from coco_opt.groups.queries import Query as Query
    from coco_opt.groups.queries import exact_answers as exact_answers
    from coco_opt.groups.queries import sensitivity as sensitivity

_NAMES = {
    "buckets": ("Buckets",),
    "estimating.estimate": ("GroupsResult", "estimate_groups"),
    "estimating.method": ("GroupsMethod",),
    "measuring.measure": ("measure_hierarchy",),
    "noisy_measurements": ("GroupsMeasurements", "RegionMeasurement"),
    "queries": ("QUERIES", "Query", "exact_answers", "sensitivity"),
}
__all__ = list(chain(*_NAMES.values()))
__getattr__ = lazy_names("coco_opt.groups", _NAMES)
