"""What a measurement promises besides its cost: whom its noise protects, and what it publishes without noise.

A cost is a guarantee for all pairs of data sets that differ by one unit, of so many rows in a table at most, and agree
in every exact count. Fewer rows and more exact counts leave fewer pairs. The costs of several measurements add up for
the pairs that are neighbours for each of them: these are the neighbours of their joint promise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from coco_opt.privacy.budget import Neighbours

_DIFFER: Mapping[Neighbours, str] = {"add_remove": "one {unit} added or removed", "replace": "one {unit} replaced"}
_ANY_UNIT = "entity"  # whatever the rows of a table are: persons, where another table says so


@dataclass(frozen=True, slots=True)
class Promise:
    """By what neighbouring data sets differ, and in which counts they agree.

    ``unit`` is whom noise protects, in one word, and ``contributions`` the most rows of a table that are of one unit.
    ``groups`` says whether the numbers of groups are published, "" where no groups are measured. ``exact`` holds the
    level and the words of all answers that are taken from the private table and published without noise, and a digest
    of the regions, values and sides that they mean, sorted; None where the kind of release has none. What is "" or
    None agrees with any other promise.
    """

    neighbours: Neighbours
    unit: str
    contributions: int = 1
    groups: Literal["", "public", "private"] = ""
    exact: tuple[tuple[str, ...], ...] | None = None

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Promise:
        """Return the promise of which these are the plain values."""
        exact = plain["exact"]
        return cls(**{**plain, "exact": None if exact is None else tuple(map(tuple, exact))})

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "exact": None if self.exact is None else list(map(list, self.exact))}

    @property
    def words(self) -> str:
        """Return the promise as a sentence without its start; it names all that is exact."""
        most = self.contributions
        rows = f"of at most {most} rows in a table" if most > 1 else "which is one row of a table"
        differ = [_DIFFER[self.neighbours].format(unit=self.unit), *([rows] if self.unit != _ANY_UNIT else [])]
        differ += ["and numbers of groups are private"] if self.groups == "private" else []
        exact = ["the number of groups of every region"] if self.groups == "public" else []
        stated = Counter(f"{words} by {level}" for level, words, *_ in self.exact or ())
        exact += [text if n == 1 else f"{text} ({n} times, of other regions or values)" for text, n in stated.items()]
        exact = exact or ["nothing"]
        return f"neighbours differ by {', '.join(differ)}; published exactly, without noise: {', '.join(exact)}"

    def admits(self, later: Promise) -> bool:
        """Return whether a later measurement makes the same promise, as far as its kind of release can."""
        return (
            joint((self, later)) is not None
            and later.contributions == self.contributions
            and (later.groups == "" or (later.groups == "public") == (self.groups == "public"))
            and (later.exact is None or set(later.exact) == set(self.exact or ()))
        )


def joint(promises: Iterable[Promise]) -> Promise | None:
    """Return the promise for which the costs of all add up; None for none, and where no such promise is known."""
    listed = tuple(promises)
    units = {promise.unit for promise in listed} - {_ANY_UNIT} or {_ANY_UNIT}
    if len({promise.neighbours for promise in listed}) != 1 or len(units) > 1:
        return None
    exact = [set(promise.exact) for promise in listed if promise.exact is not None]
    return Promise(
        listed[0].neighbours,
        units.pop(),
        min(promise.contributions for promise in listed),
        max(promise.groups for promise in listed),  # "" < "private" < "public"
        tuple(sorted(set().union(*exact))) if exact else None,
    )
