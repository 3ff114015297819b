"""The strategies of section 4 on a binary tree over a domain: noise, estimates and range queries.

L~ asks for the unit counts, H~ for the counts of all nodes and sums the fewest that make a range, H-bar fits them to
each other. The paper rounds all of them to nonnegative integers and zeroes H-bar's subtrees that are at most 0; as this
breaks sums, a range's answer then depends on whether leaves or the fewest nodes are added up: both are here.

Before them stands what is known without sampling: error bounds of unattributed and universal histograms. Errors are
expected squared errors; ``height`` is the number of nodes from a leaf to the root of a complete tree, whose answers all
have noise of scale height / epsilon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from coco_solvers.structured.tree import TreePasses
from numpy.typing import NDArray

from coco_opt import solving
from coco_opt.array_types import Floats, Ints
from coco_opt.problems.tree import TreeLeastSquares, TreePosterior
from coco_opt.ranges import DomainTree, round_nonnegative, zero_subtrees


@dataclass(frozen=True, eq=False, slots=True)
class EqualRuns:
    """The runs of equal true values that Theorem 2 speaks of: ``lengths`` int64 (distinct,), sum n."""

    lengths: Ints

    @classmethod
    def of(cls, ranks: Ints) -> EqualRuns:
        """Return the runs of sorted counts (n,)."""
        return cls(np.unique(ranks, return_counts=True)[1].astype(np.int64))

    @property
    def distinct(self) -> int:
        """Return the number of distinct values, d in the paper."""
        return self.lengths.size

    @property
    def log_cubed(self) -> float:
        """Return sum_r log^3 n_r (natural logarithm), the term of Theorem 2 whose constant is unknown."""
        return float((np.log(self.lengths) ** 3).sum())

    def theorem2(self, epsilon: float) -> float:
        """Return sum_r (log^3 n_r + 1) / epsilon^2: Theorem 2's shape with both constants set to 1."""
        return (self.log_cubed + self.distinct) / epsilon**2

    def harmonic(self, epsilon: float) -> float:
        """Return sum_r 2 H(n_r) / epsilon^2, H harmonic numbers: a bound on the error of S-bar without constants.

        The fit is at most as far from the truth as the fit of each run's noise alone (the tangent cone's). The expected
        squared length of n independent equal noises' isotonic fit is their variance times the expected number of
        blocks, H(n) (Sparre Andersen), as block sums have the variance of their length.
        """
        numbers = np.cumsum(1.0 / np.arange(1, int(self.lengths.max(initial=1)) + 1))
        return 2.0 * float(numbers[self.lengths - 1].sum()) / epsilon**2


def noisy_ranks_error(n: int, epsilon: float) -> float:
    """Return the error of S~: 2 n / epsilon^2."""
    return 2.0 * n / epsilon**2


def noisy_ranks_deviation(n: int, epsilon: float) -> float:
    """Return the standard deviation of S~'s squared error in one draw of Laplace noise: sqrt(20 n) / epsilon^2."""
    return math.sqrt(20.0 * n) / epsilon**2


def unit_range_error(size: Ints, epsilon: float) -> Floats:
    """Return the error of L~ for ranges of these sizes: 2 size / epsilon^2 (section 4.2)."""
    return np.asarray(2.0 * size / epsilon**2, dtype=np.float64)


def range_bound(height: int, epsilon: float, fan_out: int = 2) -> float:
    """Return Theorem 4 (iii) with its constant: at most k height nodes of variance 2 height^2 / epsilon^2 each."""
    return fan_out * height * 2.0 * height**2 / epsilon**2


def most_improved_factor(height: int, fan_out: int = 2) -> float:
    """Return Theorem 4 (iv): how many times H~ errs more than H-bar, at least, over all leaves but the outermost."""
    return (2.0 * (height - 1) * (fan_out - 1) - fan_out) / 3.0


def useful_error(height: int, epsilon: float, delta: float) -> float:
    """Return Appendix E's bound on the absolute error of H~ over all ranges at once, with probability 1 - delta.

    Binary tree, at most m = 2 height noises of scale b = height / epsilon a range, and a union over all n (n + 1) / 2
    ranges: nu sqrt(8 log(2 / delta')) with nu = b max(sqrt(m), sqrt(log(2 / delta'))) (Corollary 1 of the paper's
    reference 5, Chan, Shi and Song; the constants are theirs).
    """
    leaves = 2 ** (height - 1)
    each = math.log(2.0 / (delta / (leaves * (leaves + 1) / 2)))
    spread = height / epsilon * max(math.sqrt(2 * height), math.sqrt(each))
    return spread * math.sqrt(8 * each)


UNIT, NODES = "L~", "H~"
FIT, FIT_LEAVES = "H-bar zeroed, by nodes", "H-bar zeroed, by leaves"
NONNEGATIVE = "H-bar exact nonnegative"
RAW_UNIT, RAW_NODES, RAW_FIT = "L~ unrounded", "H~ unrounded", "H-bar unrounded"
STRATEGIES = (UNIT, NODES, FIT, FIT_LEAVES, NONNEGATIVE, RAW_UNIT, RAW_NODES, RAW_FIT)


@dataclass(frozen=True, eq=False, slots=True)
class Ranges:
    """Range queries ``begin:end`` over the cells, int64 (m,) each."""

    begin: Ints
    end: Ints

    @classmethod
    def random(cls, cells: int, size: int, number: int, rng: np.random.Generator) -> Ranges:
        """Return ``number`` ranges of one size at places drawn uniformly."""
        begin = rng.integers(0, cells - size + 1, number)
        return cls(begin, begin + size)

    @classmethod
    def everywhere(cls, cells: int, size: int) -> Ranges:
        """Return all ranges of one size."""
        begin = np.arange(cells - size + 1)
        return cls(begin, begin + size)


def fewest_nodes(domain: DomainTree, nodes: NDArray[Any], ranges: Ranges) -> Floats:
    """Return sums (m,) of the fewest nodes that make up each range."""
    running = np.concatenate([[0.0], np.cumsum(nodes, dtype=np.float64)])
    total = np.zeros(ranges.begin.size)
    for first, behind in domain.subtrees(ranges.begin, ranges.end)[0]:
        total += running[behind] - running[first]
    return total


def node_numbers(domain: DomainTree, ranges: Ranges) -> Ints:
    """Return how many nodes (m,) H~ adds up for each range."""
    return domain.subtrees(ranges.begin, ranges.end)[1]


def fit_variances(domain: DomainTree, ranges: Ranges) -> Floats:
    """Return H-bar's exact variances (m,) for noise of variance 1 on every node."""
    first = domain.first_leaf
    posterior = TreePosterior.from_variances(domain.tree, 1.0)
    return posterior.ranges(ranges.begin + first, ranges.end + first)[1]


@dataclass(frozen=True, eq=False, slots=True)
class Sample:
    """One draw of both noisy measurements and all estimates from them; ``prefixes`` are running sums (cells + 1,)."""

    domain: DomainTree
    nodes: dict[str, NDArray[Any]]
    prefixes: dict[str, Floats]

    @classmethod
    def draw(cls, domain: DomainTree, truth: Ints, epsilon: float, rng: np.random.Generator) -> Sample:
        """Add Laplace noise (seeded: NOT PRIVATE) to the true node counts (nodes,) and estimate; O(n log n)."""
        first = domain.first_leaf
        unit = truth[first:] + rng.laplace(0.0, 1.0 / epsilon, domain.cells)
        noisy = truth + rng.laplace(0.0, domain.sensitivity().l1 / epsilon, domain.tree.nodes)
        smooth = solving.solve(TreeLeastSquares(domain.tree, noisy), TreePasses()).value
        positive = solving.solve(TreeLeastSquares(domain.tree, noisy, lower=0.0), TreePasses()).value
        zeroed = round_nonnegative(zero_subtrees(domain.tree, smooth))
        cells = {
            UNIT: round_nonnegative(unit),
            RAW_UNIT: unit,
            FIT_LEAVES: zeroed[first:],
            RAW_FIT: smooth[first:],
            NONNEGATIVE: positive[first:],
        }
        prefixes = {name: np.concatenate([[0.0], np.cumsum(values)]) for name, values in cells.items()}
        return cls(domain, {NODES: round_nonnegative(noisy), RAW_NODES: noisy, FIT: zeroed}, prefixes)

    def answer(self, strategy: str, ranges: Ranges) -> Floats:
        """Return a strategy's estimates (m,) of the ranges."""
        if strategy in self.nodes:
            return fewest_nodes(self.domain, self.nodes[strategy], ranges)
        running = self.prefixes[strategy]
        answers: Floats = running[ranges.end] - running[ranges.begin]
        return answers
