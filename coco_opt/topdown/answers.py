"""Measurements of tables read level by level: noisy answers as tables, and all that must hold exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.histograms.hierarchy import Hierarchy
from coco_opt.privacy.answers import Answers, Question
from coco_opt.privacy.measurement import Measurement
from coco_opt.topdown.invariants import Constraints, Invariants, RegionBounds
from coco_opt.topdown.pooled import Noisy, RegionAnswers, check_alike, pooled, pooled_queries
from coco_opt.topdown.queries import Query
from coco_opt.topdown.questions import TableQuestions
from coco_opt.topdown.schema import Schema

Int64 = NDArray[np.int64]
Floats = NDArray[np.float64]
Levels = tuple[tuple[RegionAnswers | None, ...], ...]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class TableAnswers:
    """The noisy answers of every asked query in every region, in the hierarchy's order, with what is public.

    ``answers`` [levels][queries] are [regions of the level, answers of the query], read-only: int64, or float64 where
    several measurements asked the same and their answers were pooled; None where nothing was asked. Those of large
    measurements stay in their file, and a slice of regions reads theirs. ``variances`` float64[levels, queries] are
    those of an answer's noise, infinite where nothing was asked. ``invariants`` are all exact answers and bounds,
    closed under sums; ``rows`` the public maximum of rows a person, ``earlier`` what is said of the releases that they
    agree with. Raises ProblemError where the parts do not fit together.
    """

    hierarchy: Hierarchy
    schema: Schema
    queries: tuple[Query, ...]
    answers: Levels
    variances: Floats
    invariants: Invariants
    rows: int = 1
    earlier: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        answers = tuple(tuple(level) for level in self.answers)
        shape = (self.hierarchy.levels, len(self.queries))
        if [len(level) for level in answers] != [shape[1]] * shape[0] or self.variances.shape != shape:
            raise ProblemError("answers and variances must be given for each level and query")
        for level in range(self.hierarchy.levels):
            for query, answer in enumerate(answers[level]):
                self._check_answer(level, query, answer)
        object.__setattr__(self, "answers", answers)

    def _check_answer(self, level: int, query: int, answer: RegionAnswers | None) -> None:
        name = self.queries[query].name
        if (answer is None) == bool(np.isfinite(self.variances[level, query])):
            raise ProblemError(f"level {level}, {name!r}: queries that were asked, and no others, have answers")
        if answer is None:
            return
        shape = (len(self.hierarchy.level_range(level)), self.queries[query].answers)
        number = not isinstance(answer, np.ndarray) or answer.dtype in (np.int64, np.float64)
        if answer.shape != shape or not number:
            raise ProblemError(f"level {level}, {name!r}: answers must be int64 or float64 of shape {shape}")
        if isinstance(answer, np.ndarray):
            answer.setflags(write=False)

    def __reduce__(self) -> tuple[Callable[..., TableAnswers], tuple[Any, ...]]:
        # Unpickled arrays are writable: going through the constructor makes them read-only again.
        return TableAnswers, tuple(getattr(self, name) for name in self.__dataclass_fields__)

    @classmethod
    def of(cls, measurement: Measurement) -> TableAnswers:
        """Read a measurement, or several of the same data that are estimated together (``Measurement.also``).

        Answers of several to one query at one level are pooled by their precisions, which loses nothing that a linear
        estimate could use. Raises ProblemError for another kind's, InputError (measurements-differ) for measurements of
        other attributes, cells or facts than the first, and for exact answers that clash.
        """
        asked = [TableQuestions.of(one.asked) for one in measurement.every]
        exact = [_exact(one, questions) for one, questions in zip(measurement.every, asked, strict=True)]
        check_alike(asked, exact)
        first = asked[0]
        queries, places = pooled_queries(asked)
        found: dict[tuple[int, int], list[Noisy]] = {}
        for one, questions, place in zip(measurement.every, asked, places, strict=True):
            for (level, query), noisy in _noisy(one, questions).items():
                found.setdefault((level, place[query]), []).append(noisy)
        levels = first.hierarchy.levels
        known = {at: pooled(several) for at, several in found.items()}
        answers = tuple(
            tuple(known[level, query].answers if (level, query) in known else None for query in range(len(queries)))
            for level in range(levels)
        )
        variances = np.full((levels, len(queries)), np.inf)
        for at, noisy in known.items():
            variances[at] = noisy.variance
        facts = Invariants(first.hierarchy, first.schema, (*first.bounds, *exact[0]), first.invariants, first.linear)
        return cls(first.hierarchy, first.schema, queries, answers, variances, facts, first.plan.rows, first.earlier)

    @property
    def asked(self) -> tuple[tuple[int, int], ...]:
        """Return the (level, query) pairs that were asked, root first."""
        return tuple((int(level), int(query)) for level, query in np.argwhere(np.isfinite(self.variances)))

    @property
    def alone(self) -> TableAnswers:
        """Return the same without what earlier releases say: their answers have noise of their own."""
        return replace(self, invariants=self.invariants.but("release"))

    def variance(self, level: int, query: int) -> float:
        """Return the exact variance of one answer's noise; infinite where the query was not asked."""
        return float(self.variances[level, query])

    def constraints_of(self, regions: range) -> Constraints | None:
        """Return what consecutive regions of one level must satisfy exactly, or None (see ``Invariants``)."""
        return self.invariants.constraints_of(regions)

    def __repr__(self) -> str:
        names = ", ".join(query.name for query in self.queries)
        return f"TableAnswers({self.hierarchy!r}, {self.schema!r}, {names}; {self.invariants!r})"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Stored:
    """Answers of one measurement that are not in memory, as many in every region."""

    sealed: Answers

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of regions and of answers."""
        return self.sealed.regions, int(self.sealed.offsets[1])

    def __getitem__(self, regions: slice, /) -> Int64:
        """Return the answers of consecutive regions, counted in their level."""
        begin, end, _ = regions.indices(self.sealed.regions)
        size = self.shape[1]
        return self.sealed.read(begin * size, end * size).reshape(-1, size)


def _noisy(measurement: Measurement, questions: TableQuestions) -> dict[tuple[int, int], Noisy]:
    """Return the answers of a measurement by level and place of the query in its plan."""
    given = {_key(one.question): one for one in measurement.answers}
    found = {}
    for pair, question in zip(questions.plan.asked, questions.noisy, strict=True):
        one = given[_key(question)]
        in_memory = isinstance(one.stored, np.ndarray)
        found[pair] = Noisy(one.table() if in_memory else Stored(one), one.question.law.variance)
    return found


def _exact(measurement: Measurement, questions: TableQuestions) -> list[RegionBounds]:
    """Return what a measurement declares exact, with its answers."""
    given = {_key(one.question): one for one in measurement.answers}
    return [
        RegionBounds.exact(one.query, one.level, given[_key(question)].table())
        for one, question in zip(questions.invariants, questions.exact, strict=True)
    ]


def _key(question: Question) -> tuple[int, str]:
    return question.level, question.query
