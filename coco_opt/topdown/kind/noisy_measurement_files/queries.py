"""The queries of noisy measurement files: by the columns that are named like the attributes, or by their names.

The files of the 2020 Census have one column an attribute. It says how a query counts the attribute: ``*`` not at all,
``detailed`` by value, else by the name of the attribute or of a grouping. Files without these columns are read by the
names of queries, such as "hispanic * cenrace_dpq", or "total_con" and "hhgq_total_lb_con" for constraints.

A hierarchy from the geocodes of noisy measurement files alone.

The codes of a level have one length, and begin with the code of the region above, as those of the 2020 Census's spine
do: "050" is a state without its American Indian areas, "150" those areas, "050100011" a county of the first. Only a
code that stands alone at the top, such as "0" for the United States, need not begin the others. Where several do, a
region above them is added. A region that the spine bypasses has one region below it, with no answers of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import InputError, Place
from coco_opt.files.regions import PublicRegions
from coco_opt.histograms import Hierarchy
from coco_opt.histograms.texts import Texts
from coco_opt.topdown.queries import Query, parse_query
from coco_opt.topdown.schema import Schema

_SUFFIXES = ("_dpq", "_con", "_lb", "_ub")
_ALIASES = {
    "detailed": "detail",
    # Constraints of the 2020 Census: facilities by kind, and nobody under 18 in nursing facilities.
    "hhgq_total": "hhgq",
    "nurse_nva_0": "gqNursingTotal * nonvoting",
}
ALL, _VALUES = "*", ("detailed", "detail")
"""How a query counts an attribute: not at all, or by value."""


@dataclass(frozen=True, eq=False, slots=True)
class PublishedQuery:
    """A query as it is published: ``shape`` of its values, and the ``query`` that they answer.

    ``query`` is None where structural zeros leave it no cell.
    """

    query: Query | None
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Return the number of values."""
        return prod(self.shape)

    @property
    def combinations(self) -> Ints:
        """Return which of the values are the query's answers: no cell enters the others."""
        return np.zeros(0, np.int64) if self.query is None else self.query.combinations


@dataclass(eq=False)
class PublishedQueries:
    """Reads queries over a schema, each once."""

    schema: Schema
    _read: dict[tuple[str, tuple[str, ...]], PublishedQuery] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Values of a query are published whether its cells can occur or not.
        self._every_cell = Schema(self.schema.attributes, (), self.schema.groupings)

    def of(self, name: str, columns: Sequence[str], place: Place) -> PublishedQuery:
        """Return a query by its name, or by its attributes' columns where there are any.

        Raises InputError (unknown-query) at ``place``.
        """
        key = name, tuple(columns)
        if key not in self._read:
            failure = ""
            try:
                self._read[key] = self._parsed(self._text(name, columns))
            except InputError as error:
                failure = error.message
            if failure:
                message = f"{name!r} is no query of these attributes and groupings: {failure}"
                raise InputError("unknown-query", message, place)
        return self._read[key]

    def _text(self, name: str, columns: Sequence[str]) -> str:
        if columns and all(column in _VALUES for column in columns):
            return "detail"
        if columns:
            pairs = zip(self.schema.names, columns, strict=True)
            return ALL.join(self._factor(*pair) for pair in pairs if pair[1] != ALL)
        text = name.strip()
        for suffix in _SUFFIXES:
            text = text.removesuffix(suffix).strip()
        return _ALIASES.get(text, text)

    def _factor(self, attribute: str, column: str) -> str:
        """Return how an attribute is counted as a factor of a query."""
        if column in _VALUES or column == attribute:
            return attribute
        of = self.schema.groupings[column].of if column in self.schema.groupings else None
        if of != attribute:
            raise InputError("bad-query", f"there is no grouping {column!r} of {attribute!r}")
        return column

    def _parsed(self, text: str) -> PublishedQuery:
        """Return the query of a text; published values run over the attributes in the schema's order."""
        parsed = parse_query(text or "total", self._every_cell)
        factors = sorted(parsed.factors, key=lambda factor: factor.attribute)
        titles = " * ".join(factor.title for factor in factors)
        text = parsed.text if parsed.text in ("total", "detail") else titles
        shape = tuple(len(factor.answers) for factor in factors)
        counted = self._every_cell.allowed.size == self.schema.size or self._counts(text)
        return PublishedQuery(parse_query(text, self.schema) if counted else None, shape)

    def _counts(self, text: str) -> bool:
        """Return whether a query counts some cell that can occur."""
        weights = parse_query(text, self._every_cell).operator.absolute_columns
        return bool(weights[self.schema.allowed].any())


ROOT = "all"
"""The region above all others where the geocodes have none."""
_PLACE = Place("the files", None, "geocode")


def regions_of(codes: Mapping[str, str]) -> PublicRegions:
    """Return the regions of geocodes, given the name of each code's level.

    Raises InputError (bad-geocode) for a code that begins with no code of the level above, and for a code with which
    none of the level below begins.
    """
    by_length: dict[int, list[str]] = {}
    for code in sorted(codes):
        by_length.setdefault(len(code), []).append(code)
    levels = [by_length[length] for length in sorted(by_length)]
    stated = [codes[own[0]] for own in levels]
    titles = stated if len(set(stated)) == len(stated) else [f"length {len(own[0])}" for own in levels]
    if len(levels[0]) > 1:
        levels, titles = [[ROOT], *levels], ["root", *titles]
    parent, start = [-1], 0
    for number, (above, own) in enumerate(pairwise(levels)):
        parent += [start + place for place in (_parents(above, own) if number else [0] * len(own))]
        start += len(above)
    hierarchy = Hierarchy.from_parents(np.array(parent), [code for own in levels for code in own])
    leaves = Texts.of(hierarchy.names[region] for region in hierarchy.leaves)
    return PublicRegions(hierarchy, tuple(titles), leaves, np.arange(len(leaves)))


def _parents(above: list[str], own: list[str]) -> list[int]:
    """Return the places of the codes of the level above with which the codes of a level begin."""
    width, place = len(above[0]), {code: number for number, code in enumerate(above)}
    parents = [place.get(code[:width], -1) for code in own]
    if -1 in parents:
        code = own[parents.index(-1)]
        message = f"{code!r} begins with no code of {width} characters: read the files of that level too"
        raise InputError("bad-geocode", message, _PLACE)
    if len(set(parents)) < len(above):
        code = above[min(set(range(len(above))) - set(parents))]
        message = f"no code of {len(own[0])} characters begins with {code!r}: read those files too, or leave it out"
        raise InputError("bad-geocode", message, _PLACE)
    return parents
