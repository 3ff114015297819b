"""What the rows of noisy measurement files say, gathered by level and query: noisy answers, and constraints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from coco_opt.array_types import Flags, Ints
from coco_opt.errors import InputError, Place
from coco_opt.files.arrow_texts import as_arrow
from coco_opt.files.regions import PublicRegions
from coco_opt.histograms.texts import Texts
from coco_opt.problem import MAX_INTEGER
from coco_opt.topdown.budget_plan import RegionVariances
from coco_opt.topdown.constraint import UNBOUNDED, RegionBounds
from coco_opt.topdown.kind.noisy_measurement_files.columns import (
    ALL,
    COLUMNS,
    GEOCODE,
    QUERY,
    SIGN,
    VALUE,
    VARIANCE,
    PublishedQueries,
    PublishedQuery,
    check_lengths,
    coded,
    lists_of,
    place_of,
    read_fraction,
    unmeasured,
)
from coco_opt.topdown.queries import Query
from coco_opt.topdown.schema import Schema

_SIGNS = {"=": (True, True), "==": (True, True), "eq": (True, True), "<=": (False, True), "le": (False, True)}
_SIGNS |= {">=": (True, False), "ge": (True, False)}
"""Whether a constraint's values are lower bounds, and upper bounds."""


@dataclass(eq=False)
class QueryAnswers:
    """The noisy answers to one query at one level, and the variance of each region's.

    ``variance_of`` int64[regions] are places in ``variances``, -1 where a region has no answers.
    """

    query: Query
    values: Ints
    variance_of: Ints
    variances: list[Fraction] = field(default_factory=list)
    _places: dict[np.float32, int] = field(default_factory=dict)

    def place_of(self, variance: Fraction) -> int:
        """Return the place of a variance: numbers that are one in floating point of 32 bits are the same."""
        if (place := self._places.setdefault(np.float32(float(variance)), len(self.variances))) == len(self.variances):
            self.variances.append(variance)
        return place


@dataclass(frozen=True, eq=False, slots=True)
class _Rows:
    """Rows of a batch, of one query, level and sign: ``positions`` in the batch, ``regions`` counted in their level."""

    batch: Any
    positions: Ints
    regions: Ints
    level: int
    name: str
    file: str
    numbers: Ints

    def place(self, column: str, wrong: Flags | None = None) -> Place:
        """Return the place of the first of these rows that is wrong, or of the first."""
        return place_of(self.file, self.numbers[self.positions], wrong, column)


@dataclass(eq=False)
class GatheredRows:
    """All that was read so far, by level and by text of the query.

    Rows that count an attribute of ``sum_over`` are left out; ``left_out`` is the number of their answers.
    """

    public: PublicRegions
    schema: Schema
    root_has_code: bool = True
    sum_over: Sequence[str] = ()
    left_out: int = 0
    answers: dict[tuple[int, str], QueryAnswers] = field(default_factory=dict)
    bounds: dict[tuple[int, str], tuple[Query, Ints, Ints]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = geocodes_of(self.public, self.root_has_code)
        self._lengths = {len(name) for name in names}
        self._geocodes = as_arrow(names)
        self._first = self.public.hierarchy.regions - len(names)
        self._queries = PublishedQueries(self.schema)

    def add(self, batch: Any, file: str, first: int) -> None:
        """Add a batch of rows; its first row is row ``first`` of its file, from 0."""
        numbers, nothing = np.arange(first, first + batch.num_rows), unmeasured(batch)
        nothing |= self._counts_others(batch, file, numbers)
        if nothing.any():
            measured = np.flatnonzero(~nothing)
            batch, numbers = batch.take(measured), numbers[measured]
        signs: tuple[list[str], Ints] = [], np.full(batch.num_rows, -1)
        if SIGN in batch.schema.names:
            signs = coded(batch.column(SIGN), Place(file, None, SIGN))
        self._refuse_empty(batch, signs[1], file, numbers)
        regions = self._regions(batch.column(GEOCODE), file, numbers)
        texts, codes = coded(batch.column(QUERY), Place(file, None, QUERY))
        tree = self.public.hierarchy
        keys = (codes * (len(signs[0]) + 1) + signs[1] + 1) * tree.levels + tree.level[regions]
        for key in np.unique(keys).tolist():
            positions = np.flatnonzero(keys == key)
            rest, level = divmod(key, tree.levels)
            code, sign = divmod(rest, len(signs[0]) + 1)
            local = regions[positions] - tree.level_range(level).start
            rows = _Rows(batch, positions, local, level, texts[code], file, numbers)
            if sign:
                self._bound(rows, signs[0][sign - 1])
            else:
                self._answer(rows)

    def _counts_others(self, batch: Any, file: str, numbers: Ints) -> Flags:
        """Return which rows count an attribute that is summed over; InputError (null-value) where they do not say."""
        import pyarrow.compute as pc

        counts = np.zeros(batch.num_rows, np.bool_)
        for name in self.sum_over:
            texts, codes = coded(batch.column(name), Place(file, None, name))
            if (codes < 0).any():
                raise InputError("null-value", "is empty", place_of(file, numbers, codes < 0, name))
            counts |= np.array([text != ALL for text in texts], np.bool_)[codes] if texts else False
        lengths = pc.list_value_length(batch.column(VALUE)).fill_null(0).to_numpy(zero_copy_only=False)
        self.left_out += int(np.asarray(lengths, np.int64)[counts].sum())
        return counts

    def _refuse_empty(self, batch: Any, signs: Ints, file: str, numbers: Ints) -> None:
        """Raise InputError (null-value) for empty cells; constraints need no variance."""
        for name in COLUMNS:
            present = name in batch.schema.names
            empty = np.asarray(batch.column(name).is_null()) if present else np.ones(batch.num_rows, np.bool_)
            if name == VARIANCE:
                empty &= signs < 0
            if empty.any():
                raise InputError("null-value", "is empty", place_of(file, numbers, empty, name))

    def _regions(self, geocode: Any, file: str, numbers: Ints) -> Ints:
        """Return the region of every row; each geocode is looked up once in a batch."""
        import pyarrow as pa
        import pyarrow.compute as pc

        texts, codes = coded(geocode, Place(file, None, GEOCODE))
        places = pc.index_in(pa.array(texts, pa.string()), value_set=self._geocodes)
        known_regions = np.asarray(places.fill_null(-1 - self._first).to_numpy(zero_copy_only=False), np.int64)
        regions: Ints = known_regions[codes] + self._first
        if (regions < 0).any():
            text = texts[int(codes[np.flatnonzero(regions < 0)[0]])]
            place = place_of(file, numbers, regions < 0, GEOCODE)
            if len(text) not in self._lengths:
                lengths = ", ".join(str(length) for length in sorted(self._lengths))
                message = f"{text!r} has {len(text)} characters, and the hierarchy's geocodes have {lengths}"
                raise InputError("bad-geocode", message, place)
            raise InputError("unknown-region", f"{text!r} is not in the hierarchy", place)
        return regions

    def _query(self, rows: _Rows) -> PublishedQuery:
        """Return the query of some rows, by the columns named like the attributes if the file has them all."""
        stated = []
        if all(name in rows.batch.schema.names for name in self.schema.names):
            for name in self.schema.names:
                texts, codes = coded(rows.batch.column(name), Place(rows.file, None, name))
                different = codes[rows.positions] != codes[rows.positions[0]]
                if different.any() or codes[rows.positions[0]] < 0:
                    message = f"rows of {rows.name!r} count {name!r} in different ways, or say nothing about it"
                    raise InputError("unknown-query", message, rows.place(name, different if different.any() else None))
                stated.append(texts[codes[rows.positions[0]]])
        return self._queries.of(rows.name, stated, rows.place(QUERY))

    def _values(self, rows: _Rows, published: PublishedQuery) -> Ints:
        check_lengths(rows.batch, rows.positions, published.shape, rows.name, rows.file, rows.numbers)
        return lists_of(rows.batch, rows.positions, published.size, rows.file, rows.numbers)

    def _answer(self, rows: _Rows) -> None:
        """Add noisy answers; no region may have those to one query twice."""
        published, (variances, codes) = self._query(rows), self._variances(rows)
        values = self._values(rows, published)[:, published.combinations]
        too_large = np.asarray(((values > MAX_INTEGER) | (values < -MAX_INTEGER)).any(axis=1))
        if too_large.any():
            raise InputError("too-large", "a noisy answer is beyond 2^53", rows.place(VALUE, too_large))
        if published.query is None:
            return
        query, count = published.query, len(self.public.hierarchy.level_range(rows.level))
        entry = self.answers.get((rows.level, query.text))
        if entry is None:
            nothing = np.zeros((count, query.answers), np.int64)
            entry = QueryAnswers(query, nothing, np.full(count, -1, np.int64))
            self.answers[rows.level, query.text] = entry
        order = np.argsort(rows.regions, kind="stable")
        twice = np.zeros(order.size, np.bool_)
        twice[order[1:]] = rows.regions[order[1:]] == rows.regions[order[:-1]]
        twice |= entry.variance_of[rows.regions] >= 0
        if twice.any():
            message = f"{rows.name!r} of {self._path(rows, twice)!r} occurs a second time"
            raise InputError("duplicate-answer", message, rows.place(GEOCODE, twice))
        places = [entry.place_of(variance) for variance in variances]
        entry.variance_of[rows.regions] = np.array(places, np.int64)[codes]
        entry.values[rows.regions] = values

    def _variances(self, rows: _Rows) -> tuple[list[Fraction], Ints]:
        """Return the different variances of some rows, positive numbers, and each row's place among them."""
        texts, codes = coded(rows.batch.column(VARIANCE).take(rows.positions), Place(rows.file, None, VARIANCE))
        variances = []
        for code, text in enumerate(texts):
            value = read_fraction(text)
            if value is None:
                message = (
                    "must be a number from 1/25 to 2^80. Integer noise of less variance is 0 but for one draw in "
                    f"100,000: state exact answers by {SIGN!r} '='"
                )
                raise InputError("bad-variance", message, rows.place(VARIANCE, codes == code))
            variances.append(value)
        return variances, codes

    def _bound(self, rows: _Rows, sign: str) -> None:
        """Add constraints: values that the answers are, or are at least or at most."""
        if sign.strip() not in _SIGNS:
            message = f"{sign!r} is no sign of a constraint, which are {', '.join(_SIGNS)}"
            raise InputError("bad-sign", message, rows.place(SIGN))
        below, above = _SIGNS[sign.strip()]
        published = self._query(rows)
        values = self._values(rows, published)
        self._refuse_impossible(rows, values, published, below)
        if published.query is None:
            return
        query, count = published.query, len(self.public.hierarchy.level_range(rows.level))
        if (rows.level, query.text) not in self.bounds:
            lower, upper = (np.full((count, query.answers), side, np.int64) for side in (0, UNBOUNDED))
            self.bounds[rows.level, query.text] = query, lower, upper
        _, lower, upper = self.bounds[rows.level, query.text]
        values = values[:, published.combinations]
        if below:
            np.maximum.at(lower, rows.regions, values)
        if above:
            np.minimum.at(upper, rows.regions, values)

    def _refuse_impossible(self, rows: _Rows, values: Ints, published: PublishedQuery, below: bool) -> None:
        """Raise InputError (inconsistent-bounds) where persons are required in cells that cannot occur."""
        others = np.delete(values, published.combinations, axis=1)
        wrong = np.asarray((others > 0).any(axis=1) & below, np.bool_)
        if wrong.any():
            message = f"{rows.name!r} of {self._path(rows, wrong)!r} requires persons where structural zeros leave none"
            raise InputError("inconsistent-bounds", message, rows.place(VALUE, wrong))

    def _path(self, rows: _Rows, wrong: Flags) -> str:
        tree = self.public.hierarchy
        return str(tree.paths[tree.level_range(rows.level).start + int(rows.regions[np.flatnonzero(wrong)[0]])])

    def region_bounds(self) -> Iterator[RegionBounds]:
        """Yield the constraints that were read."""
        for (level, _), (query, lower, upper) in self.bounds.items():
            yield RegionBounds(query, level, lower, upper, "public")

    def region_variances(self) -> Iterator[RegionVariances]:
        """Yield the variances of levels whose regions differ, or some of which have no answers at all.

        Raises InputError (missing-region) for a region that has answers to some queries of its level only.
        """
        tree = self.public.hierarchy
        for level in range(tree.levels):
            entries = {text: entry for (at, text), entry in self.answers.items() if at == level}
            places = [entry.variance_of for entry in entries.values()]
            if not any((place != 0).any() for place in places):
                continue
            bypassed = np.all([place < 0 for place in places], axis=0)
            for text, entry in entries.items():
                missing = np.flatnonzero((entry.variance_of < 0) & ~bypassed)
                if missing.size:
                    path = tree.paths[tree.level_range(level)[int(missing[0])]]
                    message = (
                        f"{text!r} is not answered for {missing.size:,} of the regions of {self.public.levels[level]!r}"
                    )
                    raise InputError(
                        "missing-region", f"{message}, first {path!r}, which have answers to other queries"
                    )
            classes, first = _classes(places)
            yield RegionVariances(
                level, classes, {entry.query.name: _stated(entry, first) for entry in entries.values()}
            )


def geocodes_of(public: PublicRegions, root_has_code: bool = True) -> Sequence[str]:
    """Return the geocode of every region, its name; InputError (bad-geocode) where two regions share one.

    All geocodes of a level must have the same length, and those of other levels another: the length gives the level.
    A root that was added above the files' regions has none, and is left out.
    """
    tree, widths = public.hierarchy, set[int]()
    for level, name in enumerate(public.levels):
        if level == 0 and not root_has_code:
            continue
        codes = [tree.names[region] for region in tree.level_range(level)]
        lengths = {len(code) for code in codes}
        if len(lengths) > 1 or lengths & widths:
            message = "geocodes of a level must have one length, and those of other levels another"
            raise InputError("bad-geocode", message, Place("hierarchy", None, name))
        widths |= lengths
        if len(set(codes)) < len(codes):
            raise InputError("bad-geocode", "two regions have one geocode", Place("hierarchy", None, name))
    return tree.names if root_has_code else Texts.of(tree.names[region] for region in range(1, tree.regions))


def _classes(places: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Return the classes of regions whose places are equal in all lists, and the first region of each class."""
    classes, first = np.zeros(places[0].size, np.int64), np.zeros(1, np.int64)
    for place in places:
        _, first, classes = np.unique(classes * (place.max() + 2) + place + 1, return_index=True, return_inverse=True)
    return classes.reshape(-1).astype(np.int64), first.astype(np.int64)


def _stated(entry: QueryAnswers, regions: Ints) -> tuple[Fraction | None, ...]:
    """Return the variances of some regions' answers to a query, None where there are none."""
    return tuple(None if place < 0 else entry.variances[place] for place in entry.variance_of[regions].tolist())
