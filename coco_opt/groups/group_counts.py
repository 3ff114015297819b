"""Private numbers of groups, for hierarchies whose Groups table is not public (Kuo et al. 2018, footnote 4).

Neighbours differ by one group, whatever its size: added or removed, or moved to another region ("replace"). That is
another unit of privacy than the rest of the package protects, so the counts' budget is an account of its own. What is
hidden, and what is not:

* the counts alone hide whether a group exists and, with "replace", in which region it lies;
* the sizes measured afterwards, of histograms brought to these counts by ``with_group_count``, hide single entities
  only: a whole group shifts many cells, so that its privacy loss is up to max_size times that of an entity;
* nothing is hidden where the exact counts show elsewhere: in a public Groups table, or in the ranks' number of cells.

A region's count changes by at most 1, so noise of scale 1 / epsilon or variance 1 / (2 rho) is added to it at every
level that has a share (a moved group changes two regions of a level: twice that). Afterwards the counts are fitted to
the tree by nonnegative least squares and rounded from the root down so that children sum to their parent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from coco_opt.choices import SolverChoices
from coco_opt.errors import InputError, ProblemError
from coco_opt.histograms import CountOfCounts, Hierarchy
from coco_opt.privacy import NEIGHBOURS, Mechanism, Neighbours, NoiseSource, gaussian_variance, noise_scale, sequential
from coco_opt.privacy.ledger_chain import Unit
from coco_opt.privacy.measurement import charged
from coco_opt.privacy.mechanism import check_mechanism, check_parameter, check_source, open_stream, unit_of
from coco_opt.privacy.planner import geometric_variance
from coco_opt.problems import ControlledRounding, Tree, TreeLeastSquares

Int64 = NDArray[np.int64]
FloatArray = NDArray[np.float64]

MAX_GROUPS = 2**40  # in one region; far above any data, and sums of counts and noise keep all digits in a float
_STREAM = "group counts"
_LEAST_VARIANCE = 1e-6  # noise of a smaller variance is zero but for one draw in a million
_TELLING = 1e12  # times a leaf's variance nothing is told by a region's answer, divided by it nothing more
_GRID_BITS = 20  # fractional digits kept before rounding, so that parents are exactly the sums of their children


@dataclass(frozen=True, eq=False, slots=True)
class GroupCountMeasurements:
    """The noisy numbers of groups, sealed: ``values`` int64[regions], 0 where the level was not measured.

    ``amounts`` (epsilon or rho, by ``mechanism``) are one a level, root first. Raises ProblemError where the parts do
    not fit together.
    """

    hierarchy: Hierarchy
    values: Int64
    amounts: tuple[Fraction, ...]
    neighbours: Neighbours
    noise: str
    private: bool
    mechanism: Mechanism = "geometric"

    def __post_init__(self) -> None:
        check_mechanism(self.mechanism)
        values = np.array(self.values)
        if values.dtype != np.int64 or values.shape != (self.hierarchy.regions,):
            raise ProblemError("group counts are int64, one for each region")
        values.setflags(write=False)
        object.__setattr__(self, "values", values)
        _check_amounts(self.hierarchy, self.amounts, self.neighbours, self.unit)

    @property
    def unit(self) -> Unit:
        """Return what the counts were charged in."""
        return unit_of(self.mechanism)

    @property
    def spent(self) -> Fraction:
        """Return the budget spent in its unit, the sum over levels."""
        return sequential(self.amounts)

    @property
    def variances(self) -> FloatArray:
        """Return the noise variance of each region's count, float64[regions]; infinite where not measured."""
        levels = [_variance(self.mechanism, amount, self.neighbours) for amount in self.amounts]
        return np.asarray(np.array(levels)[self.hierarchy.level], dtype=np.float64)


def measure_group_counts(
    hierarchy: Hierarchy,
    group_counts: Int64,
    *,
    epsilons: Sequence[Fraction | None] | None = None,
    rhos: Sequence[Fraction | None] | None = None,
    neighbours: Neighbours,
    source: NoiseSource,
) -> GroupCountMeasurements:
    """Return the noisy numbers of groups of all regions of the levels that have a budget; before the wall.

    ``group_counts`` int64[regions] are PRIVATE here and must sum up the tree. Either ``epsilons`` (geometric noise) or
    ``rhos`` (discrete Gaussian), one a level, root first (0 or None: not measured). Everything is checked before the
    first noise is drawn: raises ProblemError for public parameters or noise already drawn, InputError for counts that
    are negative, above 2^40 or do not add up. O(regions).
    """
    mechanism, given = charged(epsilons, rhos)
    amounts = tuple(Fraction(amount or 0) for amount in given)
    _check_amounts(hierarchy, amounts, neighbours, unit_of(mechanism))
    check_source(source, mechanism)
    parameters = [_parameter(mechanism, amount, neighbours) if amount else None for amount in amounts]
    for parameter in parameters:
        if parameter is not None:
            check_parameter(mechanism, parameter)  # at most 2^40 scales: 2^40 groups and noise stay far inside int64
    _check_counts(hierarchy, group_counts)
    values = np.zeros(hierarchy.regions, np.int64)
    for region, level in enumerate(hierarchy.level.tolist()):
        noise = parameters[level]
        if noise is not None:
            stream = open_stream(source, mechanism, noise, measurement=_STREAM, region=hierarchy.paths[region])
            values[region] = stream.add_to(group_counts[region : region + 1])[0]
    return GroupCountMeasurements(hierarchy, values, amounts, neighbours, source.name, source.private, mechanism)


def estimate_group_counts(measured: GroupCountMeasurements, solvers: SolverChoices | None = None) -> Int64:
    """Return whole nonnegative numbers of groups, int64[regions], of which children sum to their parent.

    Post-processing of sealed counts: costs no privacy. Nonnegative least squares on the tree, weighted by 1 / variance,
    then the root is rounded half up and the children of each region by largest fractions; both steps are certified
    (SolverError where a solver misses its tolerance). Raises ProblemError where the leaves were not measured,
    for nothing would tell siblings apart. O(regions) with the built-in solvers.
    """
    chosen = SolverChoices() if solvers is None else solvers
    hierarchy = measured.hierarchy
    if not measured.amounts[-1]:
        raise ProblemError("the leaves' numbers of groups were not measured: give their level a share of the budget")
    tree = Tree(hierarchy.parent)
    leaf = max(_LEAST_VARIANCE, float(measured.variances[-1]))
    variances = np.maximum(measured.variances, max(_LEAST_VARIANCE, leaf / _TELLING))
    variances[variances > leaf * _TELLING] = np.inf
    # In residuals from a table that sums, whose numbers are as small as the noise: doubles then certify large counts.
    base = tree.sums(np.where(tree.is_leaf, np.maximum(measured.values, 0), 0))
    problem = TreeLeastSquares(tree, measured.values - base, variances, lower=-base.astype(np.float64))
    exact = _on_grid(tree, base + np.asarray(chosen.solve(problem), np.float64))
    whole = np.zeros(hierarchy.regions, np.int64)
    whole[0] = int(np.floor(exact[0] + 0.5))
    for region in np.flatnonzero(~tree.is_leaf).tolist():
        children = slice(int(tree.first_child[region]), int(tree.first_child[region + 1]))
        rounded = chosen.solve(ControlledRounding(exact[children], int(whole[region])))
        whole[children] = np.asarray(rounded, dtype=np.int64)
    return whole


def with_group_count(histogram: CountOfCounts, groups: int) -> CountOfCounts:
    """Return the histogram with a released number of groups: its smallest left out, or groups of size 0 added.

    PRIVATE in and out, before the wall: what ``measure_hierarchy`` takes beside counts that are not exact. In order of
    size one entity changes one group by one, and no group changes it by more here: no query's sensitivity grows. Raises
    ProblemError for a negative number. O(runs).
    """
    if groups < 0:
        raise ProblemError("a number of groups must not be negative")
    if groups > histogram.groups:
        return CountOfCounts.total([histogram, CountOfCounts.from_runs([0], [groups - histogram.groups])])
    sizes, stops = histogram.rank_runs()
    kept = np.minimum(histogram.counts, np.maximum(stops - (histogram.groups - groups), 0))
    return CountOfCounts.from_runs(sizes[kept > 0], kept[kept > 0])


def _on_grid(tree: Tree, fitted: FloatArray) -> FloatArray:
    """Return nonnegative values whose leaves are on a grid of binary fractions and whose inner ones are exact sums."""
    bits = min(_GRID_BITS, 51 - int(np.ceil(np.log2(float(max(fitted.max(), 0.0)) + 1.0))))
    grid = 2.0 ** max(bits, 0)
    return np.asarray(tree.sums(np.maximum(np.rint(fitted * grid) / grid, 0.0)), dtype=np.float64)


def _parameter(mechanism: Mechanism, amount: Fraction, neighbours: Neighbours) -> Fraction:
    changed = 2 if neighbours == "replace" else 1  # regions of a level, each by one group: L1 and squared L2 alike
    return noise_scale(changed, amount) if mechanism == "geometric" else gaussian_variance(changed, amount)


def _variance(mechanism: Mechanism, amount: Fraction, neighbours: Neighbours) -> float:
    if not amount:
        return float("inf")
    parameter = float(_parameter(mechanism, amount, neighbours))
    # The exact one, not the 2 scale^2 of the continuous law: between levels of unlike budgets the ratio matters.
    return geometric_variance(parameter) if mechanism == "geometric" else parameter


def _check_amounts(hierarchy: Hierarchy, amounts: Sequence[Fraction], neighbours: Neighbours, unit: Unit) -> None:
    if len(amounts) != hierarchy.levels:
        raise ProblemError(f"{hierarchy.levels} levels need as many {unit}s")
    if any(amount < 0 for amount in amounts) or not any(amounts):
        raise ProblemError(f"no level's {unit} may be negative and at least one must be above zero")
    if neighbours not in NEIGHBOURS:
        raise ProblemError(f"unknown neighbours {neighbours!r}: use one of {', '.join(NEIGHBOURS)}")


def _check_counts(hierarchy: Hierarchy, counts: Int64) -> None:
    if counts.dtype != np.int64 or counts.shape != (hierarchy.regions,):
        raise InputError("bad-shape", "group counts are int64, one for each region")
    if counts.min() < 0 or counts.max() > MAX_GROUPS:
        raise InputError("bad-group-count", "numbers of groups must be between 0 and 2^40")
    if not np.array_equal(hierarchy.aggregate(counts[hierarchy.leaves.start :]), counts):
        raise InputError("group-count-mismatch", "a region's number of groups is not the sum of its children's")
