"""What a measurement of tables asks, as the family's own values and as the public half of a measurement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.histograms.hierarchy import Hierarchy
from coco_opt.privacy.answers import Question
from coco_opt.privacy.measurement import Asked
from coco_opt.topdown.constraint import LinearConstraint
from coco_opt.topdown.invariants import Invariant, Invariants, RegionBounds, Stated
from coco_opt.topdown.plain import plain_schema, schema_of
from coco_opt.topdown.plan import TablePlan
from coco_opt.topdown.queries import Query, parse_query
from coco_opt.topdown.schema import Schema

Int64 = NDArray[np.int64]

KIND = "tables"
ROWS = "rows_a_person"
"""The fact, and the key of the configuration, that is the public maximum of rows a person; 1 where it is absent."""
AGREES = "agrees_with"
"""The fact, and the key of the configuration and of the manifest, that is the earlier releases to agree with."""
_LOWER, _UPPER = "bounds {} lower", "bounds {} upper"
_LINEAR_LOWER, _LINEAR_UPPER = "constraint {} lower", "constraint {} upper"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class TableQuestions:
    """All that is public before the noise: regions, cells, what each query costs, what is exact and what is bounded.

    ``earlier`` says of which releases, as JSON-able values, the bounds and constraints of source "release" are.
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

    def __post_init__(self) -> None:
        distinct = {(one.level, one.query.text): one for one in self.invariants}
        object.__setattr__(self, "invariants", tuple(distinct.values()))
        object.__setattr__(self, "bounds", tuple(self.bounds))
        object.__setattr__(self, "linear", tuple(self.linear))
        object.__setattr__(self, "earlier", tuple(self.earlier))
        if self.plan.levels != self.hierarchy.levels:
            raise ProblemError(f"the plan is for {self.plan.levels} levels, the hierarchy has {self.hierarchy.levels}")
        for query in self.plan.queries:
            if query.operator.cells != self.schema.size:
                raise ProblemError(f"query {query.name!r} is over another schema")
        for one in self.invariants:
            if one.query.operator.cells != self.schema.size or not 0 <= one.level < self.hierarchy.levels:
                raise ProblemError(f"the invariant {one.query.name!r} is over another schema or on an unknown level")
        if self.invariants and self.plan.neighbours != "replace":
            raise ProblemError(
                "invariants are exact counts, which adding or removing a person would change: use neighbours = "
                '"replace"'
            )
        if self.plan.neighbours != "replace" and any(one.source == "data" for one in self.stated):
            raise ProblemError('facts taken from the data hold for neighbours = "replace" only')
        Invariants(self.hierarchy, self.schema, self.bounds, linear=self.linear)

    @property
    def stated(self) -> tuple[Stated, ...]:
        """Return all facts as they were stated, before exact answers are known."""
        return (*self.bounds, *self.linear)

    @classmethod
    def of(cls, asked: Asked) -> TableQuestions:
        """Return what the public half of a measurement asks; raise ProblemError for another kind's."""
        if asked.kind != KIND:
            raise ProblemError(f"a measurement of {asked.kind}, not of tables")
        schema = schema_of(asked.facts["schema"])
        queries = tuple(parse_query(text, schema, name) for name, text in asked.facts["queries"])
        costs = {(one.level, one.query): one.cost for one in asked.questions if one.cost is not None}
        nothing = asked.cost * 0
        plan = TablePlan(
            queries,
            tuple(
                tuple(costs.get((level, noisy_name(query)), nothing) for query in queries)
                for level in range(asked.hierarchy.levels)
            ),
            asked.neighbours,
            asked.facts.get(ROWS, 1),
        )
        exact = [Invariant(parse_query(text, schema), level) for level, text in asked.facts["invariants"]]
        bounds, linear, earlier = _bounds(asked, schema), _linear(asked), asked.facts.get(AGREES, ())
        return cls(asked.hierarchy, schema, plan, tuple(exact), tuple(bounds), tuple(linear), tuple(earlier))

    def asked(self, levels: Sequence[str] = (), region_ids: Sequence[str | None] = ()) -> Asked:
        """Return the public half of a measurement, read back by ``of``.

        ``levels`` are the levels' names ("level 0", ... unless given), ``region_ids`` the regions' ids, None without.
        """
        stated: list[Invariant | RegionBounds] = [*self.invariants, *self.bounds]
        queries = [*self.plan.queries, *(one.query for one in stated)]
        used = {factor.title for query in queries for factor in query.factors}
        return Asked(
            kind=KIND,
            hierarchy=self.hierarchy,
            levels=tuple(levels) or tuple(f"level {level}" for level in range(self.hierarchy.levels)),
            questions=(*self.noisy, *self.exact),
            neighbours=self.plan.neighbours,
            facts={
                "schema": plain_schema(self.schema.with_groupings(used)),
                "queries": [[query.name, query.text] for query in self.plan.queries],
                "invariants": [[one.level, one.query.text] for one in self.invariants],
                "bounds": [[one.level, one.query.name, one.query.text, one.source] for one in self.bounds],
                "constraints": [
                    [one.level, one.text, [list(term) for term in one.terms], one.source] for one in self.linear
                ],
                **({ROWS: self.plan.rows} if self.plan.rows > 1 else {}),
                **({AGREES: [dict(one) for one in self.earlier]} if self.earlier else {}),
            },
            tables=self._sides(),
            region_ids=region_ids,
        )

    @property
    def noisy(self) -> tuple[Question, ...]:
        """Return the questions that get noise, in the order of ``plan.asked``."""
        plan = self.plan
        return tuple(
            Question(
                level=level,
                query=noisy_name(plan.queries[query]),
                words=plan.queries[query].words,
                size=plan.queries[query].answers,
                sensitivity=plan.sensitivity(query),
                cost=plan.costs[level][query],
            )
            for level, query in plan.asked
        )

    @property
    def exact(self) -> tuple[Question, ...]:
        """Return the questions whose answers are declared public, in the order of ``invariants``."""
        return tuple(
            Question(one.level, f"invariant: {one.query.text}", one.query.words, one.query.answers, None, None)
            for one in self.invariants
        )

    def _sides(self) -> dict[str, Int64]:
        found = {}
        for number, one in enumerate(self.bounds):
            found[_LOWER.format(number)] = one.lower.ravel()
            found[_UPPER.format(number)] = one.upper.ravel()
        for number, constraint in enumerate(self.linear):
            found[_LINEAR_LOWER.format(number)] = constraint.lower
            found[_LINEAR_UPPER.format(number)] = constraint.upper
        return found

    def __repr__(self) -> str:
        return f"TableQuestions({self.hierarchy!r}, {self.schema!r}, {self.plan!r})"


def noisy_name(query: Query) -> str:
    """Return the name of a query's question, and of its noise."""
    return f"table {query.name}"


def noise_label(hierarchy: Hierarchy, level: int) -> str:
    """Return the label of the noise of all regions of a level.

    One stream serves them all, region after region in the public hierarchy's order: its numbers are independent draws
    of one law wherever they are read, so the answers have the law that one stream a region would give, without the cost
    of opening 25,000 ciphers for a query of one answer.
    """
    return f"{hierarchy.path(0)}, level {level}"


def _bounds(asked: Asked, schema: Schema) -> list[RegionBounds]:
    facts: Mapping[str, Any] = asked.facts
    found = []
    for number, (level, name, text, source) in enumerate(facts["bounds"]):
        query = parse_query(text, schema, name)
        shape = (len(asked.hierarchy.level_range(level)), query.answers)
        lower, upper = (asked.tables[side.format(number)].reshape(shape) for side in (_LOWER, _UPPER))
        found.append(RegionBounds(query, level, lower, upper, source))
    return found


def _linear(asked: Asked) -> Iterator[LinearConstraint]:
    for number, (level, text, terms, source) in enumerate(asked.facts["constraints"]):
        lower, upper = (asked.tables[side.format(number)] for side in (_LINEAR_LOWER, _LINEAR_UPPER))
        summands = tuple((weight, count) for weight, count in terms)
        yield LinearConstraint(text, summands, level, lower, upper, source)
