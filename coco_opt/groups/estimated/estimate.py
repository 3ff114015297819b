"""From a sealed measurement to consistent histograms: the post-processing of a groups release in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Lock
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from coco_opt.choices import Certificate, SolverChoices
from coco_opt.errors import InputError, ProblemError
from coco_opt.groups.answers import GroupsAnswers, Loss
from coco_opt.groups.estimated.bootstrap import bootstrap_variances, public_redraws
from coco_opt.groups.estimated.consistency import bottom_up, matching, separate
from coco_opt.groups.estimated.convex import convex
from coco_opt.groups.estimated.estimates import SizeEstimate
from coco_opt.groups.estimated.estimators import FitOptions, check_choice, estimate
from coco_opt.groups.estimated.group_counts import with_group_counts
from coco_opt.groups.estimated.intervals import NO_INTERVALS, Intervals
from coco_opt.groups.estimated.joint import joint
from coco_opt.groups.estimated.posterior.consistent import Convergence, posterior_estimate
from coco_opt.groups.estimated.unbiased import NO_UNBIASED, UnbiasedCounts, UnbiasedEstimates
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.kernels.merging import Merge, Rounding
from coco_opt.privacy import Measurement
from coco_opt.problems.isotonic import TieRule
from coco_opt.solving import check_threads

Consistency = Literal["posterior", "joint", "convex", "matching", "bottom_up", "none"]
VarianceRule = Literal["formula", "bootstrap"]
Progress = Callable[[int, int], None]
CONSISTENCIES: tuple[Consistency, ...] = get_args(Consistency)
ONE_PROGRAM: tuple[Consistency, ...] = ("joint", "convex")
"""The methods that fit all regions in one program: they take a while, need one loss and do not read every query."""
SLOW: tuple[Consistency, ...] = ("posterior", *ONE_PROGRAM)
"""The methods that take seconds where the others take milliseconds."""


@dataclass(frozen=True, slots=True)
class GroupsMethod:
    """The post-processing of a groups release: losses (one, or one a level, root first) and how regions agree.

    ``variances`` "formula" (section 5.1 of the paper) or "bootstrap" (``coco_opt.groups.estimated.bootstrap``, about
    twenty fits more a region, redrawn from seeds that anyone can compute) weigh what ``consistency`` "matching" merges
    with ``merge`` "weighted"; other methods read no variances, and none are redrawn for them. "posterior" reads no
    loss, and alone gives ``intervals``: their coverage, 0 for none. ``unbiased``: give signed, unbiased counts of every
    measured region beside the table, whatever the method. Raises ProblemError for an unknown choice.
    """

    losses: Loss | tuple[Loss, ...] = "l1"
    ties: TieRule = "upper"
    consistency: Consistency = "joint"
    merge: Merge = "weighted"
    rounding: Rounding = "half_up"
    variances: VarianceRule = "formula"
    intervals: float = 0.0
    unbiased: bool = False

    def __post_init__(self) -> None:
        check_choice("consistency", self.consistency, CONSISTENCIES)
        check_choice("merge", self.merge, get_args(Merge))
        check_choice("variances", self.variances, get_args(VarianceRule))
        for loss in {self.losses} if isinstance(self.losses, str) else set(self.losses):
            FitOptions(loss, self.ties, self.rounding)
        if not 0.0 <= self.intervals < 1.0 or (self.intervals and self.consistency != "posterior"):
            raise ProblemError("intervals have a coverage from 0 (none) to below 1, and only 'posterior' gives any")
        if self.consistency in ONE_PROGRAM and not isinstance(self.losses, str) and len(set(self.losses)) > 1:
            name = "joint estimation" if self.consistency == "joint" else "the convex program"
            raise ProblemError(f"{name} fits all levels with one loss: give every level the same")

    def fit_options(self, level: int) -> FitOptions:
        """Return how the regions of one level are fitted."""
        return FitOptions(self.loss(level), self.ties, self.rounding)

    def loss(self, level: int) -> Loss:
        """Return the loss of one level."""
        return self.losses if isinstance(self.losses, str) else self.losses[level]

    @property
    def redraws(self) -> bool:
        """Tell whether every region is fitted again to redrawn noise: bootstrap variances that are read."""
        return self.variances == "bootstrap" and self.consistency == "matching" and self.merge == "weighted"


@dataclass(frozen=True, eq=False, slots=True)
class GroupsResult:
    """Histograms of every region in the hierarchy's order, and the certificates of the problems solved.

    ``unproved`` is the largest relative gap of a whole table that was not proved nearest, 0 where none was taken;
    ``intervals`` and ``convergence`` are those of the posterior, None for other methods; ``level_gaps`` float64[levels]
    those of joint estimation (``JointEstimate``), ``unbiased`` what the method was asked to give beside the table.
    """

    hierarchy: Hierarchy
    histograms: tuple[CountOfCounts, ...]
    certificates: tuple[Certificate, ...]
    unproved: float = 0.0
    intervals: Intervals | None = None
    convergence: Convergence | None = None
    level_gaps: NDArray[np.float64] | None = None
    unbiased: UnbiasedEstimates | None = None

    @property
    def group_counts(self) -> NDArray[np.int64]:
        """Return the released number of groups of every region, int64[regions]; the public one where it is public."""
        return np.array([histogram.groups for histogram in self.histograms], np.int64)

    def __getitem__(self, region: str) -> CountOfCounts:
        return self.histograms[self.hierarchy.index(region)]

    def intervals_of(self, region: str) -> Intervals:
        """Return the intervals of a region by its path from the root; InputError (no-intervals) without any."""
        if self.intervals is None:
            raise InputError("no-intervals", NO_INTERVALS)
        return self.intervals.of(self.hierarchy.index(region))

    def unbiased_of(self, *regions: str) -> UnbiasedCounts:
        """Return the unbiased counts of a region by its path from the root, or the sums of several, variances too.

        Raises InputError: no-unbiased without any, and what ``UnbiasedEstimates.of`` does.
        """
        if self.unbiased is None:
            raise InputError("no-unbiased", NO_UNBIASED)
        return self.unbiased.of(*regions)


def estimate_groups(
    measurement: Measurement,
    method: GroupsMethod | None = None,
    solvers: SolverChoices | None = None,
    *,
    threads: int = 1,
    progress: Progress | None = None,
    also: Sequence[Measurement] = (),
) -> GroupsResult:
    """Estimate every region that the method reads, then make the regions agree by ``method.consistency``.

    Reads a measurement only: it is post-processing and costs no privacy. Where the numbers of groups were measured too,
    they are estimated first and stand for public ones. ``progress`` is told the regions done
    and their number (of "posterior": sweeps); ``threads`` work side by side, and the answer does not depend on them.
    ``also`` are more measurements of the same groups beside those that the measurement brings, of which "posterior"
    alone makes one estimate; costs add up.
    Raises ProblemError where the consistency method needs a region that was not measured, or cannot read what was
    asked; SolverError where a solver misses its tolerance.
    """
    check_threads(threads)
    method = GroupsMethod() if method is None else method
    chosen = SolverChoices() if solvers is None else solvers
    result = _estimated(measurement, method, chosen, threads, progress, also)
    if not method.unbiased:
        return result
    return replace(result, unbiased=UnbiasedEstimates(replace(measurement, also=(*measurement.also, *also))))


def _estimated(
    measurement: Measurement,
    method: GroupsMethod,
    chosen: SolverChoices,
    threads: int,
    progress: Progress | None,
    also: Sequence[Measurement],
) -> GroupsResult:
    measurement = with_group_counts(measurement, chosen)
    answers = GroupsAnswers(measurement)
    also = tuple(with_group_counts(one, counts=answers.group_counts) for one in (*measurement.also, *also))
    hierarchy = answers.hierarchy
    if not isinstance(method.losses, str) and len(method.losses) != hierarchy.levels:
        raise ProblemError(f"{hierarchy.levels} levels need as many losses, not {len(method.losses)}")
    if also and method.consistency != "posterior":
        raise ProblemError(f"{method.consistency!r} reads one measurement: only 'posterior' estimates several together")
    if method.consistency == "posterior":
        sizes = method.intervals > 0.0
        drawn = posterior_estimate(measurement, chosen, sizes=sizes, threads=threads, progress=progress, also=also)
        intervals = drawn.intervals(method.intervals) if sizes else None
        whole, certificates = tuple(drawn.histograms), chosen.certificates
        return GroupsResult(hierarchy, whole, certificates, drawn.unproved, intervals, drawn.convergence)
    if method.consistency == "joint":
        found = joint(measurement, chosen, loss=method.loss(0))
        whole, certificates = tuple(found.histograms), chosen.certificates
        return GroupsResult(hierarchy, whole, certificates, found.unproved, level_gaps=found.level_gaps)
    if method.consistency == "convex":
        histograms = convex(measurement, chosen, loss=method.loss(0))
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
    if consistency in SLOW:
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
