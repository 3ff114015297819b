"""One noisy total a region, made consistent by least squares: a whole kind of release in one file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coco_opt import Hierarchy, TreeLeastSquares
from coco_opt.array_types import Ints
from coco_opt.choices import Certificate
from coco_opt.config import Config, Section
from coco_opt.config.sections import DataSection, TableInput
from coco_opt.errors import ConfigError
from coco_opt.files import column_checks
from coco_opt.files.folder import FileTable, read_columns
from coco_opt.files.inputs import Columns, Input, InputLike
from coco_opt.files.regions import PublicRegions, read_regions, region_columns, register_leaves
from coco_opt.files.release_checks import Check
from coco_opt.files.source import isolated, load
from coco_opt.privacy import Exact, LevelQuery, Measurement, MeasurementPlan, Pair, Sensitivity
from coco_opt.privacy.promise import Promise
from coco_opt.releases.kind import (
    ColumnNotes,
    Draft,
    Figures,
    Folder,
    Forecast,
    ForecastOptions,
    Instance,
    Plan,
    Released,
    ReleaseKind,
    Shown,
    SimulatedData,
    Truth,
    Work,
)
from coco_opt.releases.reporter import Reporter

PERSONS = Columns(first=("person_id", "region_id"), others=True)
TOTALS_FILE = "totals.parquet"


class TotalsData(DataSection):
    hidden: ClassVar[tuple[str, ...]] = ("persons",)
    persons: TableInput
    hierarchy: TableInput


class TotalsSection(Section):
    nonnegative: bool = True


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class PrivateTotals:
    regions: Ints

    @property
    def arrays(self) -> tuple[Ints, ...]:
        return (self.regions,)

    def identity(self) -> dict[str, int]:
        return {"rows_read": int(self.regions[0])}


@dataclass(frozen=True, eq=False, slots=True)
class TotalsResult:
    totals: NDArray[np.float64]
    certificates: tuple[Certificate, ...]


class TotalsKind(ReleaseKind[PrivateTotals, bool, TotalsResult]):
    name = "totals"
    section = "totals"
    unit = "person"
    data_model = TotalsData
    section_model = TotalsSection
    promises = ("nonnegative",)
    least = ()
    takes_several = False
    compared = ()
    plainest: ClassVar[Mapping[str, Any]] = {"nonnegative": True}
    error_words = "persons by which a region is off"

    def file_key(self, columns: Sequence[str]) -> str | None:
        return "persons" if "person_id" in columns else "hierarchy" if len(columns) > 2 else None

    def draft(self, files: Mapping[str, Sequence[str]], notes: ColumnNotes | None = None) -> Draft:
        notes = {"persons": "person_id, region_id: private", "hierarchy": "region_id, one column a level"}
        return Draft(notes, "[totals]\nnonnegative = true\n", "a person's region may change", "check epsilon")

    def section_of(self, measurement_plan: MeasurementPlan) -> Mapping[str, Any]:
        return {}

    def plan(self, config: Config) -> Plan:
        public = read_regions(config.data.table_of("hierarchy"))
        measurement_plan = self._asked(config, public.hierarchy, public.levels, public.region_ids)
        return Plan(config, measurement_plan, public)

    def promise(self, measurement_plan: MeasurementPlan) -> Promise:
        return Promise(measurement_plan.neighbours, self.unit)

    def _asked(
        self, config: Config, tree: Hierarchy, levels: tuple[str, ...], ids: tuple[str | None, ...]
    ) -> MeasurementPlan:
        changed = 2 if config.privacy.neighbours == "replace" else 1
        queries = [
            LevelQuery(level, "total", "persons in the region", 1, Sensitivity(changed, changed), cost)
            for level, cost in enumerate(config.levels_cost(tree.levels))
            if cost
        ]
        return MeasurementPlan(self.name, tree, levels, tuple(queries), config.privacy.neighbours, region_ids=ids)

    def read(self, plan: Plan) -> PrivateTotals:
        return self._count(plan.config.data.table_of("persons"), plan.detail)

    def _count(self, path: InputLike, public: PublicRegions) -> PrivateTotals:
        source = Input.of(path)
        with isolated([source]) as con:
            table = load(con, "persons", source, PERSONS)
            column_checks.check_rows(table)
            person, region = (table.names.index(name) for name in PERSONS.first)
            column_checks.check_ids(table, (person, region))
            column_checks.check_unique(table, (person,), "duplicate-person", "this person occurs twice", person)
            register_leaves(table.con, public)
            column_checks.check_listed(table, region, "leaves.region", "unknown-region", "is not in the hierarchy")
            rows = table.fetch(f"SELECT leaf, count(*) FROM {{t}} JOIN leaves ON c{region} = region GROUP BY leaf")
        leaves = np.zeros(len(public.hierarchy.leaves), np.int64)
        for leaf, persons in rows:
            leaves[leaf] = persons
        return PrivateTotals(public.hierarchy.aggregate(leaves))

    def exact_answers(self, plan: Plan, private: PrivateTotals) -> Iterable[Exact]:
        tree = plan.measurement_plan.hierarchy
        for level_query in plan.measurement_plan.queries:
            for region in tree.level_range(level_query.level):
                yield Exact(level_query, tree.paths[region], private.regions[region : region + 1].copy())

    def method(self, config: Config, measurement_plan: MeasurementPlan, *also: MeasurementPlan) -> bool:
        if not isinstance(config.method, TotalsSection):
            raise ConfigError("totals", "is required")
        return config.method.nonnegative

    def estimate(self, measurement: Measurement, method: bool, work: Work) -> TotalsResult:
        value = work.solvers.solve(self._problem(measurement, nonnegative=method))
        return TotalsResult(np.asarray(value, np.float64), work.solvers.certificates)

    def _problem(self, measurement: Measurement, *, nonnegative: bool) -> TreeLeastSquares:
        tree = measurement.hierarchy
        noisy, variance = np.zeros(tree.regions), np.full(tree.regions, np.inf)
        for answers in measurement.answers:
            level = tree.level_range(answers.query.level)
            noisy[level.start : level.stop] = answers.values
            variance[level.start : level.stop] = answers.query.distribution.variance
        return TreeLeastSquares(tree.parent, noisy, variance, lower=0.0 if nonnegative else None)

    def release(self, measurement: Measurement, method: bool, result: TotalsResult, config: Config) -> Released:
        columns = region_columns(measurement.measurement_plan, np.arange(measurement.hierarchy.regions))
        table = FileTable.of({**columns, "total": result.totals}, {"level": "int32", "total": "double"})
        return Released({TOTALS_FILE: table}, self.promises if method else ())

    def open(self, folder: Path) -> Any:
        return read_columns(folder / TOTALS_FILE, ())

    def verify(self, folder: Folder) -> Iterator[Check]:
        table = read_columns(folder.path / TOTALS_FILE, ("region", "total"))
        known = folder.regions.at(table.column("region"))
        yield Check("integers", bool((known == np.arange(len(folder.regions.paths))).all()), "one row a region")
        if "nonnegative" in folder.manifest["promises"]:
            yield Check("nonnegative", bool((table.column("total").to_numpy() >= 0).all()), "no total is negative")

    def page(self, shown: Shown) -> Sequence[str]:
        return ("<h2>Totals</h2>", f"<p>{shown.result.totals[0]:,.1f} persons</p>")

    def errors(self, measurement: Measurement, truth: Truth, result: TotalsResult) -> Mapping[str, list[float]]:
        tree = measurement.hierarchy
        away = np.abs(result.totals - truth.private.regions)
        return {"this release": [float(away[tree.level == level].mean()) for level in range(tree.levels)]}

    def simulated_data(self, plan: Plan, public: Path | None = None, branches: int | None = None) -> SimulatedData:
        if public is not None:
            return SimulatedData(plan, self._count(public, plan.detail), public.name)
        leaves = np.full(len(plan.measurement_plan.hierarchy.leaves), 50, np.int64)
        return SimulatedData(plan, PrivateTotals(plan.measurement_plan.hierarchy.aggregate(leaves)), "made totals")

    def rehearsal(self, plan: Plan, method: bool) -> tuple[SimulatedData, bool]:
        return self.simulated_data(plan), method

    def forecast(self, plan: Plan, options: ForecastOptions, reporter: Reporter) -> Forecast:
        rows = tuple(
            (plan.measurement_plan.levels[q.level], f"{q.distribution.variance**0.5:.2f}")
            for q in plan.measurement_plan.queries
        )
        return Forecast((Figures("Standard error of a noisy total", ("level", "persons"), rows),))

    def instances(self, measurement: Measurement, config: Config) -> Sequence[Instance]:
        whole = self._problem(measurement, nonnegative=config.method.nonnegative)

        def cut(size: int) -> TreeLeastSquares:
            kept = slice(max(2, size))
            return TreeLeastSquares(whole.tree.parent[kept], whole.y[kept], whole.variance[kept], lower=0.0)

        return (Instance("tree_l2", whole.variables, cut),)

    def neighbours(self, simulated_data: SimulatedData) -> Pair[Any]:
        tree, first = simulated_data.plan.measurement_plan.hierarchy, simulated_data.private
        more = first.regions.copy()
        more[[tree.leaves.start, *tree.ancestors(tree.leaves.start)]] += 1
        return Pair(first, replace(first, regions=more), "one person more in a leaf")

    def statistics(
        self, measurement_plan: MeasurementPlan, table: PrivateTotals | TotalsResult
    ) -> Mapping[str, NDArray[Any]]:
        return {"regions": table.totals if isinstance(table, TotalsResult) else table.regions}


TOTALS = TotalsKind()
