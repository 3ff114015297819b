"""What a measurement of ranges holds: its public parameters, and the noisy counts of a domain's intervals.

The exact variances of answers follow from the tree and the noise distribution alone, before any noise is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.privacy import Cost, Measurement, Neighbours, NoiseDistribution
from coco_opt.privacy.budget import stated_fraction
from coco_opt.problems.tree import TreePosterior
from coco_opt.ranges.domain import DomainTree

Noise = NoiseDistribution | tuple[NoiseDistribution, ...]
"""The distribution of the noise of all counts or, where levels share the budget, of each level's, the root first."""

RANGES, SORTED = "ranges", "sorted"
"""Kinds of measurement, and the names of their one query; queries of single levels add the level to it."""

Outside = Literal["refuse", "clamp"]
"""What becomes of values outside the domain: an error, or counted in the nearest cell."""


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class IntervalCounts:
    """Noisy counts (nodes,) of the intervals of a domain, int64, read-only; 0 at a root that was not measured.

    ``distribution`` is that of each count's noise, or of each level's. Raises ProblemError for another shape or type.
    """

    domain: DomainTree
    values: Ints
    distribution: Noise

    def __post_init__(self) -> None:
        if self.values.shape != (self.domain.tree.nodes,) or self.values.dtype != np.int64:
            raise ProblemError(f"a measurement of this domain is {self.domain.tree.nodes} int64 counts")
        self.values.setflags(write=False)

    @classmethod
    def of(cls, measurement: Measurement) -> IntervalCounts:
        """Return the counts of a measurement; ProblemError for a measurement of another kind."""
        if measurement.measurement_plan.kind != RANGES:
            raise ProblemError(f"a measurement of {measurement.measurement_plan.kind} holds no counts of intervals")
        domain = domain_of(measurement.measurement_plan.parameters)
        values = np.zeros(domain.tree.nodes, np.int64)
        for part, answers in zip(domain.measured_parts, measurement.answers, strict=True):
            values[part] = answers.values
        noise = tuple(answers.query.distribution for answers in measurement.answers)
        return cls(domain, values, noise[0] if domain.shares is None else noise)

    def __repr__(self) -> str:
        shape = "cells alone" if self.domain.fan_out is None else f"fan-out {self.domain.fan_out}"
        noise = "noise by level" if isinstance(self.distribution, tuple) else self.distribution
        return f"IntervalCounts({self.domain.cells:,} cells, {shape}, height {self.domain.height}, {noise})"


def parameters_of(domain: DomainTree, outside: Outside) -> dict[str, Any]:
    """Return a domain and how values enter it as JSON-able values, for measurements and manifests."""
    edges = None if domain.plain else domain.edges.tolist()
    fan_out = list(domain.fan_out) if isinstance(domain.fan_out, tuple) else domain.fan_out
    shares = {} if domain.shares is None else {"shares": [str(share) for share in domain.shares]}
    return {"cells": domain.cells, "fan_out": fan_out, "edges": edges, "outside": outside, **shares}


def domain_of(parameters: Mapping[str, Any]) -> DomainTree:
    """Return the domain that ``parameters_of`` wrote; KeyError, TypeError or ValueError for anything else."""
    shares = (
        None
        if "shares" not in parameters
        else [stated_fraction(share) or Fraction(0) for share in parameters["shares"]]
    )
    return DomainTree(parameters["cells"], parameters["fan_out"], parameters["edges"], shares)


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
