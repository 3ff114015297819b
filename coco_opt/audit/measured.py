"""Runs of the noisy measurements of two neighbours in the cells in which they differ.

Noise is independent from cell to cell, so the other cells have one law under both and say nothing; that leaves a
vector of a few cells whatever the size of the hierarchy, and millions of runs take seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coco_opt.audit.neighbours import NeighbourPair, changed_cells
from coco_opt.errors import ProblemError
from coco_opt.privacy import NoiseSource, PureBudget, Query

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Sources = Callable[[int], NoiseSource]
Progress = Callable[[int, int], None]

_CHUNK = 1 << 20


class Exact:
    """A source without noise: the exact answers of a release, with the scales that it would use. NOT PRIVATE."""

    name: ClassVar[str] = "none"
    private: ClassVar[bool] = False

    def stream(self, scale: Fraction, *, measurement: str, region: str) -> Exact:
        """Return itself."""
        return self

    def add_to(self, values: Ints) -> Ints:
        """Return a copy of ``values``."""
        return values.copy()

    def draw(self, n: int) -> Ints:
        """Return ``n`` zeros."""
        return np.zeros(n, np.int64)


@dataclass(frozen=True, eq=False, slots=True)
class Witness:
    """The exact answers of D and D' in the cells where they differ, int64[m], and the noise scales, float64[m].

    ``labels`` names each cell's query and place; ``levels`` int64[m].
    """

    first: Ints
    second: Ints
    scales: tuple[Fraction, ...]
    levels: Ints
    labels: tuple[tuple[str, str], ...]

    def at(self, level: int) -> Witness:
        """Return the cells of one level."""
        kept = np.flatnonzero(self.levels == level)
        return Witness(
            self.first[kept],
            self.second[kept],
            tuple(self.scales[cell] for cell in kept),
            self.levels[kept],
            tuple(self.labels[cell] for cell in kept),
        )


def witness(pair: NeighbourPair, queries: Sequence[Query], budget: PureBudget, max_size: int) -> Witness:
    """Return the cells in which the exact answers differ on the measured levels, with the scales a release uses.

    ``queries`` come one a level, root first. The difference is taken from the exact answers themselves, not from a
    stated sensitivity, so that a wrong sensitivity shows.
    """
    first: list[Ints] = []
    second: list[Ints] = []
    scales: list[Fraction] = []
    levels: list[int] = []
    labels: list[tuple[str, str]] = []
    for region in pair.changed:
        level = int(pair.hierarchy.level[region])
        if not budget.levels[level]:
            continue
        query = queries[level]
        cells = changed_cells(pair.first[region], pair.second[region], query, max_size)
        first.append(cells.first)
        second.append(cells.second)
        count = cells.cells.size
        scales += [budget.scale(level, query)] * count
        levels += [level] * count
        labels += [(query, f"{pair.hierarchy.paths[region]} cell {cell}") for cell in cells.cells.tolist()]
    if not labels:
        raise ProblemError("the neighbours do not differ in any measured region: nothing to audit")
    return Witness(
        np.concatenate(first), np.concatenate(second), tuple(scales), np.array(levels, np.int64), tuple(labels)
    )


def measured_scores(
    differing: Witness, runs: int, sources: Sources, progress: Progress | None = None
) -> tuple[Floats, Floats]:
    """Return the scores of ``runs`` independent noisy answers of D and as many of D', float64[runs, 2] each.

    ``sources(side)`` makes a fresh noise source for side 0 and side 1; each cell reads a stream of its own. Scores
    of several cells are sums, so those of disjoint witnesses may be added. O(runs x cells).
    """
    sides: list[Floats] = []
    for side, answers in enumerate((differing.first, differing.second)):
        source = sources(side)
        total = Scores.zeros(runs)
        for cell, (query, region) in enumerate(differing.labels):
            stream = source.stream(differing.scales[cell], measurement=query, region=region)
            noisy = stream.add_to(np.full(runs, answers[cell], np.int64))
            total.add(noisy, int(differing.first[cell]), int(differing.second[cell]), float(differing.scales[cell]))
            if progress is not None:
                progress(side * len(answers) + cell + 1, 2 * len(answers))
        sides.append(total.columns)
    return sides[0], sides[1]


def scalar_draws(source: NoiseSource, scale: Fraction, value: int, draws: int, *, region: str) -> NDArray[np.int32]:
    """Return ``draws`` noisy answers about one count, int32[draws], in chunks so that memory is 4 bytes a draw.

    Answers must fit in 32 bits: for scales below 2^24 and counts below 2^30 they do.
    """
    stream = source.stream(scale, measurement="audit", region=region)
    answers = np.empty(draws, np.int32)
    for start in range(0, draws, _CHUNK):
        stop = min(start + _CHUNK, draws)
        answers[start:stop] = stream.add_to(np.full(stop - start, value, np.int64))
    return answers


@dataclass(frozen=True, eq=False, slots=True)
class Scores:
    """Two statistics a run that grow where D' is likelier: float64[runs, 2].

    Column 0 is sum (|y - d| - |y - d'|) / scale, the log-likelihood ratio of double-geometric noise, whose
    thresholds are the strongest events there are (Neyman and Pearson); column 1 is sum sign(d' - d) (y - d) / scale,
    which also sees the tails.
    """

    columns: Floats

    @classmethod
    def zeros(cls, runs: int) -> Scores:
        """Return scores of ``runs`` runs before any cell."""
        return cls(np.zeros((runs, 2)))

    def add(self, answers: NDArray[Any], first: int, second: int, scale: float) -> None:
        """Count one cell's answers in, in place: [runs], where D has ``first`` and D' ``second``."""
        away = np.abs(answers - first) - np.abs(answers - second)
        self.columns[:, 0] += away / scale
        self.columns[:, 1] += np.sign(second - first) * (answers - first) / scale
