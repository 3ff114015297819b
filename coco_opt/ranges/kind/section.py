"""The ranges kind's parts of the configuration: its keys of ``[data]``, and the section ``[ranges]``."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PlainValidator, model_validator

from coco_opt.config.sections import DataSection, Section, TableInput
from coco_opt.config.values import KeyedError, choice
from coco_opt.files.columns import Columns
from coco_opt.ranges.estimating.universal import Estimator
from coco_opt.ranges.interval_counts import Outside
from coco_opt.ranges.measuring.values import CELLS, VALUES

FanOut = Literal["auto", "cells"]

MAX_CELLS = 2**24
_LARGEST_EDGE = 10**18


def _fan_out(value: object) -> int | FanOut:
    if value == "auto" or value == "cells":
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 2 <= value <= MAX_CELLS:
        return value
    raise ValueError('must be "auto", "cells" (no tree), or an integer of at least 2')


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
    fan_out: Annotated[int | FanOut, PlainValidator(_fan_out)] = "auto"
    """Measured: children an interval of the tree has; "auto" chooses from public numbers, "cells" measures no tree."""
    estimator: Annotated[Estimator, choice(Estimator)] = "nonnegative"
    """How the answers are made consistent."""

    @model_validator(mode="after")
    def _one_domain(self) -> RangesSection:
        if (self.cells is None) == (self.edges is None):
            message = "is required, the number of cells 0, 1, ... of the public domain, or edges instead"
            raise KeyedError("cells", message if self.cells is None else "give either cells or edges, not both")
        return self

    @property
    def size(self) -> int:
        """Return the number of cells of the public domain."""
        return len(self.edges) - 1 if self.edges is not None else self.cells or 0
