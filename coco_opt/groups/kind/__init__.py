"""Counts of groups by size as a kind of release (Kuo et al. 2018)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray

from coco_opt.config.model import Config
from coco_opt.config.sections import DataSection, Section
from coco_opt.files.checked import Check
from coco_opt.groups.answers import KIND
from coco_opt.groups.asked.measure import choice_of, exact_parts
from coco_opt.groups.asked.private import PrivateCounts
from coco_opt.groups.choice import chosen_queries, noisy_leads
from coco_opt.groups.estimated.baselines import errors_by_level
from coco_opt.groups.estimated.estimate import GroupsResult, estimate_groups
from coco_opt.groups.estimated.method import ONE_PROGRAM, GroupsMethod
from coco_opt.groups.kind.files import PROMISES, TABLE_PROMISES, Release, read_groups_release, released
from coco_opt.groups.kind.method import method_of
from coco_opt.groups.kind.section import GroupsData, GroupsSection
from coco_opt.groups.kind.template import asked_keys, draft_of, file_key_of
from coco_opt.privacy import Asked, Cost, Exact, Measurement
from coco_opt.releases.instances import Instance
from coco_opt.releases.kind import (
    Chosen,
    Draft,
    Folder,
    Forecast,
    LookAlike,
    Neighbours,
    Plan,
    Released,
    ReleaseKind,
    Shown,
    Truth,
    Wanted,
    Work,
)
from coco_opt.releases.reporter import Reporter


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

    def file_key(self, columns: Sequence[str]) -> str | None:
        """Return the key of [data] that a file with these columns would fill."""
        return file_key_of(columns)

    def draft(self, files: Mapping[str, Sequence[str]]) -> Draft:
        """Return a first configuration for files of these columns."""
        return draft_of(files)

    def section_of(self, asked: Asked) -> Mapping[str, Any]:
        """Return the keys of [groups] that ask what a measurement answers."""
        return asked_keys(asked)

    def plan(self, config: Config) -> Plan:
        """Read the public tables and decide what is asked of each level."""
        from coco_opt.groups.kind.plan import plan_groups

        return plan_groups(config)

    def outline(self, config: Config) -> Plan:
        """Return the plan from the public numbers of groups, without their ids."""
        from coco_opt.groups.kind.plan import plan_groups

        return plan_groups(config, counted=True)

    def choice(self, plan: Plan, cost: Cost) -> Asked:
        """Return the question whether to ask each level for ranks or for cumulative counts."""
        return choice_of(plan.asked, cost)

    def chosen(self, config: Config, measurement: Measurement) -> Chosen:
        """Return the query that promises the smaller error on each level, and by how much."""
        queries, leads = chosen_queries(measurement), noisy_leads(measurement)
        same = len(set(queries)) == 1
        keys: dict[str, Any] = {"query": queries[0] if same else list(queries)}
        if "ranks" in queries and config.method.consistency in ONE_PROGRAM:
            keys["consistency"] = "matching"  # the one that reads any query; free to change
        rows = tuple(
            (level, query, f"{lead:,.0f}")
            for level, query, lead in zip(measurement.asked.levels, queries, leads, strict=True)
        )
        return Chosen(keys, ("level", "ask", "lead of ranks over cumulative counts (noisy)"), rows)

    def read(self, plan: Plan) -> PrivateCounts:
        """Open the private table and count every leaf's groups by size."""
        from coco_opt.groups.kind.plan import read_counts

        return read_counts(plan)

    def ask(self, plan: Plan, private: PrivateCounts) -> Iterable[Exact]:
        """Return the exact answers, one part a region."""
        return exact_parts(plan.asked, private.histograms())

    def method(self, config: Config, asked: Asked, *also: Asked) -> GroupsMethod:
        """Return the estimation that a configuration asks for."""
        return method_of(config, asked, *also)

    def late_kernels(self, method: GroupsMethod, asked: Asked) -> tuple[str, ...]:
        """Return what makes joint estimates whole, and after it what makes them."""
        return ("cumulative_rounding", f"joint_{method.loss(0)}") if method.consistency == "joint" else ()

    def estimate(self, measurement: Measurement, method: GroupsMethod, work: Work) -> GroupsResult:
        """Estimate every region and make the regions agree."""
        return estimate_groups(
            measurement, method, work.solvers, threads=work.threads, executor=work.executor, progress=work.progress
        )

    def release(self, measurement: Measurement, method: GroupsMethod, result: GroupsResult, config: Config) -> Released:
        """Return histograms.parquet, the files of intervals where there are any, and the method for the manifest."""
        return released(measurement.asked, method, result)

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
        return {name: errors_by_level(tree, one.histograms, exact).tolist() for name, one in results.items()}

    def look_alike(self, plan: Plan, public: Path | None = None, branches: int | None = None) -> LookAlike:
        """Return made data with the public numbers of groups, or a public table of sizes."""
        from coco_opt.groups.kind.look_alike import made_look_alike, read_look_alike

        return made_look_alike(plan, branches) if public is None else read_look_alike(plan, public)

    def forecast(self, plan: Plan, wanted: Wanted, reporter: Reporter) -> Forecast:
        """Predict errors, seconds and memory: exact where linear, else rehearsed on a part of a look-alike."""
        from coco_opt.groups.kind.forecast import forecast_groups

        return forecast_groups(plan, wanted, reporter)

    def instances(self, measurement: Measurement, config: Config) -> Sequence[Instance]:
        """Return one problem of every kind that the answers about a region and its children pose."""
        from coco_opt.groups.kind.instances import instances_of

        return instances_of(measurement, config)

    def neighbours(self, look_alike: LookAlike) -> Neighbours:
        """Return two tables that differ by one entity where it has the least to hide in."""
        from coco_opt.groups.kind.neighbours import neighbouring

        return neighbouring(look_alike.private, look_alike.plan.asked)

    def statistics(self, asked: Asked, table: PrivateCounts | GroupsResult) -> Mapping[str, NDArray[Any]]:
        """Return the cumulative counts of every level's regions."""
        from coco_opt.groups.kind.neighbours import cumulative_counts

        return cumulative_counts(asked, table)


GROUPS: ReleaseKind[PrivateCounts, GroupsMethod, GroupsResult] = GroupsKind()
