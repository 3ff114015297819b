"""Whole releases run again and again on two neighbours: residuals of every level and scores of every run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coco_opt.audit.measured import Floats, Progress, Scores, Sources
from coco_opt.audit.neighbours import NeighbourPair, changed_cells
from coco_opt.audit.residuals import ResidualCounts
from coco_opt.choices import SolverChoices
from coco_opt.groups import GroupsMethod, estimate_groups
from coco_opt.histograms import CountOfCounts
from coco_opt.privacy import Measurements, NoiseSource, PureBudget, Query, measure_hierarchy

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class GroupsMechanism:
    """A whole groups release as a mechanism: what is measured with which budget, and what follows.

    ``queries`` come one a level, root first; ``sources(run)`` makes a fresh noise source for each run.
    """

    queries: tuple[Query, ...]
    budget: PureBudget
    max_size: int
    method: GroupsMethod
    sources: Sources
    solvers: SolverChoices

    def measured(self, pair: NeighbourPair, histograms: Sequence[CountOfCounts], source: NoiseSource) -> Measurements:
        """Return the sealed answers of every measured region."""
        return measure_hierarchy(
            histograms,
            pair.hierarchy,
            pair.group_counts,
            queries=self.queries,
            losses=self.method.losses,
            epsilons=self.budget.levels,
            max_size=self.max_size,
            neighbours=self.budget.neighbours,
            source=source,
        )

    def run(self, pair: NeighbourPair, histograms: Sequence[CountOfCounts], run: int) -> tuple[CountOfCounts, ...]:
        """Return the released histogram of every region: measured anew, then estimated."""
        measurements = self.measured(pair, histograms, self.sources(run))
        return estimate_groups(measurements, self.method, self.solvers).histograms


@dataclass(frozen=True, eq=False, slots=True)
class ReleasedRuns:
    """Residuals of the runs on D by level, and the scores of the runs on both sides, float64[runs, 2]."""

    residuals: tuple[ResidualCounts, ...]
    first: Floats
    second: Floats


def released_runs(
    pair: NeighbourPair, mechanism: GroupsMechanism, runs: int, progress: Progress | None = None
) -> ReleasedRuns:
    """Release D and D' ``runs`` times each with independent noise.

    Residuals are those of cumulative counts (one entity changes one cell a region by one), over the sizes 0 .. max
    below the largest group of a region's D: beyond, the answer is the public number of groups nearly always.
    Scores are taken at the cumulative cells in which D and D' differ. O(runs x one release).
    """
    places = score_places(pair, mechanism.max_size)
    scores = (np.empty((runs, 2)), np.empty((runs, 2)))
    parts: list[list[ResidualCounts]] = [[] for _ in range(pair.hierarchy.levels)]
    for run in range(runs):
        for side, histograms in enumerate((pair.first, pair.second)):
            released = mechanism.run(pair, histograms, 2 * run + side)
            scores[side][run] = score_release(released, places)
            if side == 0:
                _collect(parts, pair, released)
        if progress is not None:
            progress(run + 1, runs)
    return ReleasedRuns(tuple(ResidualCounts.total(part) for part in parts), *scores)


Place = tuple[int, int, int, int]


def score_places(pair: NeighbourPair, max_size: int) -> list[Place]:
    """Return (region, size, Hc of D, Hc of D') wherever the exact cumulative counts differ."""
    places = []
    for region in pair.changed:
        cells = changed_cells(pair.first[region], pair.second[region], "cumulative", max_size)
        arrays = (cells.cells.tolist(), cells.first.tolist(), cells.second.tolist())
        places += [(region, *cell) for cell in zip(*arrays, strict=True)]
    return places


def score_release(released: Sequence[CountOfCounts], places: Sequence[Place]) -> Floats:
    """Return the scores of one release at the cumulative cells in which D and D' differ, float64[2]."""
    total = Scores.zeros(1)
    for region, size, first, second in places:
        total.add(np.array([up_to(released[region], size)]), first, second, 1.0)
    return np.asarray(total.columns[0], dtype=np.float64)


def up_to(histogram: CountOfCounts, size: int) -> int:
    """Return the number of groups of at most ``size`` entities."""
    return int(histogram.counts[: np.searchsorted(histogram.sizes, size, side="right")].sum())


def _collect(parts: list[list[ResidualCounts]], pair: NeighbourPair, released: Sequence[CountOfCounts]) -> None:
    for level in range(pair.hierarchy.levels):
        regions = pair.hierarchy.level_range(level)
        each = [cumulative_residuals(pair.first[region], released[region]) for region in regions]
        if any(one.size for one in each):
            parts[level].append(ResidualCounts.of(np.concatenate(each)))


def cumulative_residuals(truth: CountOfCounts, released: CountOfCounts) -> Ints:
    """Return released minus exact Hc at the sizes 0 .. largest - 1 of the truth, int64[largest]."""
    if truth.max_size == 0:
        return np.empty(0, np.int64)
    bound = max(truth.max_size, released.max_size)
    return (released.cumulative(bound) - truth.cumulative(bound))[: truth.max_size]
