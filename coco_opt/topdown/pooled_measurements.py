"""Several measurements of the same tables taken together: their queries, each once, and their answers, pooled.

Answers y_k of variances v_k to one query in one region are, for any least squares, as good as their mean weighted by
1 / v_k, whose variance is 1 / sum(1 / v_k): the rest of what they say is noise alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.privacy.combined_measurements import differ
from coco_opt.topdown.constraint import RegionBounds
from coco_opt.topdown.queries import Query, parse_query
from coco_opt.topdown.table_queries import TableQueries


class RegionMeasurements(Protocol):
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
    """Answers pooled from ``several`` with some ``weights`` [regions, 1], which are not all in memory."""

    several: tuple[RegionMeasurements, ...]
    weights: tuple[Floats, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of regions and of answers."""
        return self.several[0].shape

    def __getitem__(self, regions: slice, /) -> Floats:
        """Return the weighted sum of all answers of consecutive regions, counted in their level."""
        weights = [weight[regions] if len(weight) > 1 else weight for weight in self.weights]
        return _mean([answers[regions] for answers in self.several], weights)


@dataclass(frozen=True, eq=False, slots=True)
class Noisy:
    """Answers [regions of a level, answers] to one query, and the variance of the noise of each.

    It is one number, or float64[regions] where regions differ, infinite where one was not measured.
    """

    answers: RegionMeasurements
    variance: float | Floats


def harmonic_mean(variance: float | Floats) -> float:
    """Return the variance of the mean precision."""
    return float(1.0 / np.mean(1.0 / np.asarray(variance)))


def pooled(several: Sequence[Noisy]) -> Noisy:
    """Return the pooled answers of independent measurements of one query; a single measurement is returned unchanged.

    O(answers) where they are in memory; else they are pooled where they are read.
    """
    if len(several) == 1:
        return several[0]
    precisions = [1.0 / np.atleast_1d(noisy.variance) for noisy in several]
    total = np.asarray(sum(precisions), np.float64)
    shares = [np.divide(precision, total, out=np.zeros_like(total), where=total > 0.0) for precision in precisions]
    answers, weights = tuple(noisy.answers for noisy in several), tuple(share[:, None] for share in shares)
    variance = np.divide(1.0, total, out=np.full_like(total, np.inf), where=total > 0.0)
    stated = float(variance[0]) if all(isinstance(noisy.variance, float) for noisy in several) else variance
    if all(isinstance(array, np.ndarray) for array in answers):
        return Noisy(_mean(answers, weights), stated)
    return Noisy(Unread(answers, weights), stated)


def _mean(several: Sequence[Any], weights: Sequence[Floats]) -> Floats:
    return np.asarray(sum(answers * weight for answers, weight in zip(several, weights, strict=True)), np.float64)


def pooled_queries(plans: Sequence[TableQueries]) -> tuple[tuple[Query, ...], list[list[int]]]:
    """Return the queries of all measurements, each text once, and for each measurement the places of its own.

    A query has the name that its first measurement gave it, or its text where another query has that name. A single
    measurement keeps its own queries, even where two with different names have the same text.
    """
    if len(plans) == 1:
        own = plans[0].plan.queries
        return own, [list(range(len(own)))]
    queries: dict[str, Query] = {}
    names: set[str] = set()
    for table_queries in plans:
        for query in table_queries.plan.queries:
            if query.text not in queries:
                named = query if query.name not in names else parse_query(query.text, table_queries.schema)
                queries[query.text] = named
                names.add(named.name)
    places = {text: at for at, text in enumerate(queries)}
    return tuple(queries.values()), [
        [places[query.text] for query in table_queries.plan.queries] for table_queries in plans
    ]


def check_same_parameters(plans: Sequence[TableQueries], exact: Sequence[Sequence[RegionBounds]]) -> None:
    """Raise InputError (measurements-differ) unless all measurements are of the same cells and the same constraints."""
    for number, other in enumerate(plans[1:], start=2):
        for reason in _differences(plans[0], other):
            raise differ(number, reason)
        if _bounds(exact[number - 1]) != _bounds(exact[0]):
            raise differ(number, "has other exact answers than the first")


def _differences(first: TableQueries, other: TableQueries) -> Iterator[str]:
    """Yield in what a measurement differs from the first, though it must not."""
    left, right = first.schema, other.schema
    if list(left.attributes.items()) != list(right.attributes.items()):
        yield "has other attributes, values or orders of them than the first"
        return
    if left.size != right.size or (left.allowed != right.allowed).any():
        yield "has other structural zeros than the first"
    for name in set(left.groupings) & set(right.groupings):
        if (
            left.group_labels[name][0] != right.group_labels[name][0]
            or (left.group_labels[name][1] != right.group_labels[name][1]).any()
        ):
            yield f"calls other groups {name!r} than the first"
    if first.plan.rows != other.plan.rows:
        yield f"protects a person with {other.plan.rows} rows, and the first one with {first.plan.rows}"
    stated = [{(constraint.level, constraint.query.text) for constraint in each.invariants} for each in (first, other)]
    if stated[0] != stated[1]:
        level, text = min(stated[0] ^ stated[1])
        yield f"and the first do not both hold {text!r} exact at level {level}"
    linear = [{(c.level, c.text, c.lower.tobytes(), c.upper.tobytes()) for c in each.linear} for each in (first, other)]
    if _bounds(first.bounds) != _bounds(other.bounds) or linear[0] != linear[1]:
        yield "was stated with other bounds or constraints than the first"
    if first.earlier != other.earlier:
        yield "agrees with other earlier releases than the first"


def _bounds(bounds: Sequence[RegionBounds]) -> set[tuple[object, ...]]:
    return {(bound.level, bound.query.text, bound.lower.tobytes(), bound.upper.tobytes()) for bound in bounds}
