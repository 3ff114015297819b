"""Data sets of groups, their seeded measurements, and mean errors by level: what experiments with groups share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from coco_experiments.plots import Panel, comparison
from coco_experiments.statistics import Mean
from coco_opt.array_types import Floats
from coco_opt.groups import Query, measure_hierarchy
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.histograms import CountOfCounts, Hierarchy, errors_by_level
from coco_opt.privacy import Cost, Epsilon, Measurement, NoiseSource, SeededNoise

BARS = "Bars and standard errors: sample standard deviation over the runs / sqrt(runs), one of it, as in the paper."
SEEDED = "Noise is seeded (NOT PRIVATE) and independent between regions."
Levels = tuple[float, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Case:
    """A data set with the public bound K on its sizes; ``truth`` has every region's histogram, clamped to K."""

    name: str
    counts: PrivateCounts
    max_size: int
    truth: tuple[CountOfCounts, ...]

    @classmethod
    def of(cls, name: str, counts: PrivateCounts, max_size: int) -> Case:
        """Return a case, computing the regions' histograms."""
        return cls(name, counts, max_size, tuple(histogram.clamp(max_size) for histogram in counts.histograms()))

    @classmethod
    def of_leaves(cls, name: str, hierarchy: Hierarchy, sizes: Iterable[np.ndarray], max_size: int) -> Case:
        """Return a case from the sizes of the groups of each leaf, in the hierarchy's order."""
        leaves = [CountOfCounts.from_ranks(np.sort(of_leaf)) for of_leaf in sizes]
        return cls.of(name, PrivateCounts.of_leaves(hierarchy, leaves), max_size)

    @property
    def hierarchy(self) -> Hierarchy:
        """The public hierarchy of regions."""
        return self.counts.hierarchy

    @property
    def levels(self) -> int:
        """Number of levels."""
        return self.counts.hierarchy.levels

    def measured(
        self,
        source: int | NoiseSource,
        costs: Sequence[Cost] | None = None,
        query: Query | Sequence[Query] = "cumulative",
        *,
        growth: Sequence[float] = (),
        counts_share: Fraction | None = None,
    ) -> Measurement:
        """Return noisy answers of all levels under a seed or from a source, as a release would measure them.

        ``costs`` are those of the levels, root first, by default total epsilon 1 in equal parts. Buckets of sizes grow
        as ``growth`` says, one a level (0: single sizes). ``counts_share`` is the part of each level's budget that
        measures its numbers of groups, which are public without it.
        """
        return measure_hierarchy(
            self.truth,
            self.hierarchy,
            self.counts.group_counts if counts_share is None else None,
            queries=[query] * self.levels if isinstance(query, str) else list(query),
            costs=evenly(Fraction(1), self.levels) if costs is None else costs,
            max_size=self.max_size,
            neighbours="add_remove",
            source=SeededNoise(source) if isinstance(source, int) else source,
            buckets=[Buckets.by_growth(self.max_size, rate) if rate else None for rate in growth],
            counts_share=counts_share,
        )

    def errors(self, histograms: Sequence[CountOfCounts]) -> Levels:
        """Return the mean earth mover's distance (entities) a region, level by level."""
        return tuple(errors_by_level(self.hierarchy, histograms, self.truth).tolist())

    def by_level(self, values: Floats) -> Levels:
        """Return the mean over the regions of each level of one value a region."""
        return tuple(float(values[self.hierarchy.level == level].mean()) for level in range(self.levels))


def split_evenly(epsilon: Fraction, levels: int) -> tuple[Fraction, ...]:
    """Return equal parts, one a level (Kuo et al. 2018, Algorithm 1: epsilon / (L + 1))."""
    return (epsilon / levels,) * levels


def evenly(epsilon: Fraction, levels: int, cost: Callable[[Fraction], Cost] = Epsilon) -> list[Cost]:
    """Return the costs of equal parts of a budget, one a level."""
    return [cost(part) for part in split_evenly(epsilon, levels)]


def means_of(runs: Iterable[Sequence[float]]) -> tuple[Mean, ...]:
    """Return one mean a level."""
    return tuple(Mean.of(values) for values in zip(*runs, strict=True))


def level_figure(path: Path, means: Mapping[str, Mapping[str, Sequence[Mean]]]) -> list[Path]:
    """Draw mean errors by level, a panel a case, a mark a method, with standard errors; return the files."""
    panels = {
        case: Panel(
            tuple(f"level {level}" for level in range(max(map(len, methods.values())))),
            {name: tuple(mean.value for mean in levels) for name, levels in methods.items()},
            {name: tuple(mean.standard_error for mean in levels) for name, levels in methods.items()},
        )
        for case, methods in means.items()
    }
    return comparison(path, panels, "mean distance (entities) a region", log=True)
