"""A sound one-sided bound on epsilon from runs on two neighbouring databases.

An event is chosen on one part of the runs; on the rest its two probabilities get Clopper-Pearson limits, each at half
of the error allowed. Whatever the mechanism, epsilon is at least the bound with the stated confidence, provided the
runs of a side are independent. It can be far below epsilon: where the event is weak, or the runs are few.
Ding, Wang, Wang, Zhang and Kifer 2018 search events in the same way with a test in place of the limits.

Statistics of runs that grow where D' is likelier than D, of single noisy answers and of complete releases.

Noise is independent from answer to answer. Answers in which neighbours agree have the same distribution under both and
carry no information; a few answers remain, whatever the size of the hierarchy, and millions of runs take seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.audit.subject import Differing, Sources, Statistics
from coco_opt.errors import ProblemError
from coco_opt.privacy import Geometric, NoiseDistribution

CONFIDENCE = 0.999
CHOOSING = 0.5
MAX_THRESHOLDS = 1_000

Side = Literal[">=", "<="]


@dataclass(frozen=True, slots=True)
class Event:
    """``statistic`` (a column) lies on one ``side`` of a ``threshold``; likelier under D' where ``favours_second``."""

    statistic: int
    side: Side
    threshold: float
    favours_second: bool

    def count(self, outputs: NDArray[Any]) -> int:
        """Return in how many runs (rows) the event happened."""
        column = outputs[:, self.statistic]
        hits = column >= self.threshold if self.side == ">=" else column <= self.threshold
        return int(np.count_nonzero(hits))


@dataclass(frozen=True, slots=True)
class LowerBound:
    """epsilon (at ``delta``) is at least ``epsilon`` with ``confidence``, from ``hits`` in ``trials`` runs a side.

    ``hits`` and ``trials`` are those of the side where the event is likelier, ``other_hits`` and ``other_trials`` the
    other side's; all count runs on which the event was not chosen.
    """

    epsilon: float
    confidence: float
    delta: float
    event: Event
    hits: int
    trials: int
    other_hits: int
    other_trials: int


def clopper_pearson(hits: NDArray[Any], trials: int, error: float) -> tuple[Floats, Floats]:
    """Return the lower and the upper limit of a probability, each wrong with probability at most ``error``."""
    from scipy.special import betaincinv

    k = np.asarray(hits, dtype=np.float64)
    raised, capped = np.maximum(k, 1), np.minimum(k, trials - 1)
    low = np.where(k > 0, betaincinv(raised, trials - raised + 1, error), 0.0)
    high = np.where(k < trials, betaincinv(capped + 1, trials - capped, 1 - error), 1.0)
    return low, high


def lower_bound(
    first: NDArray[Any],
    second: NDArray[Any],
    *,
    confidence: float = CONFIDENCE,
    delta: float = 0.0,
    choosing: float = CHOOSING,
) -> LowerBound:
    """Return a bound that epsilon exceeds with ``confidence``, from independent runs on D and on D'.

    ``first`` and ``second`` are one statistic a run, (n,), or several, (n, columns); the event is a threshold on one
    of them, chosen with its direction on the first ``choosing`` of the runs. The bound is log((p - delta) / q), never
    below 0. Raises ProblemError for fewer than two runs a side or columns that differ. O(n log n).
    """
    first_runs, second_runs = _columns(first), _columns(second)
    if min(len(first_runs), len(second_runs)) < 2 or first_runs.shape[1] != second_runs.shape[1]:
        raise ProblemError("a bound needs at least two runs on each side, and the same statistics of both")
    if not 0 < confidence < 1 or not 0 < choosing < 1 or not 0 <= delta < 1:
        raise ProblemError("confidence and the choosing part must lie between 0 and 1, and delta in [0, 1)")
    first_cut, second_cut = (
        min(max(int(choosing * len(runs)), 1), len(runs) - 1) for runs in (first_runs, second_runs)
    )
    event = _choose(first_runs[:first_cut], second_runs[:second_cut], (1 - confidence) / 2, delta)
    first_rest, second_rest = first_runs[first_cut:], second_runs[second_cut:]
    likely, unlikely = (second_rest, first_rest) if event.favours_second else (first_rest, second_rest)
    hits, misses = event.count(likely), event.count(unlikely)
    epsilon = _bounds(np.array([hits]), len(likely), np.array([misses]), len(unlikely), (1 - confidence) / 2, delta)
    return LowerBound(max(0.0, float(epsilon[0])), confidence, delta, event, hits, len(likely), misses, len(unlikely))


def _columns(outputs: NDArray[Any]) -> NDArray[Any]:
    array = np.asarray(outputs)
    return array[:, None] if array.ndim == 1 else array


def _bounds(hits: Ints, trials: int, other_hits: Ints, other_trials: int, error: float, delta: float) -> Floats:
    low, _ = clopper_pearson(hits, trials, error)
    _, high = clopper_pearson(other_hits, other_trials, error)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(low - delta, 0.0)) - np.log(high))


def _choose(first: NDArray[Any], second: NDArray[Any], error: float, delta: float) -> Event:
    """Return the event whose bound on these runs is the largest; ties go to the first."""
    best, chosen = -math.inf, Event(0, ">=", -math.inf, favours_second=True)
    for column in range(first.shape[1]):
        first_values, second_values = np.sort(first[:, column]), np.sort(second[:, column])
        thresholds = _thresholds(first_values, second_values)
        sides: tuple[Side, Side] = (">=", "<=")
        for side in sides:
            hits, other_hits = _hits(first_values, thresholds, side), _hits(second_values, thresholds, side)
            for favours_second in (True, False):
                sizes = (hits, first_values.size), (other_hits, second_values.size)
                likely, unlikely = sizes[::-1] if favours_second else sizes
                values = _bounds(*likely, *unlikely, error, delta)
                k = int(np.argmax(values))
                if values[k] > best:
                    best = float(values[k])
                    chosen = Event(column, side, float(thresholds[k]), favours_second)
    return chosen


def _hits(ordered: NDArray[Any], thresholds: NDArray[Any], side: Side) -> Ints:
    if side == ">=":
        return np.asarray(ordered.size - np.searchsorted(ordered, thresholds, side="left"), dtype=np.int64)
    return np.asarray(np.searchsorted(ordered, thresholds, side="right"), dtype=np.int64)


def _thresholds(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """Return values that occurred: all of them, or those at evenly spaced ranks where they are many."""
    parts = []
    for ordered in (first, second):
        distinct = ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])]
        if distinct.size > MAX_THRESHOLDS:
            distinct = ordered[np.linspace(0, ordered.size - 1, MAX_THRESHOLDS).astype(np.int64)]
        parts.append(distinct)
    return np.unique(np.concatenate(parts))


Sides = tuple[Floats, Floats]
"""The scores of runs on D and of runs on D', float64[runs, 2] each."""

_UNIT = Geometric(Fraction(1))


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
