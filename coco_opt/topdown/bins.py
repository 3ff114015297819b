"""Ranges of integers as the values of an attribute, such as ages: "0..17", "18..64" and "65.."."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_RANGE = re.compile(r"(-?[0-9]{1,9})?\.\.(-?[0-9]{1,9})?")
_FAR = 2**62


@dataclass(frozen=True, eq=False, slots=True)
class Bins:
    """The integers from ``low[k]`` to ``high[k]`` are the value ``labels[k]``; ranges rise and do not overlap."""

    low: tuple[int, ...]
    high: tuple[int, ...]
    labels: tuple[str, ...]

    @classmethod
    def of(cls, texts: Sequence[str]) -> Bins | None:
        """Return the ranges of a list of values, None where none of them is a range.

        Raises ValueError where others are not ranges, or where ranges fall, overlap or end before they begin.
        """
        if not any(".." in text for text in texts):
            return None
        ends = [_ends(text) for text in texts]
        for text, (low, high) in zip(texts, ends, strict=True):
            if low > high:
                raise ValueError(f"{text!r} ends before it begins")
        for (_, high), (low, _) in pairwise(ends):
            if low <= high:
                raise ValueError("ranges must rise and not overlap, such as 0..17, 18..64, 65..")
        lows, highs = zip(*ends, strict=True)
        return cls(lows, highs, tuple(map(label_of, texts)))


def labels_of(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the names of an attribute's values as they are released: those of ranges, else the texts."""
    bins = Bins.of(texts)
    return tuple(texts) if bins is None else bins.labels


def label_of(text: str) -> str:
    """Return the name of a range as a value: "0..17" is "0-17", "65.." is "65+", "..17" is "up to 17"."""
    match = _RANGE.fullmatch(text)
    low, high = (None, None) if match is None else match.groups()
    if low and high:
        return low if low == high else f"{low} to {high}" if "-" in low + high else f"{low}-{high}"
    return f"{low}+" if low else f"up to {high}" if high else text


def _ends(text: str) -> tuple[int, int]:
    match = _RANGE.fullmatch(text)
    if match is None or match[1] is match[2] is None:
        raise ValueError(f"{text!r} is no range of integers: write all values as ranges, such as 0..17, or none")
    return (-_FAR if match[1] is None else int(match[1])), (_FAR if match[2] is None else int(match[2]))
