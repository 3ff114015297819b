"""The smallest delta of one pair of tables at an epsilon, between two bounds, from the discrete laws themselves.

Independent of the package's privacy loss distributions: the sum of the noises of answers that change alike has an exact
law on the integers, and only many sums of unlike parts are put on a grid, once rounded down and once up; the few losses
of geometric noise are summed as fractions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import reduce

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.privacy.noise_distributions import DiscreteGaussian, Geometric, NoiseDistribution

_STEP = 2.0**-12
_FLOATS = 1e-9  # far above the relative error of sums of nonnegative numbers here
_REACH = 16  # standard deviations
_MOST = 10**6  # outcomes at once
_NEGLIGIBLE = 1e-32
_TAIL = 1e-25  # above all that is left out


def deltas(changes: Iterable[tuple[NoiseDistribution, int]], epsilon: Fraction) -> tuple[float, float]:
    """Return a lower and an upper bound on delta(epsilon) of answers that change by so much under so much noise."""
    alike = Counter((distribution, abs(amount)) for distribution, amount in changes)
    if all(isinstance(distribution, Geometric) for distribution, _ in alike):
        found = _of_few_losses(alike, epsilon)
        return found * (1 - _FLOATS), found * (1 + _FLOATS)
    low, high = (_mixed(alike, float(epsilon), rounded) for rounded in (np.floor, np.ceil))
    return low * (1 - _FLOATS), high * (1 + _FLOATS) + _TAIL * len(alike)


def _of_few_losses(alike: Counter[tuple[NoiseDistribution, int]], epsilon: Fraction) -> float:
    """Return delta from all sums of losses as fractions: under geometric noise each change has few."""
    masses = {Fraction(0): 1.0}
    for distribution, amount in alike.elements():
        summed: dict[Fraction, float] = {}
        for loss, mass in _geometric(distribution.parameter, amount):
            for before, much in masses.items():
                summed[before + loss] = summed.get(before + loss, 0.0) + much * mass
        masses = summed
    return sum(-math.expm1(float(epsilon - loss)) * mass for loss, mass in masses.items() if loss > epsilon)


def _geometric(scale: Fraction, amount: int) -> Iterator[tuple[Fraction, float]]:
    """Yield losses and masses: all noise up to 0 loses the most, and all from the change on the least."""
    ratio = math.exp(-1 / float(scale))
    for noise in range(amount + 1):
        inside = (1 - ratio) / (1 + ratio) * ratio**noise
        yield (amount - 2 * noise) / scale, {0: 1 / (1 + ratio), amount: ratio**amount / (1 + ratio)}.get(noise, inside)


def _mixed(alike: Counter[tuple[NoiseDistribution, int]], epsilon: float, rounded: np.ufunc) -> float:
    """Return delta from all sums of outcomes; where they would be too many, those so far go to a grid, rounded."""
    losses, masses = np.zeros(1), np.ones(1)
    for (distribution, amount), number in sorted(alike.items(), key=str):
        more, weights = _gaussian(distribution, amount, number)
        if losses.size * more.size > _MOST:
            places = rounded(losses / _STEP).astype(np.int64)
            points, where = np.unique(places, return_inverse=True)
            losses, masses = _STEP * points, np.bincount(where, masses)
        losses, masses = np.add.outer(losses, more).ravel(), np.multiply.outer(masses, weights).ravel()
        kept = masses > _NEGLIGIBLE
        losses, masses = losses[kept], masses[kept]
    return float(np.sum(masses * -np.expm1(np.minimum(epsilon - losses, 0.0))))


def _gaussian(distribution: NoiseDistribution, amount: int, number: int) -> tuple[Floats, Floats]:
    """Return the losses of ``number`` answers that change by ``amount`` each, and their masses.

    Losses are linear in the outcome, so that they are a function of the noises' sum.
    """
    assert isinstance(distribution, DiscreteGaussian)
    variance = float(distribution.parameter)
    reach = math.ceil(_REACH * math.sqrt(variance))
    noise = np.arange(-reach, reach + 1)
    one = np.exp(-noise * noise / (2 * variance))
    one /= one.sum()
    masses = reduce(np.convolve, [one] * number)
    sums = np.arange(-number * reach, number * reach + 1)
    return (number * amount * amount - 2.0 * amount * sums) / (2 * variance), masses
