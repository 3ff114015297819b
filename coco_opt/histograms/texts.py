"""Sequences of texts stored without one object for each text: names of regions, as many as a country has.

What ids and names may hold: two that look alike would be two persons, two regions or two values.
"""

from __future__ import annotations

import mmap
import re
from abc import abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeGuard, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

from coco_opt.execution.temporary_storage import stored_bytes

T_co = TypeVar("T_co", bound="str | None", covariant=True)

_AT_ONCE = 1 << 16  # texts
_MOST_BYTES = 1 << 31
_SLASH, _BACKSLASH = b"/\\"
NONE = b"\xff"
"""Stands for None: no text has this byte in UTF-8."""


class Listed(Sequence[T_co]):
    """A sequence whose entries are built on access; equal to a tuple of the same entries."""

    __slots__ = ()

    @abstractmethod
    def at(self, place: int) -> T_co:
        """Return the entry at a place, from 0."""

    def some(self, places: Iterable[int]) -> Iterator[T_co]:
        """Yield the entries at some places, each from 0."""
        return map(self.at, places)

    @overload
    def __getitem__(self, place: int) -> T_co: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[T_co, ...]: ...
    def __getitem__(self, place: int | slice) -> T_co | tuple[T_co, ...]:
        chosen = range(len(self))[place]
        return tuple(self.some(chosen)) if isinstance(chosen, range) else self.at(chosen)

    def __iter__(self) -> Iterator[T_co]:
        return self.some(range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Listed, tuple)):
            return NotImplemented
        return len(self) == len(other) and all(mine == its for mine, its in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


class Texts(Listed[T_co]):
    """Texts, some perhaps None, one after the other in UTF-8: 4 bytes each in addition to their own.

    Raises OverflowError where they take 2 GiB together.
    """

    __slots__ = ("data", "ends")

    def __init__(self, data: bytes | mmap.mmap, ends: array[int]) -> None:
        """Take bytes, perhaps of a file, in which text k lies in ends[k]:ends[k + 1]."""
        self.data, self.ends = data, ends

    @classmethod
    def of(cls, texts: Iterable[T_co]) -> Texts[T_co]:
        """Return the texts of an iterable, without storing their objects."""
        if isinstance(texts, cls):
            return texts
        data, ends = bytearray(), array("i", (0,))
        for text in texts:
            data += NONE if text is None else text.encode()
            ends.append(len(data))
        return cls(bytes(data), ends)

    @classmethod
    def joined(cls, parts: Iterable[Texts[T_co]]) -> Texts[T_co]:
        """Return the texts of all parts, one part after the other; many bytes lie in a file without a name.

        One part is in memory at a time. Raises OverflowError.
        """
        ends = array("i", (0,))
        return cls(stored_bytes(_appended(parts, ends)), ends)

    def between(self, start: int, stop: int) -> Texts[Any]:
        """Return consecutive texts; O(bytes), without an object a text."""
        ends = np.frombuffer(self.ends, np.int32)[start : stop + 1]
        return Texts(self.data[ends[0] : ends[-1]], array("i", (ends - ends[0]).tobytes()))

    def taken(self, places: NDArray[np.integer[Any]]) -> Texts[Any]:
        """Return the texts at some places, None at those below 0; O(bytes), without an object a text."""
        return Texts.joined(self._taken(places[start : start + _AT_ONCE]) for start in range(0, len(places), _AT_ONCE))

    def _taken(self, places: NDArray[np.integer[Any]]) -> Texts[Any]:
        data, ends = np.frombuffer(self.data, np.uint8), np.frombuffer(self.ends, np.int32)
        missing = places < 0
        begins = np.where(missing, 0, ends[places]).astype(np.int64)
        sizes = np.where(missing, len(NONE), ends[np.where(missing, -1, places) + 1] - begins)
        stops = np.cumsum(sizes)
        offsets = np.repeat(begins - (stops - sizes), sizes) + np.arange(stops[-1])
        none = np.repeat(missing, sizes)
        taken = np.full(offsets.size, NONE[0], np.uint8)
        taken[~none] = data[offsets[~none]]
        return Texts(taken.tobytes(), array("i", np.append(0, stops).astype(np.int32).tobytes()))

    def last_names(self, parent: NDArray[np.int64]) -> Texts[Any] | None:
        """Return the last name of each path, which is the path at the place ``parent`` (-1: none), a slash and a name.

        None where one is not, or where a name holds a slash or a backslash. O(bytes), without an object a path.
        """
        steps = range(0, len(self), _AT_ONCE)
        try:
            return Texts.joined(self._last_names(step, parent[step : step + _AT_ONCE]) for step in steps)
        except ValueError:
            return None

    def _last_names(self, first: int, parent: NDArray[np.int64]) -> Texts[Any]:
        """Return those of consecutive paths. Raises ValueError."""
        data, ends = np.frombuffer(self.data, np.uint8), np.frombuffer(self.ends, np.int32)
        begins, stops = (ends[first + k : first + k + parent.size].astype(np.int64) for k in (0, 1))
        inner = parent >= 0
        above = np.where(inner, ends[parent], 0).astype(np.int64)
        lengths = np.where(inner, ends[parent + 1] - above, 0)
        names = begins + lengths + inner
        if (names >= stops).any() or (data[names[inner] - 1] != _SLASH).any():
            raise ValueError
        before, every = np.cumsum(lengths) - lengths, np.arange(int(lengths.sum()))
        own, parents = (data[np.repeat(start - before, lengths) + every] for start in (begins, above))
        if (own != parents).any():
            raise ValueError
        sizes = stops - names
        ends_taken = np.append(0, np.cumsum(sizes))
        taken = data[np.repeat(names - ends_taken[:-1], sizes) + np.arange(ends_taken[-1])]
        if ((taken == _SLASH) | (taken == _BACKSLASH) | (taken == NONE[0])).any():
            raise ValueError
        return Texts(taken.tobytes(), array("i", ends_taken.astype(np.int32).tobytes()))

    @property
    def printable(self) -> bool:
        """Return whether no text is None or empty, or holds a character that is not printable; O(bytes)."""
        try:
            return self._none_empty and all(piece.decode().isprintable() for piece in self._pieces())
        except UnicodeDecodeError:
            return False

    @property
    def digits(self) -> bool:
        """Return whether each text is one or more digits from 0 to 9; O(bytes)."""
        return len(self) > 0 and self._none_empty and all(piece.isdigit() for piece in self._pieces())

    @property
    def filled(self) -> bool:
        """Return whether no text is None or empty; O(bytes)."""
        return self._none_empty and not any(NONE in piece for piece in self._pieces())

    @property
    def _none_empty(self) -> bool:
        ends = np.frombuffer(self.ends, np.int32)
        return bool((ends[1:] > ends[:-1]).all())

    def _pieces(self) -> Iterator[bytes]:
        return (self._bytes(step, step + _AT_ONCE) for step in range(0, len(self), _AT_ONCE))

    def plain(self, start: int, stop: int) -> list[bytes] | None:
        """Return some texts where all are printable ASCII without quotes and backslashes, else None.

        In JSON such texts stand between quotes as they are.
        """
        together = self._bytes(start, stop)
        if not together.isascii() or not together.decode().isprintable() or b'"' in together or b"\\" in together:
            return None
        return [self.data[begin:end] for begin, end in pairwise(self.ends[start : stop + 1])]

    def _bytes(self, start: int, stop: int) -> bytes:
        return self.data[self.ends[start] : self.ends[min(stop, len(self))]]

    def at(self, place: int) -> T_co:
        """Return the text at a place, from 0."""
        text = self.data[self.ends[place] : self.ends[place + 1]]
        return cast("T_co", None if text == NONE else text.decode())

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Texts):
            return self.ends == other.ends and self.data[:] == other.data[:]
        return super().__eq__(other)

    __hash__ = Listed.__hash__

    def __reduce__(self) -> tuple[Callable[..., Texts[T_co]], tuple[Any, ...]]:
        return Texts, (self.data[:], self.ends)


def _appended(parts: Iterable[Texts[Any]], ends: array[int]) -> Iterator[bytes | mmap.mmap]:
    """Yield the bytes of each part, and append to ``ends`` where its texts end."""
    for part in parts:
        before = ends[-1]
        if before + len(part.data) >= _MOST_BYTES:
            raise OverflowError("texts take 2 GiB together")
        ends.frombytes((np.frombuffer(part.ends, np.int32)[1:] + np.int32(before)).tobytes())
        yield part.data


_PLANE_ENDS = " ".join(f"{plane}FFFE-{plane}FFFF" for plane in "123456789ABCDEF")
_HIDDEN_RANGES = (
    "0-1F 7F-A0 AD 34F 600-605 61C 6DD 70F 890-891 8E2 115F-1160 1680 17B4-17B5 180B-180F 2000-200F 2028-202F "
    "205F-206F 2800 2D7F 3000 3164 D800-DFFF FDD0-FDEF FE00-FE0F FEFF FFA0 FFF0-FFFB FFFE-FFFF 1107F 110BD 110CD "
    f"13430-1343F 13441-13442 16FE4 1BCA0-1BCA3 1D159 1D173-1D17A E0000-E0FFF {_PLANE_ENDS} 10FFFE-10FFFF"
)
"""Code points in hexadecimal, of Unicode 16.0: those with the property Default_Ignorable_Code_Point or the category Cc,
Cf, Cs, Zl, Zp or Zs (but for the space), noncharacters, and the letters, marks and symbols that are drawn as a blank or
not at all. They are listed here because Python, DuckDB and Arrow know different versions of Unicode."""

_ENDS = [code_points.partition("-")[::2] for code_points in _HIDDEN_RANGES.split()]
HIDDEN = "[" + "".join(f"\\x{{{first}}}-\\x{{{last or first}}}" for first, last in _ENDS) + "]"
"""The pattern of a hidden character, for DuckDB and Arrow."""

_HIDDEN = re.compile("[" + "".join(f"\\U{first:0>8}-\\U{last or first:0>8}" for first, last in _ENDS) + "]")


def is_plain_name(value: object) -> TypeGuard[str]:
    """Return whether a value is a text of characters that can be seen, perhaps with spaces between them."""
    return isinstance(value, str) and value != "" and value == value.strip() and _HIDDEN.search(value) is None
