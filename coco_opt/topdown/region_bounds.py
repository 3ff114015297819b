"""Public bounds on a query's answers in every region of a level."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from coco_opt.array_types import Ints
from coco_opt.errors import InputError
from coco_opt.execution.temporary_storage import stored_by_parts
from coco_opt.histograms.arrays import as_int64
from coco_opt.topdown.bounds import UNBOUNDED
from coco_opt.topdown.constraint import Source
from coco_opt.topdown.queries import Query

LARGEST = 2**40
"""What no number of persons reaches."""


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class RegionBounds:
    """Public bounds lower <= answers <= upper of a query in every region of a level, int64[regions, answers].

    ``UNBOUNDED`` (or anything from 2^40 on) is no upper bound, 0 no lower one, for counts are nonnegative. ``source``
    says where the bounds come from. Large arrays lie in a file. Raises InputError (bad-shape, not-integer, too-large)
    and where a lower bound is above its upper (inconsistent-bounds).
    """

    query: Query
    level: int
    lower: Ints
    upper: Ints
    source: Source = "public"

    def __post_init__(self) -> None:
        lower = as_int64(self.lower, "lower bounds", ndim=2)
        upper = as_int64(self.upper, "upper bounds", ndim=2)
        if lower.shape != upper.shape or lower.shape[1] != self.query.answers:
            raise InputError("bad-shape", f"bounds of {self.query.name!r} are regions x {self.query.answers} answers")
        if lower.size and int(lower.max()) >= LARGEST:
            raise InputError("too-large", f"a lower bound of {self.query.name!r} is not below 2^40")
        kind = np.dtype(np.int64)
        stored = {
            "lower": stored_by_parts(lower.shape, kind, lambda some: np.maximum(lower[some], 0)),
            "upper": stored_by_parts(upper.shape, kind, lambda some: _with_unbounded(upper[some])),
        }
        for name, array in stored.items():
            object.__setattr__(self, name, array)

    def __reduce__(self) -> tuple[Callable[..., RegionBounds], tuple[Any, ...]]:
        # Unpickled arrays are writable: going through the constructor makes them read-only again.
        return RegionBounds, (self.query, self.level, self.lower, self.upper, self.source)

    @classmethod
    def exact(cls, query: Query, level: int, answers: npt.ArrayLike) -> RegionBounds:
        """Return bounds that leave one value: an invariant's answers."""
        values = as_int64(answers, "answers", ndim=2)
        if values.size and not 0 <= int(values.min()) <= int(values.max()) < LARGEST:
            raise InputError("too-large", f"exact answers of {query.name!r} must be from 0 to below 2^40")
        return cls(query, level, values, values, "data")

    def __repr__(self) -> str:
        return f"RegionBounds({self.query.name!r} at level {self.level})"


def _with_unbounded(upper: Ints) -> Ints:
    return np.where(upper >= LARGEST, UNBOUNDED, upper)
