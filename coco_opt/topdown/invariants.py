"""What must hold exactly: answers declared public, bounds from public tables, and what they imply for regions above."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from coco_opt.errors import InputError, ProblemError
from coco_opt.histograms.arrays import Int64Array, as_int64
from coco_opt.histograms.hierarchy import Hierarchy
from coco_opt.operators import Operator, stack
from coco_opt.topdown.bounds import UNBOUNDED, Sides, close, selected, total_of
from coco_opt.topdown.constraint import LinearConstraint, Source
from coco_opt.topdown.facts.conflict import smallest_conflict
from coco_opt.topdown.facts.system import FactSystem, infinite
from coco_opt.topdown.matrix_operator import whole_matrix
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

    ``UNBOUNDED`` (or anything from 2^40 on) is no upper bound, 0 no lower one, for counts are nonnegative. ``source``
    says where the bounds come from. Raises InputError (bad-shape, not-integer, too-large) and where a lower bound is
    above its upper (inconsistent-bounds).
    """

    query: Query
    level: int
    lower: Int64Array
    upper: Int64Array
    source: Source = "public"

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


Stated = RegionBounds | LinearConstraint

LARGEST = 2**40
_SECONDS = 20.0  # that finding a smallest set for a message may take
_SHOWN = 12


@dataclass(frozen=True, eq=False, slots=True)
class Constraints:
    """lower <= operator x <= upper for some regions: one operator for all, int64[regions, rows] on both sides.

    Rows are equalities where both sides are equal; ``UNBOUNDED`` is no upper bound, and its negative no lower one.
    ``labels`` [rows] say what a row counts, ``query: answer`` or a constraint's text, for messages.
    """

    operator: Operator
    lower: Int64Array
    upper: Int64Array
    labels: tuple[str, ...]

    @property
    def float_upper(self) -> Floats:
        """Return the upper side with infinity for no bound."""
        return infinite(self.upper)

    @property
    def float_lower(self) -> Floats:
        """Return the lower side with minus infinity for no bound."""
        return infinite(self.lower)

    def broken_by(self, tables: Int64Array) -> npt.NDArray[np.bool_]:
        """Return which rows whole tables int64[regions, cells] break, bool[regions, rows]."""
        answers = self.operator.apply(tables)
        out: npt.NDArray[np.bool_] = (answers < self.lower) | (answers > self.upper)
        return out


@dataclass(frozen=True, eq=False, repr=False)
class Invariants:
    """All public facts about the tables of a hierarchy, closed under sums; ``declared`` those taken from the data.

    ``linear`` are constraints between answers. Raises ProblemError for a level or shape that does not fit, InputError
    (inconsistent-bounds) naming region and query, and a smallest set of facts that exclude each other, where sums of
    bounds leave no table. O(regions x answers x queries).
    """

    hierarchy: Hierarchy
    schema: Schema
    bounds: tuple[RegionBounds, ...] = ()
    declared: tuple[Invariant, ...] = ()
    linear: tuple[LinearConstraint, ...] = ()
    queries: tuple[Query, ...] = field(init=False)
    _levels: tuple[Constraints | None, ...] = field(init=False)

    def __post_init__(self) -> None:
        bounds, linear = tuple(self.bounds), tuple(self.linear)
        for constraint in linear:
            _check_sides(constraint, self.hierarchy)
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
        try:
            closed = close(self.hierarchy, tuple(queries.values()), own)
        except InputError as error:
            code, message = error.code, str(error)
        else:
            code = message = ""
        if code:
            raise InputError(code, message + _in_words(FactSystem.of(self.hierarchy, self.schema, bounds)))
        more = _closed_linear(self.hierarchy, self.schema, linear)
        levels = tuple(
            _constraints(tuple(queries.values()), sides, rows) for sides, rows in zip(closed, more, strict=True)
        )
        for name, value in (
            ("bounds", bounds),
            ("declared", tuple(self.declared)),
            ("linear", linear),
            ("queries", tuple(queries.values())),
            ("_levels", levels),
        ):
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Callable[..., Invariants], tuple[Any, ...]]:
        return Invariants, (self.hierarchy, self.schema, self.bounds, self.declared, self.linear)

    def __bool__(self) -> bool:
        return bool(self.bounds or self.linear)

    @property
    def stated(self) -> tuple[Stated, ...]:
        """Return all facts as they were stated."""
        return (*self.bounds, *self.linear)

    def but(self, source: Source) -> Invariants:
        """Return the facts that do not come from one source."""
        if all(one.source != source for one in self.stated):
            return self
        bounds = tuple(one for one in self.bounds if one.source != source)
        linear = tuple(one for one in self.linear if one.source != source)
        return Invariants(self.hierarchy, self.schema, bounds, self.declared, linear)

    @cached_property
    def system(self) -> FactSystem:
        """Return all stated facts over the leaves."""
        return FactSystem.of(self.hierarchy, self.schema, self.bounds, self.linear)

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
        facts = [f"{one.query.name} at level {one.level}" for one in self.bounds]
        facts += [f"{one.text} at level {one.level}" for one in self.linear]
        return f"Invariants({', '.join(facts) or 'nothing'})"


def _in_words(system: FactSystem) -> str:
    """Return a smallest set of facts that exclude each other as the end of a message, "" where none was found."""
    found = smallest_conflict(system, _SECONDS)
    if found is None:
        return ""
    words = [system.words(system.rows[at], region) for at, region in found.facts]
    more = f"; and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return f". These exclude each other: {'; '.join(words[:_SHOWN])}{more}"


@dataclass(frozen=True, eq=False, slots=True)
class _LinearRow:
    """A row of linear constraints on a level: coefficients int64[cells], sides int64[regions]."""

    row: Int64Array
    lower: Int64Array
    upper: Int64Array
    label: str


def _closed_linear(hierarchy: Hierarchy, schema: Schema, linear: Sequence[LinearConstraint]) -> list[list[_LinearRow]]:
    """Return the rows of every level: its own constraints and, of those below, the sums."""
    rows = [one.row(schema) for one in linear]
    levels: list[list[_LinearRow]] = []
    for level in range(hierarchy.levels - 1, -1, -1):
        found: dict[bytes, _LinearRow] = {}
        for one in levels[-1] if levels else ():
            here, below = hierarchy.level_range(level), hierarchy.level_range(level + 1)
            starts = hierarchy.first_child[here.start : here.stop] - below.start
            lower, upper = -total_of(-one.lower, starts, 0), total_of(one.upper, starts, 0)
            found[one.row.tobytes()] = _LinearRow(one.row, lower, upper, one.label)
        for given, row in zip(linear, rows, strict=True):
            if given.level == level:
                lower, upper = given.lower, given.upper
                known = found.get(row.tobytes())
                if known is not None:
                    lower, upper = np.maximum(lower, known.lower), np.minimum(upper, known.upper)
                found[row.tobytes()] = _LinearRow(row, lower, upper, given.text)
        for one in found.values():
            crossed = np.flatnonzero(one.lower > one.upper)
            if crossed.size:
                path = hierarchy.paths[hierarchy.level_range(level).start + int(crossed[0])]
                message = f"region {path!r}: no table satisfies {one.label!r} with what holds in its parts"
                raise InputError(
                    "inconsistent-bounds", message + _in_words(FactSystem.of(hierarchy, schema, (), linear))
                )
        levels.append(list(found.values()))
    return levels[::-1]


def _constraints(queries: Sequence[Query], sides: Sequence[Sides], linear: Sequence[_LinearRow]) -> Constraints | None:
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
    rows_of = [one for one in linear if (one.lower > -UNBOUNDED).any() or (one.upper < UNBOUNDED).any()]
    if rows_of:
        operators.append(whole_matrix(np.stack([one.row for one in rows_of])))
        lowers.append(np.stack([one.lower for one in rows_of], axis=1))
        uppers.append(np.stack([one.upper for one in rows_of], axis=1))
        labels += [one.label for one in rows_of]
    if not operators:
        return None
    whole = Constraints(stack(operators), np.hstack(lowers), np.hstack(uppers), tuple(labels))
    whole.lower.setflags(write=False)
    whole.upper.setflags(write=False)
    return whole


def _check_sides(one: LinearConstraint, hierarchy: Hierarchy) -> None:
    if not 0 <= one.level < hierarchy.levels:
        raise ProblemError(f"{one.text!r}: there is no level {one.level}")
    if one.lower.size != len(hierarchy.level_range(one.level)):
        raise ProblemError(f"{one.text!r}: level {one.level} has another number of regions")


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
