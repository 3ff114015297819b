"""From sealed measurements to consistent histograms: the post-processing of a groups release in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Literal, get_args

from coco_opt.choices import Certificate, SolverChoices
from coco_opt.errors import ProblemError
from coco_opt.groups.bootstrap import bootstrap_variances, public_redraws
from coco_opt.groups.consistency import bottom_up, matching, separate
from coco_opt.groups.convex import convex
from coco_opt.groups.estimates import SizeEstimate
from coco_opt.groups.estimators import FitOptions, Loss, check_choice, estimate
from coco_opt.groups.joint import joint
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.kernels.merging import Merge, Rounding
from coco_opt.privacy import Measurements
from coco_opt.problems.isotonic import TieRule

Consistency = Literal["joint", "convex", "matching", "bottom_up", "none"]
VarianceRule = Literal["formula", "bootstrap"]
Progress = Callable[[int, int], None]
CONSISTENCIES: tuple[Consistency, ...] = ("joint", "convex", "matching", "bottom_up", "none")
ONE_PROGRAM: tuple[Consistency, ...] = ("joint", "convex")
"""The methods that fit all regions at once: they take a while, need one loss and do not read every query."""


@dataclass(frozen=True, slots=True)
class GroupsMethod:
    """The post-processing of a groups release: losses (one a level, root first) and how regions are made to agree.

    ``variances`` "formula" (section 5.1 of the paper) or "bootstrap" (``coco_opt.groups.bootstrap``, about
    twenty fits more a region, redrawn from seeds that anyone can compute) weigh what ``consistency`` "matching" merges
    with ``merge`` "weighted"; other methods read no variances, and none are redrawn for them. Raises ProblemError for
    an unknown choice.
    """

    losses: tuple[Loss, ...]
    ties: TieRule = "upper"
    consistency: Consistency = "matching"
    merge: Merge = "weighted"
    rounding: Rounding = "half_up"
    variances: VarianceRule = "formula"

    def __post_init__(self) -> None:
        check_choice("consistency", self.consistency, CONSISTENCIES)
        check_choice("merge", self.merge, get_args(Merge))
        check_choice("variances", self.variances, get_args(VarianceRule))
        for level in range(len(self.losses)):
            self.fit_options(level)
        if self.consistency in ONE_PROGRAM and len(set(self.losses)) > 1:
            name = "joint estimation" if self.consistency == "joint" else "the convex program"
            raise ProblemError(f"{name} fits all levels with one loss: give every level the same")

    def fit_options(self, level: int) -> FitOptions:
        """Return how the regions of one level are fitted."""
        return FitOptions(self.losses[level], self.ties, self.rounding)

    @property
    def redraws(self) -> bool:
        """Tell whether every region is fitted again to redrawn noise: bootstrap variances that are read."""
        return self.variances == "bootstrap" and self.consistency == "matching" and self.merge == "weighted"


@dataclass(frozen=True, eq=False, slots=True)
class GroupsResult:
    """Histograms of every region in the hierarchy's order, and the certificates of the problems solved."""

    hierarchy: Hierarchy
    histograms: tuple[CountOfCounts, ...]
    certificates: tuple[Certificate, ...]

    def __getitem__(self, region: str) -> CountOfCounts:
        return self.histograms[self.hierarchy.index(region)]


def estimate_groups(
    measurements: Measurements,
    method: GroupsMethod,
    solvers: SolverChoices | None = None,
    *,
    threads: int = 1,
    progress: Progress | None = None,
) -> GroupsResult:
    """Estimate every measured region, then make the regions agree by ``method.consistency``.

    Reads sealed measurements only: it is post-processing and costs no privacy. ``progress`` is told the regions done
    and their number; ``threads`` fit regions side by side, and the answer does not depend on them. Raises
    ProblemError where the consistency method needs a region that was not measured, SolverError where a solver
    misses its tolerance.
    """
    levels = measurements.hierarchy.levels
    if len(method.losses) != levels:
        raise ProblemError(f"{levels} levels need as many losses, not {len(method.losses)}")
    chosen = SolverChoices() if solvers is None else solvers
    if method.consistency == "joint":
        found = joint(measurements, chosen, loss=method.losses[0])
        return GroupsResult(measurements.hierarchy, tuple(found.histograms), chosen.certificates)
    if method.consistency == "convex":
        fitted = convex(measurements, chosen, loss=method.losses[0])
        return GroupsResult(measurements.hierarchy, tuple(fitted), chosen.certificates)
    estimates = _estimates(measurements, method, chosen, threads, progress)
    hierarchy = measurements.hierarchy
    if method.consistency == "bottom_up":
        histograms = bottom_up(hierarchy, _all_of(estimates, hierarchy, hierarchy.leaves))
    elif method.consistency == "none":
        histograms = separate(_all_of(estimates, hierarchy, range(hierarchy.regions)))
    else:
        histograms = matching(
            hierarchy,
            _all_of(estimates, hierarchy, range(hierarchy.regions)),
            chosen,
            merge=method.merge,
            rounding=method.rounding,
        )
    return GroupsResult(hierarchy, tuple(histograms), chosen.certificates)


def _estimates(
    measurements: Measurements,
    method: GroupsMethod,
    solvers: SolverChoices,
    threads: int,
    progress: Progress | None,
) -> list[SizeEstimate | None]:
    levels = measurements.hierarchy.level
    done: list[int] = []
    lock = Lock()

    def one(region: int) -> SizeEstimate | None:
        measurement = measurements.answers[region]
        if measurement is None:
            return None
        options = method.fit_options(int(levels[region]))
        result = estimate(measurement, options, solvers)
        if method.redraws:
            result = bootstrap_variances(measurement, result, options, solvers, rng=public_redraws(region))
        with lock:
            done.append(region)
            if progress is not None:
                progress(len(done), measurements.hierarchy.regions)
        return result

    regions = range(measurements.hierarchy.regions)
    if threads <= 1:
        return [one(region) for region in regions]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(one, regions))


def _all_of(estimates: Sequence[SizeEstimate | None], hierarchy: Hierarchy, needed: range) -> list[SizeEstimate]:
    for region in needed:
        if estimates[region] is None:
            raise ProblemError(
                f"region {hierarchy.paths[region]!r} (level {hierarchy.level[region]}) was not measured, "
                "and this consistency method needs it: give its level a share of the budget"
            )
    empty = SizeEstimate.from_histogram(CountOfCounts.empty(), 0.0)
    return [empty if one is None else one for one in estimates]
