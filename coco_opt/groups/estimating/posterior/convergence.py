"""How much work the chains do, when those of a region have converged, and which noisy answers refute the posterior.

Leaves whose counts mix slowly get more moves, up to a limit from the time allowed. The moves of a leaf change between
rounds only, never within one: each round runs a chain with fixed kernels, all of which leave the posterior as it is.
The limit counts sweeps, not seconds, so that a measurement always gives the same bits.

The answers of a level about a class of sizes (``posterior.comparison``) refute the posterior where they exceed it by
more than their own noise: then they alone say more than the posterior.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.groups.estimating.posterior.observations import Ranks, Survey
from coco_opt.posterior.chains import Criterion, sweeps_within
from coco_opt.posterior.comparison import Distances, Excess

ANSWER_SECONDS = 2e-4
"""What a noisy answer takes in the measured runs, on two cores."""

_BRIEFEST = 0.5  # seconds of the smallest runs
_MOVE, _STATE = 0.3, 0.1  # moves of tables whose time a move of groups takes, and a state of a row that is drawn
# Times these seconds where regions mix slowly: 7.4 times were measured, and about 17 times with many regions.
_SLOWEST, _SLOWEST_OF_MANY = 10.0, 20.0
MANY_REGIONS = 1_500
_SWEEPS = 280  # of the runs by which ``posterior_seconds`` was measured
_LEAST, _MOST = 0.5, 32.0  # times as many moves as in the beginning
_LESS, _MORE = 0.7, 4.0  # times as many moves as in the round before
_MARGIN = 1.5  # reciprocal of the distance from the criterion above which a leaf gets more moves


def posterior_seconds(answers: float) -> float:
    """Return about how many seconds the posterior of so many answers takes on two cores, by the measured runs."""
    return max(ANSWER_SECONDS * answers, _BRIEFEST)


def longest_posterior_seconds(answers: float, limit: float, regions: int) -> float:
    """Return how many seconds it can take where regions converge slowly; ``limit`` are the seconds that it may take."""
    seconds = posterior_seconds(answers)
    slowest = _SLOWEST_OF_MANY if regions > MANY_REGIONS else _SLOWEST
    return min(slowest * seconds, max(limit, seconds))


class Effort:
    """The work that chains have done since the start, in sweeps with the first numbers of moves; ``most`` limits it.

    No leaf gets fewer than ``least`` times its first number of moves.
    """

    def __init__(self, survey: Survey, seconds: float) -> None:
        """Begin at the start; ``seconds`` limit all, first by the number of answers."""
        answers = sum(block.values.size for block in survey.answers)
        self._survey, self._seconds, self._spent = survey, seconds, 0.0
        self.most = _SWEEPS * seconds / posterior_seconds(answers)
        self.factors = np.ones(survey.leaves.size)
        self.moves, self.least = 1.0, _LEAST

    def limit(self, moves: float, states: float) -> None:
        """Limit sweeps by the moves and the states of drawn rows that all chains take in one at first."""
        self.most = sweeps_within(self._seconds, _MOVE * moves + _STATE * states)

    def spend(self, sweeps: int) -> None:
        """Count sweeps with ``moves`` times the first number of moves."""
        self._spent += self.moves * sweeps

    def exhausted(self, sweeps: int) -> bool:
        """Return whether so many sweeps more would exceed the limit."""
        return self._spent + self.moves * sweeps > self.most

    def distribute(self, distance: Floats) -> None:
        """Change the leaves' factors by how far regions (regions,) are from the criterion (``Criterion.distance``).

        The leaves of a region that does not meet it get no fewer moves. The root is not looked at, because its leaves
        are all leaves.
        """
        needed, parent = distance.copy(), self._survey.parent
        for region in range(1, needed.size):
            if parent[region] > 0 and needed[parent[region]] > 1.0:
                needed[region] = max(needed[region], 1.0)
        change = np.clip(_MARGIN * needed[self._survey.leaves], _LESS, _MORE)
        self.factors = np.clip(self.factors * change, self.least, _MOST)


_OCTAVES = 2.0  # of sizes in a class
_CLEAR = 6.0  # standard errors, for there are several classes at every level, and cells of a region go together


@dataclass(frozen=True, slots=True)
class Compared:
    """The answers of a level about sizes ``low`` to ``high``, and their excess."""

    level: int
    low: int
    high: int
    excess: Excess

    @property
    def refutes(self) -> bool:
        """Return whether they refute the posterior."""
        return self.excess.refutes(_CLEAR)

    def words(self, levels: Sequence[str]) -> str:
        """Return the level by its name, the sizes and the excess in words."""
        return f"{levels[self.level]}, sizes {self.low:,} to {self.high:,} ({self.excess.share:.2g})"


def compared_classes(survey: Survey, distances: Distances) -> list[Compared]:
    """Return the comparison of all levels' answers by classes of sizes; answers about ranks are one class."""
    levels, sums = survey.levels(), dict[tuple[int, int], Excess]()
    means, variances = distances.moments()
    first = 0
    for answers in survey.answers:
        end = first + answers.values.size
        used = np.arange(-(-first // distances.step), -(-end // distances.step))
        if isinstance(answers.query, Ranks):
            octave = np.full(answers.values.size, -1)
        else:
            octave = (np.log2(answers.query.begin + 1.0) / _OCTAVES).astype(np.int64)
        octave = octave[used * distances.step - first]
        error = float(answers.distribution.variance)
        for own in np.unique(octave).tolist():
            some = used[octave == own]
            key = int(levels[answers.region]), own
            sums[key] = sums.get(key, Excess()) + Excess.of(
                means[some], variances[some], np.full(some.size, error), by_model=True
            )
        first = end
    return [Compared(level, *_sizes(own, survey.max_size), excess) for (level, own), excess in sorted(sums.items())]


def _sizes(octave: int, max_size: int) -> tuple[int, int]:
    if octave < 0:
        return 0, max_size
    low, high = (round(2.0 ** (_OCTAVES * each)) - 1 for each in (octave, octave + 1))
    return low, min(high - 1, max_size)


COUNTS = ("its entities", "its groups of size 0", "its groups up to the middle size")
"""The counts of a region by which chains are compared, in the order of the sampler's diagnostics."""


@dataclass(frozen=True, slots=True)
class Convergence:
    """Which of the ``regions`` have met a criterion after so many draws and sweeps: all but those ``not_converged``.

    ``r_hat`` is the largest R-hat of all regions' counts, ``effective`` their least effective sample size,
    ``prior_moved`` the share of all groups for which the prior, of that kind, still changed when it was frozen. In this
    prior a region's sizes up to ``single`` vary alone. The noisy answers have ``refuted`` the posterior, so much that
    the tables are those of the method ``instead``, unless this is "".
    """

    criterion: Criterion
    regions: int
    not_converged: tuple[int, ...]
    r_hat: float
    effective: float
    prior: str
    draws: int
    sweeps: int
    prior_moved: float
    single: int = 0
    refuted: tuple[Compared, ...] = ()
    instead: str = ""

    @property
    def converged(self) -> bool:
        """Whether all regions have converged."""
        return not self.not_converged

    def __str__(self) -> str:
        *first, last = COUNTS
        return (
            f"A region has converged if split R-hat is at most {self.criterion.r_hat:g} and the effective sample size "
            f"at least {self.criterion.effective:g} for each of three counts: {', '.join(first)} and {last}. "
            f"{self.regions - len(self.not_converged):,} of {self.regions:,} regions have converged, "
            f"after {self.draws:,} draws of {self.sweeps:,} sweeps (worst R-hat {_rounded_up(self.r_hat)}, least "
            f"effective sample size {math.floor(self.effective):,})."
        )

    def refuted_words(self, levels: Sequence[str]) -> str:
        """Return what the answers say against the model and what follows, "" for nothing."""
        if not self.refuted:
            return ""
        every = "; ".join(each.words(levels) for each in self.refuted)
        follows = "Intervals there hold fewer counts than they say, and errors may exceed those of other methods"
        if self.instead:
            follows = f"So the tables are those of consistency {self.instead!r}, from the same answers"
        return (
            "The noisy answers refute the posterior's model: their squared distances from its means exceed what it "
            f"expects by the multiple of the noise's variance in brackets: {every}. {follows}"
        )

    def account(self, paths: Sequence[str]) -> dict[str, Any]:
        """Return the account that a manifest states; ``paths`` are those of all regions."""
        settled = np.isin(np.arange(self.regions), self.not_converged, invert=True)
        return {
            **self.criterion.account(settled, self.r_hat, self.effective),
            "regions": self.regions,
            "regions_not_converged": len(self.not_converged),
            "not_converged": [paths[region] for region in self.not_converged],
            "prior": self.prior,
            "draws": self.draws,
            "sweeps": self.sweeps,
            "single_sizes_up_to": self.single,
            "refuted": [
                {"level": each.level, "sizes": [each.low, each.high], "excess": each.excess.share}
                for each in self.refuted
            ],
            "released_instead": self.instead or None,
            "prior_moved": self.prior_moved if math.isfinite(self.prior_moved) else None,
        }


def _rounded_up(r_hat: float) -> str:
    """Return R-hat with two decimals, rounded up: 1.10 never stands for a value above 1.1."""
    return f"{math.ceil(round(100 * r_hat, 6)) / 100:.2f}" if math.isfinite(r_hat) else "infinite"
