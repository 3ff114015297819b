"""A table of kinds with one row, found through the entry points of this package."""

from __future__ import annotations

from coco_opt.kinds import KindRow

KINDS = (KindRow("totals", "totals", "toy_totals.kind:TOTALS", "the number of persons in every region"),)
