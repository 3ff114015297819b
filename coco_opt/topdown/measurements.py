"""The noisy answers of all tables of a hierarchy, sealed: all that post-processing ever sees of the private data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.histograms.hierarchy import Hierarchy
from coco_opt.privacy.budget import Neighbours
from coco_opt.privacy.ledger_chain import Unit
from coco_opt.privacy.mechanism import Mechanism
from coco_opt.topdown.invariants import Constraints, Invariants
from coco_opt.topdown.plan import Amounts, TablePlan
from coco_opt.topdown.queries import Query
from coco_opt.topdown.schema import Schema

Int64 = NDArray[np.int64]
Answers = tuple[tuple[Int64 | None, ...], ...]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class TableMeasurements:
    """Hold the noisy answers of every asked query in every region, in the hierarchy's order, with what is public.

    ``answers`` [levels][queries] are int64[regions of the level, answers of the query], read-only, or None where the
    plan asks nothing. Raises ProblemError where the parts do not fit together.
    """

    hierarchy: Hierarchy
    schema: Schema
    plan: TablePlan
    answers: Answers
    noise: str
    private: bool
    invariants: Invariants

    def __post_init__(self) -> None:
        check_plan(self.plan, self.hierarchy, self.schema)
        answers = tuple(tuple(level) for level in self.answers)
        if [len(level) for level in answers] != [len(self.queries)] * self.hierarchy.levels:
            raise ProblemError("answers must be given for each level and query")
        for level in range(self.hierarchy.levels):
            for query, answer in enumerate(answers[level]):
                self._check_answer(level, query, answer)
        object.__setattr__(self, "answers", answers)

    def _check_answer(self, level: int, query: int, answer: Int64 | None) -> None:
        name = self.queries[query].name
        if (answer is None) != (self.amounts[level][query] == 0):
            raise ProblemError(f"level {level}, {name!r}: queries with an amount, and no others, have answers")
        if answer is None:
            return
        shape = (len(self.hierarchy.level_range(level)), self.queries[query].answers)
        if answer.dtype != np.int64 or answer.shape != shape:
            raise ProblemError(f"level {level}, {name!r}: answers must be int64 of shape {shape}")
        answer.setflags(write=False)

    def __reduce__(self) -> tuple[Callable[..., TableMeasurements], tuple[Any, ...]]:
        # Unpickled arrays are writable: going through the constructor makes them read-only again.
        parts = (self.hierarchy, self.schema, self.plan, self.answers, self.noise, self.private, self.invariants)
        return TableMeasurements, parts

    @property
    def queries(self) -> tuple[Query, ...]:
        """Return the queries of the plan."""
        return self.plan.queries

    @property
    def amounts(self) -> Amounts:
        """Return what each query cost at each level, [levels][queries] in the mechanism's unit; 0 is not asked."""
        return self.plan.amounts

    @property
    def mechanism(self) -> Mechanism:
        """Return the noise's law."""
        return self.plan.mechanism

    @property
    def neighbours(self) -> Neighbours:
        """Return which databases the guarantee makes hard to tell apart."""
        return self.plan.neighbours

    @property
    def unit(self) -> Unit:
        """Return what the measurements were charged in."""
        return self.plan.unit

    @property
    def spent(self) -> Fraction:
        """Return the budget spent in its unit."""
        return self.plan.spent

    def variance(self, level: int, query: int) -> float:
        """Return the exact variance of one answer's noise; infinite where the query was not asked."""
        return self.plan.variance(level, query)

    def answers_of(self, regions: range, query: int) -> Int64 | None:
        """Return the noisy answers of consecutive regions of one level, int64[regions, answers], or None."""
        level = int(self.hierarchy.level[regions.start])
        answer = self.answers[level][query]
        first = self.hierarchy.level_range(level).start
        return None if answer is None else answer[regions.start - first : regions.stop - first]

    def constraints_of(self, regions: range) -> Constraints | None:
        """Return what consecutive regions of one level must satisfy exactly, or None (see ``Invariants``)."""
        return self.invariants.constraints_of(regions)

    def __repr__(self) -> str:
        privacy = "private" if self.private else "NOT PRIVATE"
        return (
            f"TableMeasurements({self.hierarchy.regions:,} regions, {self.schema!r}, {self.plan!r}, "
            f"{self.invariants!r}, {self.noise} noise: {privacy})"
        )


def check_plan(plan: TablePlan, hierarchy: Hierarchy, schema: Schema) -> None:
    """Raise ProblemError unless a plan is for these levels and cells."""
    if plan.levels != hierarchy.levels:
        raise ProblemError(f"the plan is for {plan.levels} levels, the hierarchy has {hierarchy.levels}")
    for query in plan.queries:
        if query.operator.cells != schema.size:
            raise ProblemError(f"query {query.name!r} is over another schema")
