"""Integer numbers of groups from noisy ones, and answers about sizes rewritten with them (Kuo et al. 2018, footnote 4).

The counts are fitted to the tree by nonnegative least squares, then rounded from the root down so that children sum to
their parent. Afterwards they are used like public counts: an answer from above, G - Hc + noise, becomes an answer of
Hc, whose noise has the same distribution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError
from coco_opt.groups.noisy_measurements import buckets_of, has_private_counts
from coco_opt.groups.queries import GROUPS, plain_query, with_public_counts
from coco_opt.privacy import Answers, Measurement
from coco_opt.privacy.queries import Stored
from coco_opt.problems import ControlledRounding, Tree, TreeLeastSquares

_LEAST_VARIANCE = 1e-6  # noise of a smaller variance is zero except for one draw in a million
_INFORMATIVE = 1e12  # a variance this many times a leaf's carries no information, one this many times smaller no more
_GRID_BITS = 20  # fractional digits kept before rounding, so that parents are exactly the sums of their children


def with_group_counts(
    measurement: Measurement, solvers: SolverChoices | None = None, counts: Ints | None = None
) -> Measurement:
    """Return the answers about sizes as if the numbers of groups were public: estimated, or ``counts`` where given.

    A measurement whose numbers of groups are public is returned unchanged. The result's cost is that of the answers
    about sizes. Raises the errors of ``estimate_group_counts``.
    """
    measurement_plan = measurement.measurement_plan
    if not has_private_counts(measurement_plan):
        return measurement
    groups = estimate_group_counts(measurement, solvers) if counts is None else counts
    size_answers = [level_answers for level_answers in measurement.answers if level_answers.query.name != GROUPS]
    queries = tuple(with_public_counts(level_answers.query) for level_answers in size_answers)
    answers = tuple(
        Answers(query, level_answers.offsets, _from_below(measurement, level_answers, groups))
        for query, level_answers in zip(queries, size_answers, strict=True)
    )
    return replace(
        measurement,
        measurement_plan=replace(measurement_plan, queries=queries, per_region={GROUPS: groups}),
        answers=answers,
    )


def _from_below(measurement: Measurement, answers: Answers, groups: Ints) -> Ints | Stored:
    """Return answers from above as answers of Hc, and others as they are stored."""
    query = answers.query
    if plain_query(query) == query.name:
        return answers.stored
    regions, cells = measurement.hierarchy.level_range(query.level), int(answers.offsets[1])
    buckets = buckets_of(measurement.measurement_plan, query.level)
    widths = np.ones(cells, np.int64) if buckets is None else buckets.end - buckets.begin
    turned = FromAbove(answers, groups[regions.start : regions.stop], widths)
    return turned.read(0, turned.size) if isinstance(answers.stored, np.ndarray) else turned


@dataclass(frozen=True, eq=False, slots=True)
class FromAbove:
    """Answers G - Hc of a level turned into Hc as they are read: ``groups`` int64[regions], ``widths`` int64[cells].

    Cell j of a region is G times the sizes that it sums, ``widths[j]``, less its answer.
    """

    answers: Answers
    groups: Ints
    widths: Ints

    @property
    def size(self) -> int:
        """Return the number of answers."""
        return int(self.answers.offsets[-1])

    def read(self, begin: int, end: int) -> Ints:
        """Return the answers ``begin`` .. ``end`` - 1."""
        region, cell = np.divmod(np.arange(begin, end, dtype=np.int64), self.widths.size)
        turned: Ints = self.groups[region] * self.widths[cell] - self.answers.read(begin, end)
        turned.setflags(write=False)
        return turned


def estimate_group_counts(measurement: Measurement, solvers: SolverChoices | None = None) -> Ints:
    """Return nonnegative integer numbers of groups, int64[regions], where children sum to their parent.

    Post-processing of sealed counts: costs no privacy. Nonnegative least squares on the tree, weighted by 1 / variance,
    then the root is rounded half up and the children of each region by largest fractions; both steps are certified
    (SolverError where a solver misses its tolerance). Raises ProblemError where the leaves were not measured, because
    siblings could not be distinguished. O(regions) with the built-in solvers.
    """
    chosen = SolverChoices() if solvers is None else solvers
    hierarchy = measurement.hierarchy
    values, variances = noisy_counts(measurement)
    leaf = max(_LEAST_VARIANCE, float(variances[-1]))
    if np.isinf(leaf):
        raise ProblemError("the leaves' numbers of groups were not measured: give their level a share of the budget")
    tree = Tree(hierarchy.parent)
    variances = np.maximum(variances, max(_LEAST_VARIANCE, leaf / _INFORMATIVE))
    variances[variances > leaf * _INFORMATIVE] = np.inf
    # Residuals from a consistent table are as small as the noise, so doubles can certify large counts too.
    base = tree.sums(np.where(tree.is_leaf, np.maximum(values, 0), 0))
    problem = TreeLeastSquares(tree, values - base, variances, lower=-base.astype(np.float64))
    exact = _on_grid(tree, base + np.asarray(chosen.solve(problem), np.float64))
    counts = np.zeros(hierarchy.regions, np.int64)
    counts[0] = int(np.floor(exact[0] + 0.5))
    for region in np.flatnonzero(~tree.is_leaf).tolist():
        children = slice(int(tree.first_child[region]), int(tree.first_child[region + 1]))
        rounded = chosen.solve(ControlledRounding(exact[children], int(counts[region])))
        counts[children] = np.asarray(rounded, dtype=np.int64)
    return counts


def noisy_counts(measurement: Measurement) -> tuple[Ints, Floats]:
    """Return the noisy number of groups of every region, 0 where not measured, and its variance, infinite there."""
    hierarchy = measurement.hierarchy
    values, variances = np.zeros(hierarchy.regions, np.int64), np.full(hierarchy.regions, np.inf)
    for answers in measurement.answers:
        if answers.query.name != GROUPS:
            continue
        regions = hierarchy.level_range(answers.query.level)
        values[regions.start : regions.stop] = answers.values
        variances[regions.start : regions.stop] = answers.query.distribution.variance
    return values, variances


def _on_grid(tree: Tree, fitted: Floats) -> Floats:
    """Return nonnegative values: those of leaves on a grid of binary fractions, those of inner regions exact sums."""
    bits = min(_GRID_BITS, 51 - int(np.ceil(np.log2(float(max(fitted.max(), 0.0)) + 1.0))))
    grid = 2.0 ** max(bits, 0)
    return np.asarray(tree.sums(np.maximum(np.rint(fitted * grid) / grid, 0.0)), dtype=np.float64)
