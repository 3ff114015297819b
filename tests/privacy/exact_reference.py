"""Independent values for the exact sampler: decimal arithmetic with 100 digits, and sources of chosen bits."""

from __future__ import annotations

import decimal
import itertools
import math
import operator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Decimal = decimal.Decimal
CONTEXT = decimal.Context(prec=100, Emin=-(10**6), Emax=10**6)  # callers work in decimal.localcontext(CONTEXT)


def exp(x: Fraction) -> Decimal:
    """Return the exponential of x to 100 digits."""
    return (Decimal(x.numerator) / Decimal(x.denominator)).exp()


def laplace_tails(scale: Fraction, block_bits: int = 0) -> tuple[list[Decimal], list[Decimal]]:
    """Return P(q <= -m) and P(q >= m), m = 1, 2, ..., of the blocks of a discrete Laplace variable."""
    ratio, mass = exp(-Fraction(1 << block_bits) / scale), 1 + exp(-1 / scale)
    count = int(46 * scale) >> block_bits  # exp(-46) < 2^-64
    powers = list(itertools.accumulate(itertools.repeat(ratio, count + 1), initial=Decimal(1), func=operator.mul))
    assert abs(powers[-1] / exp(-(count + 1) * Fraction(1 << block_bits) / scale) - 1) < Decimal(10) ** -90
    return [exp(-1 / scale) * power / mass for power in powers], [power / mass for power in powers[1:]]


def gaussian_tails(variance: Fraction, sides: int = 2) -> list[Decimal]:
    """Return P(X >= m) for m = 1, 2, ... of the discrete Gaussian, or of its nonnegative half (sides = 1)."""
    last = math.isqrt(int(variance * 500)) + 2  # exp(-250) is far below what 64 bits see
    weights = [exp(-Fraction(k * k) / (2 * variance)) for k in range(last)]
    sums = list(itertools.accumulate(reversed(weights[1:])))
    mass = 1 + sides * sums[-1]
    return [part / mass for part in reversed(sums)]


def floor_of(value: Decimal, bits: int) -> int:
    """Return floor(2^bits value)."""
    return int(value * (1 << bits))


class ChosenBits:
    """Gives each cell the bits written down for it: words[cell], then blocks[attempt, part][cell, symbol]."""

    def __init__(self, words: NDArray[np.uint16], blocks: dict[tuple[int, int], NDArray[np.uint64]]) -> None:
        self._words = words
        self._blocks = blocks
        self.measurement_plan: set[tuple[int, int]] = set()

    def words(self, start: int, cells: int, width: int) -> NDArray[np.uint16]:
        assert width == self._words.shape[1]
        return self._words[start : start + cells].copy()

    def more(self, cells: NDArray[np.int64], attempt: int, symbols: range, part: int = 0) -> NDArray[np.uint64]:
        self.measurement_plan.add((attempt, part))
        if symbols.start == 255:
            return self._blocks[attempt, -1][cells]
        return np.ascontiguousarray(self._blocks[attempt, part][cells][:, symbols.start : symbols.stop])
