"""Queries, their exact answers before the noise and their noisy answers after it: one form for every kind of release.

Integers from the private counts to the noise and after it. ``noisy_parts`` is the only place where noise is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from coco_opt.activity import Progress
from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError
from coco_opt.execution.temporary_storage import stored_by_parts
from coco_opt.histograms.hierarchy import Hierarchy
from coco_opt.privacy.cost import Cost, Sensitivity
from coco_opt.privacy.noise import NoiseSource, NoiseStream
from coco_opt.privacy.noise_distributions import NoiseDistribution
from coco_opt.privacy.packed_answers import Packed, PackedAnswers
from coco_opt.privacy.secure import CellStream

DENSE = 1 << 22
"""The number of answers up to which a measurement holds them as arrays; more are packed, in memory or on disk."""

LEAST_PIECE = 1 << 16
"""The number of answers that are packed together at least, of as many small regions as it takes."""

_LARGEST_PIECE = 1 << 17  # of one large region; one piece a query is held unpacked


@dataclass(frozen=True, slots=True)
class LevelQuery:
    """One linear query, answered for every region of a level.

    ``query`` names it among the queries of its level, ``words`` say what its answers count. ``sensitivity`` is by
    how much neighbours change the answers of the whole level, ``cost`` what its noise costs: None, for both, where
    the exact answers are declared public. ``size`` is the number of answers a region, or the name of the public
    numbers, one a region, that state it, with " + " and a number where each region has so many more.
    """

    level: int
    name: str
    words: str
    size: int | str
    sensitivity: Sensitivity | None
    cost: Cost | None

    def __post_init__(self) -> None:
        if (self.sensitivity is None) != (self.cost is None):
            raise ProblemError(f"{self.name!r}: a noisy query has a sensitivity and a cost, an exact query has neither")
        if self.cost is not None and not self.cost:
            raise ProblemError(f"{self.name!r}: a query that costs nothing is not measured: leave it out")

    @property
    def exact(self) -> bool:
        """Return whether the answers are declared public and get no noise."""
        return self.cost is None

    @property
    def distribution(self) -> NoiseDistribution:
        """Return the distribution of the noise; raise ProblemError where there is none."""
        if self.cost is None or self.sensitivity is None:
            raise ProblemError(f"the answers to {self.name!r} at level {self.level} are exact: they have no noise")
        return self.cost.distribution(self.sensitivity)

    def sizes(self, regions: int, tables: Mapping[str, Ints], first: int) -> Ints:
        """Return the number of answers of each of the level's ``regions``, the first of which is ``first``."""
        if isinstance(self.size, int):
            return np.full(regions, self.size, np.int64)
        name, _, more = self.size.partition(" + ")
        return tables[name][first : first + regions] + int(more or 0)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Exact:
    """PRIVATE: the true answers of consecutive regions of a level to one query, one region after the other, int64.

    ``label`` names the noise stream they read. Regions are given once, in the hierarchy's order; those of one label
    may come in several parts, one after the other.
    """

    query: LevelQuery
    label: str
    values: Ints

    def __repr__(self) -> str:
        return f"Exact({self.query.name!r}, {self.label!r}: private)"


class Stored(Protocol):
    """Answers that are not stored in one array."""

    @property
    def size(self) -> int:
        """Return their number."""

    def read(self, begin: int, end: int) -> Ints:
        """Return the answers ``begin`` .. ``end`` - 1, read-only; threads may share it."""


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Answers:
    """The sealed answers to one query: region k of the level (from 0) has values[offsets[k]:offsets[k + 1]].

    ``stored`` holds them: an int64 array, or what reads them from where they are; noisy unless the query is exact.
    ``offsets`` int64[regions + 1]. All read-only. Raises ProblemError for other types or shapes.
    """

    query: LevelQuery
    offsets: Ints
    stored: Ints | Stored

    def __post_init__(self) -> None:
        for array in (self.offsets, self.stored):
            if not isinstance(array, np.ndarray):
                continue
            if array.dtype != np.int64 or array.ndim != 1:
                raise ProblemError("answers hold one-dimensional int64 arrays")
            array.setflags(write=False)
        if self.offsets.size == 0 or self.offsets[0] != 0 or self.offsets[-1] != self.stored.size:
            raise ProblemError(f"{self.query.name!r}: the offsets do not cut the answers into regions")

    def __reduce__(self) -> tuple[Callable[..., Answers], tuple[Any, ...]]:
        # Unpickled arrays are writable: going through the constructor makes them read-only again.
        return Answers, (self.query, self.offsets, self.stored)

    @property
    def regions(self) -> int:
        """Return the number of regions of the level."""
        return self.offsets.size - 1

    @property
    def values(self) -> Ints:
        """Return all answers, brought into memory where they are not: 8 bytes each."""
        return self.read(0, int(self.offsets[-1]))

    def read(self, begin: int, end: int) -> Ints:
        """Return the answers ``begin`` .. ``end`` - 1 of all regions one after the other."""
        return self.stored[begin:end] if isinstance(self.stored, np.ndarray) else self.stored.read(begin, end)

    def region(self, place: int) -> Ints:
        """Return the answers of the ``place``-th region of the level, from 0."""
        return self.read(int(self.offsets[place]), int(self.offsets[place + 1]))

    def table(self) -> Ints:
        """Return all answers as int64[regions, answers]; ProblemError where regions have unlike numbers."""
        return self.values.reshape(self.regions, -1) if self.regions else self.values.reshape(0, 0)

    def __repr__(self) -> str:
        return f"Answers({self.query.name!r} at level {self.query.level}: {self.stored.size:,} values)"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class NoisyPart:
    """Answers ``start``, ``start`` + 1, ... of all those to query number ``place``, with their noise."""

    place: int
    start: int
    values: Ints


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class PackedPart:
    """A noisy part whose answers are packed."""

    place: int
    start: int
    packed: Packed


def offsets_of(query: LevelQuery, hierarchy: Hierarchy, tables: Mapping[str, Ints]) -> Ints:
    """Return where the answers of each region of a query's level begin, int64[regions + 1], from public numbers.

    Those of many regions lie in a file.
    """
    regions, size = hierarchy.level_range(query.level), query.size
    if isinstance(size, int):
        return stored_by_parts(
            len(regions) + 1, np.dtype(np.int64), lambda some: np.arange(some.start, some.stop, dtype=np.int64) * size
        )
    sizes = query.sizes(len(regions), tables, regions.start)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])


def answers_in_all(query: LevelQuery, hierarchy: Hierarchy, tables: Mapping[str, Ints]) -> tuple[int, int]:
    """Return the number of answers to a query in all regions, and the most in one region, from public numbers."""
    regions = hierarchy.level_range(query.level)
    if isinstance(query.size, int):
        return len(regions) * query.size, query.size
    sizes = query.sizes(len(regions), tables, regions.start)
    return int(sizes.sum()), int(sizes.max(initial=0))


def noisy_parts(
    queries: Sequence[LevelQuery],
    exact: Iterable[Exact],
    hierarchy: Hierarchy,
    tables: Mapping[str, Ints],
    source: NoiseSource,
    progress: Progress | None = None,
) -> Iterator[NoisyPart]:
    """Yield noisy answers as the exact answers come; the only place where noise is drawn for a measurement.

    A stream of noise is named by query and label, and parts of one name that follow each other read it on; answers of
    exact queries pass as they are. ``progress`` receives the number of answers done and of all. Raises ProblemError for
    noise that was drawn before, and where the parts of a query are not its public number of answers.
    """
    ends = [answers_in_all(query, hierarchy, tables)[0] for query in queries]
    place = {(query.level, query.name): index for index, query in enumerate(queries)}
    filled, total, done = [0] * len(queries), sum(ends), 0
    noise = Noise(source)
    for part in exact:
        index = place[part.query.level, part.query.name]
        noisy, start = noise.add_to(part), filled[index]
        filled[index] += noisy.size
        if filled[index] > ends[index]:
            raise ProblemError(f"{part.query.name!r} at level {part.query.level}: more answers than are public")
        yield NoisyPart(index, start, noisy)
        done += noisy.size
        if progress is not None:
            progress(done, total)
    for query, count, end in zip(queries, filled, ends, strict=True):
        if count != end:
            raise ProblemError(f"{query.name!r} at level {query.level}: fewer answers than are public")


def gathered(
    queries: Sequence[LevelQuery], parts: Iterable[NoisyPart], hierarchy: Hierarchy, tables: Mapping[str, Ints]
) -> tuple[Answers, ...]:
    """Return the answers of all parts in memory: as arrays or, above ``DENSE`` answers in all, packed."""
    offsets = [offsets_of(query, hierarchy, tables) for query in queries]
    if sum(int(ends[-1]) for ends in offsets) > DENSE:
        pieces: list[list[Packed]] = [[] for _ in queries]
        for packed in packed_parts(parts):
            pieces[packed.place].append(packed.packed)
        starts = [np.cumsum([0, *(piece.count for piece in listed)], dtype=np.int64) for listed in pieces]
        stored = [PackedAnswers(ends, listed.__getitem__) for ends, listed in zip(starts, pieces, strict=True)]
        return tuple(map(Answers, queries, offsets, stored))
    arrays = [np.empty(int(ends[-1]), np.int64) for ends in offsets]
    for part in parts:
        arrays[part.place][part.start : part.start + part.values.size] = part.values
    return tuple(map(Answers, queries, offsets, arrays))


def packed_parts(parts: Iterable[NoisyPart]) -> Iterator[PackedPart]:
    """Yield the same answers packed: small parts of one query that follow each other together, large parts cut."""
    waiting: list[NoisyPart] = []
    size = 0
    for part in parts:
        if waiting and (part.place != waiting[0].place or size >= LEAST_PIECE):
            yield from packed_pieces(waiting)
            waiting, size = [], 0
        waiting.append(part)
        size += part.values.size
    if waiting:
        yield from packed_pieces(waiting)


def packed_pieces(parts: Sequence[NoisyPart]) -> Iterator[PackedPart]:
    """Yield parts of one query that follow each other as pieces of limited size."""
    place, start = parts[0].place, parts[0].start
    values = parts[0].values if len(parts) == 1 else np.concatenate([part.values for part in parts])
    for offset in range(0, values.size, _LARGEST_PIECE):
        yield PackedPart(place, start + offset, Packed.of(values[offset : offset + _LARGEST_PIECE]))


class Noise:
    """Adds to each part the noise of its stream, which stays open while parts of one name follow each other."""

    def __init__(self, source: NoiseSource) -> None:
        self._source = source
        self._name: tuple[LevelQuery, str] | None = None
        self._stream: NoiseStream | None = None

    def add_to(self, part: Exact, start: int | None = None) -> Ints:
        """Return a part's answers with noise: the next of its stream or, with ``start``, that of the cells from there.

        Only a stream that can be read at any cell takes a ``start``.
        """
        if part.values.dtype != np.int64 or part.values.ndim != 1:
            raise ProblemError(f"{part.query.name!r}: exact answers are one-dimensional int64")
        if part.query.exact:
            return part.values
        name = (part.query, part.label)
        if self._stream is None or name != self._name:
            distribution = part.query.distribution
            self._stream = distribution.opened(self._source, measurement=part.query.name, region=part.label)
            self._name = name
        if start is None:
            return self._stream.add_to(part.values)
        if not isinstance(self._stream, CellStream):
            raise ProblemError(f"the noise of {part.query.name!r} can only be read from its start")
        return self._stream.add_to(part.values, start)
