"""Privacy loss distributions of discrete noise: an upper bound on what many noisy answers cost together.

The loss of an outcome is ln(P / Q), P and Q its probabilities under two neighbours. Losses of independent answers add
up, so their distributions are convolved, and delta(epsilon) = E[(1 - e^(epsilon - loss))_+] (Sommer, Meiser and
Mohammadi 2019; Koskela, Jaelkoe and Honkela 2020). Here a loss between two points of a grid is split between them so
that the masses of P and of Q stay: the smallest distribution on the grid that is above (Doroshenko et al. 2022, connect
the dots).

Always an upper bound: all arithmetic is on nonnegative numbers without a difference, so that every step has a
relative error of a known size, by which masses are raised; a loss that is rounded is raised too; tails are moved up.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.errors import ProblemError
from coco_opt.privacy.cost import Sensitivity
from coco_opt.privacy.noise_distributions import DiscreteGaussian, Geometric, NoiseDistribution

Changes = tuple[int, ...]

_RELATIVE = 2.0**-40  # above the error of an outcome's probability: some ten roundings of numbers of at most 200
_FINENESS = 0.005  # of the grid, in standard deviations of the total loss over the root of the number of changes
_LOW_TAIL = 1e-16  # moved up to the lowest point that is kept
_HIGH_TAIL = 1e-32  # moved up to an infinite loss
_REACH = 17  # standard deviations of a Gaussian that are looked at: beyond lies less than 1e-60
_BEYOND = 1e-60
_BLOCKS = 1 << 12  # of outcomes, a standard deviation; fewer where it has fewer
_PIECE = 1024  # sums of more products are taken by threads, which wait for each other
_MOST_CHANGES = 4096
_MOST_SHAPES = 64
_MOST_POINTS = 1 << 16  # of a grid, about: sums of large budgets take their square
_MOST_DEEP = 256


class UncountableError(ProblemError):
    """Neighbours may change the answers in too many ways, or the distribution is unknown: use a conversion."""


@dataclass(frozen=True, eq=False, slots=True)
class LossDistribution:
    """Masses of the losses ``step`` x (``first`` + k), float64[points], and that of an infinite loss.

    ``step`` is a power of two, so that every point is exact. It dominates: expectations of increasing functions of
    the loss are no smaller than those of the pair of distributions that it was made of.
    """

    step: float
    first: int
    masses: Floats
    infinite: float

    def delta(self, epsilon: Fraction | float) -> float:
        """Return an upper bound on the smallest delta of (epsilon, delta)-differential privacy, at most 1."""
        above = -np.expm1(np.minimum(_below(epsilon) - self.points, 0.0))
        inside = above > 0
        finite: float = _raised(float(np.sum(self.masses[inside] * above[inside])), self.masses.size)
        return min(1.0, finite + self.infinite)

    @property
    def points(self) -> Floats:
        """Return the losses of all masses but the infinite loss."""
        return np.asarray(self.step * (self.first + np.arange(self.masses.size)), dtype=np.float64)

    def __add__(self, other: LossDistribution) -> LossDistribution:
        """Return the distribution of the sum of two independent losses."""
        if self.step != other.step:
            raise ProblemError("loss distributions of unlike grids do not add up")
        masses, terms = np.zeros(self.masses.size + other.masses.size - 1), min(self.masses.size, other.masses.size)
        for begin in range(0, other.masses.size, _PIECE):
            piece = np.convolve(self.masses, other.masses[begin : begin + _PIECE])
            masses[begin : begin + piece.size] += piece
        infinite = _raised(self.infinite + other.infinite, 1)  # (1 - a)(1 - b) is at least 1 - a - b
        return _trimmed(self.step, self.first + other.first, _raised(masses, terms), infinite)

    def times(self, count: int) -> LossDistribution:
        """Return the distribution of the sum of ``count`` such losses, count >= 1. O(log count) sums."""
        if count == 1:
            return self
        half = self.times(count // 2)
        return half + half if count % 2 == 0 else half + half + self


def composed(parts: Iterable[tuple[NoiseDistribution, Sensitivity]], *, coarser: int = 1) -> LossDistribution:
    """Return a distribution above that of all answers together, whatever neighbours change within the sensitivities.

    Every part is a noise distribution and the sensitivity of the answers that it hides; ``coarser``, a power of two,
    makes the grid coarser and the bound looser. O(points^2) for each different part. Raises UncountableError where
    there are too many ways to change the answers.
    """
    return _composed(((distribution, changes(sensitivity)) for distribution, sensitivity in parts), coarser)


def of_changes(parts: Iterable[tuple[NoiseDistribution, int]]) -> LossDistribution:
    """Return a distribution above that of answers that two neighbours change by just so much, as ``composed`` does."""
    return _composed(((distribution, ((abs(change),),)) for distribution, change in parts), 1)


def _composed(parts: Iterable[tuple[NoiseDistribution, tuple[Changes, ...]]], coarser: int) -> LossDistribution:
    counted = Counter(parts)
    if not counted:
        raise ProblemError("no query has noise, so there is no loss to add up")
    step = _step(counted) * coarser
    sums = [(loss.masses.size, number, loss) for number, loss in enumerate(_summands(counted, step))]
    heapq.heapify(sums)
    number = len(sums)
    while len(sums) > 1:  # the shortest first
        (_, _, first), (_, _, second) = heapq.heappop(sums), heapq.heappop(sums)
        both = first + second
        heapq.heappush(sums, (both.masses.size, number, both))
        number += 1
    return sums[0][2]


def _summands(
    counted: dict[tuple[NoiseDistribution, tuple[Changes, ...]], int], step: float
) -> Iterator[LossDistribution]:
    for (distribution, shapes), count in counted.items():
        yield _above_all([_of_changes(distribution, shape, step) for shape in shapes]).times(count)


def _of_changes(distribution: NoiseDistribution, shape: Changes, step: float) -> LossDistribution:
    """Return the distribution of answers that change by the given amounts, each under noise of its own."""
    different = sorted(set(shape))
    parts = [one_answer(distribution, change, step).times(shape.count(change)) for change in different]
    result = parts[0]
    for part in parts[1:]:
        result = result + part
    return result


def _step(counted: dict[tuple[NoiseDistribution, tuple[Changes, ...]], int]) -> float:
    """Return a grid fine enough for all: splitting a loss adds about step^2 / 6 to its variance."""
    variance, number = 0.0, 0
    for (distribution, shapes), count in counted.items():
        variance += count * max(sum(_variance(distribution, change) for change in shape) for shape in shapes)
        number += count * max(len(shape) for shape in shapes)
    if number > _MOST_CHANGES:
        raise UncountableError(f"neighbours may change {number:,} answers, too many for a privacy loss distribution")
    widest = max((_most(distribution) * max(map(max, shapes)) for distribution, shapes in counted), default=0.0)
    least = (2 * _REACH * math.sqrt(variance) + 2 * widest) / _MOST_POINTS
    return 2.0 ** math.floor(math.log2(max(least, _FINENESS * math.sqrt(variance / number))))


def _most(distribution: NoiseDistribution) -> float:
    """Return the largest loss of an answer that changes by one, 0 where there is none."""
    return 1 / float(distribution.scale) if isinstance(distribution, Geometric) else 0.0


def _variance(distribution: NoiseDistribution, change: int) -> float:
    """Return about the variance of the loss of one answer."""
    if isinstance(distribution, Geometric):
        rate = change / float(distribution.scale)
        return (rate / math.cosh(min(rate, 600) / 2)) ** 2
    return change * change / distribution.nominal_variance


@cache
def changes(sensitivity: Sensitivity) -> tuple[Changes, ...]:
    """Return the ways to change answers by integers within a sensitivity that no other way contains.

    A larger change of an answer, or a change of one more, only adds loss: the distributions are log-concave, so that
    the best events are half-lines, whose probabilities move on. Raises UncountableError for more than a few.
    """
    shapes: list[Changes] = []

    def extend(shape: Changes, l1: int, squared: int, largest: int) -> None:
        ways = range(min(largest, l1, math.isqrt(squared)), 0, -1)
        for change in ways:
            extend((*shape, change), l1 - change, squared - change * change, change)
        if not ways:
            shapes.append(shape)
        if len(shapes) > _MOST_SHAPES:
            raise UncountableError("neighbours may change the answers in too many ways for a privacy loss distribution")

    if min(sensitivity.l1, sensitivity.l2_squared) > _MOST_DEEP:
        raise UncountableError("neighbours may change too many answers for a privacy loss distribution")
    extend((), sensitivity.l1, sensitivity.l2_squared, sensitivity.l1)
    return tuple(shapes)


@cache
def one_answer(distribution: NoiseDistribution, change: int, step: float) -> LossDistribution:
    """Return the distribution of one answer that neighbours change by an integer above 0, on a grid."""
    if isinstance(distribution, Geometric):
        losses, masses, beyond = _geometric(distribution.scale, change)
    elif isinstance(distribution, DiscreteGaussian):
        losses, masses, beyond = _gaussian(distribution.squared_deviation, change, step)
    else:
        raise UncountableError(f"the privacy loss of {distribution} is not known")
    return _on_grid(losses, masses, beyond, step)


def _geometric(scale: Fraction, change: int) -> tuple[Floats, Floats, float]:
    """Return losses, masses and the mass beyond: (|k - change| - |k|) / scale takes change + 1 values."""
    rate = 1 / float(scale)
    ends = 1 / (1 + math.exp(-rate))
    inside = [-math.expm1(-rate) * math.exp(-rate * k) for k in range(1, change)]
    masses = ends * np.array([1.0, *inside, math.exp(-rate * change)])
    return np.array([(change - 2.0 * k) * rate for k in range(change + 1)]), masses, 0.0


def _gaussian(variance: Fraction, change: int, step: float) -> tuple[Floats, Floats, float]:
    """Return losses, masses and the mass beyond: outcome k loses (change^2 - 2 k change) / (2 variance).

    For a large deviation s, blocks of B consecutive outcomes are one. Their mass is at most B times that of the middle
    times 1 + 13 (B / s)^2, for the second derivative of the density is at most 17^2 / s^2 of it, over 24. Their mean
    lies within 17 B^2 / (12 s) of the middle; a block with a grid point inside goes up to its largest loss.
    """
    twice = 2 * float(variance)
    deviation = math.sqrt(twice / 2)
    width = max(1, int(deviation / _BLOCKS))
    blocks = math.ceil(_REACH * deviation / width) + 1
    middles = np.arange(-blocks, blocks + 1) * float(width) + (0.5 if width % 2 == 0 else 0.0)
    weights: Floats = np.asarray(np.exp(-middles * middles / twice) * width, np.float64)
    losses: Floats = np.asarray((change * change - 2.0 * change * middles) / twice, np.float64)
    if deviation < _BLOCKS:
        return losses, weights / float(np.sum(weights)), _BEYOND
    shift = 2 * change * _REACH * (width / deviation) ** 2 / deviation
    half = change * width / twice + shift
    highest = losses + half
    alone = np.floor((losses - half) / step) == np.floor(highest / step)
    # The sum of the density over all integers is at least its integral.
    most = 1 + 13 * (width / deviation) ** 2
    return np.where(alone, losses + shift, highest), weights * (most / math.sqrt(math.pi * twice)), _BEYOND


def _on_grid(losses: Floats, masses: Floats, beyond: float, step: float) -> LossDistribution:
    """Split every loss to the grid points around it, keeping the masses of P and of Q, e^-loss times as much."""
    raised = losses + np.abs(losses) * _RELATIVE
    below = np.floor(raised / step)
    rest = raised - below * step
    up = masses * (np.expm1(-rest) / math.expm1(-step))
    down = masses * (np.exp(-rest) * np.expm1(rest - step) / math.expm1(-step))
    first = int(below.min())
    places = (below - first).astype(np.int64)
    size = int(places.max()) + 2
    spread = np.bincount(places, down, size) + np.bincount(places + 1, up, size)
    return _trimmed(step, first, _raised(spread, losses.size) * (1 + _RELATIVE), beyond)


def _trimmed(step: float, first: int, masses: Floats, infinite: float) -> LossDistribution:
    """Move a negligible low tail up to the lowest loss that is kept, and a negligible high one to infinity."""
    low = int(np.searchsorted(np.cumsum(masses), _LOW_TAIL, side="right"))
    high = masses.size - int(np.searchsorted(np.cumsum(masses[::-1]), _HIGH_TAIL, side="right"))
    if low >= high:
        return LossDistribution(step, first, masses, infinite)
    trimmed = masses[low:high].copy()
    trimmed[0] += _raised(float(np.sum(masses[:low])), low)
    return LossDistribution(step, first + low, trimmed, infinite + _raised(float(np.sum(masses[high:])), masses.size))


def _above_all(losses: list[LossDistribution]) -> LossDistribution:
    """Return a distribution at least as likely as each to lose more than any amount."""
    if len(losses) == 1:
        return losses[0]
    first = min(loss.first for loss in losses)
    size = max(loss.first + loss.masses.size for loss in losses) - first
    tails = np.zeros((len(losses), size))
    for row, loss in zip(tails, losses, strict=True):
        row[loss.first - first : loss.first - first + loss.masses.size] = loss.masses
        row[:] = np.cumsum(row[::-1])[::-1] + loss.infinite
    tail = _raised(tails.max(axis=0), size)
    infinite = max(loss.infinite for loss in losses)
    # Tails are rounded: what they differ by is raised by as much.
    masses = np.maximum(tail - np.append(tail[1:], infinite), 0.0) + _raised(tail, size) - tail
    return _trimmed(losses[0].step, first, masses, infinite)


def _raised(values: Any, terms: int) -> Any:
    """Return what is at least a sum of so many nonnegative products that was rounded in any order."""
    return values * (1 + (terms + 8) * 2.0**-52)


def _below(amount: Fraction | float) -> float:
    """Return a float at most an amount."""
    nearest = float(amount)
    return nearest if Fraction(nearest) <= Fraction(amount) else math.nextafter(nearest, -math.inf)
