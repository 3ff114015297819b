"""Which buckets each level measures and how the budget is allocated, chosen from public numbers for an aim.

The candidates are bucket growths that do not decrease from the root to the leaves, since a region below holds fewer
groups, and allocations of the budget over the levels: geometric shares, and large shares of the leaves, where the
levels above share the rest evenly or the root gets most of it. ``Predictor`` gives each candidate's error by level
under a size distribution. The aim is a weighted geometric mean of these errors over the levels. Under one distribution
(an estimate, or public data) the candidate of least aim is chosen. Under several, the candidate of least worst regret:
its aim over the best candidate's for that distribution, at worst over all distributions. Where another method estimates
than the posterior, ``FitPredictor`` takes the predictor's place.

1. Find the best candidate for each distribution by coordinate descent: each level's growth in turn, then the
   allocation, until nothing improves.
2. With several distributions, start from the best of these candidates by worst regret and repeat the descent on it.

Every step lowers its objective and the candidates are finite, so the search ends. Cost: about 100 predictions a
distribution, each O(levels x grid cells^3).

No level is to pay too much for the others. Where all levels weigh alike and the allocation is open, a candidate's price
is the largest ratio, over the levels, of its error to that of the best candidate that shares the budget evenly. Of the
candidates within ``_NEAR`` of the best, the one of least price is taken, or the first whose price is within ``_ALIKE``
of it. Prices above ``LIMIT`` are passed over, unless the best one's aim is lower than the even one's by ``_WORTH``:
more would be lost than saved, since what middle levels pay is predicted too high (Hawaii's counties by up to 1.7).

The predictor takes all regions to have one size distribution. Where regions have narrower ones of their own, single
sizes of the leaves gain more on buckets than it says. Where several distributions are weighed, none of which has such
regions, ``_CELL_CREDIT`` lowers the aim's logarithm.
Strong noise hides what is special to a region: the credit ends where all of the budget would leave a single size with
noise of standard deviation ``_NOISY`` (about epsilon 0.1), and is complete up to ``_CLEAR`` (about epsilon 0.5). On
counties at epsilon 0.1 it had chosen single sizes, which err by 1.2 and 2.1 times as much as the choice without it.
Nor do leaves of fewer than ``_MANY_GROUPS`` groups on average show a distribution of their own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.measuring.predicted import MOST_SIZES, FitPredictor, Predictor, Regions
from coco_opt.privacy.planner import LEAF_SHARES, NoisePlan, Shares, allocation, allocations, uniform_shares

Reader = Literal["posterior", "joint", "fits"]
Candidate = tuple[tuple[float, ...], Shares]
"""Bucket growths and shares of the budget by level, root first."""

GROWTHS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0)
_GRID_GROWTH = 0.03  # of the predictor's grid: no coarser than the finest buckets
_COARSE_GROWTH = 0.07  # of its grid where several distributions are weighed; coarser grids flatter buckets of 0.05
_FIRST_GROWTH = 0.05  # of the search
_LEAF_SHARES = (*LEAF_SHARES, 0.99)  # which the posterior reads all levels from where the budget is large
_ROOT_AND_LEAF_SHARES = (0.5, 0.7, 0.8, 0.85, 0.9, 0.95)
_SEEN = 0.5  # entities: smaller errors are alike
_CELL_CREDIT = 0.3
_CLEAR, _NOISY = 3.0, 14.0
_MANY_GROUPS = 100.0
_NEAR, _WORTH, _ALIKE = math.log(1.03), math.log(1.05), 1.1  # of the aim; ratio of what worst levels pay
_ROUNDS = 6
_LEAST_GAIN = 1e-3  # of the logarithm of the aim

LIMIT = 1.25
"""How many times the error of an even allocation a level may have, unless the mean over the levels gains much by it."""


@dataclass(frozen=True, eq=False, slots=True)
class QueryChoice:
    """What is measured: a bucket growth a level (0: single sizes) and each level's share of the budget, root first.

    There are no growths where the buckets were stated.
    ``errors`` are the predicted mean distances of a region by level (entities), float64[distributions, levels].
    ``regret`` is the worst ratio of the aim to the least that any candidate reaches under the same distribution.
    ``even`` are the errors if all levels share the budget evenly, with buckets of their own, float64[distributions,
    levels].
    """

    growths: tuple[float, ...]
    shares: Shares
    errors: Floats
    regret: float
    even: Floats

    @property
    def price(self) -> Floats:
        """Return how many times the error of an even allocation each level has at worst, float64[levels]."""
        return np.asarray((np.maximum(self.errors, _SEEN) / np.maximum(self.even, _SEEN)).max(axis=0))


@dataclass(frozen=True, eq=False, slots=True)
class QuerySearch:
    """The public numbers of a choice: regions by level, the noise, the weights of the aim, and what is fixed already.

    ``buckets`` and ``shares`` of the levels are None where they are to be chosen. ``weights`` float64[levels] sum to 1.
    ``reader`` is the method that estimates, whose errors are predicted; "fits" are all that fit levels individually.
    Where buckets are chosen, those with more than ``most_answers`` noisy answers are passed over.
    """

    regions: Regions
    max_size: int
    noise: NoisePlan
    weights: Floats
    buckets: tuple[Buckets, ...] | None = None
    shares: Shares | None = None
    reader: Reader = "posterior"
    most_answers: float = math.inf

    def choose(self, distributions: Mapping[str, Floats]) -> QueryChoice:
        """Return the choice of least aim, or of least worst regret where there are several distributions.

        Each distribution gives the probabilities of the sizes 0 .. max_size, float64[max_size + 1].
        """
        return self.ranked(distributions, 1)[0]

    def ranked(self, distributions: Mapping[str, Floats], count: int) -> tuple[QueryChoice, ...]:
        """Return the choice and the next best candidates that the search met, at most ``count`` in all."""
        predictor: Callable[[Regions, Floats], Predictor | FitPredictor] = FitPredictor
        if self.reader == "posterior" or self.max_size > MOST_SIZES:
            predictor = partial(Predictor, growth=grid_growth(len(distributions)))
        evaluations = _Evaluations(self, [predictor(self.regions, each) for each in distributions.values()])
        start = (self._start(), self.shares or allocation(1.0, self.levels))
        best = [self._descend(start, partial(evaluations.aim, place)) for place in range(len(distributions))]
        least = [evaluations.aim(place, candidate) for place, candidate in enumerate(best)]

        def regret(candidate: Candidate) -> float:
            return max(evaluations.aim(place, candidate) - aim for place, aim in enumerate(least))

        if len(best) > 1:
            self._descend(min(best, key=regret), regret)
        complete = [each for each in evaluations.complete if each == start or self.fits(each[0])]
        ranking = sorted(complete, key=lambda candidate: (regret(candidate), candidate))
        distinct: dict[tuple[bytes, Shares], Candidate] = {}
        for candidate in ranking:
            distinct.setdefault(evaluations.measured(candidate), candidate)
        even = next((each for each in distinct.values() if each[1] == uniform_shares(self.levels)), ranking[0])
        choices = [
            QueryChoice(*each, evaluations.errors(each), math.exp(max(regret(each), 0.0)), evaluations.errors(even))
            for each in distinct.values()
        ]
        if self.shares is None and np.ptp(self.weights) == 0.0:
            best_even = next(choice for choice in choices if (choice.growths, choice.shares) == even)
            choices.insert(0, choices.pop(choices.index(_shared(choices, best_even))))
        return tuple(choices[:count])

    @property
    def levels(self) -> int:
        """Return the number of levels."""
        return self.weights.size

    def fits(self, growths: tuple[float, ...]) -> bool:
        """Return whether buckets by growth have few enough noisy answers to be estimated in time."""
        if self.buckets is not None:
            return True
        counts = [bucket_count(self.max_size, growth) for growth in growths]
        return float(self.regions.count @ counts) <= self.most_answers

    def _start(self) -> tuple[float, ...]:
        """Return where the search begins: the finest growths that fit at every level, none where buckets are stated."""
        if self.buckets is not None:
            return ()
        even = [(growth,) * self.levels for growth in GROWTHS if growth >= _FIRST_GROWTH]
        return next((growths for growths in even if self.fits(growths)), even[-1])

    def _descend(self, start: Candidate, objective: Callable[[Candidate], float]) -> Candidate:
        """Return a candidate that no change of one level's growth or of the allocation improves."""
        best, value = start, objective(start)
        for _ in range(_ROUNDS):
            before = value
            for candidate in self._neighbours(best):
                other = objective(candidate)
                if other < value - _LEAST_GAIN:
                    best, value = candidate, other
            if value == before:
                break
        return best

    def _neighbours(self, candidate: Candidate) -> list[Candidate]:
        """Return the candidates that differ in the growths from one level on, or in the allocation."""
        growths, shares = candidate
        changed: list[Candidate] = []
        if self.buckets is None:
            for level in reversed(range(self.levels)):
                for growth in GROWTHS:
                    above = tuple(min(each, growth) for each in growths[:level])
                    below = tuple(max(each, growth) for each in growths[level + 1 :])
                    changed.append(((*above, growth, *below), shares))
            if self.reader == "joint":  # which reads the same buckets on every level
                changed = [((growth,) * self.levels, shares) for growth in GROWTHS]
        if self.shares is None:
            weighed = allocations(self.levels, _LEAF_SHARES, _ROOT_AND_LEAF_SHARES)
            changed += [(growths, other) for other in weighed]
        return [other for other in dict.fromkeys(changed) if other != candidate and self.fits(other[0])]


def _shared(ranking: Sequence[QueryChoice], even: QueryChoice) -> QueryChoice:
    """Return the choice whose worst level pays least, of those near the best that any level may pay for."""
    gain = math.log(even.regret / ranking[0].regret)
    allowed = [choice for choice in ranking if gain > _WORTH or choice.price.max() <= LIMIT]
    near = [choice for choice in allowed if math.log(choice.regret / allowed[0].regret) <= _NEAR]
    least = min(float(choice.price.max()) for choice in near)
    return next(choice for choice in near if choice.price.max() <= _ALIKE * least)


def cell_credit(noise: NoisePlan, regions: Regions) -> float:
    """Return by how much the logarithm of the aim of single sizes at the leaves is lower than predicted."""
    if regions.groups[-1] @ regions.parts[-1] < _MANY_GROUPS:
        return 0.0
    deviation = math.sqrt(noise.variances((0,) * (len(noise.sensitivities) - 1) + (1,))[-1])
    hidden = math.log(deviation / _CLEAR) / math.log(_NOISY / _CLEAR)
    return _CELL_CREDIT * (1.0 - min(max(hidden, 0.0), 1.0))


class _Evaluations:
    """The predictions made so far, by candidate and the distribution's place."""

    def __init__(self, search: QuerySearch, predictors: Sequence[Predictor | FitPredictor]) -> None:
        self._search, self._predictors = search, predictors
        self._cell_credit = cell_credit(search.noise, search.regions)
        self._buckets: dict[float, Buckets] = {}
        self._errors: dict[tuple[int, Candidate], Floats] = {}

    @property
    def complete(self) -> list[Candidate]:
        """Return the candidates that were predicted under every distribution."""
        counted = Counter(candidate for _, candidate in self._errors)
        return [candidate for candidate, count in counted.items() if count == len(self._predictors)]

    def aim(self, place: int, candidate: Candidate) -> float:
        """Return the logarithm of a candidate's aim under the distribution at a place."""
        errors = np.maximum(self._of(place, candidate), 1e-12)
        credit = 0.0
        if self._search.reader == "posterior" and len(self._predictors) > 1 and candidate[0][-1:] == (0.0,):
            credit = self._cell_credit
        return float(np.log(errors) @ self._search.weights) - credit

    def measured(self, candidate: Candidate) -> tuple[bytes, Shares]:
        """Return what a candidate measures: small growths can give the same buckets."""
        return b"|".join(self._buckets_of(growth).begin.tobytes() for growth in candidate[0]), candidate[1]

    def errors(self, candidate: Candidate) -> Floats:
        """Return the errors of a candidate, float64[distributions, levels]."""
        return np.array([self._of(place, candidate) for place in range(len(self._predictors))])

    def _of(self, place: int, candidate: Candidate) -> Floats:
        if (place, candidate) not in self._errors:
            growths, shares = candidate
            buckets = self._search.buckets or [self._buckets_of(growth) for growth in growths]
            variances = self._search.noise.variances(shares)
            self._errors[place, candidate] = self._predictors[place].errors(buckets, variances)
        return self._errors[place, candidate]

    def _buckets_of(self, growth: float) -> Buckets:
        if growth not in self._buckets:
            self._buckets[growth] = Buckets.by_growth(self._search.max_size, growth)
        return self._buckets[growth]


def grid_growth(distributions: int) -> float:
    """Return the growth of the predictor's grid for so many size distributions."""
    return _GRID_GROWTH if distributions == 1 else _COARSE_GROWTH


@cache
def bucket_count(max_size: int, growth: float) -> int:
    """Return the number of noisy answers about one region."""
    return Buckets.by_growth(max_size, growth).count if growth else max_size


def assumed_distributions(max_size: int) -> dict[str, Floats]:
    """Return the family of size distributions that a choice from public numbers alone is held to, by name.

    Each gives the probabilities of the sizes 0 .. max_size. Steep and heavy tails, with and without seven in ten groups
    empty; geometric distributions of three means; all sizes alike; and nearly all groups of one size.
    """
    sizes = np.arange(max_size + 1, dtype=np.float64)

    def power(exponent: float, empty: float) -> Floats:
        probabilities = np.zeros(max_size + 1)
        probabilities[1:] = sizes[1:] ** -exponent
        probabilities *= (1.0 - empty) / probabilities.sum()
        probabilities[0] = empty
        return probabilities

    def geometric(mean: float) -> Floats:
        probabilities = np.zeros(max_size + 1)
        probabilities[1:] = np.exp(-(sizes[1:] - 1.0) / mean)
        return np.asarray(probabilities / probabilities.sum())

    spike = np.full(max_size + 1, 0.05 / (max_size + 1))
    spike[max(1, max_size // 4)] += 0.95
    return {
        "steep (1/s^2)": power(2.0, 0.0),
        "steep, 70 % empty": power(2.0, 0.7),
        "heavy tail (1/s)": power(1.0, 0.0),
        "heavy tail, 70 % empty": power(1.0, 0.7),
        **{f"geometric, mean {max_size**e:.0f}": geometric(float(max_size**e)) for e in (0.25, 0.5, 0.75)},
        "all sizes alike": power(0.0, 0.0),
        "one spike": spike,
    }
