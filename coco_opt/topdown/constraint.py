"""Linear constraints between answers: ``householders >= spouses + partners``, read from text, on any regions.

A side of a constraint sums numbers and counts of persons with integer coefficients; a count is ``total``, a name
declared beforehand, or conditions in brackets, ``[residence = nursing & age = minor]`` (see ``rules``), which is also
how a query labels its answers. The comparison is ``>=``, ``<=`` or ``=``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from coco_opt.array_types import Flags, Ints
from coco_opt.errors import InputError
from coco_opt.execution.temporary_storage import stored_by_parts
from coco_opt.histograms.arrays import as_int64
from coco_opt.histograms.hierarchy import Hierarchy
from coco_opt.topdown.names import nearest
from coco_opt.topdown.queries import Query
from coco_opt.topdown.schema import Schema, parse_rule

StatedSource = Literal["structural", "public", "data"]
"""Where a constraint comes from: true of every possible table, known from elsewhere, or taken from the private data."""
Source = StatedSource | Literal["release"]
"""The same, or published in an earlier release, with which this release agrees."""
SOURCES: tuple[str, ...] = (*get_args(StatedSource), "release")

SOURCE_WORDS: Mapping[Source, str] = {
    "structural": "structural: true of every possible table",
    "public": "public: known from elsewhere",
    "data": "taken from the data: published as it is, without noise",
    "release": "published in an earlier release, with which this one agrees",
}
UNBOUNDED = 2**62
"""No upper bound; its negative is no lower bound."""
TOTAL = "total"
LARGEST_COEFFICIENT = 2**20
_LARGEST_SIDE = 2**40
_MOST_DIGITS = 12

_TOKEN = re.compile(r"\s*(?:(\[[^\[\]]*\])|(\d+)|(>=|<=|==|=|<|>)|([+*-])|([^\W\d]\w*))")
_FORM = "a constraint reads 'a >= 2 * b + c', with counts by name, [conditions] or total"

Terms = tuple[tuple[int, str], ...]
"""The summands of a constraint: a coefficient, and conditions as text, ``total`` for everybody."""


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class LinearConstraint:
    """lower <= sum of coefficient x count <= upper in every region of a level, sides int64[regions].

    ``text`` is how messages name it; ``UNBOUNDED`` and its negative are no side. Regions above get the sums. Raises
    InputError (bad-constraint, too-large).
    """

    text: str
    terms: Terms
    level: int
    lower: Ints
    upper: Ints
    source: Source = "structural"

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise InputError("bad-constraint", f"{self.text!r}: source must be one of {', '.join(SOURCES)}")
        if not self.terms or any(not 0 < abs(weight) <= LARGEST_COEFFICIENT for weight, _ in self.terms):
            message = f"needs a count, and coefficients other than 0 and up to {LARGEST_COEFFICIENT:,}"
            raise InputError("bad-constraint", f"{self.text!r} {message}")
        for name in ("lower", "upper"):
            side = as_int64(getattr(self, name), f"{name} sides of {self.text!r}").copy()
            finite = np.abs(side) < UNBOUNDED
            if (np.abs(side[finite]) >= _LARGEST_SIDE).any():
                raise InputError("too-large", f"{self.text!r}: a side is not below 2^40")
            side.setflags(write=False)
            object.__setattr__(self, name, side)
        if self.lower.shape != self.upper.shape or (self.lower > self.upper).any():
            raise InputError("inconsistent-bounds", f"{self.text!r}: a lower side is above its upper one")

    def __reduce__(self) -> tuple[Callable[..., LinearConstraint], tuple[Any, ...]]:
        # Unpickled arrays are writable: going through the constructor makes them read-only again.
        return LinearConstraint, (self.text, self.terms, self.level, self.lower, self.upper, self.source)

    @classmethod
    def of(
        cls,
        text: str,
        hierarchy: Hierarchy,
        schema: Schema,
        level: int | None = None,
        *,
        counts: Mapping[str, str] | None = None,
        regions: Collection[str] = (),
        source: Source = "structural",
    ) -> LinearConstraint:
        """Read a constraint for the regions of a level (the leaves unless given), all or those in some ``regions``.

        ``counts`` names conditions; ``regions`` are paths of regions at that level or above it. Raises InputError:
        bad-constraint, bad-rule, unknown-attribute, unknown-value, unknown-level; HierarchyError for an unknown path.
        """
        terms, lower, upper = parse_constraint(text, schema, counts or {})
        at = hierarchy.levels - 1 if level is None else level
        if not 0 <= at < hierarchy.levels:
            raise InputError("unknown-level", f"{text!r}: there is no level {at}")
        level_regions = hierarchy.level_range(at)
        bound = np.ones(len(level_regions), np.bool_)
        if regions:
            bound[:] = False
            for path in regions:
                bound[_places_in(hierarchy, hierarchy.index(path), at, text)] = True
        sides = np.where(bound, lower, -UNBOUNDED), np.where(bound, upper, UNBOUNDED)
        return cls(text, terms, at, *sides, source)

    @property
    def is_relation(self) -> bool:
        """Return whether the text says the sides too, as one that was read does."""
        return any(sign in re.sub(r"\[[^\[\]]*\]", "", self.text) for sign in "<>=")

    @property
    def oriented(self) -> LinearConstraint:
        """Return the same with positive coefficients where all are negative, as in "1 <= heads"."""
        if any(weight > 0 for weight, _ in self.terms):
            return self
        terms = tuple((-weight, conditions) for weight, conditions in self.terms)
        return replace(self, terms=terms, lower=-self.upper, upper=-self.lower)

    def row(self, schema: Schema) -> Ints:
        """Return every cell's coefficient, int64[schema.size]."""
        return row_of(self.terms, schema)

    def __repr__(self) -> str:
        return f"LinearConstraint({self.text!r} at level {self.level}, {self.source})"


def row_of(terms: Terms, schema: Schema) -> Ints:
    """Return the coefficients of a sum of counts, int64[schema.size]."""
    row = np.zeros(schema.size, np.int64)
    for weight, conditions in terms:
        row += weight * counted(conditions, schema)
    return row


def counted(conditions: str, schema: Schema) -> Flags:
    """Return which cells some conditions count, bool[schema.size]."""
    if conditions == TOTAL:
        return np.ones(schema.size, np.bool_)
    mask = np.broadcast_to(parse_rule(conditions, schema.attributes).forbidden(schema.shape), schema.shape)
    return np.asarray(mask.reshape(-1)[schema.allowed])


def parse_constraint(text: str, schema: Schema, counts: Mapping[str, str]) -> tuple[Terms, int, int]:
    """Return the summands of a text and the two sides of their sum.

    Raises InputError: bad-constraint, and what ``parse_rule`` says of conditions.
    """
    for name in counts:
        if not name.isidentifier() or name == TOTAL:
            message = f"a count's name is letters, digits and _, and not {TOTAL!r}: {name!r}"
            raise InputError("bad-constraint", message)
    tokens = list(_tokens(text))
    at = [place for place, (kind, _) in enumerate(tokens) if kind == "compare"]
    if len(at) != 1 or tokens[at[0]][1] not in (">=", "<=", "=", "=="):
        raise InputError("bad-constraint", f"{text!r}: one of >=, <= and = is needed; {_FORM}")
    weights: dict[str, int] = {}
    constant = 0
    for side, sign in ((tokens[: at[0]], 1), (tokens[at[0] + 1 :], -1)):
        for weight, count in _summands(side, text):
            if count is None:
                constant -= sign * weight
                continue
            conditions = _conditions(count, schema, counts, text)
            weights[conditions] = weights.get(conditions, 0) + sign * weight
    terms = tuple((weight, conditions) for conditions, weight in weights.items() if weight)
    if not terms or not row_of(terms, schema).any():
        raise InputError("bad-constraint", f"{text!r} says nothing about any cell that can occur; {_FORM}")
    compare = tokens[at[0]][1]
    lower = constant if compare != "<=" else -UNBOUNDED
    return terms, lower, constant if compare != ">=" else UNBOUNDED


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    place = 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if match is None:
            raise InputError("bad-constraint", f"{text!r}: what is {text[place:].strip()!r}? {_FORM}")
        kinds = ("count", "number", "compare", "sign", "count")
        kind, value = next((kind, value) for kind, value in zip(kinds, match.groups(), strict=True) if value)
        yield kind, value.strip()
        place = match.end()


def _summands(tokens: Sequence[tuple[str, str]], text: str) -> Iterator[tuple[int, str | None]]:
    """Yield (coefficient, count) of one side, the count None for a number by itself."""
    wrong = InputError("bad-constraint", f"{text!r} cannot be read: {_FORM}")
    if not tokens or tokens[-1][0] == "sign":
        raise wrong
    sign, factors, expected = 1, dict[str, str](), True  # a number and a count at most; whether one must come now
    for kind, value in (*tokens, ("sign", "+")):
        if kind == "sign" and (expected if value == "*" else expected and factors):
            raise wrong
        if kind == "sign" and value == "*":
            expected = True
        elif kind == "sign":
            if factors:
                yield sign * int(factors.get("number", "1")), factors.get("count")
                sign, factors, expected = 1, {}, True
            sign = -sign if value == "-" else sign
        elif expected and kind not in factors and (kind == "count" or len(value) <= _MOST_DIGITS):
            factors[kind], expected = value, False
        else:
            raise wrong


def _conditions(count: str, schema: Schema, counts: Mapping[str, str], text: str) -> str:
    """Return the conditions of a count in their normal form."""
    if count.startswith("["):
        inner = count[1:-1].strip()
    elif count in counts:
        inner = counts[count].strip()
    elif count == TOTAL:
        return TOTAL
    else:
        message = f"{text!r}: no count {count!r}; {nearest(count, [*counts, TOTAL])}"
        raise InputError("bad-constraint", message)
    if inner == TOTAL:
        return TOTAL
    inner = " ".join(inner.split())
    counted(inner, schema)
    return inner


def _places_in(hierarchy: Hierarchy, region: int, level: int, text: str) -> slice:
    """Return the places, within a level, of the regions at or below one."""
    start, stop = region, region + 1
    for _ in range(level - int(hierarchy.level[region])):
        start, stop = int(hierarchy.first_child[start]), int(hierarchy.first_child[stop])
    if int(hierarchy.level[region]) > level:
        path = hierarchy.paths[region]
        raise InputError("bad-constraint", f"{text!r}: {path!r} lies below the level that is constrained")
    first = hierarchy.level_range(level).start
    return slice(start - first, stop - first)


LARGEST = 2**40
"""What no number of persons reaches."""


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class RegionBounds:
    """Public bounds lower <= answers <= upper of a query in every region of a level, int64[regions, answers].

    ``UNBOUNDED`` (or anything from 2^40 on) is no upper bound, 0 no lower one, for counts are nonnegative. ``source``
    says where the bounds come from. Large arrays lie in a file. Raises InputError (bad-shape, not-integer, too-large)
    and where a lower bound is above its upper (inconsistent-bounds).
    """

    query: Query
    level: int
    lower: Ints
    upper: Ints
    source: Source = "public"

    def __post_init__(self) -> None:
        lower = as_int64(self.lower, "lower bounds", ndim=2)
        upper = as_int64(self.upper, "upper bounds", ndim=2)
        if lower.shape != upper.shape or lower.shape[1] != self.query.answers:
            raise InputError("bad-shape", f"bounds of {self.query.name!r} are regions x {self.query.answers} answers")
        if lower.size and int(lower.max()) >= LARGEST:
            raise InputError("too-large", f"a lower bound of {self.query.name!r} is not below 2^40")
        kind = np.dtype(np.int64)
        stored = {
            "lower": stored_by_parts(lower.shape, kind, lambda some: np.maximum(lower[some], 0)),
            "upper": stored_by_parts(
                upper.shape, kind, lambda some: np.where(upper[some] >= LARGEST, UNBOUNDED, upper[some])
            ),
        }
        for name, array in stored.items():
            object.__setattr__(self, name, array)

    def __reduce__(self) -> tuple[Callable[..., RegionBounds], tuple[Any, ...]]:
        # Unpickled arrays are writable: going through the constructor makes them read-only again.
        return RegionBounds, (self.query, self.level, self.lower, self.upper, self.source)

    @classmethod
    def exact(cls, query: Query, level: int, answers: npt.ArrayLike) -> RegionBounds:
        """Return bounds that leave one value: an invariant's answers."""
        values = as_int64(answers, "answers", ndim=2)
        if values.size and not 0 <= int(values.min()) <= int(values.max()) < LARGEST:
            raise InputError("too-large", f"exact answers of {query.name!r} must be from 0 to below 2^40")
        return cls(query, level, values, values, "data")

    def __repr__(self) -> str:
        return f"RegionBounds({self.query.name!r} at level {self.level})"
