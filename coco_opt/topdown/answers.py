"""A measurement of tables read level by level: noisy answers as tables, and all that must hold exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.histograms.hierarchy import Hierarchy
from coco_opt.privacy.measurement import Measurement
from coco_opt.topdown.invariants import Constraints, Invariants, RegionBounds
from coco_opt.topdown.plan import TablePlan
from coco_opt.topdown.queries import Query
from coco_opt.topdown.questions import TableQuestions
from coco_opt.topdown.schema import Schema

Int64 = NDArray[np.int64]
Levels = tuple[tuple[Int64 | None, ...], ...]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class TableAnswers:
    """The noisy answers of every asked query in every region, in the hierarchy's order, with what is public.

    ``answers`` [levels][queries] are int64[regions of the level, answers of the query], read-only, or None where
    nothing was asked; ``invariants`` are all exact answers and bounds, closed under sums, ``earlier`` what is said of
    the releases that they agree with. Raises ProblemError where
    the parts do not fit together.
    """

    hierarchy: Hierarchy
    schema: Schema
    plan: TablePlan
    answers: Levels
    invariants: Invariants
    earlier: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        answers = tuple(tuple(level) for level in self.answers)
        if [len(level) for level in answers] != [len(self.queries)] * self.hierarchy.levels:
            raise ProblemError("answers must be given for each level and query")
        for level in range(self.hierarchy.levels):
            for query, answer in enumerate(answers[level]):
                self._check_answer(level, query, answer)
        object.__setattr__(self, "answers", answers)

    def _check_answer(self, level: int, query: int, answer: Int64 | None) -> None:
        name = self.queries[query].name
        if (answer is None) == bool(self.plan.costs[level][query]):
            raise ProblemError(f"level {level}, {name!r}: queries that cost something, and no others, have answers")
        if answer is None:
            return
        shape = (len(self.hierarchy.level_range(level)), self.queries[query].answers)
        if answer.dtype != np.int64 or answer.shape != shape:
            raise ProblemError(f"level {level}, {name!r}: answers must be int64 of shape {shape}")
        answer.setflags(write=False)

    def __reduce__(self) -> tuple[Callable[..., TableAnswers], tuple[Any, ...]]:
        # Unpickled arrays are writable: going through the constructor makes them read-only again.
        parts = self.hierarchy, self.schema, self.plan, self.answers, self.invariants, self.earlier
        return TableAnswers, parts

    @classmethod
    def of(cls, measurement: Measurement) -> TableAnswers:
        """Read a measurement; raise ProblemError for another kind's, InputError for exact answers that clash."""
        asked = TableQuestions.of(measurement.asked)
        given = {(one.question.level, one.question.query): one for one in measurement.answers}
        known = {
            pair: given[question.level, question.query].table()
            for pair, question in zip(asked.plan.asked, asked.noisy, strict=True)
        }
        answers = tuple(
            tuple(known.get((level, query)) for query in range(len(asked.plan.queries)))
            for level in range(asked.plan.levels)
        )
        exact = [
            RegionBounds.exact(one.query, one.level, given[question.level, question.query].table())
            for one, question in zip(asked.invariants, asked.exact, strict=True)
        ]
        facts = Invariants(asked.hierarchy, asked.schema, (*asked.bounds, *exact), asked.invariants, asked.linear)
        return cls(asked.hierarchy, asked.schema, asked.plan, answers, facts, asked.earlier)

    @property
    def queries(self) -> tuple[Query, ...]:
        """Return the queries of the plan."""
        return self.plan.queries

    @property
    def alone(self) -> TableAnswers:
        """Return the same without what earlier releases say: their answers have noise of their own."""
        return replace(self, invariants=self.invariants.but("release"))

    def variance(self, level: int, query: int) -> float:
        """Return the exact variance of one answer's noise; infinite where the query was not asked."""
        return self.plan.variance(level, query)

    def constraints_of(self, regions: range) -> Constraints | None:
        """Return what consecutive regions of one level must satisfy exactly, or None (see ``Invariants``)."""
        return self.invariants.constraints_of(regions)

    def __repr__(self) -> str:
        return f"TableAnswers({self.hierarchy!r}, {self.schema!r}, {self.plan!r}, {self.invariants!r})"
