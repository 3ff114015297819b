"""Names in rules and queries: what they look like, lists of values, and the valid name nearest to a misspelt name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from coco_opt.errors import InputError
from coco_opt.topdown.bins import label_of

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
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return _listed(names)


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
