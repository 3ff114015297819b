"""The ranges kind's parts of the configuration: its keys of ``[data]``, and the section ``[ranges]``."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, get_args

import numpy as np
from pydantic import Field, PlainValidator, model_validator

from coco_opt.config.sections import AUTO, DataSection, Section, TableInput
from coco_opt.config.values import KeyedError, choice, estimator_name, exact
from coco_opt.errors import ProblemError
from coco_opt.files.columns import Columns
from coco_opt.ranges.domain import levels_of
from coco_opt.ranges.estimating.posterior.sampler import LEAST_DRAWS, posterior_seconds
from coco_opt.ranges.estimating.posterior.sampler import MAX_CELLS as LARGEST_DRAWN
from coco_opt.ranges.estimating.universal import Estimator
from coco_opt.ranges.interval_counts import Outside
from coco_opt.ranges.measuring.values import CELLS, VALUES
from coco_opt.ranges.workload import NAMED, Named, Workload

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
