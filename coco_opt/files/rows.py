"""Some rows of a loaded table, with the same error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

SHOWN_ROWS = 10
"""The rows of a file with one error that a message lists."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of one file: the first of them by rowid, at most ``SHOWN_ROWS``, and how many there are.

    ``part`` is the file's place among the files of the table, and ``further`` are the rows of its next files.
    """

    first: tuple[int, ...]
    count: int
    part: int = 0
    further: tuple[Rows, ...] = ()

    def __bool__(self) -> bool:
        return self.count > 0

    def __iter__(self) -> Iterator[Rows]:
        """Yield the rows of each file."""
        yield self
        yield from self.further
