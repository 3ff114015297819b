"""Joint estimation of the cumulative tables of a whole hierarchy."""

from __future__ import annotations

from coco_opt.problems.joint.problem import JointFit, JointL1, JointL2

__all__ = ["JointFit", "JointL1", "JointL2"]
