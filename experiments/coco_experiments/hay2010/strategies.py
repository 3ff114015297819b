"""The strategies of section 4 on a binary tree over a domain: noise, estimates and range queries.

L~ asks for the unit counts, H~ for the counts of all nodes and sums the fewest that make a range, H-bar fits them to
each other. The paper rounds all of them to nonnegative integers and zeroes H-bar's subtrees that are at most 0; as this
breaks sums, a range's answer then depends on whether leaves or the fewest nodes are added up: both are here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from coco_solvers.structured.tree import TreePasses
from numpy.typing import NDArray

from coco_opt import solving
from coco_opt.array_types import Floats, Ints
from coco_opt.problems.tree import TreeLeastSquares, TreePosterior
from coco_opt.ranges import DomainTree, round_nonnegative, zero_subtrees

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
