"""What several measurements of the same tables say together: their queries, each once, and answers pooled.

Answers y_k of variances v_k to one query in one region are, for any least squares, as good as their mean weighted by
1 / v_k, whose variance is 1 / sum(1 / v_k): the rest of what they say is noise alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from coco_opt.privacy.several import differ
from coco_opt.topdown.invariants import RegionBounds
from coco_opt.topdown.queries import Query, parse_query
from coco_opt.topdown.questions import TableQuestions


class RegionAnswers(Protocol):
    """Answers [regions of a level, answers] to one query: an array, or what reads those of some regions from a file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of regions and of answers."""
        ...

    def __getitem__(self, regions: slice, /) -> Any:
        """Return the answers of consecutive regions, counted in their level."""
        ...


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Unread:
    """Answers pooled from ``several`` with some ``weights``, which are not all in memory."""

    several: tuple[RegionAnswers, ...]
    weights: tuple[float, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of regions and of answers."""
        return self.several[0].shape

    def __getitem__(self, regions: slice, /) -> NDArray[np.float64]:
        """Return the weighted sum of all answers of consecutive regions, counted in their level."""
        return _mean([one[regions] for one in self.several], self.weights)


@dataclass(frozen=True, eq=False, slots=True)
class Noisy:
    """Answers [regions of a level, answers] to one query, and the variance of the noise of each."""

    answers: RegionAnswers
    variance: float


def pooled(several: Sequence[Noisy]) -> Noisy:
    """Return what independent answers to one query say together; one alone as it is.

    O(answers) where they are in memory; else they are pooled where they are read.
    """
    if len(several) == 1:
        return several[0]
    precisions = [1.0 / one.variance for one in several]
    total = sum(precisions)
    answers, weights = tuple(one.answers for one in several), tuple(precision / total for precision in precisions)
    if all(isinstance(one, np.ndarray) for one in answers):
        return Noisy(_mean(answers, weights), 1.0 / total)
    return Noisy(Unread(answers, weights), 1.0 / total)


def _mean(several: Sequence[Any], weights: Sequence[float]) -> NDArray[np.float64]:
    return np.asarray(sum(one * weight for one, weight in zip(several, weights, strict=True)), np.float64)


def pooled_queries(asked: Sequence[TableQuestions]) -> tuple[tuple[Query, ...], list[list[int]]]:
    """Return the queries of all measurements, each text once, and for each measurement the places of its own.

    A query has the name that the first who asked it gave it, or its text where another has that name. Those of one
    measurement alone are its own, also where two of different names read the same.
    """
    if len(asked) == 1:
        own = asked[0].plan.queries
        return own, [list(range(len(own)))]
    found: dict[str, Query] = {}
    names: set[str] = set()
    for questions in asked:
        for query in questions.plan.queries:
            if query.text not in found:
                named = query if query.name not in names else parse_query(query.text, questions.schema)
                found[query.text] = named
                names.add(named.name)
    places = {text: at for at, text in enumerate(found)}
    return tuple(found.values()), [[places[query.text] for query in one.plan.queries] for one in asked]


def check_alike(asked: Sequence[TableQuestions], exact: Sequence[Sequence[RegionBounds]]) -> None:
    """Raise InputError (measurements-differ) unless all measurements are of the same cells and the same facts."""
    for number, other in enumerate(asked[1:], start=2):
        for reason in _differences(asked[0], other):
            raise differ(number, reason)
        if _bounds(exact[number - 1]) != _bounds(exact[0]):
            raise differ(number, "has other exact answers than the first")


def _differences(first: TableQuestions, other: TableQuestions) -> Iterator[str]:
    """Yield in what a measurement differs from the first, though it must not."""
    one, two = first.schema, other.schema
    if list(one.attributes.items()) != list(two.attributes.items()):
        yield "has other attributes, values or orders of them than the first"
        return
    if one.size != two.size or (one.allowed != two.allowed).any():
        yield "has other structural zeros than the first"
    for name in set(one.groupings) & set(two.groupings):
        if (
            one.group_labels[name][0] != two.group_labels[name][0]
            or (one.group_labels[name][1] != two.group_labels[name][1]).any()
        ):
            yield f"calls other groups {name!r} than the first"
    if first.plan.rows != other.plan.rows:
        yield f"protects a person with {other.plan.rows} rows, and the first one with {first.plan.rows}"
    stated = [{(fact.level, fact.query.text) for fact in each.invariants} for each in (first, other)]
    if stated[0] != stated[1]:
        level, text = min(stated[0] ^ stated[1])
        yield f"and the first do not both hold {text!r} exact at level {level}"
    linear = [{(c.level, c.text, c.lower.tobytes(), c.upper.tobytes()) for c in each.linear} for each in (first, other)]
    if _bounds(first.bounds) != _bounds(other.bounds) or linear[0] != linear[1]:
        yield "was stated with other bounds or constraints than the first"
    if first.earlier != other.earlier:
        yield "agrees with other earlier releases than the first"


def _bounds(bounds: Sequence[RegionBounds]) -> set[tuple[object, ...]]:
    return {(one.level, one.query.text, one.lower.tobytes(), one.upper.tobytes()) for one in bounds}
