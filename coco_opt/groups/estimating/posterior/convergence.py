"""When the chains of a region have converged, and the account of all regions, the same wherever it is shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coco_opt.array_types import Flags, Floats

COUNTS = ("its entities", "its groups of size 0", "its groups up to the middle size")
"""The counts of a region by which chains are compared, in the order of the sampler's diagnostics."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """What every one of a region's ``COUNTS`` must satisfy: a largest split R-hat and a least effective sample size."""

    r_hat: float = 1.1
    effective: float = 25.0

    def met(self, r_hat: Floats, effective: Floats) -> Flags:
        """Return which regions have converged (regions,), from the diagnostics of their counts (regions, counts)."""
        return np.asarray(((r_hat <= self.r_hat) & (effective >= self.effective)).all(axis=1))

    def distance(self, r_hat: Floats, effective: Floats) -> Floats:
        """Return how far regions are from the criterion (regions,): at most 1 where they meet it."""
        return np.asarray(np.maximum((r_hat - 1.0) / (self.r_hat - 1.0), self.effective / effective).max(axis=1))

    def __str__(self) -> str:
        *first, last = COUNTS
        return (
            f"A region has converged if split R-hat is at most {self.r_hat:g} and the effective sample size at least "
            f"{self.effective:g} for each of three counts: {', '.join(first)} and {last}."
        )


@dataclass(frozen=True, slots=True)
class Convergence:
    """Which of the ``regions`` have met a criterion after so many draws and sweeps: all but those ``not_converged``.

    ``r_hat`` is the largest R-hat of all regions' counts, ``effective`` their least effective sample size,
    ``prior_moved`` the share of all groups for which the prior, of that kind, still changed when it was frozen.
    """

    criterion: Criterion
    regions: int
    not_converged: tuple[int, ...]
    r_hat: float
    effective: float
    prior: str
    draws: int
    sweeps: int
    prior_moved: float

    @property
    def converged(self) -> bool:
        """Whether all regions have converged."""
        return not self.not_converged

    def __str__(self) -> str:
        return (
            f"{self.criterion} {self.regions - len(self.not_converged):,} of {self.regions:,} regions have converged, "
            f"after {self.draws:,} draws of {self.sweeps:,} sweeps (worst R-hat {_rounded_up(self.r_hat)}, least "
            f"effective sample size {math.floor(self.effective):,})."
        )

    def account(self, paths: Sequence[str]) -> dict[str, Any]:
        """Return the account that a manifest states; ``paths`` are those of all regions."""
        return {
            "converged": self.converged,
            "criterion": {"r_hat_at_most": self.criterion.r_hat, "effective_size_at_least": self.criterion.effective},
            "regions": self.regions,
            "regions_not_converged": len(self.not_converged),
            "not_converged": [paths[region] for region in self.not_converged],
            "worst_r_hat": self.r_hat if math.isfinite(self.r_hat) else None,
            "least_effective_size": self.effective,
            "prior": self.prior,
            "draws": self.draws,
            "sweeps": self.sweeps,
            "prior_moved": self.prior_moved if math.isfinite(self.prior_moved) else None,
        }


def _rounded_up(r_hat: float) -> str:
    """Return R-hat with two decimals, rounded up: 1.10 never stands for a value above 1.1."""
    return f"{math.ceil(round(100 * r_hat, 6)) / 100:.2f}" if math.isfinite(r_hat) else "infinite"
