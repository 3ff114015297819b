"""The integer distributions of the noise, as certified thresholds floor(2^n F(x)) of their distribution functions.

Discrete Laplace of scale s: P(k) = (1 - a) / (1 + a) a^|k| with a = exp(-1/s). Its F(x) are irrational, for a is
transcendental (Lindemann). Discrete Gaussian of variance parameter v: P(k) proportional to exp(-k^2 / (2v)).
No theorem says that its F(x) are irrational, so certification also checks that none is a multiple of 2^-n.
Source: Canonne, Kamath and Steinke 2020, definition 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

from coco_opt.privacy.intervals import (
    Interval,
    UncertainFloorError,
    certified,
    complement,
    divide,
    exp_neg,
    floor_bits,
    multiply,
)


@dataclass(frozen=True, eq=False, slots=True)
class Thresholds:
    """floor(2^n F(x)) for x = first, first + 1, ...; nondecreasing.

    n fair bits u decide x = first + i where values[i - 1] < u < values[i], and nothing where u is one of the
    values. A side without bound ends in 0 or 2^n - 1, so that its outermost outcomes are never decided by n bits.
    """

    first: int
    values: tuple[int, ...]


class NoiseDistribution(Protocol):
    """A distribution on the integers whose distribution function can be certified to any number of bits."""

    def __hash__(self) -> int:
        """Return a hash: distributions are keys of caches."""
        ...

    def thresholds(self, bits: int) -> Thresholds:
        """Return floor(2^bits F(x)) over the support, as far as it exceeds 0 and falls short of 2^bits - 1."""
        ...


@lru_cache(maxsize=16)
def thresholds(distribution: NoiseDistribution, bits: int) -> Thresholds:
    """Return ``distribution.thresholds(bits)``, cached for the next call."""
    return distribution.thresholds(bits)


@dataclass(frozen=True, slots=True)
class LaplaceBlocks:
    """The block q of a discrete Laplace X = q w + r for q >= 0, X = -1 - ((-1 - q) w + r) below; w = 2^block_bits.

    Above and below the middle, q and the place r in the block are independent: X is q itself for block_bits = 0.
    P(X < 0) = a / (1 + a), and then -1 - X is geometric, as X is otherwise. O(scale bits / w) time and numbers.
    """

    scale: Fraction
    block_bits: int = 0

    def thresholds(self, bits: int) -> Thresholds:
        """Return the certified thresholds of q."""
        return certified(lambda precision: self._thresholds(bits, precision), bits)

    def _thresholds(self, bits: int, precision: int) -> Thresholds:
        block = exp_neg(Fraction(1 << self.block_bits, self.scale), precision)
        ratio = exp_neg(Fraction(1, self.scale), precision)
        unit = (1 << precision, 1 << precision)
        start = divide(unit, (unit[0] + ratio[0], unit[1] + ratio[1]), precision)
        below = _falling(multiply(start, ratio, precision), block, bits, precision)  # P(q <= -1), P(q <= -2), ...
        above = _falling(multiply(start, block, precision), block, bits, precision)  # P(q > 0), P(q > 1), ...
        return _two_sided(below, above, bits)


def _falling(value: Interval, ratio: Interval, bits: int, precision: int) -> list[int]:
    """Return the floors of value, value * ratio, ... down to the first that is 0."""
    floors = [floor_bits(value, precision, bits)]
    while floors[-1]:
        value = multiply(value, ratio, precision)
        floors.append(floor_bits(value, precision, bits))
    return floors


def _two_sided(below: list[int], above: list[int], bits: int) -> Thresholds:
    """Join floor(2^n P(X <= -1)), ... and floor(2^n P(X > 0)), ...; 2^n (1 - p) has floor 2^n - 1 - floor(2^n p)."""
    top = (1 << bits) - 1
    return Thresholds(-len(below), (*reversed(below), *(top - floor for floor in above)))


@dataclass(frozen=True, slots=True)
class GeometricDigit:
    """The binary digits shift .. shift + width - 1 of a geometric variable of ratio exp(-1/scale), as a number.

    P(d) is proportional to b^d for 0 <= d < 2^width, b = exp(-2^shift / scale), whatever the other digits are.
    """

    scale: Fraction
    shift: int
    width: int

    def thresholds(self, bits: int) -> Thresholds:
        """Return the certified thresholds (1 - b^(d + 1)) / (1 - b^(2^width)), d < 2^width - 1."""
        return certified(lambda precision: self._thresholds(bits, precision), bits)

    def _thresholds(self, bits: int, precision: int) -> Thresholds:
        step = Fraction(1 << self.shift, self.scale)
        mass = complement(exp_neg(step * (1 << self.width), precision), precision)
        parts = (
            complement(exp_neg(step * (digit + 1), precision), precision) for digit in range((1 << self.width) - 1)
        )
        floors = (floor_bits(divide(part, mass, precision), precision, bits) for part in parts)
        return Thresholds(0, tuple(floors))


@dataclass(frozen=True, slots=True)
class Gaussian:
    """The discrete Gaussian P(k) proportional to exp(-k^2 / (2 variance)); O(deviation sqrt(bits)) time."""

    variance: Fraction

    def thresholds(self, bits: int) -> Thresholds:
        """Return the certified thresholds; the distribution is symmetric, so one tail gives both."""
        tail = certified(lambda precision: _gaussian_tail(self.variance, 2, bits, precision), bits)
        return _two_sided(tail, tail, bits)


@dataclass(frozen=True, slots=True)
class HalfGaussian:
    """The distribution P(k) proportional to exp(-k^2 / (2 variance)) on k = 0, 1, ...; O(deviation sqrt(bits)) time."""

    variance: Fraction

    def thresholds(self, bits: int) -> Thresholds:
        """Return the certified thresholds."""
        tail = certified(lambda precision: _gaussian_tail(self.variance, 1, bits, precision), bits)
        return _two_sided([], tail, bits)


def _gaussian_tail(variance: Fraction, sides: int, bits: int, precision: int) -> list[int]:
    """Return floor(2^bits P(X >= m)) for m = 1, 2, ... down to the first that is 0."""
    weights = _gaussian_weights(variance, precision)
    sums: list[Interval] = []
    total = (0, 1)  # the weights left out
    for low, high in reversed(weights[1:]):
        total = (total[0] + low, total[1] + high)
        sums.append(total)
    unit = 1 << precision
    mass = (unit + sides * total[0], unit + sides * total[1])
    floors: list[int] = []
    for part in reversed(sums):
        floors.append(floor_bits(divide(part, mass, precision), precision, bits))
        if not floors[-1]:
            return floors
    raise UncertainFloorError


def _gaussian_weights(variance: Fraction, precision: int) -> list[Interval]:
    """Return exp(-k^2 / 2v) for k = 0, 1, ... until all that follow sum to less than one unit.

    From k on they sum to at most w_k max(2, 2v/k), and w_k <= exp(-(precision + slack)) < 2^-precision there:
    the slack, in natural units, covers the factor.
    """
    slack = int(2 * variance + 2).bit_length()
    last = math.isqrt(int(2 * variance * (precision + slack))) + 1
    weight = (1 << precision, 1 << precision)
    ratio = exp_neg(Fraction(1, 2 * variance), precision)
    square = exp_neg(Fraction(1, variance), precision)
    weights = [weight]
    for _ in range(max(last - 1, 1)):
        weight = multiply(weight, ratio, precision)
        ratio = multiply(ratio, square, precision)
        weights.append(weight)
    return weights
