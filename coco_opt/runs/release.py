"""One release from configuration to folder: the private table is open in one function, and in no other.

``run_release`` plans on public input, pays (``runs.paid``), measures (``_measure_paid``, or ``_measure`` where nothing
is spent: private counts live and die there), estimates from the sealed measurements alone (``_estimate``: it is given
nothing else), and writes the folder and the private record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError
from coco_opt.groups import GroupsMethod, GroupsResult, estimate_groups
from coco_opt.groups import errors_by_level as mean_distances
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.privacy import Measurements, RunKey, SecureNoise, measure_hierarchy
from coco_opt.privacy.mechanism import amount_of, unit_of
from coco_opt.privacy.seal import SEALING
from coco_opt.runs.clock import Clock
from coco_opt.runs.manifest import implied_privacy, manifest_of
from coco_opt.runs.opened import OpenRun, opened_run
from coco_opt.runs.paid import PaidRun, keyed_digest
from coco_opt.runs.plan import ReleasePlan, plan_release, read_counts
from coco_opt.runs.publish import publish
from coco_opt.runs.records import write_private_record
from coco_opt.runs.reporter import Progress, Reporter, Silent
from coco_opt.runs.settings import Settings, rehearse
from coco_opt.solver import Solver
from coco_opt.tables import PrivateCounts, write_release

_THREADS = 2


@dataclass(frozen=True, eq=False, slots=True)
class Truth:
    """What is known of made data: the true histograms, and other methods' answers to compare with.

    All in the hierarchy's order. Only a release that is NOT PRIVATE may be given one.
    """

    histograms: Sequence[CountOfCounts]
    others: Mapping[str, Sequence[CountOfCounts]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, slots=True)
class Page:
    """All that the report of a release may show; ``truth`` is None wherever noise protects somebody."""

    manifest: Mapping[str, Any]
    spent: str
    measurements: Measurements
    result: GroupsResult
    truth: Truth | None = None

    def errors(self) -> dict[str, list[float]]:
        """Return the mean earth mover's distance (entities) a region of each level, by method, where known."""
        if self.truth is None:
            return {}
        answers = {"this release": self.result.histograms, **self.truth.others}
        return {
            name: errors_by_level(self.result.hierarchy, self.truth.histograms, histograms)
            for name, histograms in answers.items()
        }


PageWriter = Callable[[Page], str]


@dataclass(frozen=True, eq=False, slots=True)
class ReleaseOutcome:
    """What a run left behind: the public folder, the private record, and the released values."""

    folder: Path
    record: Path
    spent: str
    manifest: Mapping[str, Any]
    result: GroupsResult
    page: Page


def errors_by_level(
    hierarchy: Hierarchy, truth: Sequence[CountOfCounts], estimates: Sequence[CountOfCounts]
) -> list[float]:
    """Return the mean earth mover's distance (entities) a region of each level, root first."""
    means: list[float] = mean_distances(hierarchy, estimates, truth).tolist()
    return means


def run_release(
    settings: Settings,
    out: Path | None = None,
    *,
    reporter: Reporter | None = None,
    page: PageWriter | None = None,
    truth: Truth | None = None,
) -> ReleaseOutcome:
    """Release the histograms a configuration asks for and return where they lie.

    ``out`` must not exist (default: ``NAME-RUNID`` in the output directory). ``page`` turns the result into the
    HTML report. A private run is paid for in the ledger before its table is opened; one that was interrupted is
    taken up, by the same configuration, and pays nothing. Raises ConfigError, ProblemError, MissingPackageError or
    BudgetError before any budget is spent, SolverError after it, InputError before it where public tables are wrong.
    """
    told = Silent() if reporter is None else reporter
    clock = Clock()
    with told.stage("Reading the public tables"):
        plan = plan_release(settings)
    if truth is not None and plan.source.private:
        raise ProblemError("the truth beside a private release would undo its privacy: give none")
    rehearse(settings, plan.solvers)
    implied_privacy(settings, unit_of(plan.mechanism), amount_of(plan.budget))
    with opened_run(settings, plan.charge if plan.source.private else None, out) as run:
        clock.lap("read_public")
        if run.paid is None:
            measurements, identity = _measure(plan, told, clock)
        else:
            measurements, identity = _measure_paid(plan, run.paid, told, clock)
        return _finish(plan, run, measurements, identity, told, clock, page, truth)


def _finish(
    plan: ReleasePlan,
    run: OpenRun,
    measurements: Measurements,
    identity: Mapping[str, int],
    told: Reporter,
    clock: Clock,
    page: PageWriter | None,
    truth: Truth | None,
) -> ReleaseOutcome:
    """Estimate, publish, write the private record, and close the run in the ledger."""
    run.tell(plan.spent, told)
    result = _estimate(measurements, plan.method, plan.solvers, told)
    clock.lap("estimate")
    manifest = manifest_of(plan, result)
    shown = Page(manifest, plan.spent, measurements, result, truth)
    with told.stage("Writing the release"):
        html = None if page is None else page(shown)

        def write(folder: Path) -> None:
            write_release(folder, plan.hierarchy, plan.group_counts, result.histograms, manifest, html)

        digest = publish(run.folder, write, resumed=run.resumed)
    clock.lap("write")
    record = run.record(manifest, identity, clock.laps, result.certificates)
    records = plan.settings.output.private
    path = write_private_record(records, f"{plan.settings.name}-{run.run_id}", record, keep=run.resumed)
    if run.paid is not None:
        run.paid.released(digest)
    return ReleaseOutcome(run.folder, path, plan.spent, manifest, result, shown)


def _measure_paid(
    plan: ReleasePlan, paid: PaidRun, told: Reporter, clock: Clock
) -> tuple[Measurements, Mapping[str, int]]:
    """Return the sealed measurements of a paid run as read back from disk; what is private is gone by then."""

    def measure(key: RunKey) -> Measurements:
        source = SecureNoise(key) if plan.source.name == SecureNoise.name else plan.source
        counts = _read(plan, told, clock)
        paid.folder.bind("input", keyed_digest(key, counts.arrays))
        paid.folder.keep("identity", counts.identity())
        return _add_noise(replace(plan, source=source), counts, told, clock)

    return paid.measurements(measure, SEALING), paid.folder.kept("identity")


def _measure(plan: ReleasePlan, told: Reporter, clock: Clock) -> tuple[Measurements, Mapping[str, int]]:
    """Read the private table, draw the noise and return sealed measurements and the identity of the rows.

    The identity holds private row counts: it goes to the private record only.
    """
    counts = _read(plan, told, clock)
    return _add_noise(plan, counts, told, clock), counts.identity()


def _read(plan: ReleasePlan, told: Reporter, clock: Clock) -> PrivateCounts:
    with told.stage("Counting the private table"):
        counts = read_counts(plan)
    clock.lap("read_private")
    return counts


def _add_noise(plan: ReleasePlan, counts: PrivateCounts, told: Reporter, clock: Clock) -> Measurements:
    with told.stage("Measuring regions") as progress:
        measurements = measure_hierarchy(
            counts.histograms(),
            plan.hierarchy,
            plan.group_counts,
            queries=plan.queries,
            losses=plan.method.losses,
            epsilons=plan.budget.levels if plan.mechanism == "geometric" else None,
            rhos=None if plan.mechanism == "geometric" else plan.budget.levels,
            max_size=plan.settings.groups.max_size,
            neighbours=plan.budget.neighbours,
            source=plan.source,
            progress=progress,
        )
    clock.lap("measure")
    return measurements


def _estimate(
    measurements: Measurements, method: GroupsMethod, solvers: Mapping[str, Solver], told: Reporter
) -> GroupsResult:
    """Post-process sealed measurements; nothing private is in reach."""
    with told.stage("Estimating regions (a first run compiles)") as progress:
        return estimate_groups(measurements, method, SolverChoices(dict(solvers)), threads=_THREADS, progress=progress)


__all__ = [
    "Page",
    "PageWriter",
    "Progress",
    "ReleaseOutcome",
    "Truth",
    "errors_by_level",
    "run_release",
]
