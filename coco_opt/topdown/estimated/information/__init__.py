"""Generalised least squares over the whole hierarchy: all that was measured, and all facts, in every estimate."""

from __future__ import annotations

from coco_opt.topdown.estimated.information.full import FullInformation, full_information, joint_cells

__all__ = ["FullInformation", "full_information", "joint_cells"]
