"""Measurements of tables read level by level: noisy answers as tables, and all that must hold exactly.

Several measurements of the same tables are taken together: their queries, each once, and their answers, pooled. Answers
y_k of variances v_k to one query in one region are, for any least squares, as good as their mean weighted by 1 / v_k,
whose variance is 1 / sum(1 / v_k): the rest of what they say is noise alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Protocol

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.execution.temporary_storage import stored_by_parts
from coco_opt.histograms.hierarchy import Hierarchy
from coco_opt.privacy.combined_measurements import differ
from coco_opt.privacy.measurement import Measurement
from coco_opt.privacy.queries import Answers
from coco_opt.topdown.constraint import RegionBounds
from coco_opt.topdown.invariants import Invariants
from coco_opt.topdown.queries import Query, parse_query
from coco_opt.topdown.rows import Constraints
from coco_opt.topdown.schema import Schema
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


def pooled(
    several: Sequence[tuple[RegionMeasurements, float | Floats]],
) -> tuple[RegionMeasurements, float | Floats]:
    """Return the pooled answers of independent measurements of one query, and their variance; one alone is as it was.

    A variance is one number, or float64[regions] where regions differ, infinite where one was not measured. O(answers);
    they lie in a file if they are many.
    """
    if len(several) == 1:
        return several[0]
    precisions = [1.0 / np.atleast_1d(variance) for _, variance in several]
    total = np.asarray(sum(precisions), np.float64)
    shares = [np.divide(precision, total, out=np.zeros_like(total), where=total > 0.0) for precision in precisions]
    variance = np.divide(1.0, total, out=np.full_like(total, np.inf), where=total > 0.0)

    def mean(some: slice) -> Floats:
        weights = [share[some] if share.size > 1 else share for share in shares]
        weighted = (answers[some] * weight[:, None] for (answers, _), weight in zip(several, weights, strict=True))
        return np.asarray(sum(weighted), np.float64)

    one = all(isinstance(variance, float) for _, variance in several)
    answers = stored_by_parts(several[0][0].shape, np.dtype(np.float64), mean)
    return answers, float(variance[0]) if one else variance


Levels = tuple[tuple[RegionMeasurements | None, ...], ...]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class TableMeasurements:
    """The noisy answers of every measured query in every region, in the hierarchy's order, with all that is public.

    ``answers`` [levels][queries] are [regions of the level, answers of the query], read-only: int64, or float64 where
    several measurements of the same query were pooled; None where nothing was measured. Those of large
    measurements stay in their file, and a slice of regions reads theirs. ``variances`` float64[levels, queries] are
    those of an answer's noise, infinite where nothing was measured; where regions differ, ``by_region`` has theirs
    (float64[regions of the level], by level and query, infinite where a region was not measured: its answers are
    0), and ``variances`` their harmonic mean. ``invariants`` are all exact answers and bounds,
    closed under sums; ``rows`` the public maximum of rows a person, ``earlier`` what is said of the releases that they
    agree with.
    """

    hierarchy: Hierarchy
    schema: Schema
    queries: tuple[Query, ...]
    answers: Levels
    variances: Floats
    invariants: Invariants
    rows: int = 1
    earlier: tuple[Mapping[str, Any], ...] = ()
    by_region: Mapping[tuple[int, int], Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for answers in chain.from_iterable(self.answers):
            if isinstance(answers, np.ndarray):
                answers.setflags(write=False)

    def __reduce__(self) -> tuple[Callable[..., TableMeasurements], tuple[Any, ...]]:
        # Unpickled arrays are writable: going through the constructor makes them read-only again.
        return TableMeasurements, tuple(getattr(self, name) for name in self.__dataclass_fields__)

    @classmethod
    def of(cls, measurement: Measurement) -> TableMeasurements:
        """Read a measurement, or several of the same data that are estimated together (``Measurement.also``).

        Answers of several to one query at one level are pooled by their precisions, which loses nothing that a linear
        estimate could use. Raises ProblemError for another kind's, InputError (measurements-differ) for measurements of
        other attributes, cells or constraints than the first, and for exact answers that contradict each other.
        """
        plans = [TableQueries.of(single.measurement_plan) for single in measurement.every]
        exact = [_exact(single, table_queries) for single, table_queries in zip(measurement.every, plans, strict=True)]
        check_same_parameters(plans, exact)
        first = plans[0]
        queries, places = pooled_queries(plans)
        noisy: dict[tuple[int, int], list[tuple[RegionMeasurements, float | Floats]]] = {}
        for single, table_queries, place in zip(measurement.every, plans, places, strict=True):
            for level, query, stored, variance in _noisy(single, table_queries):
                noisy.setdefault((level, place[query]), []).append((stored, variance))
        levels = first.hierarchy.levels
        answers: list[list[RegionMeasurements | None]] = [[None] * len(queries) for _ in range(levels)]
        variances, by_region = np.full((levels, len(queries)), np.inf), dict[tuple[int, int], Floats]()
        for (level, query), several in noisy.items():
            answers[level][query], variance = pooled(several)
            variances[level, query] = 1.0 / np.mean(1.0 / np.asarray(variance))
            if isinstance(variance, np.ndarray):
                by_region[level, query] = variance
        constraints = Invariants(
            first.hierarchy, first.schema, (*first.bounds, *exact[0]), first.invariants, first.linear
        )
        return cls(
            first.hierarchy,
            first.schema,
            queries,
            tuple(map(tuple, answers)),
            variances,
            constraints,
            first.plan.rows,
            first.earlier,
            by_region,
        )

    @property
    def measured_queries(self) -> tuple[tuple[int, int], ...]:
        """Return the (level, query) pairs that were measured, root first."""
        return tuple((int(level), int(query)) for level, query in np.argwhere(np.isfinite(self.variances)))

    @property
    def own(self) -> TableMeasurements:
        """Return the same without what earlier releases say: their answers have noise of their own."""
        return replace(self, invariants=self.invariants.but("release"))

    def variance(self, level: int, query: int) -> float:
        """Return the exact variance of one answer's noise; infinite where the query was not measured.

        Where regions differ it is the harmonic mean of theirs.
        """
        return float(self.variances[level, query])

    def region_variances(self, level: int, query: int, regions: slice = slice(None)) -> Floats:
        """Return the variances of one answer's noise in regions counted in their level, infinite where not measured."""
        if (level, query) in self.by_region:
            return self.by_region[level, query][regions]
        return np.full(len(self.hierarchy.level_range(level)[regions]), self.variances[level, query])

    def constraints_of(self, regions: range) -> Constraints | None:
        """Return what consecutive regions of one level must satisfy exactly, or None (see ``Invariants``)."""
        return self.invariants.constraints_of(regions)

    def __repr__(self) -> str:
        names = ", ".join(query.name for query in self.queries)
        return f"TableMeasurements({self.hierarchy!r}, {self.schema!r}, {names}; {self.invariants!r})"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Stored:
    """Answers of one measurement that are not in memory, the same number in every region.

    Those of regions that were not measured, bool[regions], are read as 0.
    """

    sealed: Answers
    unmeasured: Flags | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of regions and of answers."""
        return self.sealed.regions, int(self.sealed.offsets[1])

    def __getitem__(self, regions: slice, /) -> Ints:
        """Return the answers of consecutive regions, counted in their level."""
        begin, end, _ = regions.indices(self.sealed.regions)
        size = self.shape[1]
        answers = self.sealed.read(begin * size, end * size).reshape(-1, size)
        return answers if self.unmeasured is None else np.where(self.unmeasured[begin:end, None], 0, answers)


def measured_answers(measurement: Measurement, table_queries: TableQueries) -> Iterator[tuple[int, int, Answers]]:
    """Yield the level of each measured query, its place in the plan, and its noisy answers."""
    by_name = {(answers.query.level, answers.query.name): answers for answers in measurement.answers}
    for pair, level_query in zip(table_queries.plan.measured_queries, table_queries.noisy, strict=True):
        yield *pair, by_name[level_query.level, level_query.name]


def _noisy(
    measurement: Measurement, table_queries: TableQueries
) -> Iterator[tuple[int, int, RegionMeasurements, float | Floats]]:
    """Yield the level of each measured query, its place in the plan, its answers and their variance."""
    differ = {(each.level, name): each.of(name) for each in table_queries.variances for name in each.stated}
    for level, query, answers in measured_answers(measurement, table_queries):
        by_region = differ.get((level, table_queries.plan.queries[query].name))
        stored = Stored(answers, None if by_region is None else np.isinf(by_region))
        in_memory = isinstance(answers.stored, np.ndarray)
        variance = answers.query.distribution.variance if by_region is None else by_region
        yield level, query, stored[:] if in_memory else stored, variance


def _exact(measurement: Measurement, table_queries: TableQueries) -> list[RegionBounds]:
    """Return what a measurement declares exact, with its answers."""
    by_name = {(answers.query.level, answers.query.name): answers for answers in measurement.answers}
    return [
        RegionBounds.exact(invariant.query, invariant.level, by_name[level_query.level, level_query.name].table())
        for invariant, level_query in zip(table_queries.invariants, table_queries.exact, strict=True)
    ]


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
