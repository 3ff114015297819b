"""The files of a release of tables: nonzero cells, exact answers, constraints, estimates and optional microdata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coco_opt.array_types import Ints
from coco_opt.errors import InputError, Place, SolverError
from coco_opt.files.arrow_texts import positions
from coco_opt.files.differences import REGION, FrameKind, as_frame, stored_frame
from coco_opt.files.folder import ROWS_PER_GROUP, Again, Coded, FileTable, read_columns
from coco_opt.files.in_threads import in_threads
from coco_opt.files.regions import region_columns, stored_regions
from coco_opt.files.release_checks import refuse
from coco_opt.files.unchanged import unchanged_manifest
from coco_opt.histograms import Hierarchy
from coco_opt.privacy.measurement import MeasurementPlan
from coco_opt.topdown.constraint import UNBOUNDED, LinearConstraint, RegionBounds
from coco_opt.topdown.estimating.linear.best_linear import LinearEstimates
from coco_opt.topdown.estimating.linear.linear_estimates import DENSE_CELLS
from coco_opt.topdown.estimating.posterior.result import NO_INTERVALS
from coco_opt.topdown.estimating.sparse_tables import SparseTables
from coco_opt.topdown.queries import Query
from coco_opt.topdown.schema import Schema, schema_of
from coco_opt.topdown.table_queries import KIND

if TYPE_CHECKING:
    import pandas as pd

    from coco_opt.topdown.kind.intervals import ReleasedIntervals

Columns = Mapping[str, Any]

TABLES = "tables.parquet"
EXACT = "invariants.parquet"
CONSTRAINTS = "constraints.parquet"
ESTIMATES = "estimates.parquet"
MICRODATA = "microdata.parquet"
PERSONS = "persons"
ANSWER = (*REGION, "query", "answer")
EXACT_COLUMNS = (*ANSWER, "lower", "upper")
CONSTRAINT_COLUMNS = (*REGION, "fact", "constraint", "lower", "upper")
ESTIMATE_COLUMNS = (*ANSWER, "estimate", "standard_error")
RESERVED = (*REGION, PERSONS, "count")
"""Names of columns, which attributes must not use."""
MOST_CELLS = 20_000_000
"""Estimates of a level with more regions x cells than this are omitted: they take long and are mostly noise."""

# One table a file, because an attribute may have the name of another file's column.
_TABLE_TYPES = {"level": "int32", PERSONS: "int64"}
_EXACT_TYPES = {"level": "int32", "lower": "int64", "upper": "int64"}
_CONSTRAINT_TYPES = {"level": "int32", "fact": "int32", "lower": "int64", "upper": "int64"}
_ESTIMATE_TYPES = {"level": "int32", "estimate": "double", "standard_error": "double"}


def first_runs(levels: Sequence[SparseTables], most: int) -> tuple[Ints, Ints, Ints]:
    """Return regions, cells and persons of the first ``most`` nonzero cells of all levels, root first."""
    columns = next(_row_groups(_runs_of(levels, ROWS_PER_GROUP), most))
    return columns["region"], columns["cell"], columns[PERSONS]


def _runs_of(levels: Sequence[SparseTables], rows: int) -> Iterator[Columns]:
    """Yield the runs of the tables of all levels, at most ``rows`` at a time."""
    first = 0
    for level in levels:
        for start in range(0, max(1, level.cells.size), rows):
            some = slice(start, min(start + rows, level.cells.size))
            owner = np.searchsorted(level.offsets, np.arange(some.start, some.stop), side="right") - 1
            yield {"region": owner + first, "cell": level.cells[some], PERSONS: level.counts[some]}
        first += level.regions


def cell_table(measurement_plan: MeasurementPlan, schema: Schema, levels: Sequence[SparseTables]) -> FileTable:
    """Return one row for each region and cell that has persons; rows are built a group at a time."""

    def rows() -> Iterator[Columns]:
        for part in _row_groups(_runs_of(levels, ROWS_PER_GROUP), ROWS_PER_GROUP):
            region = region_columns(measurement_plan, part["region"])
            yield {**region, **_values(schema, part["cell"]), PERSONS: part[PERSONS]}

    return FileTable(Again(rows), _TABLE_TYPES)


def person_table(
    measurement_plan: MeasurementPlan, schema: Schema, leaves: SparseTables, size: int = ROWS_PER_GROUP
) -> FileTable:
    """Return one row for each person of a leaf, in the order of regions and cells, built ``size`` at a time."""

    def rows() -> Iterator[Columns]:
        region, ends = measurement_plan.hierarchy.leaves.start + leaves.owners, np.cumsum(leaves.counts)
        persons = int(ends[-1]) if ends.size else 0
        for start in range(0, max(1, persons), size):
            run = np.searchsorted(ends, np.arange(start, min(start + size, persons)), side="right")
            yield {**region_columns(measurement_plan, region[run]), **_values(schema, leaves.cells[run])}

    return FileTable(Again(rows), {"level": "int32"})


def exact_table(measurement_plan: MeasurementPlan, bounds: Sequence[RegionBounds]) -> FileTable:
    """Return lower and upper bounds of all public answers; a missing upper bound is null."""

    def rows() -> Iterator[Columns]:
        named = _naming(measurement_plan, [bound.query for bound in bounds])
        for part in _row_groups(_sides_of_answers(measurement_plan.hierarchy, bounds), ROWS_PER_GROUP):
            upper = np.ma.masked_greater_equal(part["upper"], UNBOUNDED)
            yield {**named(part), "lower": part["lower"], "upper": upper}

    return FileTable(Again(rows), _EXACT_TYPES)


def _sides_of_answers(hierarchy: Hierarchy, bounds: Sequence[RegionBounds]) -> Iterator[Columns]:
    """Yield the bounds of some regions: region, index of the answer among all bounds' answers, and the sides."""
    first = 0
    for bound in bounds:
        answers, level_regions = bound.query.answers, hierarchy.level_range(bound.level)
        step = max(1, ROWS_PER_GROUP // answers)
        for start in range(0, len(level_regions), step):
            some = slice(start, min(start + step, len(level_regions)))
            regions = np.asarray(level_regions[some], np.int64)
            yield {
                "region": np.repeat(regions, answers),
                "answer": np.tile(np.arange(first, first + answers), regions.size),
                "lower": bound.lower[some].reshape(-1),
                "upper": bound.upper[some].reshape(-1),
            }
        first += answers


def _naming(measurement_plan: MeasurementPlan, queries: Sequence[Query]) -> Callable[[Columns], dict[str, Any]]:
    """Return what names a part's regions and answers, the latter by their indices among those of all queries."""
    texts, labels = [query.text for query in queries], [label for query in queries for label in query.labels()]
    query_of = np.repeat(np.arange(len(queries)), [query.answers for query in queries])

    def named(part: Columns) -> dict[str, Any]:
        answers = {"query": Coded(texts, query_of[part["answer"]]), "answer": Coded(labels, part["answer"])}
        return {**region_columns(measurement_plan, part["region"]), **answers}

    return named


def constraint_table(measurement_plan: MeasurementPlan, linear: Sequence[LinearConstraint], first: int) -> FileTable:
    """Return the bounds of every constraint in each of its regions (null: no bound); numbers begin at ``first``.

    The manifest's ``facts`` describe, by that number, the cells a constraint counts and its source.
    """

    def rows() -> Iterator[Columns]:
        texts = [constraint.text for constraint in linear]
        for part in _row_groups(_sides_of_constraints(measurement_plan.hierarchy, linear), ROWS_PER_GROUP):
            yield {
                **region_columns(measurement_plan, part["region"]),
                "fact": first + part["number"],
                "constraint": Coded(texts, part["number"]),
                "lower": np.ma.masked_less_equal(part["lower"], -UNBOUNDED),
                "upper": np.ma.masked_greater_equal(part["upper"], UNBOUNDED),
            }

    return FileTable(Again(rows), _CONSTRAINT_TYPES)


def _sides_of_constraints(hierarchy: Hierarchy, linear: Sequence[LinearConstraint]) -> Iterator[Columns]:
    """Yield each constraint's regions that it binds, its number among these, and the sides."""
    for number, constraint in enumerate(linear):
        bound = np.flatnonzero((constraint.lower > -UNBOUNDED) | (constraint.upper < UNBOUNDED))
        yield {
            "region": hierarchy.level_range(constraint.level).start + bound,
            "number": np.full(bound.size, number, np.int64),
            "lower": constraint.lower[bound],
            "upper": constraint.upper[bound],
        }


def estimate_table(
    measurement_plan: MeasurementPlan, linear: LinearEstimates, workload: Sequence[Query]
) -> tuple[FileTable | None, list[int]]:
    """Return the linear unbiased estimates of the workload with standard errors, in persons, and omitted levels.

    Estimates may be negative and fractional, and do not add up to the tables. Undetermined answers are omitted, as are
    levels of more than ``MOST_CELLS`` and those that a solver failed on.
    """
    levels, left_out = list[Iterable[Columns]](), list[int]()
    cells = workload[0].operator.cells
    for level in range(measurement_plan.hierarchy.levels):
        regions = measurement_plan.hierarchy.level_range(level)
        if len(regions) * cells > MOST_CELLS:
            left_out.append(level)
            continue
        estimates = Again(partial(_level_estimates, regions, level, linear, workload))
        try:
            # More cells need a solver that may fail, and a failure must be noticed before a file is begun.
            levels.append(estimates if cells <= DENSE_CELLS else tuple(estimates))
        except SolverError:
            left_out.append(level)

    def rows() -> Iterator[Columns]:
        named = _naming(measurement_plan, workload)
        for part in _row_groups(chain.from_iterable(levels), ROWS_PER_GROUP):
            yield {**named(part), **{name: part[name] for name in ESTIMATE_COLUMNS[-2:]}}

    return FileTable(Again(rows), _ESTIMATE_TYPES, plain=("estimate",)) if levels else None, left_out


def _level_estimates(
    regions: range, level: int, linear: LinearEstimates, workload: Sequence[Query]
) -> Iterator[Columns]:
    """Yield all determined answers of a level, in blocks of one query: region, index of answer, estimate and error."""
    answers_to, first = linear.of_level(level), 0

    def rows(query: Query, first: int, some: slice) -> Columns:
        """Return the rows of some regions for a query, whose answers are numbered from ``first``."""
        error = linear.standard_errors(query.operator, level, some).reshape(-1)
        determined, size = np.isfinite(error), len(regions[some])
        estimate = answers_to(query.operator, some).reshape(-1)[determined]
        return {
            "region": np.repeat(np.asarray(regions[some], np.int64), query.answers)[determined],
            "answer": np.tile(np.arange(first, first + query.answers), size)[determined],
            # What is known without error is a count: without the rounding of floating point.
            "estimate": np.where(error[determined] == 0.0, np.rint(estimate) + 0.0, estimate),
            "standard_error": error[determined],
        }

    for query in workload:
        step = max(1, ROWS_PER_GROUP // query.answers)
        # The first rows alone: they compute what all rows of a query have in common.
        start, *others = (slice(at, min(at + step, len(regions))) for at in range(0, len(regions), step))
        yield rows(query, first, start)
        yield from in_threads(partial(rows, query, first), others)
        first += query.answers


def _row_groups(parts: Iterable[Columns], size: int) -> Iterator[Columns]:
    """Yield the same rows in groups of ``size`` and a last smaller group; at least one group."""
    waiting: list[Columns] = []
    rows = 0
    for part in parts:
        waiting.append(part)
        rows += len(next(iter(part.values())))
        while rows > size:
            columns = _concatenate(waiting)
            yield {name: column[:size] for name, column in columns.items()}
            waiting, rows = [{name: column[size:] for name, column in columns.items()}], rows - size
    yield _concatenate(waiting)


def _concatenate(parts: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _values(schema: Schema, cells: Ints) -> dict[str, Coded]:
    codes = schema.decode(cells)
    return {name: Coded(values, codes[name]) for name, values in schema.attributes.items()}


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class TablesRelease:
    """A release of tables as read from its folder: everything in it is public.

    ``levels`` are the names of the hierarchy's levels, ``region_ids`` the regions' ids in the user's files; ``runs``
    are the tables of all regions.
    """

    hierarchy: Hierarchy
    levels: tuple[str, ...]
    region_ids: Sequence[str | None]
    schema: Schema
    runs: SparseTables
    manifest: Mapping[str, Any]
    folder: Path | None = None
    released_intervals: ReleasedIntervals | None = None

    def intervals(self, region: str | None = None, *, frame: FrameKind = "pandas") -> Any:
        """Return the intervals of a region's cells and of its answers to the workload, by its path from the root.

        Without a region, return the rows of intervals.parquet, for all regions, as a ``frame`` of pandas, Polars
        ("polars") or Arrow ("arrow"). Raises InputError (no-intervals) where the release has none: only estimation
        "posterior" gives any.
        """
        from coco_opt.topdown.kind.intervals import COLUMNS, INTERVALS

        if self.released_intervals is None or self.folder is None:
            raise InputError("no-intervals", NO_INTERVALS, Place(INTERVALS))
        if region is None:
            return as_frame(read_columns(self.folder / INTERVALS, COLUMNS), frame)
        return self.released_intervals.of(self.hierarchy.index(region), self.schema)

    def __sub__(self, earlier: Any) -> pd.DataFrame:
        """Return the differences from an earlier release of tables: see ``coco_opt.differences``."""
        from coco_opt.releases.differences import differences

        changes: pd.DataFrame = differences(self, earlier)
        return changes

    def table(self, region: str) -> Ints:
        """Return a region's table, int64[schema.size], by its path. Raises HierarchyError."""
        number = self.hierarchy.index(region)
        return np.asarray(self.runs.dense(number, number + 1)[0], np.int64)

    def __getitem__(self, region: str) -> Ints:
        """Return a region's table, as ``table`` does."""
        return self.table(region)

    def to_pandas(self, table: str | None = None, *, region: str | None = None) -> pd.DataFrame:
        """Return a frame with the regions' columns, the attributes and persons; or another table of the folder.

        With a ``region``, by its path from the root, return its table with labels: a row for each cell, also those
        without persons, with the attributes and persons. Raises InputError (unknown-table, bad-option), HierarchyError.
        """
        if region is None:
            return stored_frame(self.folder, Path(TABLES).stem if table is None else table)
        if table is not None:
            raise InputError("bad-option", "give a table of the folder or a region, not both")
        import pandas as pd

        columns = _values(self.schema, np.arange(self.schema.size))
        texts = {name: np.array(column.texts, object)[column.codes] for name, column in columns.items()}
        return pd.DataFrame({**texts, PERSONS: self.table(region)})

    def __repr__(self) -> str:
        return f"TablesRelease({self.hierarchy!r}, {self.schema!r})"


def read_tables_release(folder: str | Path) -> TablesRelease:
    """Read a release folder of tables of persons.

    Parameters
    ----------
    folder : str or Path
        The release folder.

    Returns
    -------
    TablesRelease
        Tables by region, ``to_pandas()``, and ``intervals(region)`` where there are any.

    Raises
    ------
    InputError
        file-not-found, unreadable-file, bad-manifest, other-release, missing-column, bad-order, bad-release.
    VerificationError
        The manifest or a table is not what was written.

    Notes
    -----
    Use ``verify_release`` to judge the content.
    """
    folder = Path(folder)
    manifest = unchanged_manifest(folder, kind=KIND)
    schema = schema_of(manifest.get("schema", {}))
    regions = stored_regions(folder)
    rows = read_columns(folder / TABLES, ("region", *schema.names, PERSONS))
    region = regions.at(rows.column("region"))
    refuse(region < 0, "no such region", TABLES)
    codes = {name: positions(rows.column(name), values) for name, values in schema.attributes.items()}
    for name, code in codes.items():
        refuse(code < 0, f"a value that {name!r} does not have", TABLES)
    cells = schema.encode(codes)
    counts = np.asarray(rows.column(PERSONS).to_numpy(), np.int64)
    order = np.lexsort((cells, region))
    shape = regions.hierarchy.regions, schema.size
    runs = SparseTables.of_runs(region[order], cells[order], counts[order], shape)
    stated, intervals = manifest.get("intervals"), None
    if isinstance(stated, Mapping):
        from coco_opt.topdown.kind.intervals import read_intervals

        intervals = read_intervals(folder, regions, schema, stated)
    public = regions.hierarchy, regions.levels, regions.ids
    return TablesRelease(*public, schema, runs, manifest, folder, intervals)
