"""What must hold exactly: answers declared public, bounds from public tables, and what they imply for regions above."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from coco_opt.errors import InputError, ProblemError
from coco_opt.histograms.arrays import Int64Array, as_int64
from coco_opt.histograms.hierarchy import Hierarchy
from coco_opt.operators import Operator, stack
from coco_opt.topdown.bounds import UNBOUNDED, Sides, close, selected
from coco_opt.topdown.queries import Query
from coco_opt.topdown.schema import Schema

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class Invariant:
    """Declare that a query's true answers in every region of a level are public and must hold exactly.

    Regions above get the sums; regions below are bound through their parents' sums only.
    """

    query: Query
    level: int


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class RegionBounds:
    """Public bounds lower <= answers <= upper of a query in every region of a level, int64[regions, answers].

    ``UNBOUNDED`` (or anything from 2^40 on) is no upper bound, 0 no lower one, for counts are nonnegative. Raises
    InputError (bad-shape, not-integer, too-large) and where a lower bound is above its upper (inconsistent-bounds).
    """

    query: Query
    level: int
    lower: Int64Array
    upper: Int64Array

    def __post_init__(self) -> None:
        lower = np.maximum(as_int64(self.lower, "lower bounds", ndim=2), 0)
        upper = as_int64(self.upper, "upper bounds", ndim=2)
        if lower.shape != upper.shape or lower.shape[1] != self.query.answers:
            raise InputError("bad-shape", f"bounds of {self.query.name!r} are regions x {self.query.answers} answers")
        if lower.size and int(lower.max()) >= LARGEST:
            raise InputError("too-large", f"a lower bound of {self.query.name!r} is not below 2^40")
        upper = np.where(upper >= LARGEST, UNBOUNDED, upper)
        for name, array in (("lower", lower), ("upper", upper)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __reduce__(self) -> tuple[Callable[..., RegionBounds], tuple[Any, ...]]:
        # Unpickled arrays are writable: going through the constructor makes them read-only again.
        return RegionBounds, (self.query, self.level, self.lower, self.upper)

    @classmethod
    def exact(cls, query: Query, level: int, answers: npt.ArrayLike) -> RegionBounds:
        """Return bounds that leave one value: an invariant's answers."""
        values = as_int64(answers, "answers", ndim=2)
        if values.size and not 0 <= int(values.min()) <= int(values.max()) < LARGEST:
            raise InputError("too-large", f"exact answers of {query.name!r} must be from 0 to below 2^40")
        return cls(query, level, values, values)

    def __repr__(self) -> str:
        return f"RegionBounds({self.query.name!r} at level {self.level})"


LARGEST = 2**40


@dataclass(frozen=True, eq=False, slots=True)
class Constraints:
    """lower <= operator x <= upper for some regions: one operator for all, int64[regions, rows] on both sides.

    Rows are equalities where both sides are equal; ``UNBOUNDED`` is no upper bound. ``labels`` [rows] say what a row
    counts, ``query: answer``, for messages.
    """

    operator: Operator
    lower: Int64Array
    upper: Int64Array
    labels: tuple[str, ...]

    @property
    def float_upper(self) -> Floats:
        """Return the upper side with infinity for no bound."""
        out: Floats = np.where(self.upper >= UNBOUNDED, np.inf, self.upper.astype(np.float64))
        return out

    def broken_by(self, tables: Int64Array) -> npt.NDArray[np.bool_]:
        """Return which rows whole tables int64[regions, cells] break, bool[regions, rows]."""
        answers = self.operator.apply(tables)
        out: npt.NDArray[np.bool_] = (answers < self.lower) | (answers > self.upper)
        return out


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Invariants:
    """All public facts about the tables of a hierarchy, closed under sums; ``declared`` those taken from the data.

    Raises ProblemError for a level or shape that does not fit, InputError (inconsistent-bounds) naming region and query
    where no table can satisfy them. O(regions x answers x queries).
    """

    hierarchy: Hierarchy
    schema: Schema
    bounds: tuple[RegionBounds, ...] = ()
    declared: tuple[Invariant, ...] = ()
    queries: tuple[Query, ...] = field(init=False)
    _levels: tuple[Constraints | None, ...] = field(init=False)

    def __post_init__(self) -> None:
        bounds = tuple(self.bounds)
        queries: dict[str, Query] = {}
        for one in bounds:
            _check_fit(one, self.hierarchy, self.schema)
            known = queries.setdefault(one.query.text, one.query)
            if known.answers != one.query.answers:
                raise ProblemError(f"two different queries read {one.query.text!r}")
        own: dict[tuple[int, str], tuple[Int64Array, Int64Array]] = {}
        for one in bounds:
            key = (one.level, one.query.text)
            lower, upper = own.get(key, (one.lower, one.upper))
            own[key] = (np.maximum(lower, one.lower), np.minimum(upper, one.upper))
        closed = close(self.hierarchy, tuple(queries.values()), own)
        levels = tuple(_constraints(tuple(queries.values()), sides) for sides in closed)
        for name, value in (
            ("bounds", bounds),
            ("declared", tuple(self.declared)),
            ("queries", tuple(queries.values())),
            ("_levels", levels),
        ):
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Callable[..., Invariants], tuple[Any, ...]]:
        return Invariants, (self.hierarchy, self.schema, self.bounds, self.declared)

    def __bool__(self) -> bool:
        return bool(self.bounds)

    def constraints_of(self, regions: range) -> Constraints | None:
        """Return what consecutive regions of one level must satisfy, or None where nothing is known of the level.

        Rows that bind no region of the level are left out, so that all its regions share one operator.
        """
        level = int(self.hierarchy.level[regions.start])
        whole = self.hierarchy.level_range(level)
        if not len(regions) or regions.step != 1 or regions.stop > whole.stop:
            raise ProblemError("constraints are asked for one or more consecutive regions of one level")
        found = self._levels[level]
        if found is None:
            return None
        here = slice(regions.start - whole.start, regions.stop - whole.start)
        return Constraints(found.operator, found.lower[here], found.upper[here], found.labels)

    def __repr__(self) -> str:
        facts = ", ".join(f"{one.query.name} at level {one.level}" for one in self.bounds) or "nothing"
        return f"Invariants({facts})"


def _constraints(queries: Sequence[Query], sides: Sequence[Sides]) -> Constraints | None:
    """Return the rows of a level that bind some region, for all its regions."""
    operators, lowers, uppers, labels = [], [], [], []
    for query, (lower, upper) in zip(queries, sides, strict=True):
        operator, rows = selected(query.operator, np.flatnonzero((lower > 0).any(0) | (upper < UNBOUNDED).any(0)))
        if rows.size:
            operators.append(operator)
            lowers.append(lower[:, rows])
            uppers.append(upper[:, rows])
            named = query.labels()
            labels += [f"{query.name}: {named[row]}" for row in rows.tolist()]
    if not operators:
        return None
    whole = Constraints(stack(operators), np.hstack(lowers), np.hstack(uppers), tuple(labels))
    whole.lower.setflags(write=False)
    whole.upper.setflags(write=False)
    return whole


def _check_fit(one: RegionBounds, hierarchy: Hierarchy, schema: Schema) -> None:
    if not 0 <= one.level < hierarchy.levels:
        raise ProblemError(f"bounds of {one.query.name!r}: there is no level {one.level}")
    if one.query.operator.cells != schema.size:
        raise ProblemError(f"bounds of {one.query.name!r}: the query is over another schema")
    if len(one.lower) != len(hierarchy.level_range(one.level)):
        raise ProblemError(f"bounds of {one.query.name!r}: level {one.level} has another number of regions")
    empty = np.flatnonzero(one.query.operator.apply(np.ones(schema.size)) == 0)
    broken = empty[(one.lower[:, empty] > 0).any(axis=0)]
    if broken.size:
        answer = f"{one.query.name!r} ({one.query.label(int(broken[0]))})"
        message = f"bounds of {answer}: the structural zeros leave it no cell, so its lower bound must be 0"
        raise InputError("inconsistent-bounds", message)
