"""When chains have converged, by one criterion for the posteriors of all kinds, and its account in a manifest."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from coco_opt.array_types import Flags, Floats


@dataclass(frozen=True, slots=True)
class Criterion:
    """What each of a region's compared counts must satisfy: a largest split R-hat and a least effective sample size."""

    r_hat: float = 1.1
    effective: float = 25.0

    def met(self, r_hat: Floats, effective: Floats) -> Flags:
        """Return which regions have converged (regions,), from the diagnostics of their counts (regions, counts)."""
        return np.asarray(((r_hat <= self.r_hat) & (effective >= self.effective)).all(axis=1))

    def distance(self, r_hat: Floats, effective: Floats) -> Floats:
        """Return how far regions are from the criterion (regions,): at most 1 where they meet it."""
        return np.asarray(np.maximum((r_hat - 1.0) / (self.r_hat - 1.0), self.effective / effective).max(axis=1))

    def account(self, settled: Flags, r_hat: float, effective: float) -> dict[str, Any]:
        """Return a manifest's account of chains: which of them ``settled``, the worst R-hat and effective size."""
        return {
            "converged": bool(settled.all()),
            "criterion": {"r_hat_at_most": self.r_hat, "effective_size_at_least": self.effective},
            "worst_r_hat": r_hat if math.isfinite(r_hat) else None,
            "least_effective_size": effective,
        }
