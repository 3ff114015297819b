"""Which noisy answers refute a posterior of groups: those of a level about a class of sizes (``posterior.comparison``).

Where they do so by more than their own noise, they alone say more than the posterior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coco_opt.groups.estimating.posterior.observations import Ranks, Survey
from coco_opt.posterior.comparison import Distances, Excess

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
