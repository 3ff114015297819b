"""Counts of groups by size as a kind of release (Kuo et al. 2018)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, ClassVar

from coco_opt.config.sections import DataSection, Section
from coco_opt.files.differences import Compared
from coco_opt.groups.estimating.estimate import GroupsResult, estimate_groups
from coco_opt.groups.estimating.method import GroupsMethod
from coco_opt.groups.kind.files import PROMISES, TABLE_PROMISES, read_groups_release, released
from coco_opt.groups.kind.forecast import forecast_groups
from coco_opt.groups.kind.instances import instances_of
from coco_opt.groups.kind.page import errors_of, sections_of
from coco_opt.groups.kind.plan import method_of, plan_groups, read_counts, size_remarks
from coco_opt.groups.kind.section import GroupsData, GroupsSection, draft_of, file_key_of, query_keys
from coco_opt.groups.kind.simulated_data import cumulative_counts, neighbouring, simulated_or_public, small_instance
from coco_opt.groups.kind.verify import checks_of
from coco_opt.groups.measuring.measure import exact_parts
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.groups.noisy_measurements import KIND, has_private_counts
from coco_opt.privacy import Exact, Measurement, MeasurementPlan, Pair
from coco_opt.privacy.promise import Promise
from coco_opt.releases.kind import Plan, ReleaseKind, SimulatedData, Work


def _every_size(manifest: Mapping[str, Any], most: int) -> Mapping[str, Any] | None:
    largest = manifest.get("max_size")
    return {"size": range(largest + 1)} if isinstance(largest, int) and largest < most else None


class GroupsKind(ReleaseKind[PrivateCounts, GroupsMethod, GroupsResult]):
    """Histograms of groups by size for every region of a hierarchy."""

    name: ClassVar[str] = KIND
    section: ClassVar[str] = "groups"
    unit: ClassVar[str] = "entity"
    data_model: ClassVar[type[DataSection]] = GroupsData
    section_model: ClassVar[type[Section]] = GroupsSection
    promises: ClassVar[tuple[str, ...]] = PROMISES
    least: ClassVar[tuple[str, ...]] = TABLE_PROMISES[:-1]
    takes_several: ClassVar[bool] = True
    plainest: ClassVar[Mapping[str, Any]] = {"consistency": "matching"}
    error_words: ClassVar[str] = "people to add to groups or to remove"
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

    file_key = staticmethod(file_key_of)
    draft = staticmethod(draft_of)
    section_of = staticmethod(query_keys)
    plan = staticmethod(plan_groups)
    outline = staticmethod(partial(plan_groups, counted=True))
    read = staticmethod(read_counts)
    remarks = staticmethod(size_remarks)
    method = staticmethod(method_of)
    release = staticmethod(released)
    open = staticmethod(read_groups_release)
    verify = staticmethod(checks_of)
    page = staticmethod(sections_of)
    errors = staticmethod(errors_of)
    simulated_data = staticmethod(simulated_or_public)
    rehearsal = staticmethod(small_instance)
    forecast = staticmethod(forecast_groups)
    instances = staticmethod(instances_of)
    statistics = staticmethod(cumulative_counts)

    def promise(self, measurement_plan: MeasurementPlan) -> Promise:
        """Return whom noise protects, and whether the numbers of groups are published without it."""
        private = has_private_counts(measurement_plan)
        return Promise(measurement_plan.neighbours, self.unit, groups="private" if private else "public")

    def exact_answers(self, plan: Plan, private: PrivateCounts) -> Iterable[Exact]:
        """Return the exact answers, one part per region."""
        return exact_parts(plan.measurement_plan, private.histograms())

    def late_kernels(self, method: GroupsMethod, measurement_plan: MeasurementPlan) -> tuple[str, ...]:
        """Return the kernels of the posterior as it needs them; of joint estimates the rounding first."""
        if method.consistency == "posterior":
            return ("group_posterior", "expected_distance")
        return ("expected_distance", f"joint_{method.loss(0)}") if method.consistency == "joint" else ()

    def estimate(self, measurement: Measurement, method: GroupsMethod, work: Work) -> GroupsResult:
        """Estimate every region and make the regions agree."""
        return estimate_groups(
            measurement, method, work.solvers, threads=work.threads, executor=work.executor, progress=work.progress
        )

    def neighbours(self, simulated_data: SimulatedData) -> Pair[PrivateCounts]:
        """Return two tables that differ by one entity where it has the least to hide in."""
        return neighbouring(simulated_data.private, simulated_data.plan.measurement_plan)


GROUPS = GroupsKind()
