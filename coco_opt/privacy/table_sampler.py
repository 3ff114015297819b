"""Exact sampling by inversion with lazy bits: a table on 16 bits, a search on 64, certified integers beyond.

U = 0.b1b2... has fair bits and the outcome is the x with F(x - 1) < U < F(x). With u the first n bits of U and
T = floor(2^n F(x)): u < T gives U < (u + 1) / 2^n <= F(x); u > T gives U >= u / 2^n > F(x); u = T is open and
takes more bits. It ends with probability 1, the support has no bound, and the distribution is exactly F's.
Source: Knuth and Yao 1976, with digits of 16 bits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import count
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Ints
from coco_opt.kernels import noise_tables as kernels
from coco_opt.privacy.keyed_stream import BitSource
from coco_opt.privacy.thresholds import GeometricDigit, LaplaceBlocks, NoiseDistribution, thresholds

UInt16 = NDArray[np.uint16]
UInt64 = NDArray[np.uint64]

DIRECT_SCALE = 1024  # up to here one table holds the whole distribution
BATCH = 1 << 18  # cells whose undecided members are settled together
_CHUNK = 1 << 14  # cells at a time: their words stay in a core's cache
_BLOCKS = 32  # above it, a scale has 32 to 64 blocks
_DIGIT_BITS = 8
_CELLS = np.arange((1 << 16) + 1, dtype=np.uint64)


@dataclass(frozen=True, eq=False, slots=True)
class SymbolTables:
    """Distributions ready for look-up, one row each; their 64-bit thresholds follow each other in ``values`` uint64.

    With d the number of a distribution: cells[d, c] int32[distributions, 2^16 + 1] counts the thresholds of earlier
    distributions and of this distribution whose first 16 bits lie below c. roots[d, c] int16[distributions, 2^16] is
    the outcome that the 16 bits c decide, or UNDECIDED where a threshold begins with them (or the outcome is beyond 15
    bits). An outcome is firsts[d] + its place in values.
    """

    distributions: tuple[NoiseDistribution, ...]
    values: UInt64
    cells: NDArray[np.int32]
    roots: NDArray[np.int16]
    firsts: Ints

    @classmethod
    def of(cls, *distributions: NoiseDistribution) -> SymbolTables:
        """Build the tables in O(thresholds + 2^16 distributions)."""
        exact = [distribution.thresholds(64) for distribution in distributions]
        counts = [len(row.values) for row in exact]
        offsets = np.cumsum([0, *counts[:-1]])
        values = [np.array(row.values, dtype=np.uint64) for row in exact]
        cells = np.array([np.searchsorted(each >> np.uint64(48), _CELLS) for each in values]) + offsets[:, None]
        firsts = np.array([row.first for row in exact], dtype=np.int64) - offsets
        outcomes = firsts[:, None] + cells[:, :-1]
        decided = (cells[:, 1:] == cells[:, :-1]) & (np.abs(outcomes) < -kernels.UNDECIDED)
        roots = np.where(decided, outcomes, kernels.UNDECIDED).astype(np.int16)
        return cls(distributions, np.concatenate(values), cells.astype(np.int32), roots, firsts)

    def search(self, bits: UInt64) -> tuple[Ints, NDArray[np.uint8]]:
        """Return the outcomes that 64 bits [n, d or more] decide, int64[n, d], and the states ACCEPTED or OPEN [n]."""
        outcomes = np.empty((len(bits), len(self.distributions)), dtype=np.int64)
        states = np.empty(len(bits), dtype=np.uint8)
        kernels.search(bits, self.roots, self.values, self.cells, self.firsts, outcomes, states)
        return outcomes, states


def settle_symbol(distribution: NoiseDistribution, bits: int, refill: Iterator[int]) -> int:
    """Return the outcome that 64 bits, and as many further 64 as it takes, decide."""
    taken = 64
    while True:
        exact = thresholds(distribution, taken)
        index = bisect_left(exact.values, bits)
        if index == len(exact.values) or exact.values[index] != bits:
            return exact.first + index
        bits = bits << 64 | next(refill)
        taken += 64


class Refill:
    """Further bits of one attempt of one cell, 64 at a time; the first 128 of each symbol are at hand."""

    def __init__(self, source: BitSource, cell: Ints, attempt: int, first: UInt64) -> None:
        self._source, self._cell, self._attempt, self._first = source, cell, attempt, first

    def of(self, symbol: int) -> Iterator[int]:
        """Yield the words that follow the 64 bits already used of a symbol."""
        yield int(self._first[symbol, 1])
        for part in count(1):
            words = self._source.more(self._cell, self._attempt, range(symbol, symbol + 1), part)
            yield from words.reshape(2).tolist()


class Sampler(Protocol):
    """Exact noise as a function of a source's bits; immutable and shared by threads."""

    def add(self, out: Ints, start: int, source: BitSource) -> None:
        """Add the noise of the cells start, start + 1, ... to ``out`` in place."""
        ...


def undecided(
    out: Ints, start: int, source: BitSource, width: int, look_up: Callable[[UInt16, Ints, Ints], int]
) -> tuple[Ints, UInt16]:
    """Add to ``out`` what ``look_up`` (words, out, buffer) decides; return the places it leaves and their words."""
    buffer = np.empty(min(len(out), _CHUNK), dtype=np.int64)
    places: list[Ints] = []
    open_words: list[UInt16] = []
    for begin in range(0, len(out), _CHUNK):
        part = out[begin : begin + _CHUNK]
        words = source.words(start + begin, len(part), width)
        left = buffer[: look_up(words, part, buffer)]
        places.append(left + begin)
        open_words.append(words[left])
    return np.concatenate(places), np.concatenate(open_words)


class InversionSampler:
    """Noise by inversion: one symbol or, for the Laplace distribution above a scale of 1,024, a block and its digits.

    X = 2^block_bits q + place for q >= 0, and X = -1 - (2^block_bits (-1 - q) + place) below. A geometric
    variable's binary digits are independent, so each symbol has its own 16-bit word of the cell, and further
    bits where that leaves it undecided.
    """

    def __init__(self, top: NoiseDistribution, digits: tuple[GeometricDigit, ...] = ()) -> None:
        self.tables = SymbolTables.of(top, *digits)
        self.block_bits = sum(digit.width for digit in digits)
        self.width = 1 + len(digits)
        self._shifts = np.array([digit.shift for digit in digits], dtype=np.int64)

    def add(self, out: Ints, start: int, source: BitSource) -> None:
        """Add the noise of the cells start, start + 1, ... to ``out`` in place; O(len(out)) expected."""
        for begin in range(0, len(out), BATCH):
            part = out[begin : begin + BATCH]
            places, words = undecided(part, start + begin, source, self.width, self._look_up)
            if len(places):
                part[places] += self._settle(words, start + begin + places, source)

    def _look_up(self, words: UInt16, out: Ints, buffer: Ints) -> int:
        roots = self.tables.roots
        if self.width == 1:
            return kernels.look_up(words[:, 0], roots[0], out, buffer)
        return kernels.combine(words, roots, self._shifts, self.block_bits, out, buffer)

    def _settle(self, words: UInt16, cells: Ints, source: BitSource) -> Ints:
        """Return the noise of cells that 16 bits a symbol leave undecided."""
        more = source.more(cells, 0, range(self.width))
        bits = words.astype(np.uint64) << np.uint64(48) | more[:, :, 0] >> np.uint64(16)
        outcomes, states = self.tables.search(bits)
        noise = np.empty(len(cells), dtype=np.int64)
        kernels.assemble(outcomes, self._shifts, self.block_bits, noise)
        for place in np.flatnonzero(states == kernels.OPEN).tolist():
            refill = Refill(source, cells[place : place + 1], 0, more[place])
            noise[place] = self._settle_exactly(bits[place].tolist(), refill)
        return noise

    def _settle_exactly(self, bits: list[int], refill: Refill) -> int:
        symbols = enumerate(zip(self.tables.distributions, bits, strict=True))
        block, *digits = (
            settle_symbol(distribution, first, refill.of(symbol)) for symbol, (distribution, first) in symbols
        )
        place = sum(digit << int(shift) for digit, shift in zip(digits, self._shifts, strict=True))
        return (block << self.block_bits) + place if block >= 0 else ~((~block << self.block_bits) + place)


@lru_cache(maxsize=32)
def laplace_sampler(scale: Fraction) -> InversionSampler:
    """Return the sampler of the discrete Laplace distribution P(k) ~ exp(-|k| / scale); cached for the next stream."""
    bits = 0 if scale <= DIRECT_SCALE else block_bits(scale, _BLOCKS)
    shifts = range(0, bits, _DIGIT_BITS)
    digits = tuple(GeometricDigit(scale, shift, min(_DIGIT_BITS, bits - shift)) for shift in shifts)
    return InversionSampler(LaplaceBlocks(scale, bits), digits)


def block_bits(scale: Fraction, blocks: int) -> int:
    """Return the largest b with scale / 2^b >= blocks."""
    return int(Fraction(scale, blocks)).bit_length() - 1
