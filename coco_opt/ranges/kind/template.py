"""A first configuration of a release of ranges, from the headers of the user's files, and the keys that ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coco_opt.privacy import Asked
from coco_opt.ranges.asked.values import CELLS, VALUES
from coco_opt.releases.kind import Draft

_OTHERS = {"region_id", "group_id", "entity_id"}  # columns that tables of other kinds begin with
_SECTION = """\
[ranges]
cells = 100                   # asked: public number of cells 0, 1, ..., chosen without looking at the private table
# edges = [0, 18, 30, 65, 120]     # asked, in place of cells: each holds the values from one to below the next
fan_out = "auto"              # asked: children of an interval, or "cells" for no tree
outside = "refuse"            # asked: refuse | clamp, for values outside the domain
estimator = "nonnegative"     # estimated, and free to change: noisy | consistent | nonnegative | zeroed

[solvers]                     # the default is the fast exact one; see  coco-opt solvers
# tree_l2 = "piqp"
"""


def file_key_of(columns: Sequence[str]) -> str | None:
    """Return the key of [data] that a file with these columns would fill."""
    fits = any(set(known.required) <= set(columns) for known in (VALUES, CELLS))
    return "values" if fits and not _OTHERS & set(columns[:1]) else None


def draft_of(files: Mapping[str, Sequence[str]]) -> Draft:
    """Return a configuration of private values."""
    columns = files.get("values", VALUES.required)
    cells = set(CELLS.required) <= set(columns)
    note = "cell, count, one row a cell: private" if cells else "value, one row an entity: private"
    replaced = "an entity's value may change while their number is public"
    return Draft({"values": note}, _SECTION, replaced, "check cells and epsilon")


def asked_keys(asked: Asked) -> dict[str, Any]:
    """Return the keys of [ranges] that ask what a measurement answers."""
    facts = asked.facts
    domain = {"cells": facts["cells"]} if facts["edges"] is None else {"edges": facts["edges"]}
    return {**domain, "fan_out": facts["fan_out"] or "cells", "outside": facts["outside"]}
