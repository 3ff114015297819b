"""Exact variances of range answers before any noise is drawn, from the tree and the noise distribution alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from coco_opt.array_types import Floats
from coco_opt.privacy import Cost, Neighbours, NoiseDistribution
from coco_opt.problems.tree import TreePosterior
from coco_opt.ranges.domain import DomainTree

Noise = NoiseDistribution | tuple[NoiseDistribution, ...]
"""The distribution of the noise of all counts or, where levels share the budget, of each level's, the root first."""


def noise_of(domain: DomainTree, cost: Cost, neighbours: Neighbours = "add_remove") -> Noise:
    """Return the noise that a cost buys for the counts of a domain."""
    sensitivities = domain.sensitivities(neighbours)
    if domain.shares is None:
        return cost.distribution(sensitivities[0])
    costs = cost.shared(domain.shares)
    return tuple(part.distribution(changed) for part, changed in zip(costs, sensitivities, strict=True))


@dataclass(frozen=True, eq=False)
class Precision:
    """The variances of range answers from noisy counts of a domain's intervals.

    ``fitted``: of the least squares estimate H-bar, which uses all counts; otherwise of H~, the sum of the fewest.
    """

    domain: DomainTree
    distribution: Noise
    fitted: bool = True

    @property
    def counts(self) -> Floats:
        """Return the variance of every node's noisy count (nodes,), infinite where it was not measured."""
        spread = np.full(self.domain.tree.nodes, np.inf)
        noise = self.distribution if isinstance(self.distribution, tuple) else (self.distribution,)
        for part, distribution in zip(self.domain.measured_parts, noise, strict=True):
            spread[part] = distribution.variance
        return spread

    @property
    def _summed(self) -> bool:
        """Return whether an answer is a sum of noisy counts; without a tree, least squares has nothing to fit."""
        return not self.fitted or self.domain.fan_out is None

    @cached_property
    def _posterior(self) -> TreePosterior:
        return TreePosterior.from_variances(self.domain.tree, self.counts)

    def ranges(self, begin: ArrayLike, end: ArrayLike) -> Floats:
        """Return the variances (k,) of the cells begin:end; O(height x fan-out) each, after O(nodes) once."""
        begins, ends = self.domain.checked(begin, end)
        if self._summed:
            pieces, taken = self.domain.subtrees(begins, ends)
            if not isinstance(self.distribution, tuple):
                return np.asarray(taken * self.distribution.variance, dtype=np.float64)
            running = np.concatenate([[0.0], np.cumsum(self.counts)])
            return np.asarray(sum(running[behind] - running[first] for first, behind in pieces), dtype=np.float64)
        first = self.domain.first_leaf
        return self._posterior.ranges(first + begins, first + ends)[1]

    def combination(self, weights: ArrayLike) -> float:
        """Return the variance of the sum of all cells, each times its weight (cells,); O(nodes). Fitted only."""
        coefficients = np.zeros(self.domain.tree.nodes)
        coefficients[self.domain.first_leaf :] = weights
        if self.domain.fan_out is None:
            return float(coefficients[1:] ** 2 @ self.counts[1:])
        return self._posterior.combination(coefficients)[1]

    def intervals(self) -> Floats:
        """Return the variance of every interval of the tree (nodes,), the whole domain first; O(nodes)."""
        if not self._summed:
            return self._posterior.variance
        spread = self.counts
        if self.domain.fan_out is None:
            spread[0] = spread[1:].sum()
        return spread
