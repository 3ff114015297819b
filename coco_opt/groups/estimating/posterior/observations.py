"""All noisy answers about a hierarchy as arrays: buckets of cumulative counts, or sorted sizes, in any mixture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.noisy_measurements import GroupsMeasurements
from coco_opt.privacy import DiscreteGaussian, Geometric, NoiseDistribution

if TYPE_CHECKING:
    from coco_opt.kernels.posterior_moves import Queries


# The kernels' codes of the noise distributions (``kernels.posterior_moves`` and ``kernels.posterior_weights``), and the
# steepness of their log-likelihoods: -steepness |noise|, and -steepness noise^2.
_CODES: Mapping[type[NoiseDistribution], tuple[int, Callable[[NoiseDistribution], float]]] = {
    Geometric: (0, lambda distribution: float(1 / distribution.parameter)),
    DiscreteGaussian: (1, lambda distribution: float(1 / (2 * distribution.parameter))),
}


@dataclass(frozen=True, slots=True)
class Ranks:
    """The sizes of all G groups in order, each at least ``floor``: Hg, or the upper part of a split at ``floor``."""

    floor: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class Answers:
    """The noisy answers to one query about one region, and the distribution of their noise."""

    region: int
    query: Buckets | Ranks
    values: Ints
    distribution: NoiseDistribution


@dataclass(frozen=True, eq=False, slots=True)
class Survey:
    """A hierarchy of public shape and all answers about it.

    ``parent`` int64[regions] numbers regions breadth first (-1 at the root); ``groups`` int64[regions] are the public
    numbers of groups; sizes are 0 .. ``max_size``. A region may have no answers, or several.
    """

    parent: Ints
    groups: Ints
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
        for answers in self.answers:
            self._check(answers)

    def _check(self, answers: Answers) -> None:
        if not 0 <= answers.region < self.parent.size:
            raise ProblemError("answers must name a region")
        code_of(answers.distribution)
        if isinstance(answers.query, Ranks):
            size = int(self.groups[answers.region])
        else:
            size = answers.query.count
            if int(answers.query.end[-1]) > self.max_size:
                raise ProblemError("buckets must end at the largest size: the last cell is public")
        if answers.values.shape != (size,) or answers.values.dtype.kind not in "iu":
            raise ProblemError(f"region {answers.region} needs {size} integer answers to its query")

    @property
    def leaves(self) -> Ints:
        """Return the regions without children, int64, in order."""
        return np.flatnonzero(np.bincount(self.parent[1:], minlength=self.parent.size) == 0)

    @property
    def of_rows(self) -> bool:
        """Return whether leaves' complete rows can be drawn: answers about them are about single cells, every cell.

        Regions above may have answers in buckets, behind those about cells.
        """
        in_cells = [_of_cells(answers, self.max_size) for answers in self.answers]
        leaves = set(self.leaves.tolist())
        return (
            all(isinstance(answers.query, Buckets) for answers in self.answers)
            and in_cells == sorted(in_cells, reverse=True)
            and all(own for own, answers in zip(in_cells, self.answers, strict=True) if answers.region in leaves)
        )

    @property
    def blocks_of_cells(self) -> int:
        """Return the number of answers about single cells with every cell measured."""
        return sum(_of_cells(answers, self.max_size) for answers in self.answers)

    @property
    def finest_buckets(self) -> Buckets:
        """Return the buckets of all cells that begin wherever a bucket of any answers begins; ranks separate all."""
        queries = {id(answers.query): answers.query for answers in self.answers}.values()
        cells = np.arange(self.max_size)
        begins = [cells[query.floor :] if isinstance(query, Ranks) else query.begin for query in queries]
        begin = np.unique(np.concatenate([np.zeros(1, np.int64), *begins]))
        return Buckets.from_starts(begin[begin < self.max_size], self.max_size)

    def levels(self) -> Ints:
        """Return each region's distance from the root, int64[regions]."""
        depth = np.zeros(self.parent.size, np.int64)
        for v in range(1, self.parent.size):
            depth[v] = depth[self.parent[v]] + 1
        return depth


def _of_cells(answers: Answers, max_size: int) -> bool:
    return isinstance(answers.query, Buckets) and answers.query.of_cells(max_size)


def code_of(distribution: NoiseDistribution) -> tuple[int, float]:
    """Return the kernels' code of a distribution and its steepness, 1 / scale or 1 / (2 variance), or ProblemError."""
    if type(distribution) not in _CODES:
        raise ProblemError(f"the posterior supports geometric and discrete Gaussian noise, not {distribution}")
    code, steepness = _CODES[type(distribution)]
    return code, steepness(distribution)


def survey_of(answers: GroupsMeasurements, *others: GroupsMeasurements) -> Survey:
    """Return the answers of one measurement, or of several measurements of the same groups.

    Raises ProblemError where sizes were measured, which the posterior does not read, and where measurements differ in
    their regions, numbers of groups or largest size.
    """
    for other in others:
        if other.hierarchy.paths != answers.hierarchy.paths or other.max_size != answers.max_size:
            raise ProblemError("measurements that are estimated together need the same regions and largest size")
        if (other.group_counts != answers.group_counts).any():
            raise ProblemError("measurements that are estimated together must be of the same groups of every region")
    partitions: dict[tuple[bytes, bytes], Buckets] = {}
    blocks = []
    for measured in (answers, *others):
        for region, answer in enumerate(measured):
            if answer is None:
                continue
            if answer.query == "sizes":
                raise ProblemError(
                    f"the query of region {answer.region!r} is 'sizes': the posterior reads 'cumulative' or 'ranks'"
                )
            if answer.split is not None:
                at = answer.split.at
                cells = partitions.setdefault((b"", bytes(str(at), "ascii")), Buckets.cells(at))
                blocks.append(Answers(region, cells, answer.values[:at], answer.distribution))
                blocks.append(Answers(region, Ranks(at), answer.values[at:], answer.distribution))
                continue
            query: Buckets | Ranks = Ranks()
            if answer.query != "ranks":
                buckets = answer.buckets or Buckets.cells(answers.max_size)
                query = partitions.setdefault((buckets.begin.tobytes(), buckets.end.tobytes()), buckets)
            blocks.append(Answers(region, query, answer.values, answer.distribution))
    blocks.sort(key=lambda block: not _of_cells(block, answers.max_size))
    return Survey(answers.hierarchy.parent, answers.group_counts, answers.max_size, blocks)


def answers_by_region(survey: Survey) -> dict[int, list[Answers]]:
    """Return the answers about each region that has any, in order."""
    by_region: dict[int, list[Answers]] = {}
    for answers in survey.answers:
        by_region.setdefault(answers.region, []).append(answers)
    return by_region


def compiled_queries(survey: Survey) -> Queries:
    """Return the survey's queries as the kernels read them; O(answers + schemes x max_size)."""
    from coco_opt.kernels import posterior_moves

    schemes: dict[int, int] = {}
    buckets = [Buckets.cells(survey.max_size)]
    scheme, floor = [], []
    for answers in survey.answers:
        floor.append(answers.query.floor if isinstance(answers.query, Ranks) else 0)
        if isinstance(answers.query, Ranks):
            scheme.append(posterior_moves.RANKS)
        elif answers.query.of_cells(survey.max_size):
            scheme.append(posterior_moves.CELLS)
        else:
            if id(answers.query) not in schemes:
                schemes[id(answers.query)] = len(buckets)
                buckets.append(answers.query)
            scheme.append(schemes[id(answers.query)])
    codes = [code_of(answers.distribution) for answers in survey.answers]
    path_start, path = _paths(survey)
    cells = np.arange(survey.max_size)
    return posterior_moves.Queries(
        path_start,
        path,
        np.array(scheme, np.int64),
        np.cumsum([0, *(answers.values.size for answers in survey.answers)], dtype=np.int64),
        np.array([code for code, _ in codes], np.int64),
        np.array([steep for _, steep in codes], np.float64),
        np.array(floor, np.int64),
        np.cumsum([0, *(partition.begin.size for partition in buckets)], dtype=np.int64),
        np.concatenate([partition.begin for partition in buckets]),
        np.concatenate([partition.end for partition in buckets]),
        np.stack([np.searchsorted(partition.end, cells, side="right") for partition in buckets]).astype(np.int64),
    )


def _paths(survey: Survey) -> tuple[Ints, Ints]:
    """Return the answer blocks of each leaf and its ancestors, as starts and block numbers, the leaf's own first."""
    of_region: list[list[int]] = [[] for _ in range(survey.parent.size)]
    for number, answers in enumerate(survey.answers):
        of_region[answers.region].append(number)
    start, path = [0], []
    for leaf in survey.leaves:
        region = int(leaf)
        while region >= 0:
            path += of_region[region]
            region = int(survey.parent[region])
        start.append(len(path))
    return np.array(start, np.int64), np.array(path, np.int64)


def cumulative_rows(survey: Survey, histograms: NDArray[Any]) -> Callable[[int], Ints]:
    """Return a function of a region that gives its cumulative counts int64[K], from leaves' histograms (leaves, K + 1).

    Leaves' rows are computed again each time, because all rows together take more memory than chains do.
    """
    parent, place = survey.parent, np.full(survey.parent.size, -1)
    place[survey.leaves] = np.arange(survey.leaves.size)
    inner = {int(region): np.zeros(survey.max_size, np.int64) for region in np.flatnonzero(place < 0)}

    def row(region: int) -> Ints:
        if place[region] < 0:
            return inner[region]
        cumulative: Ints = np.cumsum(histograms[place[region], :-1], dtype=np.int64)
        return cumulative

    for region in range(parent.size - 1, 0, -1):
        inner[int(parent[region])] += row(region)
    return row


def values_of(query: Buckets | Ranks, row: Ints, groups: int) -> Ints:
    """Return the true answers to a query, from cumulative counts int64[K] and the region's number of groups."""
    if not isinstance(query, Ranks):
        return query.sums(row)
    counts = np.diff(row, prepend=0, append=groups)
    return np.maximum(np.repeat(np.arange(row.size + 1), counts), query.floor)


def residuals(survey: Survey, row_of: Callable[[int], Ints]) -> tuple[Ints, Ints]:
    """Return value minus answer for all answers in order, and the values of rank answers (0 at others).

    ``row_of`` gives each region's present cumulative counts int64[K].
    """
    differences, ranks = [], []
    for answers in survey.answers:
        values = values_of(answers.query, row_of(answers.region), int(survey.groups[answers.region]))
        ranks.append(values if isinstance(answers.query, Ranks) else np.zeros_like(values))
        differences.append(values - answers.values.astype(np.int64))
    empty = np.zeros(0, np.int64)
    return np.concatenate([empty, *differences]), np.concatenate([empty, *ranks])
