"""Universal histograms: one noisy tree that answers every range, with standard errors (Hay et al. 2010, section 4).

The heuristics of that paper, which make estimates nonnegative integers, are alternatives to the exact solution. They
are plain functions on arrays; trees are breadth-first arrays (``coco_opt.problems.Tree``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike

from coco_opt.activity import Progress
from coco_opt.array_types import Floats, Ints
from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError
from coco_opt.estimators import EstimatorRow, estimator_row
from coco_opt.privacy import Measurement
from coco_opt.problems import Tree, TreeLeastSquares
from coco_opt.ranges.domain import DomainTree
from coco_opt.ranges.estimating.posterior.release import RangesPosterior
from coco_opt.ranges.estimating.posterior.sampler import SamplerOptions
from coco_opt.ranges.interval_counts import IntervalCounts, Noise, Precision
from coco_opt.ranges.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

_BEYOND_INT64 = 2.0**63

Estimator = str
"""The name of a row of the table of estimators (``coco_opt.estimators``)."""


@dataclass(frozen=True, eq=False, slots=True)
class RangeMeasurements:
    """Estimated entities in each range (k,) and their standard errors (k,)."""

    estimate: Floats
    standard_error: Floats


class IntervalSource(Protocol):
    """What knows intervals of ranges."""

    def interval(self, begin: Ints, end: Ints, coverage: float) -> tuple[Ints, Ints]:
        """Return the ends, both included, of intervals of ranges begin:end (k,); ProblemError where it has none."""


@dataclass(frozen=True, eq=False, slots=True)
class RangeIntervals:
    """The ends, both included, of an interval for each of some ranges, int64 (k,) each.

    ``coverage`` is the posterior probability that one interval holds its true count; every interval holds the estimate.
    """

    coverage: float
    lower: Ints
    upper: Ints


@dataclass(frozen=True, eq=False, repr=False)
class UniversalHistogram:
    """Counts of an ordered domain that answer ranges, quantiles and the distribution function; build it with ``fit``.

    Parameters
    ----------
    domain : DomainTree
        The cells, and the tree of intervals over them.
    distribution : NoiseDistribution or tuple of NoiseDistribution
        The distribution of the noise, or of each level's where levels share the budget.
    estimator : str
        How the intervals were estimated, by this package or by another that adds an estimator:

        * "noisy": as measured, a range being the sum of the fewest intervals (H~; L~ where only cells were measured);
        * "consistent": least squares (H-bar), the best linear unbiased estimate;
        * "nonnegative": least squares with nonnegative counts, exactly;
        * "zeroed": the paper's heuristic: H-bar, subtrees of at most 0 become 0, cells are rounded;
        * "posterior": integer counts of least expected squared error under the posterior of all cells' counts, whose
          prior is learned from the same noisy counts.
    nodes : ndarray of float64, shape (n,)
        The estimates of all intervals, in entities.
    posterior : RangesPosterior, optional
        The account of the posterior; None for other estimators and for releases that were read.
    spans : IntervalSource, optional
        Where ``intervals`` come from: the posterior's draws, or the files of a release; None without any.

    Notes
    -----
    Standard errors are those of the unbiased estimate ("noisy": H~, otherwise H-bar). Making counts nonnegative adds
    bias and lowers the error of most ranges in sparse data; the standard errors show neither. Source: Hay et al. 2010,
    section 4.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from coco_opt import Epsilon, SeededNoise, UniversalHistogram, measure_ranges
    >>> noisy = measure_ranges([3] * 365, Epsilon(Fraction(1)), source=SeededNoise(3))
    >>> visits, standard_error = UniversalHistogram.fit(noisy, "consistent").range(31, 59)
    >>> abs(visits - 84) < 5 * standard_error
    True
    """

    domain: DomainTree
    distribution: Noise
    estimator: Estimator
    nodes: Floats
    posterior: RangesPosterior | None = None
    spans: IntervalSource | None = None

    def __post_init__(self) -> None:
        if self.nodes.shape != (self.domain.tree.nodes,) or self.nodes.dtype != np.float64:
            raise ProblemError(f"a histogram of this domain is {self.domain.tree.nodes} float64 counts")
        self.nodes.setflags(write=False)

    @classmethod
    def fit(
        cls,
        measurement: Measurement | IntervalCounts,
        estimator: Estimator = "nonnegative",
        solvers: SolverChoices | None = None,
        *,
        workload: Workload | None = None,
        threads: int = 1,
        progress: Progress | None = None,
        seconds: float = 0.0,
    ) -> UniversalHistogram:
        """Return the histogram of a noisy measurement.

        Parameters
        ----------
        measurement : Measurement or IntervalCounts
            What ``measure_ranges`` returned.
        estimator : str, default "nonnegative"
            How the intervals are estimated: "nonnegative", "consistent", "noisy", "zeroed", "posterior", or one
            that a package adds to the table of ``coco_opt.estimators``.
        solvers : SolverChoices, optional
            A solver for each kind of problem; the fast exact solvers if they are left out.
        workload : Workload, optional
            The ranges whose expected error the posterior's integer counts minimise; all ranges if it is left out.
        threads : int, default 1
            How many threads the posterior's chains may take; the counts do not depend on it.
        progress : callable, optional
            Called with the rounds of the chains that are done, and their number.
        seconds : float, default 0
            How long the posterior may draw on two cores, by a formula of the number of cells, where its chains do not
            agree after two attempts.

        Raises
        ------
        SolverError
            The chosen solver misses its tolerance.
        """
        counts = measurement if isinstance(measurement, IntervalCounts) else IntervalCounts.of(measurement)
        if estimator == "posterior":
            options = SamplerOptions.within(seconds, counts.domain.cells)
            posterior = RangesPosterior.of(counts, workload, options, threads=threads, progress=progress)
            nodes = counts.domain.counts(posterior.draws.released).astype(np.float64)
            return cls(counts.domain, counts.distribution, estimator, nodes, posterior, posterior.draws)
        used = solvers or SolverChoices()
        row = estimator_row("ranges", estimator)
        if row.target:
            nodes = _sums(row.load()(counts, estimator, used), row, counts.domain)
        else:
            nodes = _estimates(counts, estimator, used)
        return cls(counts.domain, counts.distribution, estimator, nodes)

    @property
    def cells(self) -> Floats:
        """Return the estimated count of every cell (cells,)."""
        return self.nodes[self.domain.first_leaf :]

    def rounded(self) -> UniversalHistogram:
        """Return integer counts of all cells, and their sums, whose running sums are this histogram's, rounded.

        No range of cells moves by more than 1, and counts that are not negative stay so.
        """
        nodes = np.zeros(self.domain.tree.nodes)
        nodes[self.domain.first_leaf :] = np.diff(np.rint(np.cumsum(self.cells)), prepend=0.0)
        return replace(self, nodes=np.asarray(self.domain.tree.sums(nodes), dtype=np.float64))

    @property
    def total(self) -> float:
        """Return the estimated number of entities."""
        return float(self.nodes[0])

    @cached_property
    def precision(self) -> Precision:
        """Return how sure the unbiased estimates are."""
        return Precision(self.domain, self.distribution, fitted=self.estimator != "noisy")

    def range(self, begin: int, end: int) -> tuple[float, float]:
        """Return the estimated entities in the cells begin to end - 1, and the standard error.

        Parameters
        ----------
        begin, end : int
            Positions of cells, 0 <= begin <= end <= cells.

        Returns
        -------
        float
            The estimate, in entities.
        float
            The standard error of the unbiased estimate, in entities.

        Raises
        ------
        ProblemError
            The range is not within the domain.
        """
        answers = self.ranges([begin], [end])
        return float(answers.estimate[0]), float(answers.standard_error[0])

    def between(self, low: int, high: int) -> tuple[float, float]:
        """Return the estimated entities of values low to high - 1, both edges of cells, and the standard error."""
        return self.range(*self.domain.between(low, high))

    def ranges(self, begin: ArrayLike, end: ArrayLike) -> RangeMeasurements:
        """Return estimates and standard errors of many ranges of cells begin:end (k,); O(height x fan-out) each.

        Raises ProblemError unless 0 <= begin <= end <= cells.
        """
        begins, ends = self.domain.checked(begin, end)
        errors = np.sqrt(self.precision.ranges(begins, ends))
        if self.estimator == "noisy":
            running = np.concatenate([[0.0], np.cumsum(self.nodes)])
            estimate = np.zeros(begins.size)
            for first, behind in self.domain.subtrees(begins, ends)[0]:
                estimate += running[behind] - running[first]
            return RangeMeasurements(estimate, errors)
        running = np.concatenate([[0.0], np.cumsum(self.cells)])
        return RangeMeasurements(running[ends] - running[begins], errors)

    def intervals(self, begin: ArrayLike, end: ArrayLike, coverage: float = 0.9) -> RangeIntervals:
        """Return intervals of many ranges of cells begin:end (k,), each alone, from the posterior.

        A release that was read has draws, and intervals of any range, where ``draws`` was configured, and else
        intervals of its published ranges. Raises ProblemError without any, for a coverage that is not between 0 and 1,
        and unless 0 <= begin <= end <= cells.
        """
        if self.spans is None:
            raise ProblemError('there are no draws to read intervals from: use the estimator "posterior"')
        if not 0.0 < coverage < 1.0:
            raise ProblemError(f"the coverage of intervals must lie between 0 and 1, not be {coverage}")
        return RangeIntervals(coverage, *self.spans.interval(*self.domain.checked(begin, end), coverage))

    def cdf(self) -> Floats:
        """Return the estimated share of entities in the cells up to and including each (cells,), from 0 to 1.

        Made nondecreasing by its running maximum where counts may be negative; all 1 without any entities.
        """
        running = np.maximum.accumulate(np.maximum(np.cumsum(self.cells), 0.0))
        return running / running[-1] if running[-1] > 0 else np.ones(running.size)

    def quantile(self, q: ArrayLike) -> Ints:
        """Return the first cell up to which the share of entities is at least q; ProblemError unless 0 <= q <= 1."""
        shares = np.atleast_1d(np.asarray(q, dtype=np.float64))
        if not ((shares >= 0) & (shares <= 1)).all():
            raise ProblemError("the shares of quantiles must lie between 0 and 1")
        cells = np.searchsorted(self.cdf(), shares, side="left")
        return np.minimum(cells, self.domain.cells - 1).astype(np.int64)

    def to_pandas(self) -> pd.DataFrame:
        """Return a frame of ``start``, ``stop`` (a cell's values are start to stop - 1), estimate, standard_error."""
        import pandas as pd

        errors = np.sqrt(self.precision.intervals()[self.domain.first_leaf :])
        edges = self.domain.edges
        columns = {"start": edges[:-1], "stop": edges[1:], "estimate": self.cells, "standard_error": errors}
        return pd.DataFrame(columns)

    def __repr__(self) -> str:
        noise = "noise by level" if isinstance(self.distribution, tuple) else self.distribution
        return f"UniversalHistogram({self.estimator}, {self.domain.cells:,} cells, {noise})"


def is_nonnegative(estimator: Estimator) -> bool:
    """Return whether an estimator's counts are nonnegative; so are those that "auto" chooses among."""
    return estimator == "auto" or "nonnegative" in estimator_row("ranges", estimator).keeps


def least_squares(counts: IntervalCounts, *, nonnegative: bool) -> TreeLeastSquares:
    """Return the problem of fitting the intervals to each other."""
    spread = Precision(counts.domain, counts.distribution).counts
    return TreeLeastSquares(counts.domain.tree, counts.values, spread, lower=0.0 if nonnegative else None)


def _sums(cells: ArrayLike, row: EstimatorRow, domain: DomainTree) -> Floats:
    """Return the sums of cells that an estimator returned; ProblemError where they break what its row says it keeps."""
    values = np.asarray(cells, dtype=np.float64)
    if values.shape != (domain.cells,) or not np.isfinite(values).all():
        raise ProblemError(f"estimator {row.name!r} must return {domain.cells:,} finite numbers, one a cell")
    if "nonnegative" in row.keeps and values.min() < 0:
        raise ProblemError(f"estimator {row.name!r} returned a negative count, which its row excludes")
    if "integers" in row.keeps and (values != np.rint(values)).any():
        raise ProblemError(f"estimator {row.name!r} returned a fraction, which its row excludes")
    nodes = np.zeros(domain.tree.nodes)
    nodes[domain.first_leaf :] = values
    return np.asarray(domain.tree.sums(nodes), dtype=np.float64)


def _estimates(counts: IntervalCounts, estimator: Estimator, solvers: SolverChoices) -> Floats:
    domain, tree = counts.domain, counts.domain.tree
    if estimator == "noisy":
        noisy = counts.values.astype(np.float64)
        return noisy if domain.fan_out is not None else np.asarray(tree.sums(noisy), dtype=np.float64)
    nodes = np.array(solvers.solve(least_squares(counts, nonnegative=estimator == "nonnegative")), dtype=np.float64)
    cells = nodes[domain.first_leaf :]
    if estimator == "nonnegative":
        np.maximum(cells, 0.0, out=cells)
    elif estimator == "zeroed":
        cells[:] = round_nonnegative(zero_subtrees(tree, nodes)[domain.first_leaf :])
    return np.asarray(tree.sums(nodes), dtype=np.float64)


def zero_subtrees(tree: Tree, estimate: ArrayLike) -> Floats:
    """Return estimates (n,) with every subtree whose root is at most 0 set to 0 (section 4.2); O(n).

    Parents no longer equal their children's sums: answer ranges from the leaves.
    """
    values = np.array(estimate, dtype=np.float64)
    if values.shape != tree.parent.shape:
        raise ProblemError(f"give one estimate for each of the {tree.nodes} nodes")
    starts = [0, 1]
    while starts[-1] < tree.nodes:
        starts.append(int(tree.first_child[starts[-1]]))
    zero = values <= 0
    for begin, end in pairwise(starts[1:]):
        zero[begin:end] |= zero[tree.parent[begin:end]]
    values[zero] = 0.0
    return values


def round_nonnegative(estimate: ArrayLike) -> Ints:
    """Return each number rounded to the nearest nonnegative integer, halves upward (section 5).

    Signed integers keep all their digits. ProblemError for what is no number or beyond int64.
    """
    values = np.asarray(estimate)
    if values.dtype.kind == "i":
        clipped: Ints = np.maximum(values, 0).astype(np.int64)
        return clipped
    values = values.astype(np.float64)
    if not (values < _BEYOND_INT64).all():
        raise ProblemError("estimates to be rounded must be numbers below 2^63")
    floors = np.floor(np.maximum(values, 0.0))
    # Not floor(x + 1/2): that sum is itself rounded, to the next integer but one for large x.
    rounded: Ints = floors.astype(np.int64) + (values - floors >= 0.5)
    return rounded
