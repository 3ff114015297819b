"""How much work the chains do: more moves for leaves whose counts mix slowly, and a limit from the time allowed.

The moves of a leaf change between rounds only, never within one: each round runs a chain with fixed kernels, all of
which leave the posterior as it is. The limit counts sweeps, not seconds, so that a measurement always gives the same
bits.
"""

from __future__ import annotations

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.groups.estimating.posterior.observations import Survey
from coco_opt.posterior.chains import sweeps_within

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
