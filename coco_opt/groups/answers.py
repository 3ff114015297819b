"""A measurement of groups read region by region: the noisy answers with all that is public about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.groups.buckets import Buckets, Scheme, Split
from coco_opt.groups.choice import CHOICE
from coco_opt.groups.queries import GROUPS, AskedQuery, check_query
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import Answers, Asked, Law, Measurement, Question
from coco_opt.privacy.answers import DENSE, Stored
from coco_opt.privacy.cost import total

Int64 = NDArray[np.int64]
KIND = "groups"
MAX_SIZE = "max_size"
Loss = Literal["l1", "l2"]
_PIECE = 1 << 20


def max_size_of(asked: Asked) -> int:
    """Return the public bound on sizes, K; raise ProblemError where another kind of data was asked for."""
    if asked.kind != KIND:
        raise ProblemError(f"a measurement of {asked.kind}, not of groups")
    return int(asked.facts[MAX_SIZE])


def has_private_counts(asked: Asked) -> bool:
    """Tell whether the numbers of groups were asked for, with noise, and are no public fact."""
    max_size_of(asked)
    return GROUPS not in asked.per_region


def size_questions(asked: Asked) -> tuple[Question, ...]:
    """Return the questions about sizes: not those that ask for private numbers of groups, or for which query to ask."""
    return tuple(one for one in asked.questions if one.query not in (GROUPS, CHOICE))


def counts_share_of(asked: Asked) -> Fraction | None:
    """Return the part of each level's cost that asked for numbers of groups, None where they are public."""
    if not has_private_counts(asked):
        return None
    spent = total(one.cost for one in count_questions(asked) if one.cost is not None)
    return spent.amount / asked.cost.amount


def count_questions(asked: Asked) -> tuple[Question, ...]:
    """Return the questions that ask for private numbers of groups, root first; none where they are public."""
    return tuple(one for one in asked.questions if one.query == GROUPS)


def starts_name(level: int) -> str:
    """Return the name of the public table of a level's bucket starts."""
    return f"bucket starts, level {level}"


def buckets_of(asked: Asked, level: int) -> Buckets | None:
    """Return the buckets of sizes that a level was asked for; None where it was asked for single cells, or not."""
    starts = asked.tables.get(starts_name(level))
    return None if starts is None else Buckets.from_starts(starts, max_size_of(asked))


def split_name(level: int) -> str:
    """Return the name of the public table of the size from which on a level's ranks are asked."""
    return f"ranks above, level {level}"


def split_of(asked: Asked, level: int) -> Split | None:
    """Return the size at which the question of a level is split; None where it is not, or nothing is asked."""
    at = asked.tables.get(split_name(level))
    return None if at is None else Split(int(at[0]))


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Portion:
    """Answers ``begin`` .. ``end`` - 1 of those to a question, read where they are asked for."""

    answers: Answers
    begin: int
    end: int

    @property
    def size(self) -> int:
        """Return their number."""
        return self.end - self.begin

    def read(self, begin: int, end: int) -> Int64:
        """Return the answers ``begin`` .. ``end`` - 1 among them, read-only."""
        return self.answers.read(self.begin + begin, self.begin + end)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class RegionAnswer:
    """One region's noisy answer: cells of its level's ``query`` (``coco_opt.groups.queries``), int64.

    ``stored`` holds them, or reads them from where they are; ``groups`` G and ``max_size`` K are public or released;
    ``law`` is that of the noise of one cell; ``buckets`` are those of the query "buckets", ``split`` that of
    the query "split", None for others.
    """

    query: AskedQuery
    region: str
    groups: int
    max_size: int
    law: Law
    stored: Int64 | Stored
    buckets: Buckets | None = None
    split: Split | None = None

    @property
    def scheme(self) -> Scheme | None:
        """Return the buckets or the split, None for single cells, ranks and sizes."""
        return self.buckets if self.split is None else self.split

    @property
    def values(self) -> Int64:
        """Return all cells, brought into memory where they are not: 8 bytes each."""
        return self.stored if isinstance(self.stored, np.ndarray) else self.stored.read(0, self.stored.size)

    @property
    def large(self) -> bool:
        """Tell whether the cells are too many to be held beside others as large: read ``pieces`` of them."""
        return self.stored.size > DENSE

    def pieces(self) -> Iterator[tuple[int, Int64]]:
        """Yield all cells, a million at a time (none: one empty piece): the place of the first of them, and them."""
        for at in range(0, max(self.stored.size, 1), _PIECE):
            end = min(at + _PIECE, self.stored.size)
            yield at, self.stored[at:end] if isinstance(self.stored, np.ndarray) else self.stored.read(at, end)

    def histogram(self) -> tuple[Int64, NDArray[np.float64]]:
        """Return the sizes and the noisy number of groups of each, as the answer alone tells.

        Noisy cumulative counts are differenced and noisy sizes counted; noise makes negative counts. Of buckets the
        differences of their means are told, one a bucket, at the first size of the later one.
        """
        if self.query == "ranks":
            counted = [np.unique(piece, return_counts=True) for _, piece in self.pieces()]
            sizes, place = np.unique(np.concatenate([one[0] for one in counted]), return_inverse=True)
            counts = np.concatenate([one[1] for one in counted]).astype(np.float64)
            return sizes, np.bincount(place, counts, sizes.size).astype(np.float64)
        if self.buckets is not None:
            means = self.values / (self.buckets.end - self.buckets.begin)
            starts = np.append(self.buckets.begin, self.max_size)
            return starts, np.diff(means, prepend=0.0, append=float(self.groups))
        if self.split is not None:
            return self._split_histogram(self.split.at)
        cells = self.values
        if self.query == "cumulative":
            cells = np.diff(np.append(cells, self.groups), prepend=0)
        return np.arange(cells.size, dtype=np.int64), cells.astype(np.float64)

    def _split_histogram(self, at: int) -> tuple[Int64, NDArray[np.float64]]:
        """Return the sizes below a split with the differences of cells, and as many noisy ranks as these leave."""
        cells, ranks = self.values[:at], self.values[at:]
        above = min(max(self.groups - int(cells[-1]), 0), self.groups)
        sizes, counts = np.unique(np.maximum(ranks[self.groups - above :], at), return_counts=True)
        below = np.diff(cells, prepend=0).astype(np.float64)
        return np.append(np.arange(at), sizes), np.append(below, counts.astype(np.float64))

    def __repr__(self) -> str:
        return f"RegionAnswer({self.query} of {self.region!r}, {self.groups:,} groups, {self.law})"


@dataclass(frozen=True, eq=False, repr=False)
class GroupsAnswers:
    """The regions of a measurement of groups, in the hierarchy's order; None where a level was not measured."""

    measurement: Measurement

    def __post_init__(self) -> None:
        if has_private_counts(self.measurement.asked):
            raise ProblemError("the numbers of groups were measured too: estimate them before regions are read")
        for level in self.measured_levels:
            check_query(self._levels[level].question.query)

    @property
    def hierarchy(self) -> Hierarchy:
        """Return the public regions."""
        return self.measurement.hierarchy

    @property
    def group_counts(self) -> Int64:
        """Return the number of groups of every region, int64[regions]: public, or released before."""
        return self.measurement.asked.per_region[GROUPS]

    @property
    def max_size(self) -> int:
        """Return the public bound on sizes, K."""
        return max_size_of(self.measurement.asked)

    @cached_property
    def _levels(self) -> dict[int, Answers]:
        return {answers.question.level: answers for answers in self.measurement.answers}

    @cached_property
    def _laws(self) -> dict[int, Law]:
        return {level: answers.question.law for level, answers in self._levels.items()}

    @cached_property
    def _buckets(self) -> dict[int, Buckets | None]:
        return {level: buckets_of(self.measurement.asked, level) for level in self._levels}

    @cached_property
    def _splits(self) -> dict[int, Split | None]:
        return {level: split_of(self.measurement.asked, level) for level in self._levels}

    @property
    def measured_levels(self) -> tuple[int, ...]:
        """Return the levels that have answers, root first."""
        return tuple(sorted(self._levels))

    def query(self, level: int) -> AskedQuery:
        """Return what was asked of a level; raise ProblemError where nothing was."""
        return cast(AskedQuery, self._of(level).question.query)

    def buckets(self, level: int) -> Buckets | None:
        """Return the buckets of sizes a level was asked for, None for single cells; ProblemError where not measured."""
        self._of(level)
        return self._buckets[level]

    def law(self, level: int) -> Law:
        """Return the law of a level's noise; raise ProblemError where it was not measured."""
        self._of(level)
        return self._laws[level]

    def table(self, level: int) -> Int64:
        """Return a level's answers as int64[regions, cells]; ProblemError where it was not measured, or asked ranks."""
        return self._of(level).table()

    def weights(self, loss: Loss) -> NDArray[np.float64]:
        """Return what a region's answers weigh beside others in a loss, float64[regions]; 0 where not measured.

        "l1": maximum likelihood, 1 / scale; "l2": 1 / variance.
        """
        weights = np.zeros(len(self))
        for level in self.measured_levels:
            law, regions = self.law(level), self.hierarchy.level_range(level)
            weights[regions.start : regions.stop] = law.absolute_weight if loss == "l1" else law.square_weight
        return weights

    def _of(self, level: int) -> Answers:
        if level not in self._levels:
            raise ProblemError(f"level {level} was not measured: give it a share of the budget")
        return self._levels[level]

    def get(self, region: int) -> RegionAnswer | None:
        """Return a region's answer; None where its level was not measured."""
        level = int(self.hierarchy.level[region])
        if level not in self._levels:
            return None
        answers, place = self._levels[level], region - int(self.hierarchy.level_start[level])
        portion = Portion(answers, int(answers.offsets[place]), int(answers.offsets[place + 1]))
        stored = portion if portion.size > DENSE else portion.read(0, portion.size)
        path, groups = self.hierarchy.paths[region], int(self.group_counts[region])
        law, buckets = self._laws[level], self._buckets[level]
        split = self._splits[level]
        return RegionAnswer(self.query(level), path, groups, self.max_size, law, stored, buckets, split)

    def __getitem__(self, region: int) -> RegionAnswer:
        """Return a region's answer; raise ProblemError where its level was not measured."""
        answer = self.get(region)
        if answer is None:
            raise ProblemError(f"region {self.hierarchy.paths[region]!r} lies on a level that was not measured")
        return answer

    def __len__(self) -> int:
        return self.hierarchy.regions

    def __iter__(self) -> Iterator[RegionAnswer | None]:
        return (self.get(region) for region in range(len(self)))

    def __repr__(self) -> str:
        return f"GroupsAnswers({self.measurement!r})"
