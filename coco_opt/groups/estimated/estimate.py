"""From a sealed measurement to consistent histograms: the post-processing of a groups release in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Literal, get_args

from coco_opt.choices import Certificate, SolverChoices
from coco_opt.errors import ProblemError
from coco_opt.groups.answers import GroupsAnswers, Loss
from coco_opt.groups.estimated.bootstrap import bootstrap_variances, public_redraws
from coco_opt.groups.estimated.consistency import bottom_up, matching, separate
from coco_opt.groups.estimated.convex import convex
from coco_opt.groups.estimated.estimates import SizeEstimate
from coco_opt.groups.estimated.estimators import FitOptions, check_choice, estimate
from coco_opt.groups.estimated.joint import joint
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.kernels.merging import Merge, Rounding
from coco_opt.privacy import Measurement
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

    ``variances`` "formula" (section 5.1 of the paper) or "bootstrap" (``coco_opt.groups.estimated.bootstrap``, about
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
    measurement: Measurement,
    method: GroupsMethod,
    solvers: SolverChoices | None = None,
    *,
    threads: int = 1,
    progress: Progress | None = None,
) -> GroupsResult:
    """Estimate every region that the method reads, then make the regions agree by ``method.consistency``.

    Reads a measurement only: it is post-processing and costs no privacy. ``progress`` is told the regions done
    and their number; ``threads`` fit regions side by side, and the answer does not depend on them. Raises
    ProblemError where the consistency method needs a region that was not measured, SolverError where a solver
    misses its tolerance.
    """
    answers = GroupsAnswers(measurement)
    hierarchy = answers.hierarchy
    if len(method.losses) != hierarchy.levels:
        raise ProblemError(f"{hierarchy.levels} levels need as many losses, not {len(method.losses)}")
    chosen = SolverChoices() if solvers is None else solvers
    if method.consistency == "joint":
        histograms = joint(measurement, chosen, loss=method.losses[0]).histograms
    elif method.consistency == "convex":
        histograms = convex(measurement, chosen, loss=method.losses[0])
    else:
        estimates = _estimates(answers, method, chosen, threads, progress)
        histograms = _agreeing(hierarchy, estimates, method, chosen)
    return GroupsResult(hierarchy, tuple(histograms), chosen.certificates)


def _agreeing(
    hierarchy: Hierarchy, estimates: Sequence[SizeEstimate], method: GroupsMethod, solvers: SolverChoices
) -> list[CountOfCounts]:
    if method.consistency == "bottom_up":
        return bottom_up(hierarchy, estimates)
    if method.consistency == "none":
        return separate(estimates)
    return matching(hierarchy, estimates, solvers, merge=method.merge, rounding=method.rounding)


def needed_levels(consistency: Consistency, levels: int) -> tuple[int, ...]:
    """Return the levels whose answers a consistency method cannot do without."""
    if consistency in ONE_PROGRAM:
        return ()
    return (levels - 1,) if consistency == "bottom_up" else tuple(range(levels))


def _estimates(
    answers: GroupsAnswers, method: GroupsMethod, solvers: SolverChoices, threads: int, progress: Progress | None
) -> list[SizeEstimate]:
    """Return the estimates of all regions in order; empty ones for regions that the method does not read."""
    needed = needed_levels(method.consistency, answers.hierarchy.levels)
    for level in needed:
        if level not in answers.measured_levels:
            raise ProblemError(
                f"level {level} was not measured, and consistency {method.consistency!r} needs it: give it a share of "
                "the budget"
            )
    level_of = answers.hierarchy.level
    regions = [region for level in needed for region in answers.hierarchy.level_range(level)]
    done: list[int] = []
    lock = Lock()

    def one(region: int) -> SizeEstimate:
        answer, options = answers[region], method.fit_options(int(level_of[region]))
        result = estimate(answer, options, solvers)
        if method.redraws:
            result = bootstrap_variances(answer, result, options, solvers, rng=public_redraws(region))
        with lock:
            done.append(region)
            if progress is not None:
                progress(len(done), len(regions))
        return result

    estimates = [SizeEstimate.from_histogram(CountOfCounts.empty(), 0.0)] * len(answers)
    if threads <= 1:
        found = [one(region) for region in regions]
    else:
        with ThreadPoolExecutor(threads) as pool:
            found = list(pool.map(one, regions))
    for region, estimated in zip(regions, found, strict=True):
        estimates[region] = estimated
    return estimates
