"""Where to spend a budget: shares of the levels, fractions that sum to exactly 1, and the noise that they buy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from coco_opt.array_types import Floats
from coco_opt.privacy.cost import Cost, Sensitivity

Shares = tuple[Fraction, ...]

DENOMINATOR = 1000  # of planned shares
RATIOS = (0.25, 0.5, 1.0, 1.5, 2.0)
"""Shares of the budget of a level over that of the level above.

Larger shares leave the levels above so little that the posterior's chains mix slowly: on Hawaii's blocks shares of .01,
.04, .15, .8 did not converge in three minutes, and erred by a fifth more on the mean of levels.
"""

LEAF_SHARES = (0.5, 0.7, 0.85, 0.95)
"""Shares of the budget of the leaf level, where the levels above share the rest evenly.

The posterior reads the levels above from the leaves' answers as well. Of single sizes of Manhattan's taxis and of
households by county it errs less at every level with the largest share than with the share before.
"""

ROOT_PART = 0.9
"""The root's part of what the leaves leave, where the levels between are measured by little of their own.

One region has few answers, which tell it more than those of all leaves together from a share of a few per cent on. The
levels between have many of both.
"""


@dataclass(frozen=True, slots=True)
class NoisePlan:
    """A budget to share among levels, and the sensitivity of each level's queries, root first."""

    cost: Cost
    sensitivities: tuple[Sensitivity, ...]

    def variances(self, shares: Sequence[float | Fraction]) -> Floats:
        """Return the noise variance of one cell at each level, float64[levels]; infinite where the share is 0."""
        return np.array([self._variance(*pair) for pair in zip(self.sensitivities, shares, strict=True)])

    def _variance(self, sensitivity: Sensitivity, share: float | Fraction) -> float:
        cost = self.cost * Fraction(share)
        return cost.distribution(sensitivity).variance if cost else math.inf


def uniform_shares(levels: int) -> Shares:
    """Return equal shares."""
    return (Fraction(1, levels),) * levels


def allocation(ratio: float, levels: int) -> Shares:
    """Return the shares of the levels, each ``ratio`` times the share above: thousandths, equal shares exactly so."""
    if ratio == 1.0:
        return uniform_shares(levels)
    return rounded_shares(np.asarray(ratio ** np.arange(levels), np.float64))


def leaf_allocation(share: float, levels: int) -> Shares:
    """Return the shares of the levels where the leaves have ``share`` and the levels above the rest in equal parts."""
    return rounded_shares(np.array([*((1.0 - share) / (levels - 1),) * (levels - 1), share]))


def root_and_leaf_allocation(share: float, levels: int) -> Shares:
    """Return the shares of three levels or more: the leaves have ``share``, and the root nine tenths of the rest."""
    rest = 1.0 - share
    between = (1.0 - ROOT_PART) * rest / (levels - 2)
    return rounded_shares(np.array([ROOT_PART * rest, *(between,) * (levels - 2), share]))


def allocations(
    levels: int, leaf_shares: Sequence[float] = LEAF_SHARES, root_and_leaf_shares: Sequence[float] = ()
) -> list[Shares]:
    """Return the allocations that are weighed, without repetition."""
    candidates = [allocation(ratio, levels) for ratio in RATIOS]
    if levels > 1:
        candidates += [leaf_allocation(share, levels) for share in leaf_shares]
    if levels > 2:
        candidates += [root_and_leaf_allocation(share, levels) for share in root_and_leaf_shares]
    return list(dict.fromkeys(candidates))


def rounded_shares(weights: Floats, denominator: int = DENOMINATOR) -> Shares:
    """Return thousandths nearest to weights scaled to sum to 1, by largest fractions, each at least 1."""
    levels = len(weights)
    spare = denominator - levels
    exact = np.asarray(weights, dtype=np.float64) / float(np.sum(weights)) * denominator
    extra = np.maximum(exact - 1, 0)
    extra *= spare / float(extra.sum()) if extra.sum() else 0.0
    units = np.floor(extra).astype(np.int64)
    order = np.argsort(units - extra, kind="stable")
    units[order[: spare - int(units.sum())]] += 1
    return tuple(Fraction(int(part) + 1, denominator) for part in units)
