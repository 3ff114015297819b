"""The ranges kind's parts of the configuration: its keys of ``[data]``, and the section ``[ranges]``.

A first configuration of a release of ranges, from the headers of the user's files, and the keys of its plan.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, get_args

import numpy as np
from pydantic import Field, PlainValidator, model_validator

from coco_opt.config.sections import AUTO, DataSection, Section, TableInput
from coco_opt.config.values import KeyedError, choice, estimator_name, exact
from coco_opt.errors import InputError, ProblemError
from coco_opt.files.inputs import Columns
from coco_opt.privacy import MeasurementPlan
from coco_opt.ranges.domain import levels_of
from coco_opt.ranges.estimating.posterior.sampler import LEAST_DRAWS, posterior_seconds
from coco_opt.ranges.estimating.posterior.sampler import MAX_CELLS as LARGEST_DRAWN
from coco_opt.ranges.estimating.universal import Estimator
from coco_opt.ranges.interval_counts import Outside
from coco_opt.ranges.measuring.values import CELLS, VALUES
from coco_opt.ranges.workload import NAMED, Named, Workload
from coco_opt.releases.kind import ColumnNotes, Draft

Chosen = Literal["auto", "optimised"]
"""Values of `fan_out` that leave the tree to be chosen, from public numbers."""
CHOSEN: tuple[Chosen, ...] = get_args(Chosen)
FanOut = Chosen | Literal["cells"]
Pairs = tuple[tuple[int, int], ...]

MAX_CELLS = 2**24
_LARGEST_EDGE = 10**18


def _fan_out(value: object) -> int | FanOut | tuple[int, ...]:
    if value == "auto" or value == "optimised" or value == "cells":
        return value
    if _is_fan_out(value):
        return int(value)  # type: ignore[call-overload, no-any-return]
    if isinstance(value, (list, tuple)) and value and all(map(_is_fan_out, value)):
        return tuple(value)
    words = (
        '"auto", "optimised", "cells" (no tree), an integer of at least 2, or a list of them, the widest level first'
    )
    raise ValueError(f"must be {words}")


def _is_fan_out(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 2 <= value <= MAX_CELLS


def _shares(value: object) -> tuple[Fraction, ...]:
    if not isinstance(value, (list, tuple)) or not value:
        raise ValueError("must be a list with one share a level of the tree, the whole domain first")
    shares = tuple(exact(share) for share in value)
    if sum(shares) != 1 or min(shares) == 0:
        raise ValueError(f"must be above 0 and sum to 1, not to {sum(shares)}")
    return shares


def _workload(value: object) -> Named | Pairs:
    if value == "ranges" or value == "prefixes":
        return value
    message = f"must be {', '.join(NAMED)}, or a list of ranges such as [[0, 7], [7, 14]], each from one value to below"
    if not isinstance(value, (list, tuple)) or not value:
        raise ValueError(message)
    pairs = tuple(tuple(pair) if isinstance(pair, (list, tuple)) else () for pair in value)
    if any(len(pair) != 2 or {type(end) for end in pair} != {int} or pair[0] >= pair[1] for pair in pairs):
        raise ValueError(message)
    return pairs


def _edges(value: object) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)) or len(value) < 2:
        raise ValueError("must be a list of at least 2 integers: a cell holds the values from one to below the next")
    edges = tuple(edge for edge in value if isinstance(edge, int) and not isinstance(edge, bool))
    if len(edges) < len(value) or any(abs(edge) > _LARGEST_EDGE for edge in edges):
        raise ValueError("must hold integers between -10^18 and 10^18")
    if any(low >= high for low, high in pairwise(edges)):
        raise ValueError("must rise: each above the one before")
    return edges


class RangesData(DataSection):
    """Where the private values lie: one row an entity with its value, or one a cell with its count."""

    hidden: ClassVar[tuple[str, ...]] = ("values",)
    tables: ClassVar[tuple[Columns, ...]] = (VALUES, CELLS)

    values: TableInput
    """One row an entity with its value, or columns cell and count. Private."""


class RangesSection(Section):
    """What is measured (the public domain, ``fan_out``, ``outside``) and how it is estimated (``estimator``, free)."""

    cells: Annotated[int, Field(ge=1, le=MAX_CELLS)] | None = None
    """Measured: the number of cells 0, 1, ... of the public domain."""
    edges: Annotated[tuple[int, ...], PlainValidator(_edges)] | None = None
    """Measured, in place of `cells`: a cell holds the values from one edge to below the next."""
    outside: Annotated[Outside, choice(Outside)] = "refuse"
    """Measured: what becomes of values outside the domain."""
    fan_out: Annotated[int | FanOut | tuple[int, ...], PlainValidator(_fan_out)] = "auto"
    """Measured: children an interval of the tree has, or a list, a number for each level; "auto" chooses a number from
    public numbers, "optimised" a list with `shares` for the least error of `workload`; "cells" measures no tree."""
    shares: Annotated[tuple[Fraction, ...], PlainValidator(_shares)] | None = None
    """Measured: the share of the budget of every level of the tree, the whole domain first; equal unless given."""
    workload: Annotated[Named | Pairs, PlainValidator(_workload)] | None = None
    """Whose expected squared error `plan` states and "optimised" minimises: all "ranges", which is the default, all
    "prefixes", or a list of ranges [low, high], each of the values low to high - 1."""
    estimator: Annotated[str, estimator_name("ranges", AUTO)] = "nonnegative"
    """How the answers are made consistent; "posterior" gives integers, and intervals of any range; "auto" takes it
    where it is fast enough for [auto] time, and "nonnegative" else."""
    fractions: bool = False
    """Whether counts may be fractions, as least squares gives them; else they are rounded, and no range moves by more
    than 1."""
    intervals: Annotated[float | None, Field(ge=0.0, lt=1.0)] = None
    """"posterior" only: the coverage of intervals.parquet, 0 for none; unset: 0.9."""
    draws: Annotated[int | None, Field(ge=0, le=LEAST_DRAWS)] = None
    """"posterior" only: how many draws of all cells' counts are published, in draws.parquet; unset: 0."""

    @model_validator(mode="after")
    def _one_domain(self) -> RangesSection:
        if (self.cells is None) == (self.edges is None):
            message = "is required, the number of cells 0, 1, ... of the public domain, or edges instead"
            raise KeyedError("cells", message if self.cells is None else "give either cells or edges, not both")
        return self

    @model_validator(mode="after")
    def _one_tree(self) -> RangesSection:
        if isinstance(self.fan_out, str):
            if self.shares is not None:
                raise KeyedError("shares", f'are of a tree that is given: remove them, or fan_out = "{self.fan_out}"')
            return self
        try:
            levels = len(levels_of(self.size, self.fan_out)[1])
        except ProblemError as error:
            raise KeyedError("fan_out", str(error)) from None
        if self.shares is not None and len(self.shares) != levels:
            raise KeyedError("shares", f"the tree has {levels} levels, so give {levels} shares")
        return self

    @model_validator(mode="after")
    def _from_draws(self) -> RangesSection:
        for name in ("intervals", "draws"):
            if getattr(self, name) and self.estimator not in ("posterior", "auto"):
                raise KeyedError(name, 'only estimator = "posterior" gives them: leave this out, or 0')
        return self

    @model_validator(mode="after")
    def _few_enough(self) -> RangesSection:
        if self.estimator == "posterior" and self.size > LARGEST_DRAWN:
            raise KeyedError("estimator", f"the posterior is for up to {LARGEST_DRAWN:,} cells: choose another")
        return self

    @model_validator(mode="after")
    def _answerable(self) -> RangesSection:
        if isinstance(self.workload, tuple):
            ends, edges = np.array(self.workload), np.arange(self.size + 1) if self.edges is None else self.edges
            if not np.isin(ends, edges).all():
                wrong = self.workload[int(np.argmin(np.isin(ends, edges).all(axis=1)))]
                raise KeyedError("workload", f"{list(wrong)} does not begin and end at edges of cells")
        return self

    def resolved(self, seconds: float) -> Estimator:
        """Return the estimator; an automatic one may take so many seconds."""
        if self.estimator != "auto":
            return self.estimator
        fits = self.size <= LARGEST_DRAWN and posterior_seconds(self.size) <= seconds
        return "posterior" if fits else "nonnegative"

    @property
    def size(self) -> int:
        """Return the number of cells of the public domain."""
        return len(self.edges) - 1 if self.edges is not None else self.cells or 0

    @property
    def ranges(self) -> Workload:
        """Return the workload, in cells."""
        if not isinstance(self.workload, tuple):
            return Workload.of(self.size, self.workload or "ranges")
        ends = np.array(self.workload)
        places = ends if self.edges is None else np.searchsorted(self.edges, ends)
        return Workload.of(self.size, (places[:, 0], places[:, 1]))


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
        message = (
            "--ranges: a domain ends and has no gaps: write ranges such as 0..729, or 0..17,18..64,65..120. For values "
            'beyond its ends, outside = "clamp" in the config counts them in the cells there'
        )
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
