"""A measurement of groups read region by region: noisy measurements and the public information about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal, cast

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.groups.buckets import Buckets, Scheme, Split
from coco_opt.groups.queries import GROUPS, MeasuredQuery, check_query
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import Answers, LevelQuery, Measurement, MeasurementPlan, NoiseDistribution
from coco_opt.privacy.cost import total
from coco_opt.privacy.queries import DENSE, Stored

KIND = "groups"
MAX_SIZE = "max_size"
Loss = Literal["l1", "l2"]
_PIECE = 1 << 20


def max_size_of(measurement_plan: MeasurementPlan) -> int:
    """Return the public bound on sizes, K; raise ProblemError for another kind of data."""
    if measurement_plan.kind != KIND:
        raise ProblemError(f"a measurement of {measurement_plan.kind}, not of groups")
    return int(measurement_plan.parameters[MAX_SIZE])


def has_private_counts(measurement_plan: MeasurementPlan) -> bool:
    """Return whether the numbers of groups are private and were measured with noise."""
    max_size_of(measurement_plan)
    return GROUPS not in measurement_plan.per_region


def size_queries(measurement_plan: MeasurementPlan) -> tuple[LevelQuery, ...]:
    """Return the queries about sizes, without those for private numbers of groups."""
    return tuple(query for query in measurement_plan.queries if query.name != GROUPS)


def counts_share_of(measurement_plan: MeasurementPlan) -> Fraction | None:
    """Return the share of each level's cost spent on the numbers of groups, None where they are public."""
    if not has_private_counts(measurement_plan):
        return None
    spent = total(query.cost for query in count_queries(measurement_plan) if query.cost is not None)
    return spent.amount / measurement_plan.cost.amount


def count_queries(measurement_plan: MeasurementPlan) -> tuple[LevelQuery, ...]:
    """Return the queries for private numbers of groups, root first; none where they are public."""
    return tuple(query for query in measurement_plan.queries if query.name == GROUPS)


def starts_name(level: int) -> str:
    """Return the name of the public table of a level's bucket starts."""
    return f"bucket starts, level {level}"


def buckets_of(measurement_plan: MeasurementPlan, level: int) -> Buckets | None:
    """Return the buckets of sizes measured on a level; None for single cells and where nothing was measured."""
    starts = measurement_plan.tables.get(starts_name(level))
    return None if starts is None else Buckets.from_starts(starts, max_size_of(measurement_plan))


def split_name(level: int) -> str:
    """Return the name of the public table with the size from which on a level's ranks are measured."""
    return f"ranks above, level {level}"


def split_of(measurement_plan: MeasurementPlan, level: int) -> Split | None:
    """Return the size at which a level's query is split; None where it is not, or nothing is measured."""
    size = measurement_plan.tables.get(split_name(level))
    return None if size is None else Split(int(size[0]))


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Portion:
    """Noisy answers ``begin`` .. ``end`` - 1 to a query, read only when needed."""

    answers: Answers
    begin: int
    end: int

    @property
    def size(self) -> int:
        """Return the number of answers."""
        return self.end - self.begin

    def read(self, begin: int, end: int) -> Ints:
        """Return the answers ``begin`` .. ``end`` - 1 of this portion, read-only."""
        return self.answers.read(self.begin + begin, self.begin + end)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class RegionMeasurement:
    """One region's noisy answer: cells of its level's ``query`` (``coco_opt.groups.queries``), int64.

    ``stored`` holds the cells, or reads them from where they are; ``groups`` G and ``max_size`` K are public or
    released; ``distribution`` is that of the noise of one cell; ``buckets`` are those of the query "buckets", ``split``
    that of the query "split", None for others.
    """

    query: MeasuredQuery
    region: str
    groups: int
    max_size: int
    distribution: NoiseDistribution
    stored: Ints | Stored
    buckets: Buckets | None = None
    split: Split | None = None

    @property
    def scheme(self) -> Scheme | None:
        """Return the buckets or the split, None for single cells, ranks and sizes."""
        return self.buckets if self.split is None else self.split

    @property
    def values(self) -> Ints:
        """Return all cells, brought into memory where they are not: 8 bytes each."""
        return self.stored if isinstance(self.stored, np.ndarray) else self.stored.read(0, self.stored.size)

    @property
    def large(self) -> bool:
        """Return whether there are too many cells to hold several such arrays: then read ``pieces`` of them."""
        return self.stored.size > DENSE

    def pieces(self) -> Iterator[tuple[int, Ints]]:
        """Yield all cells, a million at a time (none: one empty piece): the place of the first of them, and them."""
        for begin in range(0, max(self.stored.size, 1), _PIECE):
            end = min(begin + _PIECE, self.stored.size)
            yield begin, self.stored[begin:end] if isinstance(self.stored, np.ndarray) else self.stored.read(begin, end)

    def __repr__(self) -> str:
        return f"RegionMeasurement({self.query} of {self.region!r}, {self.groups:,} groups, {self.distribution})"


@dataclass(frozen=True, eq=False, repr=False)
class GroupsMeasurements:
    """The regions of a measurement of groups, in the hierarchy's order; None where a level was not measured."""

    measurement: Measurement

    def __post_init__(self) -> None:
        if has_private_counts(self.measurement.measurement_plan):
            raise ProblemError("the numbers of groups were also measured: estimate them before reading regions")
        for level in self.measured_levels:
            check_query(self._levels[level].query.name)

    @property
    def hierarchy(self) -> Hierarchy:
        """Return the public regions."""
        return self.measurement.hierarchy

    @property
    def group_counts(self) -> Ints:
        """Return the number of groups of every region, int64[regions]: public, or released before."""
        return self.measurement.measurement_plan.per_region[GROUPS]

    @property
    def max_size(self) -> int:
        """Return the public bound on sizes, K."""
        return max_size_of(self.measurement.measurement_plan)

    @cached_property
    def _levels(self) -> dict[int, Answers]:
        return {answers.query.level: answers for answers in self.measurement.answers}

    @cached_property
    def _distributions(self) -> dict[int, NoiseDistribution]:
        return {level: answers.query.distribution for level, answers in self._levels.items()}

    @cached_property
    def _buckets(self) -> dict[int, Buckets | None]:
        return {level: buckets_of(self.measurement.measurement_plan, level) for level in self._levels}

    @cached_property
    def _splits(self) -> dict[int, Split | None]:
        return {level: split_of(self.measurement.measurement_plan, level) for level in self._levels}

    @property
    def measured_levels(self) -> tuple[int, ...]:
        """Return the levels that have answers, root first."""
        return tuple(sorted(self._levels))

    def query(self, level: int) -> MeasuredQuery:
        """Return the query of a level; raise ProblemError where it was not measured."""
        return cast(MeasuredQuery, self._level_answers(level).query.name)

    def buckets(self, level: int) -> Buckets | None:
        """Return the buckets of sizes of a level, None for single cells; ProblemError where it was not measured."""
        self._level_answers(level)
        return self._buckets[level]

    def distribution(self, level: int) -> NoiseDistribution:
        """Return the distribution of a level's noise; raise ProblemError where it was not measured."""
        self._level_answers(level)
        return self._distributions[level]

    def table(self, level: int) -> Ints:
        """Return a level's answers as int64[regions, cells]; ProblemError for ranks and where not measured."""
        return self._level_answers(level).table()

    def weights(self, loss: Loss) -> Floats:
        """Return the weight of each region's answers in a loss, float64[regions]; 0 where not measured.

        "l1": maximum likelihood, 1 / scale; "l2": 1 / variance.
        """
        weights = np.zeros(len(self))
        for level in self.measured_levels:
            distribution, regions = self.distribution(level), self.hierarchy.level_range(level)
            weights[regions.start : regions.stop] = (
                distribution.absolute_weight if loss == "l1" else distribution.square_weight
            )
        return weights

    def _level_answers(self, level: int) -> Answers:
        if level not in self._levels:
            raise ProblemError(f"level {level} was not measured: give it a share of the budget")
        return self._levels[level]

    def get(self, region: int) -> RegionMeasurement | None:
        """Return a region's answer; None where its level was not measured."""
        level = int(self.hierarchy.level[region])
        if level not in self._levels:
            return None
        answers, place = self._levels[level], region - int(self.hierarchy.level_start[level])
        portion = Portion(answers, int(answers.offsets[place]), int(answers.offsets[place + 1]))
        stored = portion if portion.size > DENSE else portion.read(0, portion.size)
        path, groups = self.hierarchy.paths[region], int(self.group_counts[region])
        distribution, buckets = self._distributions[level], self._buckets[level]
        split = self._splits[level]
        return RegionMeasurement(self.query(level), path, groups, self.max_size, distribution, stored, buckets, split)

    def __getitem__(self, region: int) -> RegionMeasurement:
        """Return a region's answer; raise ProblemError where its level was not measured."""
        answer = self.get(region)
        if answer is None:
            raise ProblemError(f"region {self.hierarchy.paths[region]!r} lies on a level that was not measured")
        return answer

    def __len__(self) -> int:
        return self.hierarchy.regions

    def __iter__(self) -> Iterator[RegionMeasurement | None]:
        return (self.get(region) for region in range(len(self)))

    def __repr__(self) -> str:
        return f"GroupsMeasurements({self.measurement!r})"
