"""Differentially private hierarchical group sizes (Kuo et al. 2018): estimators, matching, merging, consistency.

``asked`` runs before the noise: reading and counting, ``measure_hierarchy``, and choosing a method on private data.
``estimated`` runs after it: post-processing of sealed measurements, and what experiments on made data compare it with.
``kind`` makes both a kind of release.
"""

from __future__ import annotations

from coco_opt.groups.answers import GroupsAnswers, RegionAnswer
from coco_opt.groups.asked.measure import measure_hierarchy
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimated.estimate import GroupsResult, estimate_groups
from coco_opt.groups.estimated.method import GroupsMethod
from coco_opt.groups.queries import QUERIES, Query, exact_answers, sensitivity

__all__ = [
    "QUERIES",
    "Buckets",
    "GroupsAnswers",
    "GroupsMethod",
    "GroupsResult",
    "Query",
    "RegionAnswer",
    "estimate_groups",
    "exact_answers",
    "measure_hierarchy",
    "sensitivity",
]
