"""The subject of an audit: a release as a mechanism, from a table's exact answers to the published counts.

The noisy answers in which neighbours differ, after a check that each of them is released only with its noise.

The exact privacy loss of two neighbours, from the answers in which they differ and the distributions of their noise.

Noise is independent from answer to answer, so losses add up. Under geometric noise of scale s an answer that changes
by c loses at most |c| / s, and some answers lose as much; under discrete Gaussian noise of variance v it loses
c^2 / (2 v) in rho, which its Renyi divergences of integer orders reach (Canonne, Kamath and Steinke 2020).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError, VerificationError
from coco_opt.privacy import (
    Cost,
    DiscreteGaussian,
    Drawing,
    Epsilon,
    Exact,
    Geometric,
    LevelQuery,
    Measurement,
    MeasurementPlan,
    NoiseDistribution,
    NoiseSource,
    Pair,
    Rho,
)
from coco_opt.privacy.composition import Composition
from coco_opt.privacy.cost import total
from coco_opt.privacy.directed_rounding import round_above
from coco_opt.privacy.loss_distributions import UncountableError, of_changes

PrivateT = TypeVar("PrivateT")
ResultT = TypeVar("ResultT")

Sources = Callable[[int], NoiseSource]
"""Makes a fresh noise source for each number; two numbers share no noise."""
Statistics = Mapping[str, NDArray[Any]]

_DIGITS = 6


def sealed(measurement_plan: MeasurementPlan, exact: Sequence[Exact], source: NoiseSource) -> Measurement:
    """Return the measurement that a release draws from exact answers."""
    return Drawing.of(measurement_plan, exact, source).measurement()


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
    say nothing.
    """

    measurement_plan: MeasurementPlan
    claimed: Cost
    exact: Callable[[PrivateT], Iterable[Exact]]
    estimate: Callable[[Measurement], ResultT]
    statistics: Callable[[PrivateT | ResultT], Statistics]
    delta: Fraction | None = None
    seal: Callable[[MeasurementPlan, Sequence[Exact], NoiseSource], Measurement] = sealed

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


_MARKS = 1 << 20


@dataclass(frozen=True, slots=True)
class Differing:
    """One noisy answer in which D and D' differ, with both exact values; ``label`` and ``place`` locate it."""

    query: LevelQuery
    label: str
    place: int
    first: int
    second: int

    @property
    def where(self) -> str:
        """Return a name of the answer: each draws noise of its own."""
        return f"{self.label}, answer {self.place}"


class RecordedStream:
    """Records the values sent to one noise stream, and adds unique marks to them in place of noise."""

    def __init__(self, distribution: NoiseDistribution) -> None:
        self.distribution = distribution
        self._sent: list[Ints] = []
        self._marked: list[Ints] = []
        self._rng = np.random.default_rng(0)

    def add_to(self, values: Ints) -> Ints:
        """Record the values, and return them with a mark above 0 added to each."""
        self._sent.append(values.copy())
        self._marked.append(values + self._rng.integers(1, _MARKS, values.size))
        return self._marked[-1].copy()

    def draw(self, n: int) -> Ints:
        """Return ``n`` marks."""
        return self.add_to(np.zeros(n, np.int64))

    @property
    def sent(self) -> Ints:
        """Return all that was sent, in order."""
        return np.concatenate([np.empty(0, np.int64), *self._sent])

    @property
    def marked(self) -> Ints:
        """Return all that was returned, in order."""
        return np.concatenate([np.empty(0, np.int64), *self._marked])


class Recorder:
    """A noise source that records the values it must hide, and their noise distributions. NOT PRIVATE."""

    name: ClassVar[str] = "recorder"
    private: ClassVar[bool] = False

    def __init__(self) -> None:
        self.streams: dict[tuple[str, str], RecordedStream] = {}

    def stream(self, scale: Fraction, *, measurement: str, region: str) -> RecordedStream:
        """Open and record a stream of geometric noise."""
        return self._new_stream(Geometric(scale), measurement, region)

    def gaussian_stream(self, variance: Fraction, *, measurement: str, region: str) -> RecordedStream:
        """Open and record a stream of discrete Gaussian noise."""
        return self._new_stream(DiscreteGaussian(variance), measurement, region)

    def _new_stream(self, distribution: NoiseDistribution, measurement: str, region: str) -> RecordedStream:
        if (measurement, region) in self.streams:
            raise VerificationError(f"the noise of {measurement!r} in {region!r} is drawn twice")
        return self.streams.setdefault((measurement, region), RecordedStream(distribution))


def recorded(subject: Subject[PrivateT, ResultT], table: PrivateT) -> tuple[Exact, ...]:
    """Return the exact answers of a table after a check that each reaches the sealed measurement as it should.

    Raises VerificationError where a noisy answer bypasses its noise, where its noise has another distribution than the
    measurement states, or where noise is drawn that no answer needs. O(answers).
    """
    exact = tuple(subject.exact(table))
    recorder = Recorder()
    measurement = subject.seal(subject.measurement_plan, exact, recorder)
    stated = {(query.level, query.name): query for query in subject.measurement_plan.queries}
    expected: dict[tuple[int, str], list[Ints]] = {key: [] for key in stated}
    for part in exact:
        key = part.query.level, part.query.name
        expected[key].append(_expected_values(part, stated[key], recorder))
    if recorder.streams:
        raise VerificationError("noise is drawn for answers that are not measured")
    for answers in measurement.answers:
        parts = expected[answers.query.level, answers.query.name]
        if not np.array_equal(answers.values, np.concatenate([np.empty(0, np.int64), *parts])):
            raise VerificationError(_bypass_message(answers.query))
    return exact


def _expected_values(part: Exact, stated: LevelQuery, recorder: Recorder) -> Ints:
    """Return the values that must be sealed for a part, and remove its stream from the recorder."""
    if stated.exact:
        return part.values
    stream = recorder.streams.pop((stated.name, part.label), None)
    if stream is None or not np.array_equal(stream.sent, part.values):
        raise VerificationError(_bypass_message(stated))
    if stream.distribution != stated.distribution:
        raise VerificationError(
            f"{_answers_name(stated)} get {stream.distribution}, and the measurement states {stated.distribution}"
        )
    return stream.marked


def _answers_name(level_query: LevelQuery) -> str:
    return f"the answers to {level_query.name!r} at level {level_query.level}"


def _bypass_message(level_query: LevelQuery) -> str:
    return f"{_answers_name(level_query)} reach the sealed measurement by another way than through their noise"


def witness(subject: Subject[PrivateT, ResultT], pair: Pair[PrivateT]) -> tuple[Differing, ...]:
    """Return every noisy answer in which the neighbours differ.

    The difference is taken from the exact answers themselves, not from a stated sensitivity, so a wrong sensitivity
    shows. Raises VerificationError as ``recorded`` does, where the neighbours' answers have different shapes, and where
    answers declared exact differ; ProblemError where no noisy answer differs. O(answers).
    """
    sides = [recorded(subject, table) for table in (pair.first, pair.second)]
    shapes = [[(part.query, part.label, part.values.size) for part in side] for side in sides]
    if shapes[0] != shapes[1]:
        raise VerificationError("the measurements of the neighbours differ in queries, regions or numbers of answers")
    answers = [answer for parts in zip(*sides, strict=True) for answer in _differing_answers(*parts)]
    if not answers:
        raise ProblemError("the neighbours do not differ in any measured answer: nothing to audit")
    return tuple(answers)


def _differing_answers(first: Exact, second: Exact) -> Sequence[Differing]:
    level_query = first.query
    places = np.flatnonzero(first.values != second.values)
    if places.size and level_query.exact:
        raise VerificationError(f"neighbours differ in {_answers_name(level_query)}, which are declared exact")
    arrays = (places.tolist(), first.values[places].tolist(), second.values[places].tolist())
    return [Differing(level_query, first.label, *row) for row in zip(*arrays, strict=True)]


def lost(cells: Sequence[Differing]) -> Composition:
    """Return the privacy loss of these noisy answers: exactly in epsilon or rho, rounded up as (epsilon, delta).

    Raises ProblemError for a noise distribution whose loss is not known.
    """
    changed = [(cell.query.distribution, abs(cell.second - cell.first)) for cell in cells]
    cost = total(_answer_loss(distribution, change) for distribution, change in changed)
    try:
        return Composition(cost, of_changes(changed))
    except UncountableError:
        return Composition(cost, None)


def _answer_loss(distribution: NoiseDistribution, change: int) -> Cost:
    if isinstance(distribution, Geometric):
        return Epsilon(change / distribution.scale)
    if isinstance(distribution, DiscreteGaussian):
        return Rho(Fraction(change * change) / (2 * distribution.squared_deviation))
    raise UncountableError(f"the privacy loss of {distribution} is not known")
