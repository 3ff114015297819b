"""Sequences of texts stored without one object for each text: names of regions, as many as a country has."""

from __future__ import annotations

from abc import abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast, overload

T_co = TypeVar("T_co", bound="str | None", covariant=True)

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

    def __init__(self, data: bytes, ends: array[int]) -> None:
        """Take bytes, in which text k lies in ends[k]:ends[k + 1]."""
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

    def at(self, place: int) -> T_co:
        """Return the text at a place, from 0."""
        text = self.data[self.ends[place] : self.ends[place + 1]]
        return cast("T_co", None if text == NONE else text.decode())

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Texts):
            return self.data == other.data and self.ends == other.ends
        return super().__eq__(other)

    __hash__ = Listed.__hash__

    def __reduce__(self) -> tuple[Callable[..., Texts[T_co]], tuple[Any, ...]]:
        return Texts, (self.data, self.ends)
