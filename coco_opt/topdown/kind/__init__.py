"""Tables of persons as a kind of release (Census TopDown)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coco_opt.config.model import Config
from coco_opt.config.sections import DataSection, Section
from coco_opt.files.differences import Compared
from coco_opt.files.release_checks import Check
from coco_opt.privacy import Exact, Measurement, MeasurementPlan
from coco_opt.privacy.blocks import Block
from coco_opt.privacy.promise import Promise
from coco_opt.releases.instances import Instance
from coco_opt.releases.kind import (
    ColumnNotes,
    Draft,
    Folder,
    Forecast,
    ForecastOptions,
    Neighbours,
    Plan,
    Released,
    ReleaseKind,
    Shown,
    SimulatedData,
    Truth,
    Work,
)
from coco_opt.releases.reporter import Reporter
from coco_opt.topdown.estimating.estimate import TablesResult, estimate_tables
from coco_opt.topdown.estimating.splitting.step import LEAST_PARENTS
from coco_opt.topdown.kind.checkpoints import LevelFiles
from coco_opt.topdown.kind.method import TablesMethod, method_of, query_keys
from coco_opt.topdown.kind.section import TablesData, TopdownSection
from coco_opt.topdown.kind.template import draft_of, file_key_of
from coco_opt.topdown.kind.verify import ALWAYS, PROMISES
from coco_opt.topdown.measuring.counts import TableCounts
from coco_opt.topdown.measuring.measure import ExactTables, blocks_of, exact_parts
from coco_opt.topdown.table_queries import CELLS_MEASURED, KIND, ROWS

if TYPE_CHECKING:
    from coco_opt.topdown.kind.files import TablesRelease


def _intervals_of_cells(rows: Any, manifest: Mapping[str, Any]) -> Any:
    from coco_opt.topdown.kind.intervals import intervals_of_cells

    return intervals_of_cells(rows, manifest)


def _every_cell(manifest: Mapping[str, Any], most: int) -> Mapping[str, Any] | None:
    from coco_opt.topdown.schema import schema_of

    schema = schema_of(manifest.get("schema", {}))
    if schema.size > most:
        return None
    codes = schema.decode(np.arange(schema.size))
    return {name: np.array(values, object)[codes[name]] for name, values in schema.attributes.items()}


def _values_in_order(manifest: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    from coco_opt.topdown.schema import schema_of

    return schema_of(manifest.get("schema", {})).attributes


class TablesKind:
    """Tables of persons for every region of a hierarchy; see ``coco_opt.releases.kind.ReleaseKind``."""

    name: ClassVar[str] = KIND
    section: ClassVar[str] = "topdown"
    unit: ClassVar[str] = "person"
    data_model: ClassVar[type[DataSection]] = TablesData
    section_model: ClassVar[type[Section]] = TopdownSection
    promises: ClassVar[tuple[str, ...]] = PROMISES
    least: ClassVar[tuple[str, ...]] = ALWAYS
    takes_several: ClassVar[bool] = True
    plainest: ClassVar[Mapping[str, Any]] = {"estimation": "full"}
    compared: ClassVar[tuple[Compared, ...]] = (
        Compared(
            "tables",
            "persons",
            bounds="intervals",
            lower="lower",
            upper="upper",
            keyed=_intervals_of_cells,
            every=_every_cell,
            measured=CELLS_MEASURED,
            ordered=_values_in_order,
        ),
        Compared("estimates", "estimate", ("query", "answer"), error="standard_error", absent_is_zero=False),
    )

    def file_key(self, columns: Sequence[str]) -> str | None:
        """Return the key of [data] that a file with these columns would fill."""
        return file_key_of(columns)

    def draft(self, files: Mapping[str, Sequence[str]], notes: ColumnNotes | None = None) -> Draft:
        """Return a first configuration for files of these columns, with the values of attributes that are known."""
        return draft_of(files, notes or ColumnNotes())

    def section_of(self, measurement_plan: MeasurementPlan) -> Mapping[str, Any]:
        """Return the keys of [topdown] that plan the queries of a measurement."""
        return query_keys(measurement_plan)

    def plan(self, config: Config) -> Plan:
        """Read the public tables and plan the queries of each level."""
        from coco_opt.topdown.kind.plan import plan_tables

        return plan_tables(config)

    def outline(self, config: Config) -> Plan:
        """Return the complete plan."""
        return self.plan(config)

    def promise(self, measurement_plan: MeasurementPlan) -> Promise:
        """Return whom noise protects, and the invariants, bounds and constraints that are taken from the data."""
        levels, parameters = measurement_plan.levels, measurement_plan.parameters
        exact = {(levels[level], query) for level, query in parameters["invariants"]}
        bounds = [(at, f"bounds of {query}", source) for at, _, query, source in parameters["bounds"]]
        constraints = [(at, text, source) for at, text, _, source in parameters["constraints"]]
        exact |= {(levels[at], words) for at, words, source in (*bounds, *constraints) if source == "data"}
        return Promise(measurement_plan.neighbours, self.unit, parameters.get(ROWS, 1), exact=tuple(sorted(exact)))

    def read(self, plan: Plan) -> TableCounts:
        """Open the private table and count persons by leaf and cell."""
        from coco_opt.topdown.kind.plan import read_tables

        return read_tables(plan)

    def remarks(self, plan: Plan, private: TableCounts) -> tuple[str, ...]:
        """Say where the private table contradicts bounds, facilities and constraints that are stated as public."""
        from coco_opt.topdown.kind.plan import contradiction_remarks

        return contradiction_remarks(plan, private)

    def exact_answers(self, plan: Plan, private: TableCounts) -> Iterable[Exact]:
        """Return the exact answers, a block of regions at a time."""
        return exact_parts(private, plan.detail.table_queries)

    def blocks(self, plan: Plan) -> Iterable[Block]:
        """Return regions of a level and a query, about half a million answers each."""
        return blocks_of(plan.detail.table_queries)

    def exact_blocks(self, plan: Plan, private: TableCounts) -> ExactTables:
        """Return the exact answers of blocks, from the counts."""
        return ExactTables.of(private, plan.detail.table_queries)

    def method(self, config: Config, measurement_plan: MeasurementPlan, *also: MeasurementPlan) -> TablesMethod:
        """Return the estimation that a configuration describes."""
        return method_of(config, measurement_plan, *also)

    def late_kernels(self, method: TablesMethod, measurement_plan: MeasurementPlan) -> tuple[str, ...]:
        """Return the rounding kernels, level-wise for many regions: they compile while splits run."""
        if method.topdown.estimation == "bottom_up":
            return ()
        parents = max(
            len(measurement_plan.hierarchy.level_range(level))
            for level in range(max(1, measurement_plan.hierarchy.levels - 1))
        )
        many = parents >= LEAST_PARENTS
        return ("table_rounding/level", "topdown_split/level") if many else ("table_rounding",)

    def estimate(self, measurement: Measurement, method: TablesMethod, work: Work) -> TablesResult:
        """Split every region's table among its children, level by level from the root."""
        levelwise = method.topdown.estimation in ("full", "classic")
        files = LevelFiles(work.scratch) if work.scratch is not None and levelwise else None
        return estimate_tables(
            measurement,
            method.topdown,
            work.solvers,
            threads=work.threads,
            executor=work.executor,
            progress=work.progress,
            after_level=None if files is None else files.keep,
            resume_from=None if files is None else files.last(),
            note=work.note,
        )

    def release(self, measurement: Measurement, method: TablesMethod, result: TablesResult, config: Config) -> Released:
        """Return the tables, unbiased estimates, what holds exactly, and microdata if they are configured."""
        from coco_opt.topdown.kind.published import released

        return released(measurement, method, result, config)

    def open(self, folder: Path) -> TablesRelease:
        """Return the tables of a release folder."""
        from coco_opt.topdown.kind.files import read_tables_release

        return read_tables_release(folder)

    def verify(self, folder: Folder) -> Iterator[Check]:
        """Check the tables from their raw columns, and every promise."""
        from coco_opt.topdown.kind.verify import checks_of

        return checks_of(folder)

    def page(self, shown: Shown) -> Sequence[str]:
        """Return the report's sections: method, tables next to estimates, relaxed regions and uncertified gaps."""
        from coco_opt.topdown.kind.page import sections_of

        return sections_of(shown, self.errors(shown.measurement, shown.truth, shown.result) if shown.truth else {})

    def errors(self, measurement: Measurement, truth: Truth, result: TablesResult) -> Mapping[str, list[float]]:
        """Return by method and level the mean over regions of a region's total absolute error (persons)."""
        results = {"this release": result, **truth.others}
        levels = range(measurement.hierarchy.levels)
        exact = [truth.private.level_tables(level) for level in levels]
        return {
            name: [float(np.abs(tables.level(level) - exact[level]).sum(axis=1).mean()) for level in levels]
            for name, tables in results.items()
        }

    def simulated_data(self, plan: Plan, public: Path | None = None, branches: int | None = None) -> SimulatedData:
        """Return simulated persons in the public regions and cells, or the user's public records."""
        from coco_opt.topdown.kind.simulated_data import read_simulated_data, simulated_data_of

        return simulated_data_of(plan, branches) if public is None else read_simulated_data(plan, public)

    def rehearsal(self, plan: Plan, method: TablesMethod) -> tuple[SimulatedData, TablesMethod]:
        """Return a few regions with few persons, who meet the constraints, and the method with brief chains."""
        from coco_opt.topdown.kind.rehearsal import small_instance

        return small_instance(plan, method)

    def forecast(self, plan: Plan, options: ForecastOptions, reporter: Reporter) -> Forecast:
        """Predict exact standard errors and, with public records, the errors of complete releases."""
        from coco_opt.topdown.kind.forecast import forecast_tables

        return forecast_tables(plan, options, reporter)

    def instances(self, measurement: Measurement, config: Config) -> Sequence[Instance]:
        """Return the split and the rounding of the region with the most children."""
        from coco_opt.topdown.kind.instances import instances_of

        return instances_of(measurement)

    def neighbours(self, simulated_data: SimulatedData) -> Neighbours:
        """Return two tables that differ by one person, placed where the answers change most."""
        from coco_opt.topdown.kind.simulated_data import neighbouring

        return neighbouring(simulated_data.private, simulated_data.plan.detail.table_queries)

    def statistics(
        self, measurement_plan: MeasurementPlan, table: TableCounts | TablesResult
    ) -> Mapping[str, NDArray[Any]]:
        """Return all cells of every level's regions."""
        from coco_opt.topdown.kind.simulated_data import cells_by_level

        return cells_by_level(measurement_plan, table)


TABLES: ReleaseKind[TableCounts, TablesMethod, TablesResult] = TablesKind()
