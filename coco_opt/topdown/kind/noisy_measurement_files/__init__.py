"""Noisy measurements published by others, in the layout of the 2020 Census Noisy Measurement Files.

Each row is a measured query of a geographic unit, in Parquet: ``geocode``, ``query_name`` (such as
"hispanic * cenrace_dpq"), ``value`` (a list of integers, the attributes in the schema's order, the last running
fastest) and ``variance``. If present, columns named like the attributes say what a query counts. A row with a ``sign``
(=, <= or >=) is a constraint on the answers to a query. Other columns are ignored.

The noise is read as discrete Gaussian, its variance as sigma^2, of neighbours that replace a person (Abowd et al.
2022). The privacy guarantee is the publisher's: nothing was measured here, and no ledger records it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from coco_opt.config.load import load_config
from coco_opt.config.model import Config
from coco_opt.errors import ConfigError, InputError, Place
from coco_opt.files.foreign_errors import quietly
from coco_opt.files.regions import PublicRegions, read_regions
from coco_opt.privacy.budget import Neighbours
from coco_opt.privacy.cost import Cost, Rho
from coco_opt.privacy.measurement import FOREIGN, Measurement
from coco_opt.privacy.queries import Answers, offsets_of
from coco_opt.topdown.budget_plan import TablePlan
from coco_opt.topdown.kind.noisy_measurement_files.columns import (
    COLUMNS,
    GEOCODE,
    QUERY,
    SIGN,
    check_columns,
    coded,
    regions_of,
)
from coco_opt.topdown.kind.noisy_measurement_files.rows import GatheredRows
from coco_opt.topdown.kind.plan import schema_of_config
from coco_opt.topdown.queries import Query
from coco_opt.topdown.table_queries import TableQueries

_BATCH = 1 << 17  # rows
_NEIGHBOURS: Neighbours = "replace"


def read_noisy_measurements(
    files: Path | str | Sequence[Path | str], config: Config | Path | str, *, sum_over: Sequence[str] = ()
) -> Measurement:
    """Return published noisy measurements as a measurement of tables, to be estimated like any other.

    Parameters
    ----------
    files : Path, str, or a sequence of them
        Parquet files in the layout of the 2020 Census, or folders of them.
    config : Config, Path or str
        From ``[topdown]`` the attributes in the publisher's order, groupings and structural zeros, and perhaps the
        hierarchy, whose names in the level columns are the geocodes. Without a hierarchy the geocodes give it.
    sum_over : sequence of str, default ()
        Attributes of the files that the config does not have. Answers that count them are left out.

    Returns
    -------
    Measurement
        Its status is "as its publisher states".

    Raises
    ------
    ConfigError
        The config is of another kind.
    HierarchyError, InputError
        file-not-found, unreadable-file, missing-column, duplicate-column, wrong-type, null-value, unknown-query,
        unknown-region, bad-geocode, bad-option, bad-shape, bad-sign, bad-variance, too-large, duplicate-answer,
        missing-region, inconsistent-bounds, empty-file.

    Notes
    -----
    O(rows + answers); memory is that of the answers and a batch.
    """
    if not isinstance(config, Config):
        config = load_config(config, measures=False)
    return measurement_of(gathered([files] if isinstance(files, (str, Path)) else list(files), config, sum_over))


def gathered(files: Sequence[Path | str], config: Config, sum_over: Sequence[str] = ()) -> GatheredRows:
    """Return all rows of some files; see ``read_noisy_measurements``."""
    if config.kind != "tables":
        raise ConfigError(config.section, "noisy measurement files hold tables: use a [topdown] section", config.file)
    schema = schema_of_config(config)
    for name in sum_over:
        if name in schema.names:
            message = f"{name!r} is an attribute of the configuration: sum over other attributes of the files only"
            raise InputError("bad-option", message)
    public, root_has_code = _regions(config, files)
    rows = GatheredRows(public, schema, root_has_code, tuple(sum_over))
    for path in _parquet_files(files):
        for first, batch in _batches(path, schema.names, sum_over=sum_over):
            rows.add(batch, path.name, first)
    return rows


def _regions(config: Config, files: Sequence[Path | str]) -> tuple[PublicRegions, bool]:
    """Return the regions of the hierarchy, or those of the files' geocodes, and whether the root has a geocode."""
    data: Any = config.data
    if data.has_hierarchy:
        return read_regions(data.table_of("hierarchy")), data.root is None
    levels: dict[str, str] = {}
    for path in _parquet_files(files):
        level = _level_of(path)
        for _, batch in _batches(path, only=(GEOCODE,)):
            texts, _ = coded(batch.column(GEOCODE), Place(path.name, None, GEOCODE))
            levels.update(dict.fromkeys(filter(None, texts), level))
    if not levels:
        raise InputError("empty-file", "holds no noisy answer")
    public = regions_of(levels)
    return public, public.hierarchy.names[0] in levels


def _level_of(path: Path) -> str:
    """Return the level's name: that of the folder that is named like a Parquet file, as Spark writes, or the file's."""
    folders = [part for part in path.resolve().parts[:-1] if part.endswith(".parquet")]
    return (folders[-1] if folders else path.name).removesuffix(".parquet")


def measurement_of(rows: GatheredRows) -> Measurement:
    """Return the measurement of all rows; InputError where a region lacks some of its level's queries."""
    if not rows.answers:
        raise InputError("empty-file", "holds no noisy answer")
    public, tree = rows.public, rows.public.hierarchy
    variances = tuple(rows.region_variances())
    queries = {entry.query.text: entry.query for entry in rows.answers.values()}
    costs = tuple(tuple(_cost(rows, level, query) for query in queries.values()) for level in range(tree.levels))
    plan = TablePlan(tuple(queries.values()), costs, _NEIGHBOURS)
    table_queries = TableQueries(tree, rows.schema, plan, bounds=tuple(rows.region_bounds()), variances=variances)
    measurement_plan = table_queries.measurement_plan(public.levels, public.region_ids)
    listed = list(queries)
    answers = tuple(
        Answers(level_query, offsets_of(level_query, tree, {}), rows.answers[level, listed[query]].values.reshape(-1))
        for (level, query), level_query in zip(plan.measured_queries, measurement_plan.queries, strict=True)
    )
    return Measurement(measurement_plan, answers, FOREIGN, private=False)


def _cost(rows: GatheredRows, level: int, query: Query) -> Cost:
    """Return the cost of noise of the least variance that is stated."""
    entry = rows.answers.get((level, query.text))
    if entry is None:
        return Rho(Fraction(0))
    return Rho(query.sensitivity(_NEIGHBOURS).l2_squared / (2 * min(entry.variances)))


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


def _batches(
    path: Path, attributes: Sequence[str] = (), only: Sequence[str] = (), sum_over: Sequence[str] = ()
) -> Iterator[tuple[int, Any]]:
    """Yield the record batches of a file, with the columns that are read, and the first row of each."""
    import pyarrow.parquet as pq

    schema = quietly(path, lambda: pq.read_schema(path))
    check_columns(schema, path.name, attributes, sum_over)
    names = [name for name in only or (*COLUMNS, SIGN, *attributes, *sum_over) if name in schema.names]
    texts = [name for name in (GEOCODE, QUERY, SIGN, *attributes, *sum_over) if name in names]
    file = quietly(path, lambda: pq.ParquetFile(path, page_checksum_verification=True, read_dictionary=texts))
    with file:
        batches = file.iter_batches(batch_size=_BATCH, columns=names)
        first = 0
        while (batch := quietly(path, lambda: next(batches, None))) is not None:
            yield first, batch
            first += batch.num_rows
