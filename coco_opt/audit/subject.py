"""The subject of an audit: a release as a mechanism, from a table's exact answers to the published counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, Protocol, TypeVar

from numpy.typing import NDArray

from coco_opt.array_types import Ints
from coco_opt.privacy import Cost, Exact, LevelQuery, Measurement, MeasurementPlan, NoiseSource, add_noise
from coco_opt.privacy.composition import Composition
from coco_opt.privacy.directed_rounding import round_above

PrivateT = TypeVar("PrivateT")
ResultT = TypeVar("ResultT")
TableT = TypeVar("TableT", covariant=True)

Sources = Callable[[int], NoiseSource]
"""Makes a fresh noise source for each number; two numbers share no noise."""
Statistics = Mapping[str, NDArray[Any]]

_DIGITS = 6


class Pair(Protocol[TableT]):
    """D and D', two tables that differ by one entity; ``words`` say how."""

    @property
    def first(self) -> TableT:
        """Return D."""

    @property
    def second(self) -> TableT:
        """Return D'."""

    @property
    def words(self) -> str:
        """Return in words how they differ."""


def sealed(measurement_plan: MeasurementPlan, exact: Sequence[Exact], source: NoiseSource) -> Measurement:
    """Return the measurement that a release draws from exact answers."""
    answers = add_noise(
        measurement_plan.queries, exact, measurement_plan.hierarchy, measurement_plan.per_region, source
    )
    return Measurement(measurement_plan, answers, source.name, source.private)


def stated_epsilon(guaranteed: Composition, delta: Fraction | None) -> Fraction:
    """Return the epsilon of a guarantee: exact where it is pure, else at ``delta`` (None: a millionth), rounded up."""
    epsilon, failure = guaranteed.guarantee(delta)
    return round_above(epsilon, _DIGITS) if failure else epsilon


@dataclass(frozen=True, eq=False, slots=True)
class Subject(Generic[PrivateT, ResultT]):
    """A release of any kind, in four steps: exact answers, noise, estimation, and the counts that the audit compares.

    ``measurement_plan`` is what it measures. ``claimed`` is its total cost as stated, not computed from the queries;
    ``delta`` is where a rho is stated as an epsilon (None: a millionth). ``statistics`` returns counts by part, such as
    a level, both for a table (exact) and for a result (released); exact counts are masked (numpy.ma) where residuals
    say nothing. ``release_all`` returns the counts that many measurements release, where doing them together is faster:
    it takes their answers to all queries, int64[measurements, answers], and adds a first axis to each part.
    """

    measurement_plan: MeasurementPlan
    claimed: Cost
    exact: Callable[[PrivateT], Iterable[Exact]]
    estimate: Callable[[Measurement], ResultT]
    statistics: Callable[[PrivateT | ResultT], Statistics]
    delta: Fraction | None = None
    seal: Callable[[MeasurementPlan, Sequence[Exact], NoiseSource], Measurement] = sealed
    release_all: Callable[[Ints], Statistics] | None = None

    def claim(self, queries: Sequence[LevelQuery] | None = None) -> Composition:
        """Return what queries are claimed to guarantee together; for None, all of them as ``claimed`` states."""
        composition = Composition.of(self.measurement_plan.queries if queries is None else queries)
        # Queries that cost more than is claimed must not raise the claim.
        return (
            composition if queries is not None or composition.cost == self.claimed else Composition(self.claimed, None)
        )

    def epsilon(self, queries: Sequence[LevelQuery] | None = None) -> Fraction:
        """Return the epsilon of a claim at ``failure``: exact where it is pure, else rounded up."""
        return stated_epsilon(self.claim(queries), self.delta)

    @property
    def failure(self) -> float:
        """Return the delta of the claim: 0 for pure epsilon."""
        return float(self.claimed.guarantee(self.delta)[1])

    def released(self, exact: Sequence[Exact], source: NoiseSource) -> Statistics:
        """Return the counts of one complete release: measured anew, then estimated."""
        return self.statistics(self.estimate(self.seal(self.measurement_plan, exact, source)))
