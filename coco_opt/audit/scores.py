"""Statistics of runs that grow where D' is likelier than D, of single noisy answers and of whole releases.

Noise is independent from answer to answer, so those in which neighbours agree have one law under both and say nothing;
that leaves a few answers whatever the size of the hierarchy, and millions of runs take seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.audit.recording import Differing
from coco_opt.audit.residuals import Floats
from coco_opt.audit.subject import Sources, Statistics
from coco_opt.privacy import Geometric, Law, NoiseSource

Sides = tuple[Floats, Floats]
"""The scores of runs on D and of runs on D', float64[runs, 2] each."""

_UNIT = Geometric(Fraction(1))
_CHUNK = 1 << 20


def scores(answers: NDArray[Any], first: NDArray[Any] | int, second: NDArray[Any] | int, law: Law) -> Floats:
    """Return two scores of each answer where D has ``first`` and D' ``second``, float64[..., 2].

    Column 0 is the log-likelihood ratio of the law, whose thresholds are the strongest events there are (Neyman and
    Pearson); column 1 is sign(d' - d) (y - d) in spreads of the noise, which also sees the tails. Scores of several
    answers are sums.
    """
    ratio = law.log_weight(answers - second) - law.log_weight(answers - first)
    moved = np.sign(np.subtract(second, first)) * (answers - first) / float(law.spread)
    return np.stack([ratio, moved], axis=-1)


def measured_scores(cells: Sequence[Differing], runs: int, sources: Sources) -> Sides:
    """Return the scores of ``runs`` independent noisy answers of D and as many of D', float64[runs, 2] each.

    ``sources`` makes the noise of side 0 and of side 1; each cell reads a stream of its own. Scores of disjoint cells
    may be added. O(runs x cells).
    """
    sides = []
    for side in (0, 1):
        source, total = sources(side), np.zeros((runs, 2))
        for cell in cells:
            law = cell.question.law
            stream = law.opened(source, measurement=cell.question.query, region=cell.where)
            noisy = stream.add_to(np.full(runs, cell.second if side else cell.first, np.int64))
            total += scores(noisy, cell.first, cell.second, law)
        sides.append(total)
    return sides[0], sides[1]


@dataclass(frozen=True, eq=False, slots=True)
class Places:
    """Where in the counts of one part D and D' differ, int64[m] into the flattened array, and both counts there."""

    part: str
    at: NDArray[np.int64]
    first: NDArray[Any]
    second: NDArray[Any]


def score_places(first: Statistics, second: Statistics) -> list[Places]:
    """Return the places in which the exact counts of D and D' differ."""
    places = []
    for part, counts in first.items():
        one, two = (np.ma.getdata(array).ravel() for array in (counts, second[part]))
        at = np.flatnonzero(one != two)
        places.append(Places(part, at, one[at], two[at]))
    return places


def release_scores(released: Statistics, places: Sequence[Places], runs: int = 1) -> Floats:
    """Return the scores of releases: sums over all places, float64[runs, 2]; what law they have there is not known.

    With several ``runs`` each part has a first axis of so many.
    """
    total = np.zeros((runs, 2))
    for one in places:
        counts = np.asarray(released[one.part]).reshape(runs, -1)[:, one.at]
        total += scores(counts, one.first, one.second, _UNIT).sum(axis=1)
    return total


def scalar_draws(source: NoiseSource, law: Law, value: int, draws: int, *, region: str) -> NDArray[np.int32]:
    """Return ``draws`` noisy answers about one count, int32[draws], in chunks so that memory is 4 bytes a draw.

    Answers must fit in 32 bits: for spreads below 2^24 and counts below 2^30 they do.
    """
    stream = law.opened(source, measurement="audit", region=region)
    answers = np.empty(draws, np.int32)
    for start in range(0, draws, _CHUNK):
        stop = min(start + _CHUNK, draws)
        answers[start:stop] = stream.add_to(np.full(stop - start, value, np.int64))
    return answers
