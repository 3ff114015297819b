"""Names of attributes and values in texts, and ranges of integers as values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from coco_opt.errors import InputError
from coco_opt.plugins import near

RESERVED = frozenset("*[]()|&=!,")
_SPAN = re.compile(r"(?P<first>.*?)\.\.(?P<last>.*)")


def check_name(name: object, what: str) -> None:
    """Raise InputError (bad-name) unless a name can be written in rules and queries."""
    if not isinstance(name, str) or not name or name != name.strip() or not name.isprintable():
        raise InputError("bad-name", f"{what} must be printable text that is not empty: {name!r}")
    if RESERVED & set(name) or ".." in name:
        raise InputError("bad-name", f"{what} {name!r} must not hold any of {' '.join(sorted(RESERVED))} or '..'")


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return what to add to a message about an unknown name: the nearest valid one, or the first few."""
    names = list(valid)
    return near(name, names, _listed(names), start="", cutoff=0.5)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:8]) + (", ..." if len(names) > 8 else "")
    return f"use one of {shown}"


def find(name: str, valid: Sequence[str], what: str, text: str, note: str = "") -> int:
    """Return the place of a name; raise InputError (unknown-attribute or unknown-value) naming the nearest.

    For a number that ends a range, as a ``note`` says, the first valid names are listed: near to it is none.
    """
    if name in valid:
        return valid.index(name)
    code = "unknown-attribute" if what == "attribute" else "unknown-value"
    raise InputError(
        code,
        f"{text!r}: no {what} {name!r}{note}; {_listed(valid) if note and name.isdigit() else nearest(name, valid)}",
    )


def read_values(text: str, attribute: str, values: Sequence[str], context: str) -> list[int]:
    """Return the places of ``a | b | c..d`` among an attribute's values; a side of ``..`` left out is the end.

    ``context`` is the rule or query that contains it, for messages. Raises InputError: unknown-value, bad-range.
    """
    places: list[int] = []
    for part in text.split("|"):
        name = part.strip()
        if label_of(name) in values:
            places.append(values.index(label_of(name)))
            continue
        span = _SPAN.fullmatch(name)
        if span is None:
            places.append(find(name, values, f"value of {attribute!r}", context))
            continue
        ends = [span["first"].strip(), span["last"].strip()]
        what, note = f"value of {attribute!r}", f", which is an end of {name!r}"
        first = find(ends[0], values, what, context, note) if ends[0] else 0
        last = find(ends[1], values, what, context, note) if ends[1] else len(values) - 1
        if first > last:
            raise InputError("bad-range", f"{context!r}: {name!r} ends before it begins in the order of {attribute!r}")
        places.extend(range(first, last + 1))
    return places


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
