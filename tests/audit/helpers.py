"""A toy release to audit: the cells of a root and two leaves, made nonnegative; and faults to plant in any release."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coco_opt.audit import Sources, Subject
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import (
    Asked,
    Cost,
    Epsilon,
    Exact,
    Measurement,
    Neighbours,
    NoiseSource,
    NoiseStream,
    Question,
    SeededNoise,
    Sensitivity,
)

Ints = NDArray[np.int64]
AnySubject = Subject[Any, Any]

TREE = Hierarchy.from_paths([("all", "north"), ("all", "south")])
LEVELS = ("nation", "state")
TABLE = np.array([[3, 0, 7], [1, 4, 0]], np.int64)


@dataclass(frozen=True, eq=False)
class Couple:
    """D and D'."""

    first: Any
    second: Any
    words: str = "one entity added"


def couple(neighbours: Neighbours = "add_remove") -> Couple:
    """Return the toy's neighbours: one entity more, or one in another cell of another leaf."""
    second = TABLE.copy()
    second[0, 2] += 1
    if neighbours == "replace":
        second[1, 1] -= 1
    return Couple(TABLE, second)


def toy(
    cost: Cost | None = None, neighbours: Neighbours = "add_remove", *, exact_total: bool = False, delta: Any = None
) -> AnySubject:
    """Return the toy as a subject; ``exact_total`` declares the number of all entities public."""
    whole = cost or Epsilon(Fraction(1))
    changed = 2 if neighbours == "replace" else 1
    questions = [
        Question(level, "cells", "entities by cell", 3, Sensitivity(changed, changed), whole * Fraction(1, 2))
        for level in range(2)
    ]
    if exact_total:
        questions.append(Question(0, "total", "entities", 1, None, None))
    asked = Asked("toy", TREE, LEVELS, tuple(questions), neighbours)

    def exact(table: Ints) -> Iterator[Exact]:
        for question in questions:
            for region in TREE.level_range(question.level):
                cells = table.sum(axis=0) if region == 0 else table[region - 1]
                yield Exact(question, TREE.paths[region], cells.sum(keepdims=True) if question.exact else cells)

    return Subject(asked, whole, exact, _estimate, _statistics, delta)


def _estimate(measurement: Measurement) -> list[Ints]:
    return [np.maximum(answers.table(), 0) for answers in measurement.answers[:2]]


def _statistics(table: Any) -> Mapping[str, Ints]:
    levels = table if isinstance(table, list) else [table.sum(axis=0, keepdims=True), table]
    return dict(zip(LEVELS, levels, strict=True))


def sources(first: int) -> Sources:
    """Return sources of independent seeded noise."""
    return lambda number: SeededNoise(first + number)


def with_questions(subject: AnySubject, change: Callable[[Question], Question]) -> AnySubject:
    """Return a subject whose noisy questions are others; the claim stays."""

    def changed(question: Question) -> Question:
        return question if question.exact else change(question)

    def exact(table: Any) -> Iterable[Exact]:
        return (replace(part, question=changed(part.question)) for part in subject.exact(table))

    asked = replace(subject.asked, questions=tuple(map(changed, subject.asked.questions)))
    return replace(subject, asked=asked, exact=exact)


def half_the_sensitivity(question: Question) -> Question:
    """Return a question whose sensitivity is taken for half of what it is, at least 1."""
    assert question.sensitivity is not None
    l1, l2 = question.sensitivity.l1, question.sensitivity.l2_squared
    return replace(question, sensitivity=Sensitivity(max(1, l1 // 2), max(1, l2 // 4)))


def asked_twice(subject: AnySubject) -> AnySubject:
    """Return a subject that asks everything once more at the same cost, and claims what asking once costs."""

    def again(question: Question) -> Question:
        return replace(question, query=f"{question.query} again")

    def exact(table: Any) -> Iterator[Exact]:
        yield from subject.exact(table)
        for part in subject.exact(table):
            if not part.question.exact:
                yield replace(part, question=again(part.question))

    more = tuple(again(question) for question in subject.asked.questions if not question.exact)
    return replace(subject, asked=replace(subject.asked, questions=(*subject.asked.questions, *more)), exact=exact)


def also_exact(subject: AnySubject) -> AnySubject:
    """Return a subject that declares the answers to its last question exact, and asks it with noise too."""
    last = subject.asked.questions[-1]
    declared = replace(last, query="declared", sensitivity=None, cost=None)

    def exact(table: Any) -> Iterator[Exact]:
        yield from subject.exact(table)
        yield from (replace(part, question=declared) for part in subject.exact(table) if part.question == last)

    return replace(subject, asked=replace(subject.asked, questions=(*subject.asked.questions, declared)), exact=exact)


class HalvedNoise:
    """A source whose noise is half as wide as it is asked to be."""

    name: ClassVar[str] = "halved"
    private: ClassVar[bool] = False

    def __init__(self, source: NoiseSource) -> None:
        self._source = source

    def stream(self, scale: Fraction, *, measurement: str, region: str) -> NoiseStream:
        return self._source.stream(scale / 2, measurement=measurement, region=region)

    def gaussian_stream(self, variance: Fraction, *, measurement: str, region: str) -> NoiseStream:
        stream: NoiseStream = self._source.gaussian_stream(variance / 4, measurement=measurement, region=region)  # type: ignore[attr-defined]
        return stream


def sealed_by(subject: AnySubject, seal: Callable[[Asked, Sequence[Exact], NoiseSource], Measurement]) -> AnySubject:
    """Return a subject that draws its noise in another way."""
    return replace(subject, seal=seal)
