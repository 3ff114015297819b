"""The columns of noisy measurement files: their names, their types, and what each cell of them must be.

Texts may be strings or bytes, coded or not; numbers may be integers of any size, fractions as texts, or floating point
of 32 or 64 bits, which stand for the shortest decimal that is read as the same number.

The queries of noisy measurement files: by the columns that are named like the attributes, or by their names.

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
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from coco_opt.array_types import Flags, Ints
from coco_opt.errors import InputError, Place
from coco_opt.files.regions import PublicRegions
from coco_opt.histograms import Hierarchy
from coco_opt.histograms.texts import Texts
from coco_opt.privacy.budget import stated_fraction
from coco_opt.topdown.queries import Query, parse_query
from coco_opt.topdown.schema import Schema

GEOCODE, QUERY, VALUE, VARIANCE = COLUMNS = ("geocode", "query_name", "value", "variance")
SIGN = "sign"
_LEAST_VARIANCE = Fraction(1, 25)  # below, least squares by the inverse variances loses digits of other answers
_LARGEST_VARIANCE = 2**80  # of noise that a measurement may state


def check_columns(schema: Any, file: str, attributes: Sequence[str] = (), sum_over: Sequence[str] = ()) -> None:
    """Raise InputError (missing-column, duplicate-column, wrong-type) unless a file has the columns.

    Only constraints need no variance. Columns named like the ``attributes`` may be missing, those to ``sum_over`` not.
    """
    import pyarrow.types as kinds

    for name in (*COLUMNS, SIGN, *attributes, *sum_over):
        if schema.names.count(name) > 1:
            raise InputError("duplicate-column", "two columns have this name", Place(file, None, name))
    for name in COLUMNS:
        if name not in schema.names and not (name == VARIANCE and SIGN in schema.names):
            raise InputError("missing-column", f"the columns must be {', '.join(COLUMNS)}", Place(file, None, name))
    for name in sum_over:
        if name not in schema.names:
            message = "no column says how queries count this attribute, which is to be summed over"
            raise InputError("missing-column", message, Place(file, None, name))
    kind = schema.field(VALUE).type
    if not (_is_list(kind) and kinds.is_integer(kind.value_type)):
        raise InputError("wrong-type", f"must hold lists of integers, not {kind}", Place(file, None, VALUE))
    for name in (GEOCODE, QUERY, *(name for name in (SIGN, *attributes, *sum_over) if name in schema.names)):
        if not is_text(schema.field(name).type):
            raise InputError("wrong-type", f"must hold texts, not {schema.field(name).type}", Place(file, None, name))
    kind = schema.field(VARIANCE).type if VARIANCE in schema.names else None
    if kind is not None and not (
        kinds.is_floating(kind) or kinds.is_integer(kind) or is_text(kind) or kinds.is_decimal(kind)
    ):
        raise InputError("wrong-type", f"must hold numbers or fractions, not {kind}", Place(file, None, VARIANCE))


def is_text(kind: Any) -> bool:
    """Return whether a column's type is texts: strings or bytes, coded or not."""
    import pyarrow.types as kinds

    kind = kind.value_type if kinds.is_dictionary(kind) else kind
    texts = (kinds.is_string, kinds.is_large_string, kinds.is_string_view)
    others = (kinds.is_binary, kinds.is_large_binary, kinds.is_binary_view, kinds.is_null)
    return any(check(kind) for check in (*texts, *others))


def _is_list(kind: Any) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))


def coded(column: Any, place: Place) -> tuple[list[str], Ints]:
    """Return the distinct texts of a column, and each row's position among them, -1 for an empty cell.

    Raises InputError (unreadable-file) at ``place`` for bytes that are no UTF-8 text.
    """
    import pyarrow as pa
    import pyarrow.types as kinds

    encoded = column if kinds.is_dictionary(column.type) else column.dictionary_encode()
    places = np.asarray(encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    texts: list[str] | None = None
    with suppress(pa.ArrowInvalid):
        texts = encoded.dictionary.cast("string").to_pylist()
    if texts is None:
        raise InputError("unreadable-file", "is not UTF-8 text: convert it", place)
    return texts, places


def unmeasured(batch: Any) -> Flags:
    """Return which rows state that nothing was measured: no sign, no values, and no variance or an infinite one."""
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    empty = np.asarray(batch.column(VALUE).is_null())
    if SIGN in batch.schema.names:  # a constraint without values is no constraint
        empty = empty & np.asarray(batch.column(SIGN).is_null())
    if VARIANCE not in batch.schema.names or not empty.any():
        return np.zeros(batch.num_rows, np.bool_)
    variance = batch.column(VARIANCE)
    none = np.asarray(variance.is_null())
    if kinds.is_floating(variance.type):
        none = np.asarray(pc.coalesce(pc.is_inf(variance), variance.is_null()))
    return np.asarray(empty & none)


def read_fraction(text: str) -> Fraction | None:
    """Return a variance of noise exactly as written, None for anything else."""
    value = stated_fraction(text)
    return value if value is not None and _LEAST_VARIANCE <= value <= _LARGEST_VARIANCE else None


def lists_of(batch: Any, positions: Ints, size: int, file: str, rows: Ints) -> Ints:
    """Return the values int64[rows, size] of rows whose lists all have that length; what is larger is the largest.

    Raises InputError (null-value) for a list with an empty entry.
    """
    flat = batch.column(VALUE).take(positions).flatten()
    if flat.null_count:
        wrong = np.asarray(np.asarray(flat.is_null()).reshape(positions.size, size).any(axis=1))
        message = "the list of values has an empty entry"
        raise InputError("null-value", message, place_of(file, rows[positions], wrong, VALUE))
    values = np.asarray(flat.to_numpy(zero_copy_only=False))
    if values.dtype == np.uint64:
        values = np.minimum(values, np.uint64(np.iinfo(np.int64).max))
    return values.astype(np.int64).reshape(positions.size, size)


def check_lengths(batch: Any, positions: Ints, shape: Sequence[int], name: str, file: str, rows: Ints) -> None:
    """Raise InputError (bad-shape) unless rows have as many values as the ``shape`` of their query makes."""
    import pyarrow.compute as pc

    every_length = pc.list_value_length(batch.column(VALUE)).to_numpy(zero_copy_only=False)
    lengths, size = np.asarray(every_length, np.int64)[positions], prod(shape)
    wrong = lengths != size
    if wrong.any():
        expected = " x ".join(map(str, shape)) or "1"
        message = f"{name!r} has {lengths[wrong][0]:,} values, and {expected} make {size:,}"
        raise InputError("bad-shape", message, place_of(file, rows[positions], wrong, VALUE))


def place_of(file: str, rows: Ints, wrong: Flags | None, column: str) -> Place:
    """Return the place of the first wrong row, or of the first row without ``wrong``."""
    index = 0 if wrong is None else int(np.flatnonzero(wrong)[0])
    return Place(file, int(rows[index]) + 1, column)


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
