"""Noisy answers that somebody else published, in the layout of the 2020 Census Noisy Measurement Files.

One row an answered query of a geographic unit, in Parquet: ``geocode``, ``query_name`` (such as
"hispanic * cenrace_dpq"), ``value`` (a list of whole numbers, the attributes in the schema's order, the last running
fastest) and ``variance``. Where they are there, ``query_shape`` (a list whose product is the number of values) is
checked, and rows with a ``sign``, which state constraints, are left out. Other columns are ignored.

The noise is read as discrete Gaussian, its variance as sigma^2, of neighbours that replace a person (Abowd et al.
2022). What it protects is as its publisher states: nothing was measured here, and no ledger knows of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.config.load import load_config
from coco_opt.config.model import Config
from coco_opt.errors import ConfigError, InputError, Place
from coco_opt.files.arrow_texts import as_arrow
from coco_opt.files.regions import PublicRegions, read_regions
from coco_opt.files.source import quietly
from coco_opt.privacy.answers import Answers, offsets_of
from coco_opt.privacy.budget import Neighbours, stated_fraction
from coco_opt.privacy.cost import Cost, Rho
from coco_opt.privacy.measurement import FOREIGN, Measurement
from coco_opt.topdown.kind.plan import schema_of_config
from coco_opt.topdown.plan import TablePlan
from coco_opt.topdown.queries import Query, parse_query
from coco_opt.topdown.questions import TableQuestions
from coco_opt.topdown.schema import Schema

Int64 = NDArray[np.int64]

SUFFIX = "_dpq"
COLUMNS = ("geocode", "query_name", "value", "variance")
_SHAPE, _SIGN = "query_shape", "sign"
_ALIASES = {"detailed": "detail"}
_BATCH = 1 << 17  # rows
_NEIGHBOURS: Neighbours = "replace"


def read_noisy_measurements(files: Path | str | Sequence[Path | str], config: Config | Path | str) -> Measurement:
    """Return published noisy answers as a measurement of tables, to be estimated like any other.

    ``files`` are Parquet files, or folders of them. The configuration gives the hierarchy, whose names in the level
    columns are the geocodes, and of ``[topdown]`` attributes (in the publisher's order), groupings and structural
    zeros; as a file it needs no more. Raises ConfigError for another kind's, HierarchyError and InputError:
    file-not-found, unreadable-file, missing-column, wrong-type, null-value, unknown-query, unknown-region, bad-geocode,
    bad-shape, bad-variance, several-variances, duplicate-answer, missing-region, empty-file. O(rows + answers); memory
    is that of the answers and a batch.
    """
    if not isinstance(config, Config):
        config = load_config(config, measures=False)
    if config.kind != "tables":
        raise ConfigError(config.section, "noisy measurement files hold tables: use a [topdown] section", config.file)
    schema, public = schema_of_config(config), read_regions(config.data.given("hierarchy"))
    found = _Found(public, schema)
    for path in _listed([files] if isinstance(files, (str, Path)) else files):
        for first, batch in _batches(path):
            found.add(batch, path.name, first)
    return found.measurement()


def geocodes_of(public: PublicRegions) -> Sequence[str]:
    """Return the geocode of every region, its name; InputError (bad-geocode) where two regions or levels share one.

    All geocodes of a level must be of one length, by which the levels are told apart.
    """
    tree = public.hierarchy
    widths: dict[int, str] = {}
    for level, name in enumerate(public.levels):
        here = tree.level_range(level)
        lengths = {len(tree.names[region]) for region in here}
        if len(lengths) > 1 or lengths & set(widths):
            message = "geocodes of a level must have one length, and those of other levels another"
            raise InputError("bad-geocode", message, Place("hierarchy", None, name))
        widths[lengths.pop()] = name
        if len({tree.names[region] for region in here}) < len(here):
            raise InputError("bad-geocode", "two regions have one geocode", Place("hierarchy", None, name))
    return tree.names


@dataclass(eq=False)
class _Answered:
    """The answers to one query at one level so far: which regions gave theirs, and the variance that they state."""

    query: Query
    values: Int64
    given: NDArray[np.bool_]
    variance: Fraction


@dataclass(eq=False)
class _Found:
    """All that was read so far, by level and by text of the query."""

    public: PublicRegions
    schema: Schema
    geocodes: Any = field(init=False)
    lengths: set[int] = field(init=False)
    queries: dict[str, tuple[Query, int, tuple[int, ...]]] = field(default_factory=dict)
    answered: dict[tuple[int, str], _Answered] = field(default_factory=dict)

    def __post_init__(self) -> None:

        names = geocodes_of(self.public)
        self.lengths = {len(name) for name in names}
        self.geocodes = as_arrow(names)

    def add(self, batch: Any, file: str, first: int) -> None:
        """Take a batch of rows in, the first of which is row ``first`` of its file, from 0."""
        rows = np.arange(first, first + batch.num_rows)
        if _SIGN in batch.schema.names:
            kept = np.flatnonzero(np.asarray(batch.column(_SIGN).is_null()))
            if kept.size < rows.size:
                batch, rows = batch.take(kept), rows[kept]
        for name in COLUMNS:
            empty = np.asarray(batch.column(name).is_null())
            if empty.any():
                raise InputError("null-value", "is empty", _place(file, rows, empty, name))
        if not batch.num_rows:
            return
        regions = self._regions(batch.column("geocode"), file, rows)
        texts, codes = _coded(batch.column("query_name"))
        level = self.public.hierarchy.level[regions]
        keys = codes * self.public.hierarchy.levels + level
        for key in np.unique(keys).tolist():
            at = np.flatnonzero(keys == key)
            code, number = divmod(key, self.public.hierarchy.levels)
            self._take(batch, texts[code], number, regions, at, file, rows)

    def _regions(self, geocode: Any, file: str, rows: Int64) -> Int64:
        """Return the region of every row; a geocode is looked up once a batch."""
        import pyarrow.compute as pc

        texts, codes = _coded(geocode)
        places = pc.index_in(_strings(texts), value_set=self.geocodes)
        known = np.asarray(places.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
        found: Int64 = known[codes]
        if (found < 0).any():
            text = texts[int(codes[np.flatnonzero(found < 0)[0]])]
            place = _place(file, rows, found < 0, "geocode")
            if len(text) not in self.lengths:
                lengths = ", ".join(str(length) for length in sorted(self.lengths))
                message = f"{text!r} has {len(text)} characters, and the hierarchy's geocodes have {lengths}"
                raise InputError("bad-geocode", message, place)
            raise InputError("unknown-region", f"{text!r} is not in the hierarchy", place)
        return found

    def _take(self, batch: Any, name: str, level: int, regions: Int64, at: Int64, file: str, rows: Int64) -> None:
        """Take in the rows ``at`` of a batch, of one query and level."""
        query, size, shape = self._query(name, _place(file, rows[at[:1]], None, "query_name"))
        here = self.public.hierarchy.level_range(level)
        variance = self._variance(batch.column("variance").take(at), file, rows[at])
        one = self.answered.get((level, query.text))
        if one is None:
            values, given = np.empty((len(here), query.answers), np.int64), np.zeros(len(here), np.bool_)
            one = self.answered[level, query.text] = _Answered(query, values, given, variance)
        if one.variance != variance:
            raise _several_variances(_place(file, rows[at[:1]], None, "variance"))
        _check_shapes(batch, at, size, shape, name, file, rows)
        local = regions[at] - here.start
        order = np.argsort(local, kind="stable")
        twice = np.zeros(at.size, np.bool_)
        twice[order[1:]] = local[order[1:]] == local[order[:-1]]
        twice |= one.given[local]
        if twice.any():
            path = self.public.hierarchy.paths[int(regions[at[np.flatnonzero(twice)[0]]])]
            message = f"{name!r} of {path!r} occurs a second time"
            raise InputError("duplicate-answer", message, _place(file, rows[at], twice, "geocode"))
        one.given[local] = True
        one.values[local] = _values(batch.column("value"), at, size)[:, query.kept]

    def _query(self, name: str, place: Place) -> tuple[Query, int, tuple[int, ...]]:
        """Return a query by its published name, the number of its values, and its shape."""
        if name not in self.queries:
            text = name.removesuffix(SUFFIX).strip()
            failure = ""
            try:
                given = parse_query(_ALIASES.get(text, text), self.schema)
                ordered = sorted(given.factors, key=lambda factor: factor.attribute)
                # Published values run over the attributes in the schema's order, whatever the name says.
                inner = given.text if given.text in ("total", "detail") else " * ".join(one.title for one in ordered)
                query = parse_query(inner, self.schema)
            except InputError as error:
                failure = error.message
            if failure:
                message = f"{name!r} is no query of these attributes and groupings: {failure}"
                raise InputError("unknown-query", message, place)
            shape = tuple(len(factor.answers) for factor in query.factors)
            self.queries[name] = query, int(np.prod(shape, dtype=np.int64)), shape
        return self.queries[name]

    def _variance(self, column: Any, file: str, rows: Int64) -> Fraction:
        """Return the one variance of some rows; each must be a positive number."""
        texts, codes = _coded(column)
        found = [_fraction(text) for text in texts]
        for code, value in enumerate(found):
            if value is None:
                message = "must be a positive, finite number: what is exact is an invariant, not a noisy answer"
                raise InputError("bad-variance", message, _place(file, rows, codes == code, "variance"))
        if len(set(found)) > 1:
            raise _several_variances(_place(file, rows, codes != codes[0], "variance"))
        assert found[0] is not None
        return found[0]

    def measurement(self) -> Measurement:
        """Return the measurement of all that was read; InputError where a region did not answer what others did."""
        if not self.answered:
            raise InputError("empty-file", "holds no noisy answer")
        tree = self.public.hierarchy
        for (level, text), one in self.answered.items():
            if not one.given.all():
                missing = np.flatnonzero(~one.given)
                path = tree.paths[tree.level_range(level)[int(missing[0])]]
                level_name, count = self.public.levels[level], missing.size
                message = f"{text!r} is not answered for {count:,} of the regions of {level_name!r}, first {path!r}"
                raise InputError("missing-region", message)
        queries = {one.query.text: one.query for one in self.answered.values()}
        costs = tuple(tuple(self._cost(level, query) for query in queries.values()) for level in range(tree.levels))
        plan = TablePlan(tuple(queries.values()), costs, _NEIGHBOURS)
        questions = TableQuestions(tree, self.schema, plan)
        asked = questions.asked(self.public.levels, self.public.region_ids)
        listed = list(queries)
        answers = tuple(
            Answers(question, offsets_of(question, tree, {}), self.answered[level, listed[query]].values.reshape(-1))
            for (level, query), question in zip(plan.asked, asked.questions, strict=True)
        )
        return Measurement(asked, answers, FOREIGN, private=False)

    def _cost(self, level: int, query: Query) -> Cost:
        """Return what noise of the stated variance costs by this program's account."""
        one = self.answered.get((level, query.text))
        if one is None:
            return Rho(Fraction(0))
        return Rho(query.sensitivity(_NEIGHBOURS).l2_squared / (2 * one.variance))


def _listed(files: Sequence[Path | str]) -> Iterator[Path]:
    """Yield the Parquet files that are named, those of a folder in the order of their names."""
    for path in map(Path, files):
        if path.is_dir():
            inside = sorted(one for one in path.rglob("*.parquet") if one.is_file())
            if not inside:
                raise InputError("file-not-found", "holds no .parquet file", Place(path.name))
            yield from inside
        elif path.is_file():
            yield path
        else:
            raise InputError("file-not-found", "no such file or folder", Place(path.name))


def _batches(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the record batches of a file with the columns that are read, and the row that each begins with."""
    import pyarrow.parquet as pq

    texts = ["geocode", "query_name"]
    file = quietly(path, lambda: pq.ParquetFile(path, page_checksum_verification=True, read_dictionary=texts))
    with file:
        _check_columns(file.schema_arrow, path.name)
        names = [*COLUMNS, *(name for name in (_SHAPE, _SIGN) if name in file.schema_arrow.names)]
        batches = file.iter_batches(batch_size=_BATCH, columns=names)
        first = 0
        while (batch := quietly(path, lambda: next(batches, None))) is not None:
            yield first, batch
            first += batch.num_rows


def _check_columns(schema: Any, file: str) -> None:
    import pyarrow.types as kinds

    for name in COLUMNS:
        if name not in schema.names:
            raise InputError("missing-column", f"the columns must be {', '.join(COLUMNS)}", Place(file, None, name))
    for name in ("value", _SHAPE):
        kind = schema.field(name).type if name in schema.names else None
        if kind is not None and not (_is_list(kind) and kinds.is_integer(kind.value_type)):
            raise InputError("wrong-type", f"must hold lists of whole numbers, not {kind}", Place(file, None, name))
    for name in ("geocode", "query_name"):
        kind = schema.field(name).type
        kind = kind.value_type if kinds.is_dictionary(kind) else kind
        if not (kinds.is_string(kind) or kinds.is_large_string(kind)):
            raise InputError("wrong-type", f"must hold texts, not {kind}", Place(file, None, name))
    kind = schema.field("variance").type
    if not (kinds.is_floating(kind) or kinds.is_integer(kind) or kinds.is_string(kind) or kinds.is_decimal(kind)):
        raise InputError("wrong-type", f"must hold numbers or fractions, not {kind}", Place(file, None, "variance"))


def _is_list(kind: Any) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))


def _check_shapes(batch: Any, at: Int64, size: int, shape: tuple[int, ...], name: str, file: str, rows: Int64) -> None:
    """Raise InputError unless rows have as many values as their query, and as their own shape says."""
    import pyarrow.compute as pc

    lengths = np.asarray(pc.list_value_length(batch.column("value")).to_numpy(zero_copy_only=False), np.int64)[at]
    wrong = lengths != size
    if wrong.any():
        told = " x ".join(map(str, shape)) or "1"
        message = f"{name!r} has {lengths[wrong][0]:,} values, and {told} make {size:,}"
        raise InputError("bad-shape", message, _place(file, rows[at], wrong, "value"))
    if _SHAPE not in batch.schema.names:
        return
    stated = batch.column(_SHAPE).take(at)
    count = np.asarray(pc.list_value_length(stated).fill_null(0).to_numpy(zero_copy_only=False), np.int64)
    sides = np.asarray(stated.flatten().to_numpy(zero_copy_only=False), np.int64)
    made, filled = np.where(np.asarray(stated.is_null()), size, 1), count > 0
    if filled.any():
        made[filled] = np.multiply.reduceat(sides, (np.cumsum(count) - count)[filled])
    if (made != size).any():
        message = f"the shape of {name!r} makes {made[made != size][0]:,} values, and it has {size:,}"
        raise InputError("bad-shape", message, _place(file, rows[at], made != size, _SHAPE))


def _values(column: Any, at: Int64, size: int) -> Int64:
    """Return the values int64[rows, size] of rows whose lists all have that length."""
    chosen = column.take(at)
    flat = chosen.flatten()
    if flat.null_count:
        raise InputError("null-value", "a list of values has an empty entry")
    return np.asarray(flat.to_numpy(zero_copy_only=False)).astype(np.int64, casting="safe").reshape(at.size, size)


def _coded(column: Any) -> tuple[list[str], Int64]:
    """Return the distinct texts of a column, and each row's place among them."""
    import pyarrow.types as kinds

    coded = column if kinds.is_dictionary(column.type) else column.dictionary_encode()
    places = np.asarray(coded.indices.to_numpy(zero_copy_only=False), np.int64)
    return coded.dictionary.cast("string").to_pylist(), places


def _strings(texts: Sequence[str]) -> Any:
    import pyarrow as pa

    return pa.array(texts, pa.string())


def _fraction(text: str) -> Fraction | None:
    """Return a positive number exactly as it is written, None for anything else."""
    value = stated_fraction(text)
    return value if value is not None and value > 0 else None


def _several_variances(place: Place) -> InputError:
    message = "regions of one level state different variances of one query, which is not read here"
    return InputError("several-variances", message, place)


def _place(file: str, rows: Int64, wrong: NDArray[np.bool_] | None, column: str) -> Place:
    """Return the place of the first wrong row, or of the first at all."""
    at = 0 if wrong is None else int(np.flatnonzero(wrong)[0])
    return Place(file, int(rows[at]) + 1, column)
