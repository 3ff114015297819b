"""Counts of groups by size as a kind of release (Kuo et al. 2018)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray

from coco_opt.config.model import Config
from coco_opt.config.sections import DataSection, Section
from coco_opt.files.differences import Compared
from coco_opt.files.release_checks import Check
from coco_opt.groups.estimating.estimate import GroupsResult, estimate_groups
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.kind.files import PROMISES, TABLE_PROMISES, Release, read_groups_release, released
from coco_opt.groups.kind.method import method_of
from coco_opt.groups.kind.section import GroupsData, GroupsSection
from coco_opt.groups.kind.template import draft_of, file_key_of, query_keys
from coco_opt.groups.measuring.measure import exact_parts
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.groups.noisy_measurements import KIND, has_private_counts, max_size_of
from coco_opt.histograms import errors_by_level
from coco_opt.privacy import Exact, Measurement, MeasurementPlan
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


def _every_size(manifest: Mapping[str, Any], most: int) -> Mapping[str, Any] | None:
    largest = manifest.get("max_size")
    return {"size": range(largest + 1)} if isinstance(largest, int) and largest < most else None


class GroupsKind:
    """Histograms of groups by size for every region of a hierarchy; see ``coco_opt.releases.kind.ReleaseKind``."""

    name: ClassVar[str] = KIND
    section: ClassVar[str] = "groups"
    unit: ClassVar[str] = "entity"
    data_model: ClassVar[type[DataSection]] = GroupsData
    section_model: ClassVar[type[Section]] = GroupsSection
    promises: ClassVar[tuple[str, ...]] = PROMISES
    least: ClassVar[tuple[str, ...]] = TABLE_PROMISES[:-1]
    takes_several: ClassVar[bool] = True
    plainest: ClassVar[Mapping[str, Any]] = {"consistency": "matching"}
    compared: ClassVar[tuple[Compared, ...]] = (
        Compared(
            "histograms",
            "groups",
            ("size",),
            bounds="intervals",
            lower="groups_lower",
            upper="groups_upper",
            every=_every_size,
        ),
    )

    def file_key(self, columns: Sequence[str]) -> str | None:
        """Return the key of [data] that a file with these columns would fill."""
        return file_key_of(columns)

    def draft(self, files: Mapping[str, Sequence[str]], notes: ColumnNotes | None = None) -> Draft:
        """Return a first configuration for files of these columns."""
        return draft_of(files)

    def section_of(self, measurement_plan: MeasurementPlan) -> Mapping[str, Any]:
        """Return the keys of [groups] that plan the queries of a measurement."""
        return query_keys(measurement_plan)

    def plan(self, config: Config) -> Plan:
        """Read the public tables and plan the query of each level."""
        from coco_opt.groups.kind.plan import plan_groups

        return plan_groups(config)

    def outline(self, config: Config) -> Plan:
        """Return the plan from the public numbers of groups, without their ids."""
        from coco_opt.groups.kind.plan import plan_groups

        return plan_groups(config, counted=True)

    def promise(self, measurement_plan: MeasurementPlan) -> Promise:
        """Return whom noise protects, and whether the numbers of groups are published without it."""
        private = has_private_counts(measurement_plan)
        return Promise(measurement_plan.neighbours, self.unit, groups="private" if private else "public")

    def read(self, plan: Plan) -> PrivateCounts:
        """Open the private table and count every leaf's groups by size."""
        from coco_opt.groups.kind.plan import read_counts

        return read_counts(plan)

    def remarks(self, plan: Plan, private: PrivateCounts) -> tuple[str, ...]:
        """Say how many groups are larger than the public bound, and what becomes of them."""
        bound = max_size_of(plan.measurement_plan)
        groups, entities = private.above(bound)
        if not groups:
            return ()
        return (
            f"Groups larger than max_size = {bound:,}: {groups:,}. Each counts as a group of {bound:,}, which leaves "
            f"out {entities:,} of their entities. These two counts are private: do not choose max_size by them, "
            "because it is published",
        )

    def exact_answers(self, plan: Plan, private: PrivateCounts) -> Iterable[Exact]:
        """Return the exact answers, one part per region."""
        return exact_parts(plan.measurement_plan, private.histograms())

    def method(self, config: Config, measurement_plan: MeasurementPlan, *also: MeasurementPlan) -> GroupsMethod:
        """Return the estimation method that a configuration names."""
        return method_of(config, measurement_plan, *also)

    def late_kernels(self, method: GroupsMethod, measurement_plan: MeasurementPlan) -> tuple[str, ...]:
        """Return the kernels of the posterior as it needs them; of joint estimates the rounding first."""
        if method.consistency == "posterior":
            return ("group_posterior", "expected_distance")
        return ("cumulative_rounding", f"joint_{method.loss(0)}") if method.consistency == "joint" else ()

    def estimate(self, measurement: Measurement, method: GroupsMethod, work: Work) -> GroupsResult:
        """Estimate every region and make the regions agree."""
        return estimate_groups(
            measurement, method, work.solvers, threads=work.threads, executor=work.executor, progress=work.progress
        )

    def release(self, measurement: Measurement, method: GroupsMethod, result: GroupsResult, config: Config) -> Released:
        """Return histograms.parquet, the files of intervals where there are any, and the method for the manifest."""
        return released(measurement.measurement_plan, method, result)

    def open(self, folder: Path) -> Release:
        """Return the histograms of a release folder."""
        return read_groups_release(folder)

    def verify(self, folder: Folder) -> Iterator[Check]:
        """Check histograms.parquet and the files of intervals from their raw columns, and every promise."""
        from coco_opt.groups.kind.verify import checks_of

        return checks_of(folder)

    def page(self, shown: Shown) -> Sequence[str]:
        """Return the report's sections: method, errors where the truth is known, histograms, and how to read them."""
        from coco_opt.groups.kind.page import sections_of

        return sections_of(shown, self.errors(shown.measurement, shown.truth, shown.result) if shown.truth else {})

    def errors(self, measurement: Measurement, truth: Truth, result: GroupsResult) -> Mapping[str, list[float]]:
        """Return the mean earth mover's distance (entities) of a region at each level, by method."""
        exact = truth.private.histograms()
        results = {"this release": result, **truth.others}
        tree = measurement.hierarchy
        return {name: errors_by_level(tree, estimate.histograms, exact).tolist() for name, estimate in results.items()}

    def simulated_data(self, plan: Plan, public: Path | None = None, branches: int | None = None) -> SimulatedData:
        """Return simulated data with the public numbers of groups, or read a public table of sizes."""
        from coco_opt.groups.kind.simulated_data import read_simulated_data, simulated_data_of

        return simulated_data_of(plan, branches) if public is None else read_simulated_data(plan, public)

    def rehearsal(self, plan: Plan, method: GroupsMethod) -> tuple[SimulatedData, GroupsMethod]:
        """Return a few regions with groups of few sizes, and the method with brief chains."""
        from coco_opt.groups.kind.simulated_data import small_instance

        return small_instance(plan, method)

    def forecast(self, plan: Plan, options: ForecastOptions, reporter: Reporter) -> Forecast:
        """Predict errors, seconds and memory: exactly for linear stages, else by rehearsal on simulated data."""
        from coco_opt.groups.kind.forecast import forecast_groups

        return forecast_groups(plan, options, reporter)

    def instances(self, measurement: Measurement, config: Config) -> Sequence[Instance]:
        """Return one problem of every kind, built from the noisy measurements of a region and its children."""
        from coco_opt.groups.kind.instances import instances_of

        return instances_of(measurement, config)

    def neighbours(self, simulated_data: SimulatedData) -> Neighbours:
        """Return two tables that differ by one entity where it has the least to hide in."""
        from coco_opt.groups.kind.neighbours import neighbouring

        return neighbouring(simulated_data.private, simulated_data.plan.measurement_plan)

    def statistics(
        self, measurement_plan: MeasurementPlan, table: PrivateCounts | GroupsResult
    ) -> Mapping[str, NDArray[Any]]:
        """Return the cumulative counts of every level's regions."""
        from coco_opt.groups.kind.neighbours import cumulative_counts

        return cumulative_counts(measurement_plan, table)


GROUPS: ReleaseKind[PrivateCounts, GroupsMethod, GroupsResult] = GroupsKind()
