"""Statistics of runs that grow where D' is likelier than D, of single noisy answers and of complete releases.

Noise is independent from answer to answer. Answers in which neighbours agree have the same distribution under both and
carry no information; a few answers remain, whatever the size of the hierarchy, and millions of runs take seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.audit.recording import Differing
from coco_opt.audit.subject import Sources, Statistics
from coco_opt.privacy import Geometric, NoiseDistribution, NoiseSource

Sides = tuple[Floats, Floats]
"""The scores of runs on D and of runs on D', float64[runs, 2] each."""

_UNIT = Geometric(Fraction(1))
_CHUNK = 1 << 20


def scores(
    answers: NDArray[Any], first: NDArray[Any] | int, second: NDArray[Any] | int, distribution: NoiseDistribution
) -> Floats:
    """Return two scores of each answer where D has ``first`` and D' ``second``, float64[..., 2].

    Column 0 is the log-likelihood ratio of the noise, whose thresholds are the most powerful events (Neyman and
    Pearson); column 1 is sign(d' - d) (y - d) in spreads of the noise, which is sensitive to the tails too. Scores
    of several answers are sums.
    """
    ratio = distribution.log_weight(answers - second) - distribution.log_weight(answers - first)
    moved = np.sign(np.subtract(second, first)) * (answers - first) / float(distribution.spread)
    return np.stack([ratio, moved], axis=-1)


def measured_scores(cells: Sequence[Differing], runs: int, sources: Sources) -> Sides:
    """Return the scores of ``runs`` independent noisy answers of D and as many of D', float64[runs, 2] each.

    ``sources`` makes the noise of side 0 and of side 1; each cell has a stream of its own. Scores of disjoint cells
    may be added. O(runs x cells).
    """
    sides = []
    for side in (0, 1):
        source, total = sources(side), np.zeros((runs, 2))
        for cell in cells:
            distribution = cell.query.distribution
            stream = distribution.opened(source, measurement=cell.query.name, region=cell.where)
            noisy = stream.add_to(np.full(runs, cell.second if side else cell.first, np.int64))
            total += scores(noisy, cell.first, cell.second, distribution)
        sides.append(total)
    return sides[0], sides[1]


@dataclass(frozen=True, eq=False, slots=True)
class Places:
    """Where in the counts of one part D and D' differ, int64[m] into the flattened array, and both counts there."""

    part: str
    positions: Ints
    first: NDArray[Any]
    second: NDArray[Any]


def score_places(first: Statistics, second: Statistics) -> list[Places]:
    """Return the places in which the exact counts of D and D' differ."""
    places = []
    for part, counts in first.items():
        first_counts, second_counts = (np.ma.getdata(array).ravel() for array in (counts, second[part]))
        positions = np.flatnonzero(first_counts != second_counts)
        places.append(Places(part, positions, first_counts[positions], second_counts[positions]))
    return places


def release_scores(released: Statistics, places: Sequence[Places], runs: int = 1) -> Floats:
    """Return the scores of releases, sums over all places, float64[runs, 2]; their distribution is not known.

    With several ``runs`` the first axis of each part has that length.
    """
    total = np.zeros((runs, 2))
    for place in places:
        counts = np.asarray(released[place.part]).reshape(runs, -1)[:, place.positions]
        total += scores(counts, place.first, place.second, _UNIT).sum(axis=1)
    return total


def scalar_draws(
    source: NoiseSource, distribution: NoiseDistribution, value: int, draws: int, *, region: str
) -> NDArray[np.int32]:
    """Return ``draws`` noisy answers on one count, int32[draws], made in chunks so that memory is 4 bytes a draw.

    Answers must fit in 32 bits: for spreads below 2^24 and counts below 2^30 they do.
    """
    stream = distribution.opened(source, measurement="audit", region=region)
    answers = np.empty(draws, np.int32)
    for start in range(0, draws, _CHUNK):
        stop = min(start + _CHUNK, draws)
        answers[start:stop] = stream.add_to(np.full(stop - start, value, np.int64))
    return answers
