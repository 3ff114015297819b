"""Generalised least squares over the whole hierarchy: all that was measured, and all constraints, in every estimate."""

from __future__ import annotations

from coco_opt.topdown.estimating.linear.information.full import (
    FullInformation,
    full_information,
    joint_cells,
    kinds_of,
)

__all__ = ["FullInformation", "full_information", "joint_cells", "kinds_of"]
