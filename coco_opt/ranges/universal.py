"""Universal histograms: one noisy tree that answers every range, with standard errors (Hay et al. 2010, section 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.choices import SolverChoices
from coco_opt.errors import ProblemError
from coco_opt.problems.tree_least_squares import TreeLeastSquares
from coco_opt.problems.tree_posterior import TreePosterior
from coco_opt.ranges.heuristics import round_nonnegative, zero_subtrees
from coco_opt.ranges.measurement import RangeMeasurement

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Estimator = Literal["noisy", "consistent", "nonnegative", "zeroed"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)


@dataclass(frozen=True, eq=False, slots=True)
class RangeAnswers:
    """Estimated entities in each range (k,) and their standard errors (k,)."""

    estimate: Floats
    standard_error: Floats


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class UniversalHistogram:
    """Counts of an ordered domain that answer ranges, quantiles and the CDF; build it with ``fit``.

    ``nodes`` (n,) are the estimates of all intervals, ``estimator`` how they were made:

    * "noisy": as measured, a range being the sum of the fewest intervals (H~; L~ where only cells were measured);
    * "consistent": least squares (H-bar), the best linear unbiased estimate;
    * "nonnegative": least squares with nonnegative counts, exactly;
    * "zeroed": the paper's heuristic: H-bar, subtrees of at most 0 made 0, cells rounded.

    Standard errors are those of the unbiased estimate ("noisy": H~, otherwise H-bar): making counts nonnegative adds
    bias and lowers the error of most ranges in sparse data, neither of which they show.
    """

    measurement: RangeMeasurement
    estimator: Estimator
    nodes: Floats
    _posterior: TreePosterior

    @classmethod
    def fit(
        cls, measurement: RangeMeasurement, estimator: Estimator = "nonnegative", solvers: SolverChoices | None = None
    ) -> UniversalHistogram:
        """Return the histogram of a noisy measurement; SolverError where the chosen solver misses its tolerance."""
        if estimator not in ESTIMATORS:
            raise ProblemError(f"estimator must be one of {', '.join(ESTIMATORS)}, not {estimator!r}")
        tree = measurement.domain.tree
        solve = (solvers or SolverChoices()).solve
        free = TreeLeastSquares(tree, measurement.values, measurement.variances)
        posterior = TreePosterior.of(free)
        nodes = measurement.values.astype(np.float64)
        if measurement.domain.fan_out is None:
            nodes = tree.sums(nodes)
        if estimator == "nonnegative":
            nodes = solve(TreeLeastSquares(tree, measurement.values, measurement.variances, lower=0.0))
        elif estimator != "noisy":
            nodes = solve(free)
        if estimator == "zeroed":
            nodes = zero_subtrees(tree, nodes)
            nodes[tree.is_leaf] = round_nonnegative(nodes[tree.is_leaf])
            nodes = tree.sums(nodes)
        nodes.setflags(write=False)
        return cls(measurement, estimator, nodes, posterior)

    @property
    def cells(self) -> Floats:
        """Return the estimated count of every cell (cells,)."""
        return self.nodes[self.measurement.domain.first_leaf :]

    @property
    def total(self) -> float:
        """Return the estimated number of entities."""
        return float(self.nodes[0])

    def range(self, begin: int, end: int) -> tuple[float, float]:
        """Return the estimated entities in the cells begin:end and the standard error."""
        answers = self.ranges([begin], [end])
        return float(answers.estimate[0]), float(answers.standard_error[0])

    def ranges(self, begin: ArrayLike, end: ArrayLike) -> RangeAnswers:
        """Return estimates and standard errors of many ranges of cells begin:end (k,); O(height x fan-out) each.

        Raises ProblemError unless 0 <= begin <= end <= cells.
        """
        domain = self.measurement.domain
        begins, ends = domain.checked(begin, end)
        if self.estimator == "noisy":
            running = np.concatenate([[0.0], np.cumsum(self.nodes)])
            pieces, intervals = domain.subtrees(begins, ends)
            estimate = np.zeros(begins.size)
            for first, behind in pieces:
                estimate += running[behind] - running[first]
            return RangeAnswers(estimate, np.sqrt(intervals * self.measurement.variance))
        running = np.concatenate([[0.0], np.cumsum(self.cells)])
        _, variance = self._posterior.ranges(domain.first_leaf + begins, domain.first_leaf + ends)
        return RangeAnswers(running[ends] - running[begins], np.sqrt(variance))

    def cdf(self) -> Floats:
        """Return the estimated share of entities in the cells up to and including each (cells,), from 0 to 1.

        Made nondecreasing by its running maximum where counts may be negative; all 1 without any entities.
        """
        running = np.maximum.accumulate(np.maximum(np.cumsum(self.cells), 0.0))
        return running / running[-1] if running[-1] > 0 else np.ones(running.size)

    def quantile(self, q: ArrayLike) -> NDArray[np.int64]:
        """Return the first cell up to which the share of entities is at least q; ProblemError unless 0 <= q <= 1."""
        shares = np.atleast_1d(np.asarray(q, dtype=np.float64))
        if not ((shares >= 0) & (shares <= 1)).all():
            raise ProblemError("quantiles are asked for shares between 0 and 1")
        at = np.searchsorted(self.cdf(), shares, side="left")
        return np.minimum(at, self.measurement.domain.cells - 1).astype(np.int64)

    def to_pandas(self) -> pd.DataFrame:
        """Return a frame of ``cell``, ``estimate`` and ``standard_error``."""
        import pandas as pd

        cell = np.arange(self.measurement.domain.cells)
        answers = self.ranges(cell, cell + 1)
        return pd.DataFrame({"cell": cell, "estimate": answers.estimate, "standard_error": answers.standard_error})

    def __repr__(self) -> str:
        return f"UniversalHistogram({self.estimator}, of {self.measurement!r})"
