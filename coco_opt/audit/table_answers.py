"""The noisy answers of a release of tables, as the release itself asks for them, and many draws of those that differ.

What is recorded is what reaches the noise, with the noise's own parameters, so that a wrong sensitivity shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from coco_opt.audit.measured import Sources, Witness, measured_scores
from coco_opt.audit.table_pairs import TablePair
from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError, VerificationError
from coco_opt.privacy import NoiseSource
from coco_opt.privacy.accounting import epsilon_of_rho
from coco_opt.privacy.directed import round_above
from coco_opt.privacy.mechanism import open_stream
from coco_opt.topdown.counts import TableCounts
from coco_opt.topdown.invariants import Invariant
from coco_opt.topdown.measure import measure_tables
from coco_opt.topdown.measurements import TableMeasurements
from coco_opt.topdown.method import TopdownMethod
from coco_opt.topdown.plan import TablePlan
from coco_opt.topdown.release import TablesResult, estimate_tables

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_DIGITS = 6


@dataclass(frozen=True, eq=False, slots=True)
class TablesMechanism:
    """A whole release of tables as a mechanism: what is measured, what it is said to cost, and what follows.

    ``amount`` is the whole budget as stated, in the plan's unit, and is not taken from the plan; ``delta`` is where a
    rho is stated as an epsilon (0 for geometric noise). ``sources(run)`` makes a fresh noise source for each run.
    """

    plan: TablePlan
    amount: Fraction
    method: TopdownMethod
    sources: Sources
    solvers: SolverChoices
    invariants: tuple[Invariant, ...] = ()
    delta: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if (self.plan.mechanism == "geometric") != (self.delta == 0):
            raise ProblemError("a delta belongs to discrete Gaussian noise, and to no other")

    @property
    def claimed(self) -> Fraction:
        """Return the epsilon that the whole release claims, at ``delta``."""
        return self.epsilon(self.amount)

    def epsilon(self, amount: Fraction) -> Fraction:
        """Return the epsilon that an amount of the plan's unit stands for, rounded up where it is not exact."""
        if self.plan.mechanism == "geometric":
            return amount
        return round_above(epsilon_of_rho(amount, self.delta), _DIGITS)

    def asked_at(self, level: int) -> list[str]:
        """Return the names of the queries asked at a level."""
        return [self.plan.queries[query].name for asked, query in self.plan.asked if asked == level]

    def measured(self, counts: TableCounts, source: NoiseSource) -> TableMeasurements:
        """Return the sealed answers of every region."""
        return measure_tables(counts, self.plan, source=source, invariants=self.invariants)

    def estimated(self, measurements: TableMeasurements) -> TablesResult:
        """Return the whole tables made from answers."""
        return estimate_tables(measurements, self.method, self.solvers)

    def run(self, counts: TableCounts, run: int) -> TablesResult:
        """Return the released tables of every region: measured anew, then estimated."""
        return self.estimated(self.measured(counts, self.sources(run)))


@dataclass(frozen=True, eq=False, slots=True)
class RecordedStream:
    """What was sent to the noise of one measurement, which adds none. NOT PRIVATE."""

    parameter: Fraction
    measurement: str
    region: str
    parts: list[Ints] = field(default_factory=list)

    def add_to(self, values: Ints) -> Ints:
        """Keep the values and return a copy of them."""
        self.parts.append(values.copy())
        return values.copy()

    def draw(self, n: int) -> Ints:
        """Return ``n`` zeros, kept as values."""
        return self.add_to(np.zeros(n, np.int64))

    @property
    def values(self) -> Ints:
        """Return all that was sent, in order."""
        return np.concatenate([np.empty(0, np.int64), *self.parts])


class Recorder:
    """A source without noise that remembers what it was asked to hide, and by which noise. NOT PRIVATE."""

    name: ClassVar[str] = "none"
    private: ClassVar[bool] = False

    def __init__(self) -> None:
        self.streams: list[RecordedStream] = []

    def stream(self, scale: Fraction, *, measurement: str, region: str) -> RecordedStream:
        """Open and remember a stream of geometric noise."""
        self.streams.append(RecordedStream(scale, measurement, region))
        return self.streams[-1]

    def gaussian_stream(self, variance: Fraction, *, measurement: str, region: str) -> RecordedStream:
        """Open and remember a stream of discrete Gaussian noise."""
        return self.stream(variance, measurement=measurement, region=region)


def recorded(counts: TableCounts, mechanism: TablesMechanism) -> tuple[TableMeasurements, list[RecordedStream]]:
    """Return the measurements without noise, and what reached it: one stream for each query asked, root first.

    Raises VerificationError where an answer was not sent through noise.
    """
    recorder = Recorder()
    exact = mechanism.measured(counts, recorder)
    asked = mechanism.plan.asked
    answers = [exact.answers[level][query] for level, query in asked]
    sent = [stream.values for stream in recorder.streams]
    if len(sent) != len(asked) or not all(map(_same, answers, sent)):
        raise VerificationError("an answer reaches the sealed measurements by another way than through its noise")
    return exact, recorder.streams


def _same(answer: Ints | None, sent: Ints) -> bool:
    return answer is not None and np.array_equal(answer.ravel(), sent)


def tables_witness(pair: TablePair, mechanism: TablesMechanism) -> Witness:
    """Return the answers in which the neighbours differ, with the noise parameters (scale or variance) they got.

    Raises VerificationError where an exact answer differs too, ProblemError where no noisy answer does.
    """
    (exact, streams), (other, other_streams) = (recorded(counts, mechanism) for counts in (pair.first, pair.second))
    for fact, same in zip(exact.invariants.bounds, other.invariants.bounds, strict=True):
        if not (np.array_equal(fact.lower, same.lower) and np.array_equal(fact.upper, same.upper)):
            raise VerificationError(f"neighbours differ in the exact answers of {fact.query.name!r}")
    first, second, levels = [], [], []
    parameters: list[Fraction] = []
    labels: list[tuple[str, str]] = []
    for (level, _), one, two in zip(mechanism.plan.asked, streams, other_streams, strict=True):
        differ = np.flatnonzero(one.values != two.values)
        first.append(one.values[differ])
        second.append(two.values[differ])
        levels.append(np.full(differ.size, level, np.int64))
        parameters += [one.parameter] * differ.size
        labels += [(one.measurement, f"{one.region}, answer {place}") for place in differ.tolist()]
    if not labels:
        raise ProblemError("the neighbours do not differ in any measured answer: nothing to audit")
    parts = (np.concatenate(first), np.concatenate(second), tuple(parameters), np.concatenate(levels))
    return Witness(*parts, tuple(labels))


def answer_scores(differing: Witness, mechanism: TablesMechanism, runs: int, sources: Sources) -> tuple[Floats, Floats]:
    """Return the log-likelihood ratios of ``runs`` independent draws on D and on D', float64[runs, 1] each.

    Of the law that the noise parameters state, so that its thresholds are the strongest events (Neyman and Pearson).
    """
    if mechanism.plan.mechanism == "geometric":
        one, two = measured_scores(differing, runs, sources)
        return one[:, :1], two[:, :1]
    sides = []
    for side, answers in enumerate((differing.first, differing.second)):
        source = sources(side)
        total = np.zeros((runs, 1))
        for cell, (measurement, region) in enumerate(differing.labels):
            variance = differing.scales[cell]
            stream = open_stream(source, "discrete_gaussian", variance, measurement=measurement, region=region)
            noisy = stream.add_to(np.full(runs, answers[cell], np.int64))
            step = int(differing.second[cell] - differing.first[cell])
            total[:, 0] += step * (noisy - differing.first[cell] - step / 2) / float(variance)
        sides.append(total)
    return sides[0], sides[1]


def bulk_answers(exact: TableMeasurements, streams: Sequence[RecordedStream], runs: int, source: NoiseSource) -> Ints:
    """Return ``runs`` noisy answers of all queries and regions side by side, int64[runs, answers]."""
    parts = []
    for one in streams:
        stream = open_stream(source, exact.mechanism, one.parameter, measurement=one.measurement, region=one.region)
        parts.append(stream.add_to(np.tile(one.values, runs)).reshape(runs, one.values.size))
    return np.concatenate(parts, axis=1)


def with_answers(exact: TableMeasurements, row: Ints) -> TableMeasurements:
    """Return measurements with other answers, given side by side."""
    answers: list[tuple[Ints | None, ...]] = []
    start = 0
    for level in exact.answers:
        made: list[Ints | None] = []
        for answer in level:
            size = 0 if answer is None else answer.size
            made.append(None if answer is None else row[start : start + size].reshape(answer.shape).copy())
            start += size
        answers.append(tuple(made))
    return replace(exact, answers=tuple(answers))
