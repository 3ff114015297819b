"""Exact variances of range answers before any noise is drawn, from the tree and the noise distribution alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.privacy import NoiseDistribution
from coco_opt.problems.tree import TreePosterior
from coco_opt.ranges.domain import DomainTree

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Precision:
    """The variances of range answers from noisy counts of a domain's intervals.

    ``fitted``: of the least squares estimate H-bar, which uses all counts; otherwise of H~, the sum of the fewest.
    """

    domain: DomainTree
    distribution: NoiseDistribution
    fitted: bool = True

    @property
    def counts(self) -> Floats:
        """Return the variance of every node's noisy count (nodes,), infinite where it was not measured."""
        spread = np.full(self.domain.tree.nodes, np.inf)
        spread[self.domain.measured_levels] = self.distribution.variance
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
            return np.asarray(self.domain.subtrees(begins, ends)[1] * self.distribution.variance, dtype=np.float64)
        first = self.domain.first_leaf
        return self._posterior.ranges(first + begins, first + ends)[1]

    def intervals(self) -> Floats:
        """Return the variance of every interval of the tree (nodes,), the whole domain first; O(nodes)."""
        if not self._summed:
            return self._posterior.variance
        spread = self.counts
        spread[0] = self.distribution.variance * (1 if self.domain.fan_out is not None else self.domain.cells)
        return spread
