"""Differentially private hierarchical group sizes (Kuo et al. 2018): estimators, matching, merging, consistency."""

from __future__ import annotations

from coco_opt.groups.estimates import SizeEstimate
from coco_opt.groups.estimators import FitOptions, estimate
from coco_opt.groups.release import GroupsMethod, GroupsResult, estimate_groups

__all__ = ["FitOptions", "GroupsMethod", "GroupsResult", "SizeEstimate", "estimate", "estimate_groups"]
