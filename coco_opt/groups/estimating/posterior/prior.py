"""Priors learned from the noisy answers alone: how counts of nearby sizes and of parents inform those of a region.

Empirical Bayes (Robbins 1956): the prior is learned from the posterior mean of the counts under the previous prior,
smoothed over sizes. The smoothing windows and the borrowing from parents are our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from coco_opt.array_types import Flags, Floats, Ints
from coco_opt.errors import ProblemError

if TYPE_CHECKING:
    from coco_opt.kernels.posterior_base import Base, Knots


def smoothed(values: Floats, width: Ints, alone: Flags | None = None) -> Floats:
    """Return means over the sizes k - width[k] .. k + width[k], cut off at the ends; last axis, O(n).

    Sizes that stand ``alone`` (n,) keep their own values and do not enter other means: by default the last one, which
    counts all larger groups. Means are at least 0.
    """
    n = values.shape[-1]
    single = only_last(n) if alone is None else alone
    first, end = _ends(width)
    lent = np.where(single, 0.0, values)
    running = np.concatenate([np.zeros((*values.shape[:-1], 1)), np.cumsum(lent, axis=-1)], axis=-1)
    lending = np.append(0, np.cumsum(~single))
    near = np.maximum(lending[end] - lending[first], 1)
    means = (running[..., end] - running[..., first]) / near
    # A running sum may leave -1e-17 where all values are zero.
    return np.where(single, values, np.maximum(means, 0.0))


def reaching(sizes: int, reach: float) -> Ints:
    """Return floor(reach k) for the sizes k = 0 .. sizes - 1."""
    widths: Ints = np.floor(reach * np.arange(sizes)).astype(np.int64)
    return widths


def _ends(width: Ints) -> tuple[Ints, Ints]:
    k = np.arange(width.size)
    return np.maximum(k - width, 0), np.minimum(k + width + 1, width.size)


def only_last(sizes: int) -> Flags:
    """Return which of 0 .. sizes - 1 stand alone by default: the last one."""
    alone = np.zeros(sizes, bool)
    alone[-1] = True
    return alone


@dataclass(frozen=True, slots=True)
class PriorOptions:
    """How the prior is learned.

    It is multinomial: each group of a leaf has size k with probability pi(k). A region's size distribution varies
    around its parent's as if ``borrowed`` groups of the parent had been observed in it (as a first guess), in factors
    that vary over about k +- reach k. The root's varies around a smooth distribution, which is a gamma density unless
    the answers say otherwise. Single sizes deviate from it, in all regions alike. The amounts and all of these
    distributions are sampled too (``kernels.posterior_shares``, ``posterior_shape``, ``posterior_base``). Chains begin
    with a distribution near the answers, plus ``floor`` everywhere. Moves are proposed from their expected values
    (``SizeProbabilities``), for which the root's shape is smoothed over at most k +- ``root_reach`` k (``shape``).
    Sizes that stand out in the answers are not smoothed (``spikes``).
    """

    kind: ClassVar[str] = "multinomial"

    root_reach: float = 0.15
    reach: float = 0.6
    single: int = 0
    borrowed: float = 30.0
    floor: float = 1e-6

    def __post_init__(self) -> None:
        if not all(0.0 <= reach < 1.0 for reach in (self.root_reach, self.reach)):
            raise ProblemError("counts are smoothed over k +- reach k, with a reach from 0 to below 1")
        if not min(self.borrowed, self.floor) > 0.0:
            raise ProblemError("'borrowed' and 'floor' must be positive: no size may be impossible")


@dataclass(frozen=True, eq=False, slots=True)
class Hats:
    """Functions of a size that are 1 at a knot and fall evenly to 0 at the next ones; they add up to 1 at every size.

    Size k has the share 1 - ``share[k]`` in hat ``left[k]`` and the rest in the one after it. Hat j is that of
    ``knots[j]``. A size that stands alone has a hat of its own, from hat ``knots.size + 1`` on.
    """

    left: Ints
    share: Floats
    count: int
    knots: Ints

    @classmethod
    def by_reach(cls, alone: Flags, reach: float, single: int = 0) -> Hats:
        """Return hats with knots 0, 1, ..., ``single``, and further ones each about 1 + reach times the one before."""
        last = alone.size - 1
        knots = [0]
        while knots[-1] < last:
            following = knots[-1] + 1 if knots[-1] < single else int(knots[-1] * (1.0 + reach))
            knots.append(min(max(knots[-1] + 1, following), last))
        return cls.at(knots, alone)

    @classmethod
    def at(cls, knots: Sequence[int], alone: Flags) -> Hats:
        """Return hats with the given knots, in order from 0 to the last size."""
        bounds = np.array([*knots, alone.size])
        k = np.arange(alone.size)
        left = np.searchsorted(bounds, k, side="right") - 1
        share = (k - bounds[left]) / (bounds[left + 1] - bounds[left])
        own = np.flatnonzero(alone)
        left[own], share[own] = bounds.size + np.arange(own.size), 0.0
        return cls(left, share, bounds.size + own.size + 1, bounds[:-1])

    def values(self, factors: Floats) -> Floats:
        """Return sum_j factors_j hat_j at every size, (..., sizes)."""
        return factors[..., self.left] * (1.0 - self.share) + factors[..., self.left + 1] * self.share

    def sums(self, values: Floats) -> Floats:
        """Return sum_k hat_j(k) values_k for every hat, float64[rows, count], of values float64[rows, sizes]."""
        rows = values.shape[0]
        base = np.arange(rows)[:, None] * self.count
        totals = np.zeros(rows * self.count)
        totals += np.bincount((base + self.left).ravel(), (values * (1.0 - self.share)).ravel(), rows * self.count)
        totals += np.bincount((base + self.left + 1).ravel(), (values * self.share).ravel(), rows * self.count)
        return totals.reshape(rows, self.count)


class SizeProbabilities:
    """The expected pi of all regions: a combination of hats times the parent's pi, at the root times a given shape.

    One step of expectation maximisation (Dempster, Laird and Rubin 1977) brings the factors towards the regions' mean
    counts. Where a region has its parent's proportions nothing changes, however often the step is repeated: deviations
    from the parent are smooth, not the distribution itself. ``borrowed`` groups of the parent's distribution count as
    the region's.
    """

    def __init__(self, parent: Ints, shape: Floats, alone: Flags, options: PriorOptions) -> None:
        self.parent, self._options = parent, options
        self.hats = Hats.by_reach(alone, options.reach, options.single)
        self.shape = shape / max(shape.sum(), 1e-300) + options.floor
        self.shape /= self.shape.sum()
        self._factors = np.ones((parent.size, self.hats.count))
        level = np.zeros(parent.size, np.int64)
        for region in range(1, parent.size):
            level[region] = level[parent[region]] + 1
        self.level = level
        self._levels = [np.flatnonzero(level == depth) for depth in range(int(level.max()) + 1)]

    def learn(self, counts: Floats, steps: int = 1) -> Floats:
        """Return pi float64[regions, K + 1], rows of sum 1, after so many steps towards mean counts; O(regions K)."""
        borrowed, hats = self._options.borrowed, self.hats
        probabilities = np.empty_like(counts)
        for regions in self._levels:
            above = self.shape[None] if regions[0] == 0 else probabilities[self.parent[regions]]
            groups = counts[regions].sum(axis=1)[:, None]
            mass = hats.sums(above)
            for _ in range(steps):
                factors = self._factors[regions]
                expected = factors * hats.sums(counts[regions] / hats.values(factors))
                self._factors[regions] = np.divide(
                    expected + borrowed * mass, (groups + borrowed) * mass, out=np.ones_like(mass), where=mass > 0.0
                )
            probabilities[regions] = above * hats.values(self._factors[regions])
            probabilities[regions] /= probabilities[regions].sum(axis=1, keepdims=True)
        return probabilities


def smooth_distribution(counts: Floats, hats: Hats, alone: Flags) -> Floats:
    """Return probabilities float64[K + 1] of sum 1 with no more detail than hats: powers of the size between knots.

    At a knot it is the mean of the counts (K + 1,) under its hat; sizes ``alone`` keep their counts. Where there are no
    groups, half a group is assumed.
    """
    widths = hats.sums(np.where(alone, 0.0, 1.0)[None])[0]
    groups = hats.sums(np.where(alone, 0.0, counts)[None])[0]
    means = np.maximum(groups, 0.5) / np.maximum(widths, 1e-300)
    knots = np.flatnonzero((hats.share == 0.0) & ~alone)
    k = np.log1p(np.arange(counts.size))
    between = np.exp(np.interp(k, k[knots], np.log(means[hats.left[knots]]))) if knots.size else counts
    distribution: Floats = np.where(alone, np.maximum(counts, 0.5), between)
    distribution /= distribution.sum()
    return distribution


_ROUGHNESS, _STRENGTH = 0.3, 300.0  # of the base's increments, and in groups, at the start
_ABOVE = 3.0  # expected logarithm of how far a size alone stands above the base; the last size does not


def first_base(shape: Floats, hats: Hats) -> tuple[Knots, Base]:
    """Return a base's knots and the base nearest to a ``shape`` float64[K + 1] > 0, as the kernels read them.

    Hats without knots have the shape itself, which is not drawn.
    """
    from coco_opt.kernels import posterior_base

    last, size = shape.size - 1, hats.knots
    sizes, log_sizes, log_size = np.arange(shape.size), np.log1p(np.arange(shape.size)), np.log1p(size)
    lent = hats.left <= size.size
    alone = np.flatnonzero(~lent)
    expected = np.where(alone == last, 0.0, _ABOVE)
    scalars = np.array([0.0, 0.0, np.log(_ROUGHNESS), np.log(_STRENGTH)])
    interval, between = np.zeros(shape.size, np.int64), np.zeros(shape.size)
    level, excess, values = np.zeros(0), np.zeros(alone.size), shape.copy()
    if size.size:
        interval = np.clip(np.searchsorted(size, sizes, side="right") - 1, 0, size.size - 2)
        between = (log_sizes - log_size[interval]) / np.diff(log_size)[interval]
        level = np.interp(log_size, log_sizes[lent], np.log(shape[lent])) if lent.any() else np.zeros(size.size)
        smooth = np.interp(log_sizes, log_size, level)
        values = np.where(lent, np.exp(smooth), shape)
        level -= np.log(values.sum())
        values /= values.sum()
        excess = np.log(values[alone]) - np.interp(log_sizes[alone], log_size, level)
    knots = posterior_base.Knots(
        size, size.astype(np.float64), log_size, interval, between, lent, alone, size.size + 1, expected
    )
    work = np.zeros(size.size), np.zeros(size.size), np.zeros((size.size, 4)), np.zeros((size.size, 4)), np.zeros(4)
    root = np.zeros(hats.count)
    return knots, posterior_base.Base(level, excess, scalars, values, root, *work, np.zeros((size.size, 2)))
