"""Noisy measurements published by others, in the layout of the 2020 Census Noisy Measurement Files.

Each row is a measured query of a geographic unit, in Parquet: ``geocode``, ``query_name`` (such as
"hispanic * cenrace_dpq"), ``value`` (a list of integers, the attributes in the schema's order, the last running
fastest) and ``variance``. If present, ``query_shape`` (a list whose product is the number of values) is
checked, and rows with a ``sign``, which state constraints, are skipped. Other columns are ignored.

The noise is read as discrete Gaussian, its variance as sigma^2, of neighbours that replace a person (Abowd et al.
2022). The privacy guarantee is the publisher's: nothing was measured here, and no ledger records it.
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
from coco_opt.privacy.budget import Neighbours, stated_fraction
from coco_opt.privacy.cost import Cost, Rho
from coco_opt.privacy.measurement import FOREIGN, Measurement
from coco_opt.privacy.queries import Answers, offsets_of
from coco_opt.topdown.budget_plan import TablePlan
from coco_opt.topdown.kind.plan import schema_of_config
from coco_opt.topdown.queries import Query, parse_query
from coco_opt.topdown.schema import Schema
from coco_opt.topdown.table_queries import TableQueries

Int64 = NDArray[np.int64]

SUFFIX = "_dpq"
COLUMNS = ("geocode", "query_name", "value", "variance")
_SHAPE, _SIGN = "query_shape", "sign"
_ALIASES = {"detailed": "detail"}
_BATCH = 1 << 17  # rows
_NEIGHBOURS: Neighbours = "replace"


def read_noisy_measurements(files: Path | str | Sequence[Path | str], config: Config | Path | str) -> Measurement:
    """Return published noisy measurements as a measurement of tables, to be estimated like any other.

    Parameters
    ----------
    files : Path, str, or a sequence of them
        Parquet files in the layout of the 2020 Census, or folders of them.
    config : Config, Path or str
        The hierarchy, whose names in the level columns are the geocodes, and from ``[topdown]`` the attributes in the
        publisher's order, groupings and structural zeros. A configuration file needs no more.

    Returns
    -------
    Measurement
        Its status is "as its publisher states".

    Raises
    ------
    ConfigError
        The config is of another kind.
    HierarchyError, InputError
        file-not-found, unreadable-file, missing-column, wrong-type, null-value, unknown-query, unknown-region,
        bad-geocode, bad-shape, bad-variance, several-variances, duplicate-answer, missing-region, empty-file.

    Notes
    -----
    O(rows + answers); memory is that of the answers and a batch.
    """
    if not isinstance(config, Config):
        config = load_config(config, measures=False)
    if config.kind != "tables":
        raise ConfigError(config.section, "noisy measurement files hold tables: use a [topdown] section", config.file)
    schema, public = schema_of_config(config), read_regions(config.data.table_of("hierarchy"))
    answers = _ReadAnswers(public, schema)
    for path in _parquet_files([files] if isinstance(files, (str, Path)) else files):
        for first, batch in _batches(path):
            answers.add(batch, path.name, first)
    return answers.measurement()


def geocodes_of(public: PublicRegions) -> Sequence[str]:
    """Return the geocode of every region, its name; InputError (bad-geocode) where two regions share one.

    All geocodes of a level must have the same length, and those of other levels another: the length gives the level.
    """
    tree = public.hierarchy
    widths: dict[int, str] = {}
    for level, name in enumerate(public.levels):
        regions = tree.level_range(level)
        lengths = {len(tree.names[region]) for region in regions}
        if len(lengths) > 1 or lengths & set(widths):
            message = "geocodes of a level must have one length, and those of other levels another"
            raise InputError("bad-geocode", message, Place("hierarchy", None, name))
        widths[lengths.pop()] = name
        if len({tree.names[region] for region in regions}) < len(regions):
            raise InputError("bad-geocode", "two regions have one geocode", Place("hierarchy", None, name))
    return tree.names


@dataclass(eq=False)
class _QueryAnswers:
    """The noisy answers to one query at one level so far: which regions are present, and their stated variance."""

    query: Query
    values: Int64
    present: NDArray[np.bool_]
    variance: Fraction


@dataclass(eq=False)
class _ReadAnswers:
    """All noisy answers read so far, by level and by text of the query."""

    public: PublicRegions
    schema: Schema
    geocodes: Any = field(init=False)
    lengths: set[int] = field(init=False)
    queries: dict[str, tuple[Query, int, tuple[int, ...]]] = field(default_factory=dict)
    by_query: dict[tuple[int, str], _QueryAnswers] = field(default_factory=dict)

    def __post_init__(self) -> None:

        names = geocodes_of(self.public)
        self.lengths = {len(name) for name in names}
        self.geocodes = as_arrow(names)

    def add(self, batch: Any, file: str, first: int) -> None:
        """Add a batch of rows; its first row is row ``first`` of its file, from 0."""
        rows = np.arange(first, first + batch.num_rows)
        if _SIGN in batch.schema.names:
            unsigned = np.flatnonzero(np.asarray(batch.column(_SIGN).is_null()))
            if unsigned.size < rows.size:
                batch, rows = batch.take(unsigned), rows[unsigned]
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
            positions = np.flatnonzero(keys == key)
            code, number = divmod(key, self.public.hierarchy.levels)
            self._take(batch, texts[code], number, regions, positions, file, rows)

    def _regions(self, geocode: Any, file: str, rows: Int64) -> Int64:
        """Return the region of every row; each geocode is looked up once in a batch."""
        import pyarrow.compute as pc

        texts, codes = _coded(geocode)
        places = pc.index_in(_strings(texts), value_set=self.geocodes)
        known_regions = np.asarray(places.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
        regions: Int64 = known_regions[codes]
        if (regions < 0).any():
            text = texts[int(codes[np.flatnonzero(regions < 0)[0]])]
            place = _place(file, rows, regions < 0, "geocode")
            if len(text) not in self.lengths:
                lengths = ", ".join(str(length) for length in sorted(self.lengths))
                message = f"{text!r} has {len(text)} characters, and the hierarchy's geocodes have {lengths}"
                raise InputError("bad-geocode", message, place)
            raise InputError("unknown-region", f"{text!r} is not in the hierarchy", place)
        return regions

    def _take(
        self, batch: Any, name: str, level: int, regions: Int64, positions: Int64, file: str, rows: Int64
    ) -> None:
        """Add the rows ``positions`` of a batch, of one query and level."""
        query, size, shape = self._query(name, _place(file, rows[positions[:1]], None, "query_name"))
        level_regions = self.public.hierarchy.level_range(level)
        variance = self._variance(batch.column("variance").take(positions), file, rows[positions])
        entry = self.by_query.get((level, query.text))
        if entry is None:
            values = np.empty((len(level_regions), query.answers), np.int64)
            present = np.zeros(len(level_regions), np.bool_)
            entry = self.by_query[level, query.text] = _QueryAnswers(query, values, present, variance)
        if entry.variance != variance:
            raise _several_variances(_place(file, rows[positions[:1]], None, "variance"))
        _check_shapes(batch, positions, size, shape, name, file, rows)
        local = regions[positions] - level_regions.start
        order = np.argsort(local, kind="stable")
        twice = np.zeros(positions.size, np.bool_)
        twice[order[1:]] = local[order[1:]] == local[order[:-1]]
        twice |= entry.present[local]
        if twice.any():
            path = self.public.hierarchy.paths[int(regions[positions[np.flatnonzero(twice)[0]]])]
            message = f"{name!r} of {path!r} occurs a second time"
            raise InputError("duplicate-answer", message, _place(file, rows[positions], twice, "geocode"))
        entry.present[local] = True
        entry.values[local] = _values(batch.column("value"), positions, size)[:, query.combinations]

    def _query(self, name: str, place: Place) -> tuple[Query, int, tuple[int, ...]]:
        """Return a query by its published name, the number of its values, and its shape."""
        if name not in self.queries:
            text = name.removesuffix(SUFFIX).strip()
            failure = ""
            try:
                parsed = parse_query(_ALIASES.get(text, text), self.schema)
                ordered = sorted(parsed.factors, key=lambda factor: factor.attribute)
                # Published values run over the attributes in the schema's order, whatever the name says.
                inner = (
                    parsed.text
                    if parsed.text in ("total", "detail")
                    else " * ".join(factor.title for factor in ordered)
                )
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
        """Return the single variance of some rows; each must be a positive number."""
        texts, codes = _coded(column)
        variances = [_fraction(text) for text in texts]
        for code, value in enumerate(variances):
            if value is None:
                message = "must be a positive, finite number: what is exact is an invariant, not a noisy answer"
                raise InputError("bad-variance", message, _place(file, rows, codes == code, "variance"))
        if len(set(variances)) > 1:
            raise _several_variances(_place(file, rows, codes != codes[0], "variance"))
        assert variances[0] is not None
        return variances[0]

    def measurement(self) -> Measurement:
        """Return the measurement of all rows; InputError where a region lacks a query that others have."""
        if not self.by_query:
            raise InputError("empty-file", "holds no noisy answer")
        tree = self.public.hierarchy
        for (level, text), entry in self.by_query.items():
            if not entry.present.all():
                missing = np.flatnonzero(~entry.present)
                path = tree.paths[tree.level_range(level)[int(missing[0])]]
                level_name, count = self.public.levels[level], missing.size
                message = f"{text!r} is not answered for {count:,} of the regions of {level_name!r}, first {path!r}"
                raise InputError("missing-region", message)
        queries = {entry.query.text: entry.query for entry in self.by_query.values()}
        costs = tuple(tuple(self._cost(level, query) for query in queries.values()) for level in range(tree.levels))
        plan = TablePlan(tuple(queries.values()), costs, _NEIGHBOURS)
        table_queries = TableQueries(tree, self.schema, plan)
        measurement_plan = table_queries.measurement_plan(self.public.levels, self.public.region_ids)
        listed = list(queries)
        answers = tuple(
            Answers(
                level_query, offsets_of(level_query, tree, {}), self.by_query[level, listed[query]].values.reshape(-1)
            )
            for (level, query), level_query in zip(plan.measured_queries, measurement_plan.queries, strict=True)
        )
        return Measurement(measurement_plan, answers, FOREIGN, private=False)

    def _cost(self, level: int, query: Query) -> Cost:
        """Return the cost of noise of the stated variance."""
        entry = self.by_query.get((level, query.text))
        if entry is None:
            return Rho(Fraction(0))
        return Rho(query.sensitivity(_NEIGHBOURS).l2_squared / (2 * entry.variance))


def _parquet_files(files: Sequence[Path | str]) -> Iterator[Path]:
    """Yield the named Parquet files, and those in a named folder ordered by name."""
    for path in map(Path, files):
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*.parquet") if file.is_file())
            if not inside:
                raise InputError("file-not-found", "holds no .parquet file", Place(path.name))
            yield from inside
        elif path.is_file():
            yield path
        else:
            raise InputError("file-not-found", "no such file or folder", Place(path.name))


def _batches(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the record batches of a file, with the columns that are read, and the first row of each."""
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
            raise InputError("wrong-type", f"must hold lists of integers, not {kind}", Place(file, None, name))
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


def _check_shapes(
    batch: Any, positions: Int64, size: int, shape: tuple[int, ...], name: str, file: str, rows: Int64
) -> None:
    """Raise InputError unless rows have as many values as their query and their stated shape."""
    import pyarrow.compute as pc

    every_length = pc.list_value_length(batch.column("value")).to_numpy(zero_copy_only=False)
    lengths = np.asarray(every_length, np.int64)[positions]
    wrong = lengths != size
    if wrong.any():
        expected = " x ".join(map(str, shape)) or "1"
        message = f"{name!r} has {lengths[wrong][0]:,} values, and {expected} make {size:,}"
        raise InputError("bad-shape", message, _place(file, rows[positions], wrong, "value"))
    if _SHAPE not in batch.schema.names:
        return
    stated = batch.column(_SHAPE).take(positions)
    count = np.asarray(pc.list_value_length(stated).fill_null(0).to_numpy(zero_copy_only=False), np.int64)
    sides = np.asarray(stated.flatten().to_numpy(zero_copy_only=False), np.int64)
    sizes, filled = np.where(np.asarray(stated.is_null()), size, 1), count > 0
    if filled.any():
        sizes[filled] = np.multiply.reduceat(sides, (np.cumsum(count) - count)[filled])
    if (sizes != size).any():
        message = f"the shape of {name!r} makes {sizes[sizes != size][0]:,} values, and it has {size:,}"
        raise InputError("bad-shape", message, _place(file, rows[positions], sizes != size, _SHAPE))


def _values(column: Any, positions: Int64, size: int) -> Int64:
    """Return the values int64[rows, size] of rows whose lists all have that length."""
    chosen = column.take(positions)
    flat = chosen.flatten()
    if flat.null_count:
        raise InputError("null-value", "a list of values has an empty entry")
    return (
        np.asarray(flat.to_numpy(zero_copy_only=False)).astype(np.int64, casting="safe").reshape(positions.size, size)
    )


def _coded(column: Any) -> tuple[list[str], Int64]:
    """Return the distinct texts of a column, and each row's position among them."""
    import pyarrow.types as kinds

    coded = column if kinds.is_dictionary(column.type) else column.dictionary_encode()
    places = np.asarray(coded.indices.to_numpy(zero_copy_only=False), np.int64)
    return coded.dictionary.cast("string").to_pylist(), places


def _strings(texts: Sequence[str]) -> Any:
    import pyarrow as pa

    return pa.array(texts, pa.string())


def _fraction(text: str) -> Fraction | None:
    """Return a positive number exactly as written, None for anything else."""
    value = stated_fraction(text)
    return value if value is not None and value > 0 else None


def _several_variances(place: Place) -> InputError:
    message = "regions of one level state different variances of one query, which is not read here"
    return InputError("several-variances", message, place)


def _place(file: str, rows: Int64, wrong: NDArray[np.bool_] | None, column: str) -> Place:
    """Return the place of the first wrong row, or of the first row without ``wrong``."""
    index = 0 if wrong is None else int(np.flatnonzero(wrong)[0])
    return Place(file, int(rows[index]) + 1, column)
