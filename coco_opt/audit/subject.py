"""What is audited: a release as a mechanism, from a table's exact answers to what is published of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, Protocol, TypeVar

from numpy.typing import NDArray

from coco_opt.audit.residuals import Ints
from coco_opt.privacy import Asked, Cost, Exact, Measurement, NoiseSource, Question, add_noise
from coco_opt.privacy.composition import Composition
from coco_opt.privacy.directed import round_above

PrivateT = TypeVar("PrivateT")
ResultT = TypeVar("ResultT")
TableT = TypeVar("TableT", covariant=True)

Sources = Callable[[int], NoiseSource]
"""Makes a fresh noise source for each number; two numbers share no noise."""
Progress = Callable[[int, int], None]
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
        """Return by what they differ."""


def sealed(asked: Asked, exact: Sequence[Exact], source: NoiseSource) -> Measurement:
    """Return the measurement that a release makes of exact answers."""
    answers = add_noise(asked.questions, exact, asked.hierarchy, asked.per_region, source)
    return Measurement(asked, answers, source.name, source.private)


def stated_epsilon(guaranteed: Composition, delta: Fraction | None) -> Fraction:
    """Return the epsilon of a guarantee: exact where it is pure, else at ``delta`` (None: a millionth), rounded up."""
    epsilon, failure = guaranteed.guarantee(delta)
    return round_above(epsilon, _DIGITS) if failure else epsilon


@dataclass(frozen=True, eq=False, slots=True)
class Subject(Generic[PrivateT, ResultT]):
    """A release of any kind, in four steps: exact answers, noise, estimation, the counts that are looked at.

    ``asked`` is what it measures. ``claimed`` is its whole cost as stated, and is not taken from the questions;
    ``delta`` is where a rho is stated as an epsilon (None: a millionth). ``statistics`` returns counts by part, such as
    a level, alike for a table (exact) and a result (released): masked places (numpy.ma) of exact ones are those whose
    residuals say nothing. ``release_all`` returns what many measurements at once release, where that is faster: their
    answers to all questions stand side by side, int64[measurements, answers], and each part gets a first axis.
    """

    asked: Asked
    claimed: Cost
    exact: Callable[[PrivateT], Iterable[Exact]]
    estimate: Callable[[Measurement], ResultT]
    statistics: Callable[[PrivateT | ResultT], Statistics]
    delta: Fraction | None = None
    seal: Callable[[Asked, Sequence[Exact], NoiseSource], Measurement] = sealed
    release_all: Callable[[Ints], Statistics] | None = None

    def claim(self, questions: Sequence[Question] | None = None) -> Composition:
        """Return what questions are claimed to guarantee together, None: all of them as ``claimed`` states."""
        known = Composition.of(self.asked.questions if questions is None else questions)
        # Questions that cost more than is claimed must not raise the claim.
        return known if questions is not None or known.cost == self.claimed else Composition(self.claimed, None)

    def epsilon(self, questions: Sequence[Question] | None = None) -> Fraction:
        """Return the epsilon of a claim at ``failure``: exact where it is pure, else rounded up."""
        return stated_epsilon(self.claim(questions), self.delta)

    @property
    def failure(self) -> float:
        """Return the delta of the claim: 0 for pure epsilon."""
        return float(self.claimed.guarantee(self.delta)[1])

    def released(self, exact: Sequence[Exact], source: NoiseSource) -> Statistics:
        """Return the counts of one whole release: measured anew, then estimated."""
        return self.statistics(self.estimate(self.seal(self.asked, exact, source)))
