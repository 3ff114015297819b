"""Joint estimation of the cumulative tables of a whole hierarchy from sums over buckets of sizes."""

from __future__ import annotations

from coco_opt.problems.joint_sums.losses import JointSumsL1, JointSumsL2
from coco_opt.problems.joint_sums.problem import JointSums

__all__ = ["JointSums", "JointSumsL1", "JointSumsL2"]
