"""One colour and one mark a method, the same in all figures of all papers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from coco_opt.report.style import COLOURS, MARKS

_SAME = re.compile(r"\b(\w+)(?: x \1)+\b")
# What is said of a method without changing it: it keeps its colour.
_ASIDE = re.compile(r"^(?:exact|bound) | unrounded$| zeroed$| exact nonnegative$|[:,].*$")
_PLACES = {
    "measured": 0,
    "published": 6,
    "reference": 2,
    "independent": 0,
    "one seed (NOT PRIVATE)": 1,
    "matching": 0,
    "matching Hc": 0,
    "matching Hg": 1,
    "matching Hc x Hg": 2,
    "matching Hg x Hc": 3,
    "Hc matching": 0,
    "Hg matching": 1,
    "no consistency Hc": 5,
    "no consistency Hg": 4,
    "Hc alone": 5,
    "Hg alone": 4,
    "bottom-up": 6,
    "bottom-up Hc": 6,
    "joint": 7,
    "Hc joint": 7,
    "joint p = 1": 7,
    "posterior": 2,
    "relative entropy": 4,
    "joint p = 2": 9,
    "Hc convex program": 2,
    "omniscient": 8,
    "equal": 8,
    "budget": 8,
    "H-bar": 0,
    "H-bar zeroed, by leaves": 3,
    "H-bar exact nonnegative": 4,
    "H~": 1,
    "L~": 2,
    "S-bar": 0,
    "S~": 1,
    "S~r": 4,
    "true counts": 6,
    "Theorem 4 (iii)": 8,
    "Theorem 4 (iv)": 8,
    "Theorem 2": 8,
    "bound of Appendix E": 8,
    "GDPC": 0,
    "RDPC": 1,
    "ADPC": 2,
}


@dataclass(frozen=True, slots=True)
class Look:
    """A colour, a mark, and whether it is ``hollow``: another variant of the method is drawn full."""

    colour: str
    mark: str
    hollow: bool = False


def method_of(name: str) -> str:
    """Return the method behind a series' name: "matching Hc x Hc, average half up" is "matching Hc"."""
    if name in _PLACES:
        return name
    short = _SAME.sub(r"\1", name)
    while short not in _PLACES and (shorter := _ASIDE.sub("", short)) != short:
        short = shorter
    return short


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Return the look of every series: that of its method, or a free look; of variants all but the first are hollow."""
    methods = {name: method_of(name) for name in names}
    places = {method: _PLACES[method] for method in methods.values() if method in _PLACES}
    free = [place for place in range(len(COLOURS)) if place not in places.values()] or list(range(len(COLOURS)))
    unknown = [method for method in dict.fromkeys(methods.values()) if method not in places]
    places |= {method: free[k % len(free)] for k, method in enumerate(unknown)}
    seen: set[str] = set()
    shown = {}
    for name, method in methods.items():
        shown[name] = Look(COLOURS[places[method]], MARKS[places[method]], method in seen)
        seen.add(method)
    return shown
