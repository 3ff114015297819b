"""What the posterior is asked to read: cells, buckets by growth, or the buckets that the planner chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from coco_experiments.groups import Case, split_evenly
from coco_opt.groups.measuring.automatic import QuerySearch, assumed_distributions
from coco_opt.groups.measuring.predicted import Regions
from coco_opt.groups.queries import sensitivity
from coco_opt.privacy import Epsilon, Measurement, Neighbours
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
class QueryPlan:
    """Buckets by growth (0: cells) and the split, one a level, root first."""

    name: str
    growth: tuple[float, ...]
    split: tuple[Fraction, ...]

    @property
    def key(self) -> str:
        """What the stored results of these queries are found by."""
        growth, split = ("/".join(map(str, numbers)) for numbers in (self.growth, self.split))
        return f"growth {growth}, split {split}"

    def resolved_key(self, case: Case, seed: int, epsilon: Fraction) -> str:
        """Return what the stored results of one seed are found by; queries that are chosen depend on the data."""
        del case, seed, epsilon
        return self.key

    @property
    def words(self) -> str:
        """What is asked, without the posterior."""
        return self.name.removeprefix(_READ)

    def measured(self, case: Case, seed: int, epsilon: Fraction = EPSILON) -> Measurement:
        """Return the noisy measurements under a seed, for a total epsilon; NOT PRIVATE."""
        return case.measured(seed, [Epsilon(epsilon * share) for share in self.split], growth=self.growth)


def cells(case: Case) -> QueryPlan:
    """Return every cell of every level, even split."""
    return QueryPlan(CELLS, (0.0,) * case.levels, split_evenly(Fraction(1), case.levels))


def leaves_only(case: Case) -> QueryPlan:
    """Return every cell of the leaves, with the whole budget."""
    return QueryPlan(LEAVES, (0.0,) * case.levels, (Fraction(0),) * (case.levels - 1) + (Fraction(1),))


def grown(case: Case, growth: tuple[float, ...]) -> list[QueryPlan]:
    """Return buckets of a given growth by the even split, and by one that leaves most to the leaves."""
    leaves = TOWARDS_LEAVES[-case.levels :]
    leaves = tuple(share / sum(leaves) for share in leaves)
    words = "(" + ", ".join(f"{float(share):.3g}" for share in leaves) + ")"
    even = split_evenly(Fraction(1), case.levels)
    return [
        QueryPlan(BUCKETS, growth, even),
        QueryPlan(f"{BUCKETS}, split {words}", growth, leaves),
    ]


def search_of(case: Case, epsilon: Fraction, weights: Sequence[float] = ()) -> QuerySearch:
    """Return the search for what is measured with a budget: regions, numbers of groups and K.

    ``weights`` are those of the levels' errors in the aim, by default the same for all.
    """
    counts = np.asarray(case.counts.group_counts, np.int64)
    noise = NoisePlan(Epsilon(epsilon), (sensitivity("cumulative", NEIGHBOURS),) * case.levels)
    aim = np.array(weights or (1.0 / case.levels,) * case.levels)
    return QuerySearch(Regions.of(case.hierarchy, counts), case.max_size, noise, aim)


def planned(case: Case, epsilon: Fraction = EPSILON) -> QueryPlan:
    """Return what is chosen from public numbers alone, without a look."""
    choice = search_of(case, epsilon).choose(assumed_distributions(case.max_size))
    return QueryPlan(PLANNED, choice.growths, choice.shares)
