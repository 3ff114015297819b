"""What is asked, the exact answers before the noise, and the noisy ones after it: one form for every kind of release.

Integers from the private counts to the noise and after it. ``add_noise`` is the one place where noise is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.histograms.hierarchy import Hierarchy
from coco_opt.privacy.cost import Cost, Sensitivity
from coco_opt.privacy.laws import Law
from coco_opt.privacy.noise import NoiseSource, NoiseStream

Int64 = NDArray[np.int64]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Question:
    """One linear query, asked of every region of a level.

    ``query`` names it among the questions of its level, ``words`` say what its answers count. ``sensitivity`` is by
    how much neighbours change the answers of the whole level, ``cost`` what asking is charged: None, for both, where
    the exact answers are declared public. ``size`` is the number of answers a region, or the name of the public
    numbers, one a region, that tell it.
    """

    level: int
    query: str
    words: str
    size: int | str
    sensitivity: Sensitivity | None
    cost: Cost | None

    def __post_init__(self) -> None:
        if (self.sensitivity is None) != (self.cost is None):
            raise ProblemError(f"{self.query!r}: a noisy question has a sensitivity and a cost, an exact one neither")
        if self.cost is not None and not self.cost:
            raise ProblemError(f"{self.query!r}: a question that costs nothing is not asked: leave it out")

    @property
    def exact(self) -> bool:
        """Tell whether the answers are declared public and get no noise."""
        return self.cost is None

    @property
    def law(self) -> Law:
        """Return the law of the noise; raise ProblemError where there is none."""
        if self.cost is None or self.sensitivity is None:
            raise ProblemError(f"the answers to {self.query!r} at level {self.level} are exact: they have no noise")
        return self.cost.law(self.sensitivity)

    def sizes(self, regions: int, tables: Mapping[str, Int64], first: int) -> Int64:
        """Return the number of answers of each of the level's ``regions``, the first of which is ``first``."""
        if isinstance(self.size, int):
            return np.full(regions, self.size, np.int64)
        return tables[self.size][first : first + regions]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Exact:
    """PRIVATE: the true answers of consecutive regions of a level to one question, one region after the other, int64.

    ``label`` names the noise stream they read. Regions are given once, in the hierarchy's order; those of one label
    may come in several parts, one after the other.
    """

    question: Question
    label: str
    values: Int64

    def __repr__(self) -> str:
        return f"Exact({self.question.query!r}, {self.label!r}: private)"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Answers:
    """The sealed answers to one question: region k of the level (from 0) has values[offsets[k]:offsets[k + 1]].

    ``values`` int64, noisy unless the question is exact; ``offsets`` int64[regions + 1]. Both read-only. Raises
    ProblemError for other types or shapes.
    """

    question: Question
    offsets: Int64
    values: Int64

    def __post_init__(self) -> None:
        for array in (self.offsets, self.values):
            if array.dtype != np.int64 or array.ndim != 1:
                raise ProblemError("answers hold one-dimensional int64 arrays")
            array.setflags(write=False)
        if self.offsets.size == 0 or self.offsets[0] != 0 or self.offsets[-1] != self.values.size:
            raise ProblemError(f"{self.question.query!r}: the offsets do not cut the answers into regions")

    def __reduce__(self) -> tuple[Callable[..., Answers], tuple[Any, ...]]:
        # Unpickled arrays are writable: going through the constructor makes them read-only again.
        return Answers, (self.question, self.offsets, self.values)

    @property
    def regions(self) -> int:
        """Return the number of regions of the level."""
        return self.offsets.size - 1

    def region(self, place: int) -> Int64:
        """Return the answers of the ``place``-th region of the level, from 0."""
        return self.values[self.offsets[place] : self.offsets[place + 1]]

    def table(self) -> Int64:
        """Return all answers as int64[regions, answers]; ProblemError where regions have unlike numbers."""
        return self.values.reshape(self.regions, -1) if self.regions else self.values.reshape(0, 0)

    def __repr__(self) -> str:
        return f"Answers({self.question.query!r} at level {self.question.level}: {self.values.size:,} values)"


def offsets_of(question: Question, hierarchy: Hierarchy, tables: Mapping[str, Int64]) -> Int64:
    """Return where the answers of each region of a question's level begin, int64[regions + 1], from public facts."""
    regions = hierarchy.level_range(question.level)
    sizes = question.sizes(len(regions), tables, regions.start)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])


def add_noise(
    questions: Sequence[Question],
    exact: Iterable[Exact],
    hierarchy: Hierarchy,
    tables: Mapping[str, Int64],
    source: NoiseSource,
    progress: Progress | None = None,
) -> tuple[Answers, ...]:
    """Return the noisy answers to ``questions``, in their order, from exact ones given part after part.

    A stream of noise is named by query and label, and parts of one name that follow each other read it on; answers of
    exact questions pass as they are. ``progress`` is told the answers done and their number. Raises ProblemError for
    noise that was drawn before, and where the parts of a question are not its public number of answers. O(answers);
    memory is theirs and one part.
    """
    offsets = [offsets_of(question, hierarchy, tables) for question in questions]
    out = [np.empty(int(ends[-1]), np.int64) for ends in offsets]
    filled, total = [0] * len(questions), sum(values.size for values in out)
    place = {(question.level, question.query): at for at, question in enumerate(questions)}
    done = 0
    noise = _Noise(source)
    for part in exact:
        at = place[part.question.level, part.question.query]
        noisy = noise.add_to(part)
        end = filled[at] + noisy.size
        if end > out[at].size:
            raise ProblemError(f"{part.question.query!r} at level {part.question.level}: more answers than are public")
        out[at][filled[at] : end] = noisy
        filled[at], done = end, done + noisy.size
        if progress is not None:
            progress(done, total)
    for question, values, end in zip(questions, out, filled, strict=True):
        if end != values.size:
            raise ProblemError(f"{question.query!r} at level {question.level}: fewer answers than are public")
    return tuple(Answers(*row) for row in zip(questions, offsets, out, strict=True))


class _Noise:
    """Adds to each part the noise of its stream, which stays open while parts of one name follow each other."""

    def __init__(self, source: NoiseSource) -> None:
        self._source = source
        self._name: tuple[Question, str] | None = None
        self._stream: NoiseStream | None = None

    def add_to(self, part: Exact) -> Int64:
        if part.values.dtype != np.int64 or part.values.ndim != 1:
            raise ProblemError(f"{part.question.query!r}: exact answers are one-dimensional int64")
        if part.question.exact:
            return part.values
        name = (part.question, part.label)
        if self._stream is None or name != self._name:
            law = part.question.law
            self._stream = law.opened(self._source, measurement=part.question.query, region=part.label)
            self._name = name
        return self._stream.add_to(part.values)
