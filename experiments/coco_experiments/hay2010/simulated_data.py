"""Simulated versions of the data sets of Hay et al. 2010, which may not be redistributed: same totals, other data.

Simulated data have the published number of values, of nonzero values, the sum, the maximum and, where known, the number
of distinct values, all exactly. Everything else (which values repeat, where counts lie in the domain) follows from the
simple rules below and a fixed seed; nothing was adjusted to an experiment's outcome.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError

Placement = Literal["clustered", "rising", "none"]

SEED = 2010


@dataclass(frozen=True, slots=True)
class Totals:
    """Published totals of a list of counts; ``distinct`` counts the value 0 too where it occurs, None if unknown."""

    values: int
    nonzero: int
    total: int
    largest: int
    distinct: int | None = None

    @classmethod
    def of(cls, counts: Ints) -> Totals:
        """Return the totals of counts (n,)."""
        return cls(
            counts.size,
            int(np.count_nonzero(counts)),
            int(counts.sum()),
            int(counts.max(initial=0)),
            int(np.unique(counts).size),
        )

    def agrees(self, other: Totals) -> bool:
        """Return whether all totals that both know are equal."""
        same_distinct = self.distinct is None or other.distinct is None or self.distinct == other.distinct
        return same_distinct and (self.values, self.nonzero, self.total, self.largest) == (
            other.values,
            other.nonzero,
            other.total,
            other.largest,
        )


NET_TRACE = Totals(65_536, 2_218, 25_714, 1_423, 107)
SOCIAL_NETWORK = Totals(11_342, 11_342, 674_708, 1_678, 304)
SEARCH_LOGS = Totals(32_768, 15_686, 335_889, 496)


def counts_with(totals: Totals, rng: np.random.Generator) -> Ints:
    """Return counts (values,), sorted, with exactly these totals.

    The distinct values are 1, 2, 3, ... as long as a geometric progression to the maximum grows by less than 1, and
    that progression from there (all of 1 to the maximum where their number is unknown). Each occurs at least once; the
    other counts are drawn with probabilities value^-a, where a gives the right mean, and then moved by single units
    until the sum is exact. Raises ProblemError for totals that this rule cannot meet.
    """
    support = _support(totals)
    free = totals.nonzero - support.size
    missing = totals.total - int(support.sum())
    if free < 0 or not free * support[0] <= missing <= free * support[-1]:
        raise ProblemError("no list of counts of this shape has these totals: check the number of distinct values")
    shares = _power_law(support, missing / free if free else 1.0)
    times = rng.multinomial(free, shares).astype(np.int64)
    _correct(support, times, missing - int(times @ support), rng)
    zeros = np.zeros(totals.values - totals.nonzero, np.int64)
    return np.concatenate([zeros, np.repeat(support, times + 1)])


def _support(totals: Totals) -> Ints:
    zero = int(totals.nonzero < totals.values)
    distinct = totals.largest if totals.distinct is None else totals.distinct - zero
    steps = np.arange(1, distinct + 1)
    progression = np.rint(totals.largest ** (steps / distinct)).astype(np.int64)
    support: Ints = steps + np.maximum.accumulate(np.maximum(progression - steps, 0))
    if support[-1] != totals.largest:
        raise ProblemError("more distinct values than the maximum has room for")
    return support


def _power_law(support: Ints, mean: float) -> NDArray[np.float64]:
    """Return probabilities proportional to support^-a with this mean, by bisection on a."""
    low, high = -50.0, 50.0
    logs = np.log(support)
    for _ in range(100):
        middle = (low + high) / 2
        weights = np.exp(-middle * logs + (middle * logs).min())
        if (weights @ support) / weights.sum() > mean:
            low = middle
        else:
            high = middle
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def _correct(support: Ints, times: Ints, missing: int, rng: np.random.Generator) -> None:
    """Move drawn counts to a neighbouring value, in place, until ``missing`` units are made up for."""
    gaps = np.diff(support)
    while missing:
        fits = gaps <= abs(missing)
        movable = times[:-1] > 0 if missing > 0 else times[1:] > 0
        places = np.flatnonzero(fits & movable)
        if places.size == 0:
            raise ProblemError("the sum cannot be met with these distinct values")
        i = int(rng.choice(places))
        up = 1 if missing > 0 else -1
        times[i] -= up
        times[i + 1] += up
        missing -= up * int(gaps[i])


def place(counts: Ints, placement: Placement, rng: np.random.Generator) -> Ints:
    """Return the counts (a power of 2 of them) spread over an ordered domain.

    "clustered", for addresses: a cascade gives 0.9 of every interval's weight to one half, chosen by a coin, and
    places are drawn by weight. "rising", for time: the weight grows from the first to the last place as the square of
    the place, and larger counts tend to come later. "none" returns them sorted.
    """
    if placement == "none":
        return counts
    weight = _cascade(counts.size, rng) if placement == "clustered" else np.linspace(0.0, 1.0, counts.size + 1)[1:] ** 2
    placed = np.zeros_like(counts)
    filled = counts[counts > 0]
    # The smallest of exponential times with these rates: sampling by weight without replacement.
    times = rng.standard_exponential(counts.size) / weight
    places = np.sort(np.argsort(times, kind="stable")[: filled.size])
    if placement == "clustered":
        placed[places] = rng.permutation(filled)
    else:
        rank = np.argsort(np.arange(filled.size) + rng.normal(0.0, 0.2 * filled.size, filled.size), kind="stable")
        placed[places[rank]] = filled
    return placed


def _cascade(size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    if size & (size - 1):
        raise ProblemError("clustered placement needs a domain that is a power of 2")
    weight = np.ones(1)
    while weight.size < size:
        left = np.where(rng.random(weight.size) < 0.5, 0.9, 0.1)
        weight = np.stack([weight * left, weight * (1 - left)], axis=1).ravel()
    return weight
