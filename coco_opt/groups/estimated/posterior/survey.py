"""All noisy answers about a hierarchy as arrays: buckets of cumulative counts, or sorted sizes, in any mixture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ProblemError
from coco_opt.groups.answers import GroupsAnswers
from coco_opt.groups.buckets import Buckets
from coco_opt.privacy import DiscreteGaussian, Geometric, Law

if TYPE_CHECKING:
    from coco_opt.kernels.posterior_moves import Questions

IntArray = NDArray[np.int64]

# The kernels' codes of the laws (``kernels.posterior_moves`` and ``kernels.posterior_region``), and the steepness of
# their log-likelihoods: -steepness |noise|, and -steepness noise^2.
_CODES: Mapping[type[Law], tuple[int, Callable[[Law], float]]] = {
    Geometric: (0, lambda law: float(1 / law.parameter)),
    DiscreteGaussian: (1, lambda law: float(1 / (2 * law.parameter))),
}


@dataclass(frozen=True, slots=True)
class Ranks:
    """The sizes of all G groups in order, each at least ``floor``: Hg, or the upper part of a split at ``floor``."""

    floor: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class Answers:
    """One question's noisy answers about one region, and the law of their noise."""

    region: int
    question: Buckets | Ranks
    values: IntArray
    law: Law


@dataclass(frozen=True, eq=False, slots=True)
class Survey:
    """A hierarchy of public shape and all answers about it.

    ``parent`` int64[regions] numbers regions breadth first (-1 at the root); ``groups`` int64[regions] are the public
    numbers of groups; sizes are 0 .. ``max_size``. A region may have no answers, or several.
    """

    parent: IntArray
    groups: IntArray
    max_size: int
    answers: Sequence[Answers]

    def __post_init__(self) -> None:
        parent, groups = self.parent, self.groups
        if parent.ndim != 1 or parent.size == 0 or groups.shape != parent.shape or self.max_size < 1:
            raise ProblemError("a survey needs parents and groups of the same regions and a largest size of at least 1")
        if parent[0] != -1 or (parent[1:] < 0).any() or (parent[1:] >= np.arange(1, parent.size)).any():
            raise ProblemError("regions must be numbered with the root first and parents before their children")
        below = np.bincount(parent[1:], groups[1:], parent.size).astype(np.int64)
        inner = np.bincount(parent[1:], minlength=parent.size) > 0
        if (groups < 0).any() or (below[inner] != groups[inner]).any():
            raise ProblemError("the numbers of groups must add up to those of the parents")
        for one in self.answers:
            self._check(one)

    def _check(self, one: Answers) -> None:
        if not 0 <= one.region < self.parent.size:
            raise ProblemError("answers must name a region")
        code_of(one.law)
        if isinstance(one.question, Ranks):
            wanted = int(self.groups[one.region])
        else:
            wanted = one.question.count
            if int(one.question.end[-1]) > self.max_size:
                raise ProblemError("buckets must end at the largest size: the last cell is public")
        if one.values.shape != (wanted,) or one.values.dtype.kind not in "iu":
            raise ProblemError(f"region {one.region} needs {wanted} whole answers to its question")

    @property
    def leaves(self) -> IntArray:
        """Return the regions without children, int64, in order."""
        return np.flatnonzero(np.bincount(self.parent[1:], minlength=self.parent.size) == 0)

    @property
    def only_cells(self) -> bool:
        """Tell whether all answers are about single cells, all of them."""
        return all(isinstance(one.question, Buckets) and one.question.of_cells(self.max_size) for one in self.answers)

    def levels(self) -> IntArray:
        """Return each region's distance from the root, int64[regions]."""
        found = np.zeros(self.parent.size, np.int64)
        for v in range(1, self.parent.size):
            found[v] = found[self.parent[v]] + 1
        return found


def code_of(law: Law) -> tuple[int, float]:
    """Return the kernels' code of a law and its steepness, 1 / scale or 1 / (2 variance); ProblemError for others."""
    if type(law) not in _CODES:
        raise ProblemError(f"the posterior knows geometric and discrete Gaussian noise, not {law}")
    code, steepness = _CODES[type(law)]
    return code, steepness(law)


def survey_of(answers: GroupsAnswers, *others: GroupsAnswers) -> Survey:
    """Return one measurement's answers, or several measurements' of the same groups.

    Raises ProblemError where sizes were asked, whose noisy counts are not read here, and where measurements differ in
    their regions, numbers of groups or largest size.
    """
    for other in others:
        if other.hierarchy.paths != answers.hierarchy.paths or other.max_size != answers.max_size:
            raise ProblemError("measurements that are estimated together need the same regions and largest size")
        if (other.group_counts != answers.group_counts).any():
            raise ProblemError("measurements that are estimated together must be of the same groups of every region")
    same: dict[tuple[bytes, bytes], Buckets] = {}
    found = []
    for measured in (answers, *others):
        for region, answer in enumerate(measured):
            if answer is None:
                continue
            if answer.query == "sizes":
                raise ProblemError(
                    f"region {answer.region!r} was asked for its sizes: the posterior reads cumulative or ranks"
                )
            if answer.split is not None:
                at = answer.split.at
                cells = same.setdefault((b"", bytes(str(at), "ascii")), Buckets.cells(at))
                found.append(Answers(region, cells, answer.values[:at], answer.law))
                found.append(Answers(region, Ranks(at), answer.values[at:], answer.law))
                continue
            question: Buckets | Ranks = Ranks()
            if answer.query != "ranks":
                asked = answer.buckets or Buckets.cells(answers.max_size)
                question = same.setdefault((asked.begin.tobytes(), asked.end.tobytes()), asked)
            found.append(Answers(region, question, answer.values, answer.law))
    return Survey(answers.hierarchy.parent, answers.group_counts, answers.max_size, found)


def answers_by_region(survey: Survey) -> dict[int, list[Answers]]:
    """Return the answers about each region that has any, in order."""
    found: dict[int, list[Answers]] = {}
    for one in survey.answers:
        found.setdefault(one.region, []).append(one)
    return found


def compiled_questions(survey: Survey) -> Questions:
    """Return the survey's questions as the kernels read them; O(answers + schemes x max_size)."""
    from coco_opt.kernels import posterior_moves

    schemes: dict[int, int] = {}
    buckets = [Buckets.cells(survey.max_size)]
    scheme, floor = [], []
    for one in survey.answers:
        floor.append(one.question.floor if isinstance(one.question, Ranks) else 0)
        if isinstance(one.question, Ranks):
            scheme.append(posterior_moves.RANKS)
        elif one.question.of_cells(survey.max_size):
            scheme.append(posterior_moves.CELLS)
        else:
            if id(one.question) not in schemes:
                schemes[id(one.question)] = len(buckets)
                buckets.append(one.question)
            scheme.append(schemes[id(one.question)])
    codes = [code_of(one.law) for one in survey.answers]
    path_start, path = _paths(survey)
    cells = np.arange(survey.max_size)
    return posterior_moves.Questions(
        path_start,
        path,
        np.array(scheme, np.int64),
        np.cumsum([0, *(one.values.size for one in survey.answers)], dtype=np.int64),
        np.array([law for law, _ in codes], np.int64),
        np.array([steep for _, steep in codes], np.float64),
        np.array(floor, np.int64),
        np.cumsum([0, *(one.begin.size for one in buckets)], dtype=np.int64),
        np.concatenate([one.begin for one in buckets]),
        np.concatenate([one.end for one in buckets]),
        np.stack([np.searchsorted(one.end, cells, side="right") for one in buckets]).astype(np.int64),
    )


def _paths(survey: Survey) -> tuple[IntArray, IntArray]:
    """Return the blocks of answers about each leaf and its ancestors, as starts and numbers, the leaf's own first."""
    of_region: list[list[int]] = [[] for _ in range(survey.parent.size)]
    for number, one in enumerate(survey.answers):
        of_region[one.region].append(number)
    start, path = [0], []
    for leaf in survey.leaves:
        region = int(leaf)
        while region >= 0:
            path += of_region[region]
            region = int(survey.parent[region])
        start.append(len(path))
    return np.array(start, np.int64), np.array(path, np.int64)


def cumulative_rows(survey: Survey, histograms: NDArray[Any]) -> Callable[[int], IntArray]:
    """Return what gives a region's cumulative counts int64[K], by histograms (leaves, K + 1) of the leaves.

    Leaves' rows are added up anew each time: those of all of them at once take more memory than chains do.
    """
    parent, place = survey.parent, np.full(survey.parent.size, -1)
    place[survey.leaves] = np.arange(survey.leaves.size)
    inner = {int(region): np.zeros(survey.max_size, np.int64) for region in np.flatnonzero(place < 0)}

    def row(region: int) -> IntArray:
        if place[region] < 0:
            return inner[region]
        found: IntArray = np.cumsum(histograms[place[region], :-1], dtype=np.int64)
        return found

    for region in range(parent.size - 1, 0, -1):
        inner[int(parent[region])] += row(region)
    return row


def values_of(question: Buckets | Ranks, row: IntArray, groups: int) -> IntArray:
    """Return the true answers to a question, of cumulative counts int64[K] and the region's number of groups."""
    if not isinstance(question, Ranks):
        return question.sums(row)
    counts = np.diff(row, prepend=0, append=groups)
    return np.maximum(np.repeat(np.arange(row.size + 1), counts), question.floor)


def residuals(survey: Survey, row_of: Callable[[int], IntArray]) -> tuple[IntArray, IntArray]:
    """Return value minus answer for all answers in order, and the values of rank answers (0 at others).

    ``row_of`` gives each region's present cumulative counts int64[K].
    """
    found, ranks = [], []
    for one in survey.answers:
        values = values_of(one.question, row_of(one.region), int(survey.groups[one.region]))
        ranks.append(values if isinstance(one.question, Ranks) else np.zeros_like(values))
        found.append(values - one.values.astype(np.int64))
    none = np.zeros(0, np.int64)
    return np.concatenate([none, *found]), np.concatenate([none, *ranks])
