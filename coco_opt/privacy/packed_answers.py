"""Answers packed to about a byte each, without loss: the difference to the answer before, in a byte where it fits.

Noisy cumulative counts rise slowly, so nearly all of their differences fit; the others are stored separately.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError

WIDTHS = (1, 2, 4, 8)
_WIDE_BYTES = 8


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Packed:
    """``count`` consecutive answers: ``differences`` are signed little-endian integers of ``width`` bytes, the first 0.

    That is, answer k is the sum of the first k + 1 differences. The least integer of the width stands for a difference
    that does not fit (in 8 bytes all do): ``wide`` holds those in order, in 8 bytes each. Sums wrap around as int64.
    """

    count: int
    width: int
    differences: bytes | memoryview
    wide: bytes | memoryview

    @classmethod
    def of(cls, values: Ints) -> Packed:
        """Pack answers in the least width that pays; O(answers)."""
        for width in WIDTHS[:-1]:
            if (packed := _pack(values, width)) is not None:
                return cls(values.size, width, *packed)
        return cls(values.size, _WIDE_BYTES, _differences(values).astype("<i8").tobytes(), b"")

    def values(self) -> Ints:
        """Return the answers as a new array; see ``unpack``."""
        values = np.empty(self.count, np.int64)
        self.unpack(values)
        return values

    def unpack(self, values: Ints) -> None:
        """Write all answers into an array; ProblemError where the parts do not fit together. O(answers)."""
        if self.width not in WIDTHS or len(self.differences) != self.width * self.count:
            raise ProblemError("packed answers do not have the length that they state")
        narrow, wide = np.frombuffer(self.differences, f"<i{self.width}"), np.frombuffer(self.wide, "<i8")
        unfit = np.flatnonzero(narrow == np.iinfo(narrow.dtype).min) if self.width < _WIDE_BYTES else wide[:0]
        if unfit.size != wide.size:
            raise ProblemError("packed answers do not have as many wide differences as they state")
        values[:] = narrow
        values[unfit] = wide
        np.cumsum(values, out=values)

    def __reduce__(self) -> tuple[Callable[..., Packed], tuple[Any, ...]]:
        # As arrays the bytes can be stored separately from the pickle, and be mapped into memory
        # (``coco_opt.execution.remote``).
        arrays = (np.frombuffer(part, np.uint8) for part in (self.differences, self.wide))
        return _unpacked, (self.count, self.width, *arrays)

    def __repr__(self) -> str:
        return f"Packed({self.count:,} answers in {len(self.differences) + len(self.wide):,} bytes)"


def _differences(values: Ints) -> Ints:
    differences = np.empty(values.size, np.int64)
    differences[:1] = values[:1]
    np.subtract(values[1:], values[:-1], out=differences[1:])
    return differences


def _pack(values: Ints, width: int) -> tuple[bytes, bytes] | None:
    """Return the narrow and the wide differences of answers; None where a width does not pay."""
    differences = _differences(values)
    narrow = differences.astype(f"<i{width}")
    # The least integer stands for what does not fit, so that a difference equal to it is stored separately too.
    unfit = np.flatnonzero((narrow != differences) | (narrow == np.iinfo(narrow.dtype).min))
    if _WIDE_BYTES * unfit.size > width * values.size:
        return None
    narrow[unfit] = np.iinfo(narrow.dtype).min
    return narrow.tobytes(), differences[unfit].astype("<i8").tobytes()


def _unpacked(count: int, width: int, differences: NDArray[np.uint8], wide: NDArray[np.uint8]) -> Packed:
    return Packed(count, width, differences.data, wide.data)


class PackedAnswers:
    """All answers to one query in packed pieces, unpacked where they are read; threads may share it.

    Piece k holds the answers starts[k] .. starts[k + 1] - 1 (int64, from 0), and ``load(k)`` brings it.
    """

    def __init__(self, starts: Ints, load: Callable[[int], Packed]) -> None:
        self._starts = starts
        self._load = load
        self._last: tuple[int, Ints] = (-1, np.empty(0, np.int64))

    def __reduce__(self) -> tuple[Callable[..., PackedAnswers], tuple[Any, ...]]:
        return PackedAnswers, (self._starts, self._load)

    @property
    def size(self) -> int:
        """Return the number of answers."""
        return int(self._starts[-1])

    def read(self, begin: int, end: int) -> Ints:
        """Return the answers ``begin`` .. ``end`` - 1, read-only."""
        first = int(np.searchsorted(self._starts, begin, side="right")) - 1
        if end <= begin:
            return _read_only(np.empty(0, np.int64))
        if end <= self._starts[first + 1]:
            start = int(self._starts[first])
            return _read_only(self._piece(first)[begin - start : end - start])
        values = np.empty(end - begin, np.int64)
        position, piece = begin, first
        while position < end:
            start, stop = int(self._starts[piece]), min(end, int(self._starts[piece + 1]))
            part = values[position - begin : stop - begin]
            if part.size == self._starts[piece + 1] - start:
                self._load(piece).unpack(part)
            else:
                part[:] = self._piece(piece)[position - start : stop - start]
            position, piece = stop, piece + 1
        return _read_only(values)

    def _piece(self, piece: int) -> Ints:
        # One assignment, one reading: a thread sees a complete pair, its own or another's.
        last = self._last
        if last[0] != piece:
            self._last = last = piece, self._load(piece).values()
        return last[1]


def _read_only(values: Ints) -> Ints:
    values.setflags(write=False)
    return values
