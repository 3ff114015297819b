"""What must hold exactly: answers declared public, bounds from public tables, and what they imply for regions above."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import InputError, ProblemError
from coco_opt.execution.temporary_storage import stored_by_parts
from coco_opt.histograms.hierarchy import Hierarchy
from coco_opt.operators import Grouping, Operator, stack
from coco_opt.topdown.constraint import UNBOUNDED, LinearConstraint, RegionBounds, Source
from coco_opt.topdown.feasibility.conflict import listed, smallest_conflict
from coco_opt.topdown.feasibility.system import ConstraintRow, ConstraintSystem
from coco_opt.topdown.queries import Query
from coco_opt.topdown.rows import Constraints, integer_matrix
from coco_opt.topdown.schema import Schema


@dataclass(frozen=True, eq=False, slots=True)
class Invariant:
    """Declare that a query's true answers in every region of a level are public and must hold exactly.

    Regions above get the sums; regions below are bound through their parents' sums only.
    """

    query: Query
    level: int


Stated = RegionBounds | LinearConstraint

Sides = tuple[Ints, Ints]
Levels = tuple[tuple[Sides, ...], ...]
Refinement = tuple[int, int, Ints]

_SECONDS = 20.0  # that finding a smallest set for a message may take
_PARENTS = 1 << 12  # whose children are summed at a time


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
    _levels: tuple[Constraints | None, ...] = field(init=False)

    def __post_init__(self) -> None:
        bounds, linear = tuple(self.bounds), tuple(self.linear)
        for constraint in linear:
            _check_level(repr(constraint.text), constraint, self.hierarchy)
        for bound in bounds:
            _check_level(f"bounds of {bound.query.name!r}", bound, self.hierarchy)
            _check_cells(bound, self.schema)
        counts, rows = _split(linear, self.schema)
        queries, stated = dict[str, Query](), dict[tuple[int, str], Sides]()
        for query, level, lower, upper in (
            *((each.query, each.level, each.lower, each.upper) for each in bounds),
            *counts,
        ):
            if queries.setdefault(query.text, query).answers != query.answers:
                raise ProblemError(f"two different queries read {query.text!r}")
            earlier = stated.get((level, query.text))
            stated[level, query.text] = lower, upper
            if earlier is not None:
                stated[level, query.text] = np.maximum(earlier[0], lower), np.minimum(earlier[1], upper)
        sides = close(self.hierarchy, tuple(queries.values()), stated)
        of_levels = zip(sides, _closed_rows(self.hierarchy, rows), strict=True)
        levels = tuple(_constraints(tuple(queries.values()), *of_level) for of_level in of_levels)
        for name, value in (
            ("bounds", bounds),
            ("declared", tuple(self.declared)),
            ("linear", linear),
            ("_levels", levels),
        ):
            object.__setattr__(self, name, value)
        self._check_crossings()

    def _check_crossings(self) -> None:
        """Raise InputError for the first region, of the lowest level, in which some sides cross."""
        for level in reversed(range(self.hierarchy.levels)):
            constraints = self._levels[level]
            if constraints is None:
                continue
            crossed: Ints = np.argwhere(constraints.lower > constraints.upper)
            if crossed.size:
                region, row = crossed[0].tolist()
                path = self.hierarchy.paths[self.hierarchy.level_range(level).start + region]
                message = (
                    f"region {path!r}: no table satisfies {constraints.labels[row]!r} with all that is stated of it"
                )
                conflict = smallest_conflict(self.system, _SECONDS)
                words = "" if conflict is None else f". These exclude each other: {listed(conflict.words(self.system))}"
                raise InputError("inconsistent-bounds", message + words)

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
        level, places = self.hierarchy.within_level(regions)
        if not len(regions) or regions.step != 1 or regions.stop > self.hierarchy.level_range(level).stop:
            raise ProblemError("constraints can be read for one or more consecutive regions of one level")
        level_constraints = self._levels[level]
        return None if level_constraints is None else level_constraints.at(places)

    def __repr__(self) -> str:
        constraints = [f"{constraint.query.name} at level {constraint.level}" for constraint in self.bounds]
        constraints += [f"{constraint.text} at level {constraint.level}" for constraint in self.linear]
        return f"Invariants({', '.join(constraints) or 'nothing'})"


def _split(
    linear: Sequence[LinearConstraint], schema: Schema
) -> tuple[list[tuple[Query, int, Ints, Ints]], list[ConstraintRow]]:
    """Return the constraints that bound one count of persons as bounds on a query, and the others as rows of cells."""
    counts, rows = list[tuple[Query, int, Ints, Ints]](), list[ConstraintRow]()
    for constraint in (each.oriented for each in linear):
        row, lower, upper = constraint.row(schema), constraint.lower, constraint.upper
        if ((row == 0) | (row == 1)).all():
            operator = Grouping(np.where(row == 1, 0, -1), 1)
            text = " + ".join(sorted(conditions for _, conditions in constraint.terms))
            query = Query(constraint.text, f"[{text}]", operator, (), np.zeros(1, np.int64))
            counts.append((query, constraint.level, np.maximum(lower, 0)[:, None], upper[:, None]))
        else:
            rows.append(ConstraintRow(constraint.level, row, lower, upper, constraint.text, constraint.source))
    return counts, rows


def _closed_rows(hierarchy: Hierarchy, rows: Sequence[ConstraintRow]) -> list[list[ConstraintRow]]:
    """Return the rows of every level over the cells: its own and, of those below, the sums."""
    levels: list[list[ConstraintRow]] = []
    for level in range(hierarchy.levels - 1, -1, -1):
        level_rows, regions = dict[bytes, ConstraintRow](), hierarchy.level_range(level)
        starts = hierarchy.first_child[regions.start : regions.stop] - regions.stop
        for below in levels[-1] if levels else ():
            lower, upper = -_total_of(-below.lower, starts, 0), _total_of(below.upper, starts, 0)
            level_rows[below.coefficients.tobytes()] = replace(below, level=level, lower=lower, upper=upper)
        for row in (each for each in rows if each.level == level):
            sums = level_rows.get(row.coefficients.tobytes(), row)
            lower, upper = np.maximum(row.lower, sums.lower), np.minimum(row.upper, sums.upper)
            level_rows[row.coefficients.tobytes()] = replace(row, lower=lower, upper=upper)
        levels.append(list(level_rows.values()))
    return levels[::-1]


def _constraints(
    queries: Sequence[Query], sides: Sequence[Sides], linear: Sequence[ConstraintRow]
) -> Constraints | None:
    """Return the rows of a level that bind some region, for all its regions."""
    operators, labels = list[Operator](), list[str]()
    lowers, uppers = list[Ints](), list[Ints]()
    for query, (lower, upper) in zip(queries, sides, strict=True):
        operator, rows = _selected(query.operator, np.flatnonzero((lower > 0).any(0) | (upper < UNBOUNDED).any(0)))
        if rows.size:
            operators.append(operator)
            for sides_of, side in ((lowers, lower), (uppers, upper)):
                sides_of.append(side if rows.size == query.answers else side[:, rows])
            named = (
                [query.name] if query.text.startswith("[") else [f"{query.name}: {label}" for label in query.labels()]
            )
            labels += [named[row] for row in rows.tolist()]
    rows_of = [
        linear_row
        for linear_row in linear
        if (linear_row.lower > -UNBOUNDED).any() or (linear_row.upper < UNBOUNDED).any()
    ]
    if rows_of:
        operators.append(integer_matrix(np.stack([linear_row.coefficients for linear_row in rows_of])))
        lowers.append(np.stack([linear_row.lower for linear_row in rows_of], axis=1))
        uppers.append(np.stack([linear_row.upper for linear_row in rows_of], axis=1))
        labels += [linear_row.label for linear_row in rows_of]
    if not operators:
        return None
    together = stack(operators)
    shape, kind = (len(lowers[0]), together.answers), np.dtype(np.int64)
    lower = stored_by_parts(shape, kind, lambda some: np.hstack([side[some] for side in lowers]))
    upper = stored_by_parts(shape, kind, lambda some: np.hstack([side[some] for side in uppers]))
    return Constraints(together, lower, upper, tuple(labels))


def _check_level(name: str, stated: Stated, hierarchy: Hierarchy) -> None:
    if not 0 <= stated.level < hierarchy.levels:
        raise ProblemError(f"{name}: there is no level {stated.level}")
    if len(stated.lower) != len(hierarchy.level_range(stated.level)):
        raise ProblemError(f"{name}: level {stated.level} has another number of regions")


def _check_cells(bounds: RegionBounds, schema: Schema) -> None:
    if bounds.query.operator.cells != schema.size:
        raise ProblemError(f"bounds of {bounds.query.name!r}: the query is over another schema")
    empty = np.flatnonzero(bounds.query.operator.apply(np.ones(schema.size)) == 0)
    broken = empty[(bounds.lower[:, empty] > 0).any(axis=0)]
    if broken.size:
        answer = f"{bounds.query.name!r} ({bounds.query.label(int(broken[0]))})"
        message = f"bounds of {answer}: the structural zeros leave it no cell, so its lower bound must be 0"
        raise InputError("inconsistent-bounds", message)


def close(hierarchy: Hierarchy, queries: Sequence[Query], own: Mapping[tuple[int, str], Sides]) -> Levels:
    """Return [levels][queries] (lower, upper) int64[regions, answers] implied by a level's own bounds and those below.

    ``own`` holds bounds by (level, text of the query), from 0 to ``UNBOUNDED``. Where no table meets them, some cross.
    A region's answer is the sum of its children's; where one query refines another, a coarse answer is the sum of fine
    ones. Each sum bounds the total by its terms, and each term by the total less the others. This suffices for a region
    whose queries form a chain; others can need bounds on sums of two or more of a query's answers.
    """
    refinements = _refinements(queries)
    levels: list[tuple[Sides, ...]] = []
    for level in range(hierarchy.levels - 1, -1, -1):
        regions = len(hierarchy.level_range(level))
        sides = []
        for index, query in enumerate(queries):
            own_sides = own.get((level, query.text))
            if levels:
                lower, upper = _sums(hierarchy, level, levels[-1][index])
                if own_sides is not None:
                    lower, upper = np.maximum(lower, own_sides[0]), np.minimum(upper, own_sides[1])
                sides.append((lower, upper))
            else:
                shape = regions, query.answers
                free = np.zeros(shape, np.int64), np.full(shape, UNBOUNDED, np.int64)
                sides.append(free if own_sides is None else own_sides)
        _tighten(sides, refinements)
        for array in (side for pair in sides for side in pair):
            array.setflags(write=False)
        levels.append(tuple(sides))
    return tuple(reversed(levels))


def _selected(operator: Operator, rows: Ints) -> tuple[Operator, Ints]:
    """Return an operator with some answers only, where it is a grouping, and the answers it has."""
    if not rows.size or rows.size == operator.answers:
        return operator, rows
    if not isinstance(operator, Grouping):
        return operator, np.arange(operator.answers)
    place = np.full(operator.answers + 1, -1, np.int64)
    place[rows] = np.arange(rows.size)
    return Grouping(place[operator.labels], int(rows.size)), rows


def _total_of(upper: Ints, starts: Ints, axis: int) -> Ints:
    """Return sums of uppers over runs along an axis, unbounded where a term is."""
    finite = np.add.reduceat(np.where(upper >= UNBOUNDED, 0, upper), starts, axis=axis)
    return np.where(np.logical_or.reduceat(upper >= UNBOUNDED, starts, axis=axis), UNBOUNDED, finite)


def _sums(hierarchy: Hierarchy, level: int, below: Sides) -> Sides:
    """Return the sums over children, some parents at a time: for all, what is between takes much memory."""
    regions, first = hierarchy.level_range(level), hierarchy.level_range(level + 1).start
    lower, upper = (np.empty((len(regions), side.shape[1]), np.int64) for side in below)
    for begin in range(0, len(regions), _PARENTS):
        end = min(begin + _PARENTS, len(regions))
        bounds = hierarchy.first_child[regions.start + begin : regions.start + end + 1] - first
        children, starts = slice(int(bounds[0]), int(bounds[-1])), bounds[:-1] - bounds[0]
        lower[begin:end] = np.add.reduceat(below[0][children], starts, axis=0)
        upper[begin:end] = _total_of(below[1][children], starts, 0)
    return lower, upper


def _refinements(queries: Sequence[Query]) -> list[Refinement]:
    """Return (fine, coarse, coarse answer of each fine one), fine queries first, for all nested pairs."""
    order = sorted(range(len(queries)), key=lambda index: -queries[index].answers)
    nested_pairs = []
    for at, fine in enumerate(order):
        for coarse in order[at + 1 :]:
            labels = refinement(queries[fine].operator, queries[coarse].operator)
            if labels is not None:
                nested_pairs.append((fine, coarse, labels))
    return nested_pairs


def refinement(fine: Operator, coarse: Operator) -> Ints | None:
    """Return each fine answer's coarse answer (-1: none) where all coarse answers are sums of fine ones, else None."""
    if not isinstance(fine, Grouping) or not isinstance(coarse, Grouping):
        return None
    if ((fine.labels < 0) & (coarse.labels >= 0)).any():
        return None
    counted = fine.labels >= 0
    labels = np.full(fine.answers, -1, np.int64)
    labels[fine.labels[counted]] = coarse.labels[counted]
    return labels if np.array_equal(labels[fine.labels[counted]], coarse.labels[counted]) else None


def _tighten(sides: list[Sides], refinements: Sequence[Refinement]) -> None:
    """Bound totals by terms, fine to coarse, then terms by totals, coarse to fine: exact where queries form a chain."""
    for fine, coarse, labels in refinements:
        lower, upper = _group_sums(sides[fine], labels, sides[coarse][0].shape[1])
        sides[coarse] = np.maximum(sides[coarse][0], lower), np.minimum(sides[coarse][1], upper)
    for fine, coarse, labels in reversed(refinements):
        sides[fine] = _parts(sides[fine], sides[coarse], labels)


def _group_sums(fine: Sides, labels: Ints, answers: int) -> Sides:
    order = np.argsort(labels, kind="stable")
    order = order[labels[order] >= 0]
    starts = np.searchsorted(labels[order], np.arange(answers))
    return np.add.reduceat(fine[0][:, order], starts, axis=1), _total_of(fine[1][:, order], starts, 1)


def _parts(fine: Sides, coarse: Sides, labels: Ints) -> Sides:
    """Return fine bounds tightened by what the total leaves to one term when the others are least or most."""
    lower, upper = fine
    total_lower, total_upper = coarse
    counted = labels >= 0
    groups = labels[counted]
    least, _ = _group_sums(fine, labels, total_lower.shape[1])
    infinite = upper >= UNBOUNDED
    finite = np.where(infinite, 0, upper)
    most, _ = _group_sums((finite, upper), labels, total_lower.shape[1])
    unbounded, _ = _group_sums((infinite.astype(np.int64), upper), labels, total_lower.shape[1])
    slack = np.where(
        total_upper[:, groups] >= UNBOUNDED,
        UNBOUNDED,
        total_upper[:, groups] - least[:, groups] + lower[:, counted],
    )
    others_bounded = unbounded[:, groups] == infinite[:, counted]
    need = np.where(others_bounded, total_lower[:, groups] - most[:, groups] + finite[:, counted], 0)
    lower, upper = lower.copy(), upper.copy()
    lower[:, counted] = np.maximum(lower[:, counted], need)
    upper[:, counted] = np.minimum(upper[:, counted], slack)
    return lower, upper
