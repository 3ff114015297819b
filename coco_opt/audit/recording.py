"""The noisy answers in which neighbours differ, after a check that noise is all that stands before each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from coco_opt.audit.residuals import Ints
from coco_opt.audit.subject import Pair, PrivateT, ResultT, Subject
from coco_opt.errors import ProblemError, VerificationError
from coco_opt.privacy import DiscreteGaussian, Exact, Geometric, Law, Question

_MARKS = 1 << 20


@dataclass(frozen=True, slots=True)
class Differing:
    """One noisy answer in which D and D' differ, with both exact values; ``label`` and ``place`` say where it lies."""

    question: Question
    label: str
    place: int
    first: int
    second: int

    @property
    def where(self) -> str:
        """Name the answer: every one reads noise of its own."""
        return f"{self.label}, answer {self.place}"


class RecordedStream:
    """Remembers what was sent to the noise of one measurement, and answers with marks that nothing else explains."""

    def __init__(self, law: Law) -> None:
        self.law = law
        self._sent: list[Ints] = []
        self._marked: list[Ints] = []
        self._rng = np.random.default_rng(0)

    def add_to(self, values: Ints) -> Ints:
        """Keep the values, and return them with a mark above 0 added to each."""
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
        """Return all that was answered, in order."""
        return np.concatenate([np.empty(0, np.int64), *self._marked])


class Recorder:
    """A source that remembers what it was asked to hide, and by which law. NOT PRIVATE."""

    name: ClassVar[str] = "recorder"
    private: ClassVar[bool] = False

    def __init__(self) -> None:
        self.streams: dict[tuple[str, str], RecordedStream] = {}

    def stream(self, scale: Fraction, *, measurement: str, region: str) -> RecordedStream:
        """Open and remember a stream of geometric noise."""
        return self._opened(Geometric(scale), measurement, region)

    def gaussian_stream(self, variance: Fraction, *, measurement: str, region: str) -> RecordedStream:
        """Open and remember a stream of discrete Gaussian noise."""
        return self._opened(DiscreteGaussian(variance), measurement, region)

    def _opened(self, law: Law, measurement: str, region: str) -> RecordedStream:
        if (measurement, region) in self.streams:
            raise VerificationError(f"the noise of {measurement!r} in {region!r} is drawn twice")
        return self.streams.setdefault((measurement, region), RecordedStream(law))


def recorded(subject: Subject[PrivateT, ResultT], table: PrivateT) -> tuple[Exact, ...]:
    """Return the exact answers of a table, once each is seen to reach the sealed measurement as it should.

    Raises VerificationError where a noisy one does so by another way than through its noise, by another law than the
    measurement states, or where noise is drawn that no answer needs. O(answers).
    """
    exact = tuple(subject.exact(table))
    recorder = Recorder()
    measurement = subject.seal(subject.asked, exact, recorder)
    stated = {(one.level, one.query): one for one in subject.asked.questions}
    due: dict[tuple[int, str], list[Ints]] = {key: [] for key in stated}
    for part in exact:
        key = part.question.level, part.question.query
        due[key].append(_due(part, stated[key], recorder))
    if recorder.streams:
        raise VerificationError("noise is drawn for answers that are not asked for")
    for answers in measurement.answers:
        parts = due[answers.question.level, answers.question.query]
        if not np.array_equal(answers.values, np.concatenate([np.empty(0, np.int64), *parts])):
            raise VerificationError(_by_another_way(answers.question))
    return exact


def _due(part: Exact, stated: Question, recorder: Recorder) -> Ints:
    """Return what must be sealed of a part, and strike its stream off the list."""
    if stated.exact:
        return part.values
    stream = recorder.streams.pop((stated.query, part.label), None)
    if stream is None or not np.array_equal(stream.sent, part.values):
        raise VerificationError(_by_another_way(stated))
    if stream.law != stated.law:
        raise VerificationError(f"{_named(stated)} get {stream.law}, and the measurement states {stated.law}")
    return stream.marked


def _named(question: Question) -> str:
    return f"the answers to {question.query!r} at level {question.level}"


def _by_another_way(question: Question) -> str:
    return f"{_named(question)} reach the sealed measurement by another way than through their noise"


def witness(subject: Subject[PrivateT, ResultT], pair: Pair[PrivateT]) -> tuple[Differing, ...]:
    """Return every noisy answer in which the neighbours differ.

    The difference is taken from the exact answers themselves, not from a stated sensitivity, so that a wrong one
    shows. Raises VerificationError as ``recorded`` does, where the neighbours' answers have unlike shapes and where
    answers declared exact differ; ProblemError where nothing noisy does. O(answers).
    """
    sides = [recorded(subject, table) for table in (pair.first, pair.second)]
    shapes = [[(part.question, part.label, part.values.size) for part in side] for side in sides]
    if shapes[0] != shapes[1]:
        raise VerificationError("what is measured of neighbours has unlike questions, regions or numbers of answers")
    found = [one for parts in zip(*sides, strict=True) for one in _differing(*parts)]
    if not found:
        raise ProblemError("the neighbours do not differ in any measured answer: nothing to audit")
    return tuple(found)


def _differing(first: Exact, second: Exact) -> Sequence[Differing]:
    question = first.question
    places = np.flatnonzero(first.values != second.values)
    if places.size and question.exact:
        raise VerificationError(f"neighbours differ in {_named(question)}, which are declared exact")
    arrays = (places.tolist(), first.values[places].tolist(), second.values[places].tolist())
    return [Differing(question, first.label, *row) for row in zip(*arrays, strict=True)]
