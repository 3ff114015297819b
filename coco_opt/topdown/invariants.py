"""What must hold exactly: answers declared public, bounds from public tables, and what they imply for regions above."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.errors import InputError, ProblemError
from coco_opt.execution.temporary_storage import stored_by_parts
from coco_opt.histograms.hierarchy import Hierarchy
from coco_opt.operators import Grouping, Operator, stack
from coco_opt.topdown.bounds import UNBOUNDED, Sides, close, selected, total_of
from coco_opt.topdown.constraint import LinearConstraint, RegionBounds, Source
from coco_opt.topdown.feasibility.conflict import smallest_conflict
from coco_opt.topdown.feasibility.system import ConstraintSystem, infinite
from coco_opt.topdown.matrix_operator import integer_matrix
from coco_opt.topdown.queries import Query
from coco_opt.topdown.schema import Schema


@dataclass(frozen=True, eq=False, slots=True)
class Invariant:
    """Declare that a query's true answers in every region of a level are public and must hold exactly.

    Regions above get the sums; regions below are bound through their parents' sums only.
    """

    query: Query
    level: int


Stated = RegionBounds | LinearConstraint

_SECONDS = 20.0  # that finding a smallest set for a message may take
_SHOWN = 12


@dataclass(frozen=True, eq=False, slots=True)
class Constraints:
    """lower <= operator x <= upper for some regions: one operator for all, int64[regions, rows] on both sides.

    Rows are equalities where both sides are equal; ``UNBOUNDED`` is no upper bound, and its negative no lower one.
    ``labels`` [rows] say what a row counts, ``query: answer`` or a constraint's text, for messages.
    """

    operator: Operator
    lower: Ints
    upper: Ints
    labels: tuple[str, ...]

    @classmethod
    def together(cls, several: Sequence[Constraints]) -> Constraints:
        """Return the rows of several, at least one, of the same regions."""
        lower, upper = (np.hstack([getattr(each, side) for each in several]) for side in ("lower", "upper"))
        labels = tuple(label for each in several for label in each.labels)
        return cls(stack([each.operator for each in several]), lower, upper, labels)

    @property
    def float_upper(self) -> Floats:
        """Return the upper side with infinity for no bound."""
        return infinite(self.upper)

    @property
    def float_lower(self) -> Floats:
        """Return the lower side with minus infinity for no bound."""
        return infinite(self.lower)

    def broken_by(self, tables: Ints) -> Flags:
        """Return which rows integer tables int64[regions, cells] break, bool[regions, rows]."""
        answers = self.operator.apply(tables)
        out: Flags = (answers < self.lower) | (answers > self.upper)
        return out


@dataclass(frozen=True, eq=False, repr=False)
class Invariants:
    """All public constraints on the tables of a hierarchy, closed under sums; ``declared`` those taken from the data.

    ``linear`` are constraints between answers. Raises ProblemError for a level or shape that does not fit, InputError
    (inconsistent-bounds) naming region and query, and a smallest set of constraints that exclude each other, where sums
    of bounds leave no table. O(regions x answers x queries).
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
        for bound in bounds:
            _check_fit(bound, self.hierarchy, self.schema)
            query = queries.setdefault(bound.query.text, bound.query)
            if query.answers != bound.query.answers:
                raise ProblemError(f"two different queries read {bound.query.text!r}")
        own: dict[tuple[int, str], tuple[Ints, Ints]] = {}
        for bound in bounds:
            key = (bound.level, bound.query.text)
            earlier = own.get(key)
            own[key] = bound.lower, bound.upper
            if earlier is not None:
                own[key] = np.maximum(earlier[0], bound.lower), np.minimum(earlier[1], bound.upper)
        oriented = tuple(constraint.oriented for constraint in linear)
        linear_rows, counts = _closed_linear(self.hierarchy, self.schema, oriented), _counts(oriented, self.schema)
        for constraint, count in counts:
            lower, upper = np.maximum(constraint.lower, 0)[:, None], constraint.upper[:, None]
            stated = own.get((constraint.level, count.text), (lower, upper))
            own[constraint.level, count.text] = np.maximum(stated[0], lower), np.minimum(stated[1], upper)
        single = list({count.text: count for _, count in counts}.values())
        try:
            closed = close(self.hierarchy, (*queries.values(), *single), own)
        except InputError as error:
            code, message = error.code, str(error).removesuffix(f" [{error.code}]")
        else:
            code = message = ""
        if code:
            system = ConstraintSystem.of(self.hierarchy, self.schema, bounds, [constraint for constraint, _ in counts])
            raise InputError(code, message + _in_words(system))
        linear_rows = [
            _tightened(rows, single, sides[len(queries) :]) for rows, sides in zip(linear_rows, closed, strict=True)
        ]
        closed = tuple(sides[: len(queries)] for sides in closed)
        levels = tuple(
            _constraints(tuple(queries.values()), sides, rows) for sides, rows in zip(closed, linear_rows, strict=True)
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
    def constraints(self) -> tuple[Stated, ...]:
        """Return all constraints as they were stated."""
        return (*self.bounds, *self.linear)

    def but(self, source: Source) -> Invariants:
        """Return the constraints that do not come from one source."""
        if all(constraint.source != source for constraint in self.constraints):
            return self
        bounds = tuple(constraint for constraint in self.bounds if constraint.source != source)
        linear = tuple(constraint for constraint in self.linear if constraint.source != source)
        return Invariants(self.hierarchy, self.schema, bounds, self.declared, linear)

    @cached_property
    def system(self) -> ConstraintSystem:
        """Return all stated constraints over the leaves."""
        return ConstraintSystem.of(self.hierarchy, self.schema, self.bounds, self.linear)

    def constraints_of(self, regions: range) -> Constraints | None:
        """Return what consecutive regions of one level must satisfy, or None where nothing binds the level.

        Rows that bind no region of the level are left out, so that all its regions share one operator.
        """
        level = int(self.hierarchy.level[regions.start])
        level_regions = self.hierarchy.level_range(level)
        if not len(regions) or regions.step != 1 or regions.stop > level_regions.stop:
            raise ProblemError("constraints can be read for one or more consecutive regions of one level")
        level_constraints = self._levels[level]
        if level_constraints is None:
            return None
        places = slice(regions.start - level_regions.start, regions.stop - level_regions.start)
        return Constraints(
            level_constraints.operator,
            level_constraints.lower[places],
            level_constraints.upper[places],
            level_constraints.labels,
        )

    def __repr__(self) -> str:
        constraints = [f"{constraint.query.name} at level {constraint.level}" for constraint in self.bounds]
        constraints += [f"{constraint.text} at level {constraint.level}" for constraint in self.linear]
        return f"Invariants({', '.join(constraints) or 'nothing'})"


def _in_words(system: ConstraintSystem) -> str:
    """Return a smallest set of constraints that exclude each other as the end of a message, "" where none was found."""
    conflict = smallest_conflict(system, _SECONDS)
    if conflict is None:
        return ""
    words = [system.words(system.rows[at], region) for at, region in conflict.constraints]
    more = f"; and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return f". These exclude each other: {'; '.join(words[:_SHOWN])}{more}"


@dataclass(frozen=True, eq=False, slots=True)
class _LinearRow:
    """A row of linear constraints on a level: coefficients int64[cells], sides int64[regions]."""

    row: Ints
    lower: Ints
    upper: Ints
    label: str


def _closed_linear(hierarchy: Hierarchy, schema: Schema, linear: Sequence[LinearConstraint]) -> list[list[_LinearRow]]:
    """Return the rows of every level: its own constraints and, of those below, the sums."""
    rows = [constraint.row(schema) for constraint in linear]
    levels: list[list[_LinearRow]] = []
    for level in range(hierarchy.levels - 1, -1, -1):
        level_rows: dict[bytes, _LinearRow] = {}
        for linear_row in levels[-1] if levels else ():
            regions, below = hierarchy.level_range(level), hierarchy.level_range(level + 1)
            starts = hierarchy.first_child[regions.start : regions.stop] - below.start
            lower, upper = -total_of(-linear_row.lower, starts, 0), total_of(linear_row.upper, starts, 0)
            level_rows[linear_row.row.tobytes()] = _LinearRow(linear_row.row, lower, upper, linear_row.label)
        for constraint, row in zip(linear, rows, strict=True):
            if constraint.level == level:
                lower, upper = constraint.lower, constraint.upper
                previous = level_rows.get(row.tobytes())
                if previous is not None:
                    lower, upper = np.maximum(lower, previous.lower), np.minimum(upper, previous.upper)
                level_rows[row.tobytes()] = _LinearRow(row, lower, upper, constraint.text)
        for linear_row in level_rows.values():
            crossed = np.flatnonzero(linear_row.lower > linear_row.upper)
            if crossed.size:
                path = hierarchy.paths[hierarchy.level_range(level).start + int(crossed[0])]
                message = f"region {path!r}: no table satisfies {linear_row.label!r} with what holds in its parts"
                raise InputError(
                    "inconsistent-bounds", message + _in_words(ConstraintSystem.of(hierarchy, schema, (), linear))
                )
        levels.append(list(level_rows.values()))
    return levels[::-1]


def _counts(linear: Sequence[LinearConstraint], schema: Schema) -> list[tuple[LinearConstraint, Query]]:
    """Return the constraints that bound one count of persons, each with the query that counts them."""
    counts = []
    for constraint in linear:
        row = constraint.row(schema)
        if ((row == 0) | (row == 1)).all():
            operator = Grouping(np.where(row == 1, 0, -1), 1)
            text = " + ".join(sorted(conditions for _, conditions in constraint.terms))
            counts.append((constraint, Query(constraint.text, f"[{text}]", operator, (), np.zeros(1, np.int64))))
    return counts


def _tightened(rows: Sequence[_LinearRow], counts: Sequence[Query], sides: Sequence[Sides]) -> list[_LinearRow]:
    """Return the rows of a level, those that are one count within what bounds on all answers leave it."""
    closed = {}
    for count, (lower, upper) in zip(counts, sides, strict=True):
        assert isinstance(count.operator, Grouping)
        closed[(count.operator.labels == 0).astype(np.int64).tobytes()] = lower[:, 0], upper[:, 0]
    result = []
    for row in rows:
        key = row.row.tobytes()
        if key in closed:
            least, most = closed[key]
            lower = np.where(least > 0, np.maximum(row.lower, least), row.lower)
            row = replace(row, lower=lower, upper=np.minimum(row.upper, most))
        result.append(row)
    return result


def _constraints(queries: Sequence[Query], sides: Sequence[Sides], linear: Sequence[_LinearRow]) -> Constraints | None:
    """Return the rows of a level that bind some region, for all its regions."""
    operators, labels = list[Operator](), list[str]()
    lowers, uppers = list[Ints](), list[Ints]()
    for query, (lower, upper) in zip(queries, sides, strict=True):
        operator, rows = selected(query.operator, np.flatnonzero((lower > 0).any(0) | (upper < UNBOUNDED).any(0)))
        if rows.size:
            operators.append(operator)
            for sides_of, side in ((lowers, lower), (uppers, upper)):
                sides_of.append(side if rows.size == query.answers else side[:, rows])
            named = query.labels()
            labels += [f"{query.name}: {named[row]}" for row in rows.tolist()]
    rows_of = [
        linear_row
        for linear_row in linear
        if (linear_row.lower > -UNBOUNDED).any() or (linear_row.upper < UNBOUNDED).any()
    ]
    if rows_of:
        operators.append(integer_matrix(np.stack([linear_row.row for linear_row in rows_of])))
        lowers.append(np.stack([linear_row.lower for linear_row in rows_of], axis=1))
        uppers.append(np.stack([linear_row.upper for linear_row in rows_of], axis=1))
        labels += [linear_row.label for linear_row in rows_of]
    if not operators:
        return None
    together = stack(operators)
    lower, upper = (_stored(sides, together.answers) for sides in (lowers, uppers))
    return Constraints(together, lower, upper, tuple(labels))


def _stored(sides: Sequence[Ints], answers: int) -> Ints:
    """Return the sides of all rows next to each other, int64[regions, answers]."""
    shape = len(sides[0]), answers
    return stored_by_parts(shape, np.dtype(np.int64), lambda some: np.hstack([side[some] for side in sides]))


def _check_sides(constraint: LinearConstraint, hierarchy: Hierarchy) -> None:
    if not 0 <= constraint.level < hierarchy.levels:
        raise ProblemError(f"{constraint.text!r}: there is no level {constraint.level}")
    if constraint.lower.size != len(hierarchy.level_range(constraint.level)):
        raise ProblemError(f"{constraint.text!r}: level {constraint.level} has another number of regions")


def _check_fit(bounds: RegionBounds, hierarchy: Hierarchy, schema: Schema) -> None:
    if not 0 <= bounds.level < hierarchy.levels:
        raise ProblemError(f"bounds of {bounds.query.name!r}: there is no level {bounds.level}")
    if bounds.query.operator.cells != schema.size:
        raise ProblemError(f"bounds of {bounds.query.name!r}: the query is over another schema")
    if len(bounds.lower) != len(hierarchy.level_range(bounds.level)):
        raise ProblemError(f"bounds of {bounds.query.name!r}: level {bounds.level} has another number of regions")
    empty = np.flatnonzero(bounds.query.operator.apply(np.ones(schema.size)) == 0)
    broken = empty[(bounds.lower[:, empty] > 0).any(axis=0)]
    if broken.size:
        answer = f"{bounds.query.name!r} ({bounds.query.label(int(broken[0]))})"
        message = f"bounds of {answer}: the structural zeros leave it no cell, so its lower bound must be 0"
        raise InputError("inconsistent-bounds", message)
