"""Exact discrete Gaussian noise of any variance: one table, and above a deviation of 1,024 rejection from blocks.

The distribution is not memoryless, so its digits are not independent. A block of 2^b values is proposed with the weight
of its value nearest to 0, then a place in the block uniformly, and k is accepted with probability
exp(-(k^2 - near^2) / (2 variance)): accepted values have the discrete Gaussian distribution exactly. Canonne, Kamath
and Steinke 2020 (algorithm 3) do the same from a discrete Laplace distribution, which accepts 76 %; blocks of 1/128 to
1/64 of the deviation accept 99 %.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Ints
from coco_opt.kernels import noise_tables as kernels
from coco_opt.privacy.intervals import certified, exp_neg, floor_bits
from coco_opt.privacy.keyed_stream import LOTS, BitSource
from coco_opt.privacy.table_sampler import (
    BATCH,
    DIRECT_SCALE,
    InversionSampler,
    Refill,
    Sampler,
    SymbolTables,
    block_bits,
    settle_symbol,
    undecided,
)
from coco_opt.privacy.thresholds import Gaussian, HalfGaussian

UInt16 = NDArray[np.uint16]

_BLOCKS = 64  # of a deviation, at least; fewer than twice as many
_MARGIN = 1 << 13  # of 2^30: the kernel's probabilities are off by less than a quarter of it
_BLOCK, _LOT = 0, 1  # the symbols that may need further bits


class BlockGaussianSampler:
    """Discrete Gaussian noise by rejection from blocks; a cell has a word for the block, some for the place, a lot.

    Takes a deviation of at least 64.
    """

    def __init__(self, variance: Fraction) -> None:
        self.variance = variance
        self.block_bits = block_bits(Fraction(isqrt(int(variance))), _BLOCKS)
        self.ratio = Fraction(1 << 2 * self.block_bits, 2 * variance)  # c: k is accepted with exp(-c r (2 g + r))
        self.tables = SymbolTables.of(HalfGaussian(Fraction(1, 2 * self.ratio)))
        self._places = -(-(self.block_bits + 1) // 16)
        self.width = 2 + self._places
        blocks = int(self.tables.roots[0].max()) + 1
        keep = [exp_neg(self.ratio * (2 * block + 1), 48)[0] >> 32 for block in range(blocks)]
        self._keep = np.array([*keep, 0], dtype=np.int64)
        self._factor = int(self.ratio * (1 << 38))
        self._part = np.array([exp_neg(Fraction(f, 256), 30)[0] for f in range(256)], dtype=np.int64)

    def add(self, out: Ints, start: int, source: BitSource) -> None:
        """Add the noise of the cells start, start + 1, ... to ``out`` in place; O(len(out)) expected."""
        for begin in range(0, len(out), BATCH):
            part = out[begin : begin + BATCH]
            places, words = undecided(part, start + begin, source, self.width, self._propose)
            self._finish(part, places, words, start + begin, source)

    def _propose(self, words: UInt16, out: Ints, buffer: Ints) -> int:
        return kernels.propose(words, self.tables.roots[0], self.block_bits, self._keep, out, buffer)

    def _finish(self, out: Ints, places: Ints, words: UInt16, start: int, source: BitSource) -> None:
        """Add the noise of undecided places, whose words are given, with new proposals where a proposal is rejected."""
        attempt = 0
        while len(places):
            if attempt:
                lots = source.more(start + places, attempt, range(LOTS, LOTS + 1)).view("<u2")
                words = lots.reshape(len(places), 8)[:, : self.width]
            noise, states = self._settle(words, start + places, attempt, source)
            accepted = states == kernels.ACCEPTED
            out[places[accepted]] += noise[accepted]
            places = places[~accepted]
            attempt += 1

    def _settle(self, words: UInt16, cells: Ints, attempt: int, source: BitSource) -> tuple[Ints, NDArray[np.uint8]]:
        """Return the proposals of one attempt and whether they are ACCEPTED or REJECTED."""
        more = source.more(cells, attempt, range(2))
        bits = words[:, [0, -1]].astype(np.uint64) << np.uint64(48) | more[:, :, 0] >> np.uint64(16)
        blocks, states = self.tables.search(bits)
        weights = np.int64(1) << np.arange(0, 16 * self._places, 16)
        places = (words[:, 1:-1].astype(np.int64) * weights).sum(axis=1)
        noise = np.empty(len(cells), dtype=np.int64)
        constants = (self.block_bits, self._factor, _MARGIN, self._part)
        kernels.judge(bits[:, _LOT], blocks[:, 0], places, *constants, noise, states)
        for row in np.flatnonzero(states == kernels.OPEN).tolist():
            refill = Refill(source, cells[row : row + 1], attempt, more[row])
            noise[row], accepted = self._settle_exactly(bits[row].tolist(), int(places[row]), refill)
            states[row] = kernels.ACCEPTED if accepted else kernels.REJECTED
        return noise, states

    def _settle_exactly(self, bits: list[int], place: int, refill: Refill) -> tuple[int, bool]:
        """Return the proposal and whether it is accepted, decided by certified integers of any length."""
        block = settle_symbol(self.tables.distributions[0], bits[_BLOCK], refill.of(_BLOCK))
        size, sign = (block << self.block_bits) + (place >> 1) % (1 << self.block_bits), place & 1
        exponent = Fraction((size + sign) ** 2 - (block << self.block_bits) ** 2, 2 * self.variance)
        return size ^ -sign, below_exp_neg(exponent, bits[_LOT], refill.of(_LOT))


def below_exp_neg(x: Fraction, bits: int, refill: Iterator[int]) -> bool:
    """Return whether a fraction that begins with 64 bits lies below exp(-x), x >= 0 a fraction."""
    if not x:
        return True
    taken = 64
    while True:
        threshold = _exp_neg_floor(x, taken)
        if bits != threshold:
            return bits < threshold
        bits = bits << 64 | next(refill)
        taken += 64


def _exp_neg_floor(x: Fraction, bits: int) -> int:
    return certified(lambda precision: floor_bits(exp_neg(x, precision), precision, bits), bits)


@lru_cache(maxsize=32)
def gaussian_sampler(variance: Fraction) -> Sampler:
    """Return the sampler of the distribution P(k) ~ exp(-k^2 / (2 variance)); cached for the next stream."""
    if variance <= DIRECT_SCALE**2:
        return InversionSampler(Gaussian(variance))
    return BlockGaussianSampler(variance)
