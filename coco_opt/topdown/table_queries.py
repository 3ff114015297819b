"""The queries of a measurement of tables, as the family's own values and as the public half of a measurement."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError
from coco_opt.histograms.hierarchy import Hierarchy
from coco_opt.privacy.measurement import Measurement, MeasurementPlan
from coco_opt.privacy.noise_distributions import DiscreteGaussian
from coco_opt.privacy.queries import LevelQuery
from coco_opt.topdown.budget_plan import VARIANCES, RegionVariances, TablePlan, classes_name
from coco_opt.topdown.constraint import LinearConstraint, RegionBounds
from coco_opt.topdown.invariants import Invariant, Invariants, Stated
from coco_opt.topdown.queries import Query, parse_query
from coco_opt.topdown.schema import Schema, plain_schema, schema_of

KIND = "tables"
CELLS_MEASURED = "cells_measured"  # of a release: false where its cells are guesses
ROWS = "rows_a_person"
"""The parameter, and the key of the configuration, with the public maximum of rows a person; 1 where it is absent."""
AGREES = "agrees_with"
"""The parameter, and the key of the configuration and of the manifest, with the earlier releases to agree with."""
_LOWER, _UPPER = "bounds {} lower", "bounds {} upper"
_DIFFER = " (noise that differs by region, here the least)"
_LINEAR_LOWER, _LINEAR_UPPER = "constraint {} lower", "constraint {} upper"
_DIGITS = 16  # of a digest, which tells statements apart that have the same words


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class TableQueries:
    """All that is public before the noise: regions, cells, what each query costs, what is exact and what is bounded.

    ``earlier`` says of which releases, as JSON-able values, the bounds and constraints of source "release" are;
    ``variances`` are those of levels whose regions differ, and the plan then costs what the least of them does.
    Raises ProblemError where the parts do not fit together, or exact answers meet neighbours that add or remove a
    person; InputError (inconsistent-bounds) for bounds that no table satisfies.
    """

    hierarchy: Hierarchy
    schema: Schema
    plan: TablePlan
    invariants: tuple[Invariant, ...] = ()
    bounds: tuple[RegionBounds, ...] = ()
    linear: tuple[LinearConstraint, ...] = ()
    earlier: tuple[Mapping[str, Any], ...] = ()
    variances: tuple[RegionVariances, ...] = ()

    def __post_init__(self) -> None:
        distinct = {(invariant.level, invariant.query.text): invariant for invariant in self.invariants}
        object.__setattr__(self, "invariants", tuple(distinct.values()))
        object.__setattr__(self, "bounds", tuple(self.bounds))
        object.__setattr__(self, "linear", tuple(self.linear))
        object.__setattr__(self, "earlier", tuple(self.earlier))
        if self.plan.levels != self.hierarchy.levels:
            raise ProblemError(f"the plan is for {self.plan.levels} levels, the hierarchy has {self.hierarchy.levels}")
        for query in self.plan.queries:
            if query.operator.cells != self.schema.size:
                raise ProblemError(f"query {query.name!r} is over another schema")
        for invariant in self.invariants:
            if invariant.query.operator.cells != self.schema.size or not 0 <= invariant.level < self.hierarchy.levels:
                raise ProblemError(
                    f"the invariant {invariant.query.name!r} is over another schema or on an unknown level"
                )
        if self.invariants and self.plan.neighbours != "replace":
            raise ProblemError(
                "invariants are exact counts, which adding or removing a person would change: use neighbours = "
                '"replace"'
            )
        if self.plan.neighbours != "replace" and any(constraint.source == "data" for constraint in self.constraints):
            raise ProblemError('constraints taken from the data hold for neighbours = "replace" only')
        if len({by_region.level for by_region in self.variances}) < len(self.variances):
            raise ProblemError("a level has variances by region at most once, for all its queries")
        for by_region in self.variances:
            self._check_variances(by_region)
        self.public_constraints()

    def public_constraints(self, exact: Sequence[RegionBounds] = ()) -> Invariants:
        """Return what is public without the data, closed under sums, together with ``exact`` answers if any."""
        return Invariants(self.hierarchy, self.schema, (*self.bounds, *exact), linear=self.linear)

    def _check_variances(self, by_region: RegionVariances) -> None:
        """Raise ProblemError unless variances by region are those of queries that are measured at their level."""
        places = {query.name: place for place, query in enumerate(self.plan.queries)}
        level = by_region.level
        if not 0 <= level < self.hierarchy.levels or by_region.classes.size != len(self.hierarchy.level_range(level)):
            raise ProblemError(f"variances by region do not fit the regions of level {level}")
        for name in by_region.stated:
            if name not in places or not self.plan.costs[level][places[name]]:
                raise ProblemError(f"{name!r} is not measured at level {level}, and has variances by region")
            stated = self.plan.distribution(level, places[name])
            if stated.as_dict() != DiscreteGaussian(by_region.least(name)).as_dict():
                raise ProblemError(f"{name!r} at level {level} does not cost what its least variance does")

    @classmethod
    def all_leave_cells_open(cls, measurement: Measurement) -> bool:
        """Return whether none of the measurements that are estimated together measures the cells."""
        return all(cls.of(each.measurement_plan).leaves_cells_open for each in measurement.every)

    @property
    def leaves_cells_open(self) -> bool:
        """Return whether marginals alone are measured, none of which has an answer for each cell.

        Then many tables have the same answers, and the cells of released tables are guesses.
        """
        queries = self.plan.queries
        each_cell = any(query.answers == self.schema.size for query in queries)
        return not each_cell and all(query.marginal is not None for query in queries)

    @property
    def constraints(self) -> tuple[Stated, ...]:
        """Return all constraints as they were stated, before exact answers are known."""
        return (*self.bounds, *self.linear)

    @classmethod
    def of(cls, measurement_plan: MeasurementPlan) -> TableQueries:
        """Return the queries of the public half of a measurement; raise ProblemError for another kind's."""
        if measurement_plan.kind != KIND:
            raise ProblemError(f"a measurement of {measurement_plan.kind}, not of tables")
        schema = schema_of(measurement_plan.parameters["schema"])
        queries = tuple(parse_query(text, schema, name) for name, text in measurement_plan.parameters["queries"])
        costs = {
            (level_query.level, level_query.name): level_query.cost
            for level_query in measurement_plan.queries
            if level_query.cost is not None
        }
        nothing = measurement_plan.cost * 0
        plan = TablePlan(
            queries,
            tuple(
                tuple(costs.get((level, noisy_name(query)), nothing) for query in queries)
                for level in range(measurement_plan.hierarchy.levels)
            ),
            measurement_plan.neighbours,
            measurement_plan.parameters.get(ROWS, 1),
        )
        exact = [
            Invariant(parse_query(text, schema), level) for level, text in measurement_plan.parameters["invariants"]
        ]
        bounds, linear, earlier = (
            _bounds(measurement_plan, schema),
            _linear(measurement_plan),
            measurement_plan.parameters.get(AGREES, ()),
        )
        stated = measurement_plan.parameters.get(VARIANCES, ())
        variances = tuple(RegionVariances.read(plain, measurement_plan.tables) for plain in stated)
        return cls(
            measurement_plan.hierarchy,
            schema,
            plan,
            tuple(exact),
            tuple(bounds),
            tuple(linear),
            tuple(earlier),
            variances,
        )

    def measurement_plan(self, levels: Sequence[str] = (), region_ids: Sequence[str | None] = ()) -> MeasurementPlan:
        """Return the public half of a measurement, read back by ``of``.

        ``levels`` are the levels' names ("level 0", ... unless given), ``region_ids`` the regions' ids, None without.
        """
        stated: list[Invariant | RegionBounds] = [*self.invariants, *self.bounds]
        queries = [*self.plan.queries, *(constraint.query for constraint in stated)]
        used = {factor.title for query in queries for factor in query.factors}
        return MeasurementPlan(
            kind=KIND,
            hierarchy=self.hierarchy,
            levels=tuple(levels) or tuple(f"level {level}" for level in range(self.hierarchy.levels)),
            queries=(*self.noisy, *self.exact),
            neighbours=self.plan.neighbours,
            parameters={
                "schema": plain_schema(self.schema.with_groupings(used)),
                "queries": [[query.name, query.text] for query in self.plan.queries],
                "invariants": [[invariant.level, invariant.query.text] for invariant in self.invariants],
                "bounds": [
                    [bounds.level, bounds.query.name, bounds.query.text, bounds.source] for bounds in self.bounds
                ],
                "constraints": [
                    [constraint.level, constraint.text, [list(term) for term in constraint.terms], constraint.source]
                    for constraint in self.linear
                ],
                **({ROWS: self.plan.rows} if self.plan.rows > 1 else {}),
                **({AGREES: [dict(release) for release in self.earlier]} if self.earlier else {}),
                **({VARIANCES: [by_region.plain() for by_region in self.variances]} if self.variances else {}),
            },
            tables=self._sides(),
            region_ids=region_ids,
        )

    @property
    def noisy(self) -> tuple[LevelQuery, ...]:
        """Return the queries that get noise, in the order of ``plan.measured_queries``."""
        plan = self.plan
        differ = {(each.level, name) for each in self.variances for name in each.stated}
        return tuple(
            LevelQuery(
                level=level,
                name=noisy_name(plan.queries[query]),
                words=plan.queries[query].words + (_DIFFER if (level, plan.queries[query].name) in differ else ""),
                size=plan.queries[query].answers,
                sensitivity=plan.sensitivity(query),
                cost=plan.costs[level][query],
            )
            for level, query in plan.measured_queries
        )

    @property
    def largest_path_cost(self) -> float:
        """Return the largest cost of all answers of a leaf and of the regions above it.

        Where regions of a level differ it can be less than the cost of the plan, which takes the most of each level.
        """
        tree, by_level = self.hierarchy, {each.level: each for each in self.variances}
        above = np.zeros(1)
        for level in range(tree.levels):
            regions = tree.level_range(level)
            parent = tree.parent[regions.start : regions.stop] - (tree.level_range(level - 1).start if level else -1)
            above = above[parent]
            for place, cost in enumerate(self.plan.costs[level]):
                differing, name = by_level.get(level), self.plan.queries[place].name
                if differing is not None and name in differing.stated:
                    above = above + self.plan.sensitivity(place).l2_squared * differing.precisions(name)
                else:
                    above = above + float(cost.amount)
        return float(above.max())

    @property
    def exact(self) -> tuple[LevelQuery, ...]:
        """Return the queries whose answers are declared public, in the order of ``invariants``."""
        return tuple(
            LevelQuery(
                invariant.level,
                f"invariant: {invariant.query.text}",
                invariant.query.words,
                invariant.query.answers,
                None,
                None,
            )
            for invariant in self.invariants
        )

    def _sides(self) -> dict[str, Ints]:
        sides = {}
        for number, bounds in enumerate(self.bounds):
            sides[_LOWER.format(number)] = bounds.lower.ravel()
            sides[_UPPER.format(number)] = bounds.upper.ravel()
        for number, constraint in enumerate(self.linear):
            sides[_LINEAR_LOWER.format(number)] = constraint.lower
            sides[_LINEAR_UPPER.format(number)] = constraint.upper
        return {**sides, **{classes_name(each.level): each.classes for each in self.variances}}

    def __repr__(self) -> str:
        return f"TableQueries({self.hierarchy!r}, {self.schema!r}, {self.plan!r})"


def exact_statements(measurement_plan: MeasurementPlan) -> set[tuple[str, str, str]]:
    """Return the level and the words of all that a plan takes from the data exactly, with a digest of what it means.

    Equal words of other regions, values, groups of values or sides state something else.
    """
    parameters, tables = measurement_plan.parameters, measurement_plan.tables
    stated: list[tuple[int, str, list[str], tuple[Ints, ...]]]
    stated = [(level, text, [text], ()) for level, text in parameters["invariants"]]
    for number, (level, _, text, source) in enumerate(parameters["bounds"]):
        sides = tables[_LOWER.format(number)], tables[_UPPER.format(number)]
        stated += [(level, f"bounds of {text}", [text], sides)] if source == "data" else []
    for number, (level, text, terms, source) in enumerate(parameters["constraints"]):
        sides = tables[_LINEAR_LOWER.format(number)], tables[_LINEAR_UPPER.format(number)]
        stated += [(level, text, [f"{weight} {count}" for weight, count in terms], sides)] if source == "data" else []
    statements = set()
    for level, words, texts, arrays in stated:
        code = hashlib.sha256(measurement_plan.regions_digest.encode())
        code.update(json.dumps([level, texts, _named(parameters["schema"], " ".join(texts))]).encode())
        for array in arrays:
            code.update(np.ascontiguousarray(array, "<i8").data)
        statements.add((measurement_plan.levels[level], words, code.hexdigest()[:_DIGITS]))
    return statements


def _named(schema: Mapping[str, Any], text: str) -> list[Any]:
    """Return the attributes and groupings of a plain schema that a text may name: those that occur in it, at least."""
    groupings = [grouping for grouping in schema["groupings"] if grouping[0] in text]
    used = {of for _, of, _ in groupings}
    attributes = [each for each in schema["attributes"] if each[0] in used or each[0] in text]
    whole = not attributes and text != "total"  # "detail" names none, and counts every cell
    return [schema["attributes"] if whole else attributes, groupings]


def noisy_name(query: Query) -> str:
    """Return the name of a query in a measurement plan, and of its noise."""
    return f"table {query.name}"


def noise_label(hierarchy: Hierarchy, level: int) -> str:
    """Return the label of the noise of all regions of a level.

    One stream serves them all, region after region in the public hierarchy's order: its numbers are independent draws
    from one distribution wherever they are read. So the answers have the same distribution as with one stream for each
    region, without the cost of opening 25,000 ciphers for a query of one answer.
    """
    return f"{hierarchy.path(0)}, level {level}"


def _bounds(measurement_plan: MeasurementPlan, schema: Schema) -> list[RegionBounds]:
    parameters: Mapping[str, Any] = measurement_plan.parameters
    bounds = []
    for number, (level, name, text, source) in enumerate(parameters["bounds"]):
        query = parse_query(text, schema, name)
        shape = (len(measurement_plan.hierarchy.level_range(level)), query.answers)
        lower, upper = (measurement_plan.tables[side.format(number)].reshape(shape) for side in (_LOWER, _UPPER))
        bounds.append(RegionBounds(query, level, lower, upper, source))
    return bounds


def _linear(measurement_plan: MeasurementPlan) -> Iterator[LinearConstraint]:
    for number, (level, text, terms, source) in enumerate(measurement_plan.parameters["constraints"]):
        lower, upper = (measurement_plan.tables[side.format(number)] for side in (_LINEAR_LOWER, _LINEAR_UPPER))
        summands = tuple((weight, count) for weight, count in terms)
        yield LinearConstraint(text, summands, level, lower, upper, source)
