"""A first configuration of a release of ranges, from the headers of the user's files, and the keys of its plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coco_opt.privacy import MeasurementPlan
from coco_opt.ranges.measuring.values import CELLS, VALUES
from coco_opt.releases.kind import Draft

_OTHERS = {"region_id", "group_id", "entity_id"}  # columns that tables of other kinds begin with
_SECTION = """\
[ranges]
cells = 100                   # measured: public number of cells 0, 1, ..., chosen without looking at the private table
# edges = [0, 18, 30, 65, 120]     # measured, in place of cells: each holds the values from one to below the next
fan_out = "auto"              # measured: children of an interval; auto | optimised | a number | cells, for no tree
outside = "refuse"            # measured: refuse | clamp, for values outside the domain
estimator = "nonnegative"     # estimated, and free to change: noisy | consistent | nonnegative | zeroed

[solvers]                     # the default is the fast exact one; see  coco-opt solvers
# tree_l2 = "piqp"
"""


def file_key_of(columns: Sequence[str]) -> str | None:
    """Return the key of [data] that a file with these columns would fill."""
    fits = any(set(table.required) <= set(columns) for table in (VALUES, CELLS))
    return "values" if fits and not _OTHERS & set(columns[:1]) else None


def draft_of(files: Mapping[str, Sequence[str]]) -> Draft:
    """Return a configuration of private values."""
    columns = files.get("values", VALUES.required)
    cells = set(CELLS.required) <= set(columns)
    note = "cell, count, one row a cell: private" if cells else "value, one row an entity: private"
    replaced = "an entity's value may change while their number is public"
    return Draft({"values": note}, _SECTION, replaced, "check cells and epsilon")


def query_keys(measurement_plan: MeasurementPlan) -> dict[str, Any]:
    """Return the keys of [ranges] that plan what a measurement answers."""
    parameters = measurement_plan.parameters
    domain = {"cells": parameters["cells"]} if parameters["edges"] is None else {"edges": parameters["edges"]}
    shares = {} if "shares" not in parameters else {"shares": parameters["shares"]}
    return {**domain, "fan_out": parameters["fan_out"] or "cells", **shares, "outside": parameters["outside"]}
