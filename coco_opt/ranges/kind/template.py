"""A first configuration of a release of ranges, from the headers of the user's files, and the keys of its plan."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from coco_opt.errors import InputError
from coco_opt.privacy import MeasurementPlan
from coco_opt.ranges.measuring.values import CELLS, VALUES
from coco_opt.releases.kind import ColumnNotes, Draft

_OTHERS = {"region_id", "group_id", "entity_id"}  # columns that tables of other kinds begin with
_SECTION = """\
[ranges]
{domain}
fan_out = "auto"              # measured: children of an interval; auto | optimised | a number | cells, for no tree
outside = "refuse"            # measured: refuse | clamp, for values outside the domain
estimator = "nonnegative"     # estimated, free to change: auto | posterior | nonnegative | consistent | zeroed | noisy

[solvers]                     # the default is the fast exact one; see  coco-opt solvers
# tree_l2 = "piqp"
"""


_CELLS = "# measured: public number of cells 0, 1, ..., chosen without looking at the private table"
_EDGES = "# measured: a cell holds the values from one to below the next; chosen without looking at the private table"
_BOTH = f"""\
{"cells = 100":<29} {_CELLS}
# edges = [0, 18, 30, 65, 120]     # measured, in place of cells: each holds the values from one to below the next"""
_SPAN = re.compile(r"(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})")
_MOST_EDGES = 1000


def file_key_of(columns: Sequence[str]) -> str | None:
    """Return the key of [data] that a file with these columns would fill."""
    fits = any(set(table.required) <= set(columns) for table in (VALUES, CELLS))
    return "values" if fits and not _OTHERS & set(columns[:1]) else None


def draft_of(files: Mapping[str, Sequence[str]], notes: ColumnNotes | None = None) -> Draft:
    """Return a configuration of private values; InputError bad-option for ranges that are no domain."""
    columns = files.get("values", ())
    cells = set(CELLS.required) <= set(columns)
    note = "cell, count, one row a cell: private" if cells else "value, one row an entity: private"
    if not columns:
        note = "value, one row an entity, or cell, count: private"
    replaced = "an entity's value may change while their number is public"
    ranges = () if notes is None else tuple(notes.values.get("value", ()))
    section = _SECTION.format(domain=_domain(ranges) if ranges else _BOTH)
    left = "check epsilon" if ranges else "check cells and epsilon"
    return Draft({"values": note}, section, replaced, left, ranged=() if cells else ("value",))


def _domain(ranges: Sequence[str]) -> str:
    """Return the line of the domain: a range from 0 counts every integer, several are one cell each."""
    spans = [_SPAN.fullmatch(text) for text in ranges]
    ends = [(int(span[1]), int(span[2])) for span in spans if span is not None]
    rising = all(low <= high for low, high in ends)
    if len(ends) < len(ranges) or not rising or any(high + 1 != low for (_, high), (low, _) in pairwise(ends)):
        message = "--ranges: a domain ends and has no gaps: write ranges such as 0..729, or 0..17,18..64,65..120"
        raise InputError("bad-option", message)
    (first, last), edges = (ends[0][0], ends[-1][1]), [low for low, _ in ends]
    if len(ends) == 1:
        if first == 0:
            return f"{f'cells = {last + 1}':<29} {_CELLS}"
        edges = list(range(first, min(last, first + _MOST_EDGES) + 1))
    if len(edges) > _MOST_EDGES:
        raise InputError("bad-option", f"--ranges: give at most {_MOST_EDGES:,} ranges, or one that begins at 0")
    return f"edges = {[*edges, last + 1]}   {_EDGES}"


def query_keys(measurement_plan: MeasurementPlan) -> dict[str, Any]:
    """Return the keys of [ranges] that plan what a measurement answers."""
    parameters = measurement_plan.parameters
    domain = {"cells": parameters["cells"]} if parameters["edges"] is None else {"edges": parameters["edges"]}
    shares = {} if "shares" not in parameters else {"shares": parameters["shares"]}
    return {**domain, "fan_out": parameters["fan_out"] or "cells", **shares, "outside": parameters["outside"]}
