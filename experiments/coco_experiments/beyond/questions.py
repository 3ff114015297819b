"""What the posterior is asked to read: cells, buckets by growth, or the buckets that the planner chooses."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from coco_experiments.kuo2018.answers import split_evenly
from coco_experiments.kuo2018.cases import Case
from coco_opt.groups import measure_hierarchy
from coco_opt.groups.asked.optimised import best_growths, even_law, steep_law
from coco_opt.groups.asked.predicted import Predictor, Regions
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.queries import sensitivity
from coco_opt.privacy import Epsilon, Measurement, Neighbours, SeededNoise
from coco_opt.privacy.planner import NoisePlan

EPSILON = Fraction(1)
NEIGHBOURS: Neighbours = "add_remove"
_READ = "posterior, "
CELLS = _READ + "cells"
BUCKETS = _READ + "buckets"
LEAVES = "cells of the leaves"
PLANNED = _READ + "planner's buckets"
GROWTH = (0.05, 0.1, 0.3, 0.5)  # of Hawaii's levels, root first
TOWARDS_LEAVES = tuple(Fraction(share) for share in ("1/20", "1/20", "1/10", "4/5"))


@dataclass(frozen=True, slots=True)
class Questions:
    """Buckets by growth (0: cells) and the split, one a level, root first."""

    name: str
    growth: tuple[float, ...]
    split: tuple[Fraction, ...]

    @property
    def words(self) -> str:
        """What is asked, without the posterior."""
        return self.name.removeprefix(_READ)

    def measured(self, case: Case, seed: int, epsilon: Fraction = EPSILON) -> Measurement:
        """Return the noisy answers under a seed, for a total epsilon; NOT PRIVATE."""
        buckets = [Buckets.by_growth(case.max_size, growth) if growth else None for growth in self.growth]
        return measure_hierarchy(
            case.truth,
            case.hierarchy,
            case.counts.group_counts,
            queries=["cumulative"] * case.levels,
            costs=[Epsilon(epsilon * share) for share in self.split],
            max_size=case.max_size,
            neighbours=NEIGHBOURS,
            source=SeededNoise(seed),
            buckets=buckets,
        )


def cells(case: Case) -> Questions:
    """Return every cell of every level, even split."""
    return Questions(CELLS, (0.0,) * case.levels, split_evenly(Fraction(1), case.levels))


def leaves_alone(case: Case) -> Questions:
    """Return every cell of the leaves, with the whole budget."""
    return Questions(LEAVES, (0.0,) * case.levels, (Fraction(0),) * (case.levels - 1) + (Fraction(1),))


def grown(case: Case, growth: tuple[float, ...]) -> list[Questions]:
    """Return buckets of a given growth by the even split, and by one that leaves most to the leaves."""
    leaves = TOWARDS_LEAVES[-case.levels :]
    leaves = tuple(share / sum(leaves) for share in leaves)
    words = "(" + ", ".join(f"{float(share):.3g}" for share in leaves) + ")"
    even = split_evenly(Fraction(1), case.levels)
    return [
        Questions(BUCKETS, growth, even),
        Questions(f"{BUCKETS}, split {words}", growth, leaves),
    ]


def planned(case: Case, epsilon: Fraction = EPSILON) -> Questions:
    """Return what ``plan --optimise`` chooses from public facts alone, without public data: regions, groups and K."""
    regions = np.diff(case.hierarchy.level_start).astype(np.float64)
    alike = Regions(regions, max(float(case.counts.group_counts[0]), 1.0) / regions)
    predictors = [Predictor(alike, law(case.max_size)) for law in (steep_law, even_law)]
    split = split_evenly(Fraction(1), case.levels)
    noise = NoisePlan(Epsilon(epsilon), (sensitivity("cumulative", NEIGHBOURS),) * case.levels)
    variances = noise.variances([float(share) for share in split])
    _, best = best_growths(predictors, case.max_size, variances, [True] * case.levels)
    return Questions(PLANNED, best.growths, split)
