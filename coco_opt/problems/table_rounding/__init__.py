"""Controlled rounding of the tables of all children of a region."""

from __future__ import annotations

from coco_opt.problems.table_rounding.data import RoundingData
from coco_opt.problems.table_rounding.problem import TableRounding
from coco_opt.problems.table_rounding.rows import NEAR_INTEGER, RoundingDual

__all__ = ["NEAR_INTEGER", "RoundingData", "RoundingDual", "TableRounding"]
