"""Controlled rounding of the tables of all children of a region."""

from __future__ import annotations

from coco_opt.problems.table_rounding.data import NEAR_INTEGER, RoundingData, RoundingDual
from coco_opt.problems.table_rounding.problem import TableRounding

__all__ = ["NEAR_INTEGER", "RoundingData", "RoundingDual", "TableRounding"]
