"""From a sealed measurement to consistent histograms: the post-processing of a groups release in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from coco_opt.choices import Certificate, SolverChoices
from coco_opt.errors import InputError, ProblemError
from coco_opt.execution import Executor, Threads
from coco_opt.groups.answers import GroupsAnswers
from coco_opt.groups.estimated.convex import convex
from coco_opt.groups.estimated.group_counts import with_group_counts
from coco_opt.groups.estimated.intervals import NO_INTERVALS, Intervals
from coco_opt.groups.estimated.joint import joint
from coco_opt.groups.estimated.method import GroupsMethod, needed_levels
from coco_opt.groups.estimated.posterior.consistent import Convergence, whole_estimate
from coco_opt.groups.estimated.subtrees import estimate_subtrees
from coco_opt.groups.estimated.unbiased import NO_UNBIASED, UnbiasedCounts, UnbiasedEstimates
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.privacy import Measurement
from coco_opt.solving import check_threads

Progress = Callable[[int, int], None]


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
    executor: Executor | None = None,
    progress: Progress | None = None,
    also: Sequence[Measurement] = (),
) -> GroupsResult:
    """Estimate every region that the method reads, then make the regions agree by ``method.consistency``.

    Reads a measurement only: it is post-processing and costs no privacy. Where the numbers of groups were measured too,
    they are estimated first and stand for public ones. ``progress`` is told the regions done
    and their number (of "posterior": sweeps). ``threads`` work side by side, or the workers of an ``executor``; the
    answer does not depend on them. "posterior", "joint" and "convex" couple all regions: the posterior's sweeps run in
    threads whatever the executor, and one program is its solver's own concern.
    ``also`` are more measurements of the same groups beside those that the measurement brings, of which "posterior"
    alone makes one estimate; costs add up.
    Raises ProblemError where the consistency method needs a region that was not measured, or cannot read what was
    asked; SolverError where a solver misses its tolerance.
    """
    check_threads(threads)
    method = GroupsMethod() if method is None else method
    chosen = SolverChoices() if solvers is None else solvers
    run_by = Threads(int(threads)) if executor is None else executor
    result = _estimated(measurement, method, chosen, threads, run_by, progress, also)
    if not method.unbiased:
        return result
    return replace(result, unbiased=UnbiasedEstimates(replace(measurement, also=(*measurement.also, *also))))


def _estimated(
    measurement: Measurement,
    method: GroupsMethod,
    chosen: SolverChoices,
    threads: int,
    executor: Executor,
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
        one = whole_estimate(
            measurement, chosen, coverage=method.intervals, threads=threads, progress=progress, also=also
        )
        whole, certificates = tuple(one.histograms), chosen.certificates
        return GroupsResult(hierarchy, whole, certificates, one.unproved, one.intervals, one.convergence)
    if method.consistency == "joint":
        found = joint(measurement, chosen, loss=method.loss(0))
        whole, certificates = tuple(found.histograms), chosen.certificates
        return GroupsResult(hierarchy, whole, certificates, found.unproved, level_gaps=found.level_gaps)
    if method.consistency == "convex":
        histograms = convex(measurement, chosen, loss=method.loss(0))
    else:
        _check_levels(answers, method)
        histograms = estimate_subtrees(answers, method, chosen, executor, progress)
    return GroupsResult(hierarchy, tuple(histograms), chosen.certificates)


def _check_levels(answers: GroupsAnswers, method: GroupsMethod) -> None:
    for level in needed_levels(method.consistency, answers.hierarchy.levels):
        if level not in answers.measured_levels:
            raise ProblemError(
                f"level {level} was not measured, and consistency {method.consistency!r} needs it: give it a share of "
                "the budget"
            )
