"""What a measurement of ranges holds: its public parameters, and the noisy counts of a domain's intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from coco_opt.array_types import Ints
from coco_opt.errors import ProblemError
from coco_opt.privacy import Measurement
from coco_opt.privacy.budget import stated_fraction
from coco_opt.ranges.domain import DomainTree
from coco_opt.ranges.precision import Noise

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
