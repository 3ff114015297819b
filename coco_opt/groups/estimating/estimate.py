"""From a sealed measurement to consistent histograms: the post-processing of a groups release in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from coco_opt.activity import Progress
from coco_opt.array_types import Floats, Ints
from coco_opt.choices import Certificate, SolverChoices
from coco_opt.errors import InputError, ProblemError
from coco_opt.estimators import EstimatorRow, estimator_row
from coco_opt.execution import Executor, Threads
from coco_opt.groups.estimating.group_counts import with_group_counts
from coco_opt.groups.estimating.intervals import NO_INTERVALS, Intervals
from coco_opt.groups.estimating.joint import joint
from coco_opt.groups.estimating.method import GroupsMethod, needed_levels
from coco_opt.groups.estimating.posterior.consistent import posterior_estimate
from coco_opt.groups.estimating.posterior.convergence import Convergence
from coco_opt.groups.estimating.subtrees import estimate_subtrees
from coco_opt.groups.estimating.unbiased import NO_UNBIASED, UnbiasedCounts, UnbiasedEstimates
from coco_opt.groups.look import is_look
from coco_opt.groups.noisy_measurements import GroupsMeasurements
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.privacy import Measurement
from coco_opt.solving import check_threads

_REFUTED = 1.0  # variances of the noise by which answers refute a posterior so much that they alone say more


@dataclass(frozen=True, eq=False, slots=True)
class GroupsResult:
    """Histograms of every region in the hierarchy's order, and the certificates of the problems solved.

    ``result["nation/north"]`` is the histogram of a region by its path from the root.

    Attributes
    ----------
    hierarchy : Hierarchy
        The regions.
    histograms : tuple of CountOfCounts
        One histogram for each region.
    certificates : tuple of Certificate
        One row for each kind of problem: who solved it, how often, worst violation and gap.
    uncertified_gap : float
        The largest relative gap of an integer table that was not certified nearest; 0 if none was used.
    intervals : Intervals or None
        Intervals of the counts; None for methods other than "posterior".
    convergence : Convergence or None
        Which regions' chains converged, by which criterion; None for other methods.
    level_gaps : ndarray of float64 or None
        The relative gap of each level (levels,); None for methods other than "joint".
    unbiased : UnbiasedEstimates or None
        The unbiased counts, if the method requests them.
    """

    hierarchy: Hierarchy
    histograms: tuple[CountOfCounts, ...]
    certificates: tuple[Certificate, ...]
    uncertified_gap: float = 0.0
    intervals: Intervals | None = None
    convergence: Convergence | None = None
    level_gaps: Floats | None = None
    unbiased: UnbiasedEstimates | None = None

    @property
    def group_counts(self) -> Ints:
        """Return the released number of groups of every region, int64[regions]; where it is public, that number."""
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

        Raises InputError (no-unbiased) without any, and the errors of ``UnbiasedEstimates.of``.
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
    """Estimate every region that the method reads, then make the regions agree.

    This reads a measurement only: it is post-processing and costs no privacy.

    Parameters
    ----------
    measurement : Measurement
        Noisy measurements of groups. Where the numbers of groups were measured too, they are estimated first and then
        used like public numbers.
    method : GroupsMethod, optional
        The losses, and how regions are made to agree.
    solvers : SolverChoices, optional
        A solver for each kind of problem; the fast exact solvers if they are left out.
    threads : int, default 1
        How many threads work in parallel. The result does not depend on it.
    executor : Executor, optional
        Workers to use in place of threads. "posterior", "joint" and "convex" couple all regions: the posterior runs in
        threads whatever the executor, and the parallelism of one program is up to its solver.
    progress : callable, optional
        Called with the number of regions done and of all (for "posterior": sweeps).
    also : sequence of Measurement, optional
        More measurements of the same groups, in addition to those that the measurement brings. Only "posterior"
        combines them in one estimate; their costs add up. Other methods do not read a first look
        (``coco_opt.groups.look``).

    Returns
    -------
    GroupsResult
        Nonnegative integer histograms of all regions.

    Raises
    ------
    ProblemError
        The method needs a region that was not measured, or cannot read the measured query.
    SolverError
        A solver misses its tolerance.

    Notes
    -----
    Source: Kuo et al. 2018, sections 4 and 5.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from coco_opt import CountOfCounts, Epsilon, GroupsMethod, Hierarchy, SeededNoise
    >>> from coco_opt import estimate_groups, measure_hierarchy
    >>> tree = Hierarchy.from_paths([("nation", "north"), ("nation", "south")])
    >>> north, south = CountOfCounts.from_ranks([1, 1, 2, 3]), CountOfCounts.from_ranks([1, 2, 2])
    >>> noisy = measure_hierarchy(
    ...     [north + south, north, south], tree, [7, 4, 3], queries=["cumulative"] * 2,
    ...     costs=Epsilon(Fraction(1)).shared(["1/2", "1/2"]), max_size=5, neighbours="add_remove",
    ...     source=SeededNoise(7),
    ... )
    >>> result = estimate_groups(noisy, GroupsMethod(consistency="matching"))
    >>> result["nation"].equals(result["nation/north"] + result["nation/south"])
    True
    """
    check_threads(threads)
    method = GroupsMethod() if method is None else method
    chosen = SolverChoices() if solvers is None else solvers
    run_by = Threads(int(threads)) if executor is None else executor
    result = _result(measurement, method, chosen, threads, run_by, progress, also)
    if not method.unbiased:
        return result
    return replace(result, unbiased=UnbiasedEstimates(replace(measurement, also=(*measurement.also, *also))))


def _result(
    measurement: Measurement,
    method: GroupsMethod,
    solvers: SolverChoices,
    threads: int,
    executor: Executor,
    progress: Progress | None,
    also: Sequence[Measurement],
) -> GroupsResult:
    measurement = with_group_counts(measurement, solvers)
    answers = GroupsMeasurements(measurement)
    also = tuple(with_group_counts(further, counts=answers.group_counts) for further in (*measurement.also, *also))
    hierarchy = answers.hierarchy
    if not isinstance(method.losses, str) and len(method.losses) != hierarchy.levels:
        raise ProblemError(f"{hierarchy.levels} levels need as many losses, not {len(method.losses)}")
    if method.consistency != "posterior" and not all(is_look(further.measurement_plan) for further in also):
        raise ProblemError(f"{method.consistency!r} reads one measurement: only 'posterior' estimates several together")
    if method.consistency == "posterior":
        posterior = posterior_estimate(
            measurement,
            solvers,
            coverage=method.intervals,
            threads=threads,
            progress=progress,
            also=also,
            seconds=method.seconds,
        )
        tables, convergence = tuple(posterior.histograms), posterior.convergence
        worst = max((each.excess.share for each in convergence.refuted), default=0.0)
        if worst > _REFUTED and not method.intervals and len(answers.measured_levels) == hierarchy.levels:
            instead = replace(method, consistency="matching")
            tables = tuple(estimate_subtrees(answers, instead, solvers, executor))
            convergence = replace(convergence, instead=instead.consistency)
        return GroupsResult(
            hierarchy, tables, solvers.certificates, posterior.uncertified_gap, posterior.intervals, convergence
        )
    if method.consistency == "joint":
        fit = joint(measurement, solvers, loss=method.loss(0))
        tables, certificates = tuple(fit.histograms), solvers.certificates
        return GroupsResult(hierarchy, tables, certificates, fit.uncertified_gap, level_gaps=fit.level_gaps)
    _check_levels(answers, method)
    row = estimator_row("groups", method.consistency)
    if row.target:
        histograms = _checked(row.load()(measurement, method, solvers), row, answers)
    else:
        histograms = estimate_subtrees(answers, method, solvers, executor, progress)
    return GroupsResult(hierarchy, tuple(histograms), solvers.certificates)


def _checked(
    histograms: Sequence[CountOfCounts], row: EstimatorRow, answers: GroupsMeasurements
) -> Sequence[CountOfCounts]:
    """Return what an estimator of the table returned; ProblemError where it breaks what its row says it keeps."""
    tree, groups = answers.hierarchy, answers.group_counts
    if len(histograms) != tree.regions:
        raise ProblemError(f"estimator {row.name!r} returned {len(histograms)} histograms for {tree.regions} regions")
    for region, histogram in enumerate(histograms):
        children = tree.children(region) if "sums" in row.keeps else range(0)
        if histogram.groups != groups[region]:
            broken = f"{groups[region]} groups"
        elif histogram.max_size > answers.max_size:
            broken = f"sizes up to {answers.max_size}"
        elif children and not histogram.equals(CountOfCounts.total(histograms[child] for child in children)):
            broken = "the sums of its children"
        else:
            continue
        raise ProblemError(f"estimator {row.name!r} does not keep {broken} in region {tree.paths[region]!r}")
    return histograms


def _check_levels(answers: GroupsMeasurements, method: GroupsMethod) -> None:
    for level in needed_levels(method.consistency, answers.hierarchy.levels):
        if level not in answers.measured_levels:
            raise ProblemError(
                f"level {level} was not measured, and consistency {method.consistency!r} needs it: give it a share of "
                "the budget"
            )
