"""How far off the posterior's estimate will be, by level, from public numbers and an assumed size distribution alone.

Problem: noisy sums of cumulative counts Hc over buckets are given at every level; predict the mean earth mover's
distance between the posterior's estimate of a region and the truth.

Model: a region's Hc is a Gaussian bridge. From 0 to the public number of groups G it grows by increments of variance
G p(s) where a group has size s with probability p(s), as Poisson counts of given sum do. Noisy sums over buckets are
linear in it, so that its posterior variance is exact.

Steps, level by level from the root:

1. A region's own posterior variance, from its own answers and those of its descendants, added up. Descendants of
   unequal size say more than equal buckets, because small buckets hold few groups: their number is reduced by the
   participation ratio (mean G)^2 / mean G^2 of their level.
2. What siblings have in common is known from their parent: a region with the share f of its parent's groups has the
   variance (1 - f) own + f^2 parent's.
3. A count's error is that of a normal number that is rounded. Where noise says little of small counts, it is their
   variance, since integers that are rarely off are off by one (``_mean_error``). Errors are summed over sizes and
   averaged over the regions of the level, by classes of like numbers of groups.
4. Corrections by factors (``_corrections``).

Cells are joined into grid cells of a few per cent of their size. Between them the bridge is exact; inside them it is a
free random walk, whose cosine modes are determined by the answers about finer buckets.

The posterior does not know the size distribution, and regions differ from it. Therefore a region's groups are taken to
vary ``_VARIATION`` times as much as independent groups of a known distribution do.

The corrections are for what the model leaves out. Let t be the part of their prior error that the leaves keep after
their own answers.

- The posterior learns the shape of regions from one another. Where the leaves' answers are precise, this lowers the
  errors of all levels more than the model says: they are multiplied by t ** ``_LEARNT``.
- Where they are weak, what the posterior assumes of leaves is wrong for many in the same direction, so that levels
  above that depend on the leaves' answers err more: by exp(``_SHARED`` t^1/2 d^2 h), where d is the part of the
  information about a level that comes from below, and h its height above the leaves, 1 at the root. Such errors add up
  over many leaves, so the root shows them even where t is a tenth.
- How a region's groups lie inside a bucket is not known, however precise the answers: errors are multiplied by
  exp(``_COARSE`` (1 - t) w), where w is the logarithmic width of the buckets that a level is known by.

``_VARIATION`` and the corrections' numbers were fitted to 314 plans of nine data sets at four budgets
(``beyond/auto``). Fitted to eight of the sets, the logarithm of released over predicted errors on the ninth has a
standard deviation of 0.33; without the corrections it has 0.49. ``_LEARNT`` and the second correction were then moved,
because choices at epsilon 0.1 gave the leaves too much, and because released plans whose root is measured by a tenth of
the budget were better than predicted.

``FitPredictor`` does so for the methods that fit noisy answers without a prior ("joint", "matching", "none"): for each
class of like regions of a level,

1. draw a histogram of the class's mean number of groups from the distribution, and Laplace noise of the variance;
2. fit the noisy sums over buckets as ``coco_opt.groups.estimating.estimators`` does: isotonic regression by absolute
   values within 0 .. G, rising evenly between the buckets' middles;
3. the distance to the histogram, averaged over the classes, is the level's error.

What regions gain from their parents and children is left out, because on sparse data they gain little: fits of small
regions are off in the same direction, and their sum is off by much. On Hawaii's blocks, queries chosen by these
predictions and not by the posterior's lower the error of matching by 40 to 55 %. On dense regions, which gain from one
another, matching errs by a third more (Manhattan's taxis, epsilon 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.groups.buckets import Buckets
from coco_opt.histograms.hierarchy import Hierarchy
from coco_opt.kernels.isotonic_l1 import fit_real

GRID_GROWTH = 0.03
_CLASSES = 6  # of regions of a level, by their number of groups
_MEAN_ABSOLUTE = (2.0 / np.pi) ** 0.5  # of a standard normal number
_VARIATION = 1.5
_LEARNT, _SHARED, _COARSE = 0.2, 0.8, 1.0
_ROUNDED = 1.0 / 12.0  # the variance of rounding
_OVERESTIMATE, _UNDERESTIMATE = 1.5, 2.2  # of released errors by predicted errors, as measured
_STEEPER = 3.0  # times less err data whose sizes fall off more steeply than any distribution that is weighed


def range_of(errors: Floats) -> tuple[Floats, Floats]:
    """Return the least and the largest error to expect by level of ``errors`` float64[distributions, levels]."""
    over = _OVERESTIMATE * (_STEEPER if len(errors) > 1 else 1.0)  # one alone is that of the data, by a look
    return np.asarray(errors.min(axis=0) / over), np.asarray(errors.max(axis=0) * _UNDERESTIMATE)


@dataclass(frozen=True, eq=False, slots=True)
class Regions:
    """The regions of each level, root first: their number, and classes of like regions.

    ``groups[level]`` float64[classes] are the mean numbers of groups of a class, ``parts[level]`` the classes' parts of
    the level's regions, ``concentration`` float64[levels] the participation ratios (mean G)^2 / mean G^2.
    """

    count: Floats
    groups: tuple[Floats, ...]
    parts: tuple[Floats, ...]
    concentration: Floats

    @classmethod
    def of(cls, tree: Hierarchy, group_counts: Ints) -> Regions:
        """Return the regions of a hierarchy with int64[regions] groups each."""
        groups, parts, concentration = [], [], []
        for level in range(tree.levels):
            regions = tree.level_range(level)
            counts = np.sort(np.asarray(group_counts[regions.start : regions.stop], np.float64))
            classes = [each for each in np.array_split(counts, min(_CLASSES, counts.size)) if each.size]
            groups.append(np.array([each.mean() for each in classes]))
            parts.append(np.array([each.size / counts.size for each in classes]))
            squares = float(np.square(counts).mean())
            concentration.append(float(counts.mean()) ** 2 / squares if squares else 1.0)
        return cls(np.diff(tree.level_start).astype(np.float64), tuple(groups), tuple(parts), np.array(concentration))


class Predictor:
    """Predicts errors under one size distribution: ``probabilities`` float64[K + 1] of sum 1, K = max_size."""

    def __init__(self, regions: Regions, probabilities: Floats, growth: float = GRID_GROWTH) -> None:
        self._regions = regions
        self._grid = _Grid(Buckets.by_growth(probabilities.size - 1, growth), probabilities)

    def errors(self, buckets: Sequence[Buckets], variances: Floats) -> Floats:
        """Return the predicted mean distance (entities) of a region at each level, float64[levels], root first.

        ``buckets`` are what each level measures, single cells too, with noise of ``variances`` float64[levels]
        (infinite where nothing is measured). O(levels x grid cells^3).
        """
        regions, grid = self._regions, self._grid
        answers = [grid.information_of(each) for each in buckets]
        parent, errors, below, width = np.zeros(0), [], [], []
        for level in range(regions.count.size):
            precisions = [self._precision(level, lower, variances[lower]) for lower in range(level, len(buckets))]
            groups, parts = regions.groups[level], regions.parts[level]
            own = alone = grid.posterior(_VARIATION * groups, answers[level:], precisions)
            if level:
                siblings = regions.count[level] / regions.count[level - 1]
                share = np.minimum(groups / max(float(groups @ parts) * siblings, 1e-12), 1.0)[:, None]
                own = own * (1.0 - share) + parent * share**2
            parent = parts @ own
            prior = np.outer(_VARIATION * groups, grid.prior)
            errors.append(float(parts @ _mean_error(own, prior) @ grid.width))
            amounts = np.array([each.amount * part for each, part in zip(answers[level:], precisions, strict=True)])
            amounts /= max(amounts.sum(), 1e-300)
            below.append(float(amounts[1:].sum()))
            width.append(float(amounts @ [each.log_width for each in answers[level:]]))
        left = float(parts @ _mean_error(alone, alone) @ grid.width / (parts @ _mean_error(prior, prior) @ grid.width))
        return np.array(errors) * _corrections(left, np.array(below), np.array(width))

    def _precision(self, level: int, below: int, variance: float) -> float:
        """Return the precision of what a region's descendants at a level say of it together."""
        count, concentration = self._regions.count, self._regions.concentration
        descendants = count[below] / count[level] * concentration[below] / concentration[level]
        return float(1.0 / (max(descendants, 1.0) * variance))


def _mean_error(variance: Floats, prior: Floats) -> Floats:
    """Return the mean absolute error of counts by their variance, given the answers and without them.

    ``_ROUNDED`` makes that of a rounded normal number, within a third from variances of 0.05 on.
    """
    variance = np.maximum(variance, 1e-12)
    normal = _MEAN_ABSOLUTE * np.sqrt(variance)
    hidden = variance * np.minimum(variance / np.maximum(prior, 1e-12), 1.0)
    rounded = normal * np.exp(-_ROUNDED / variance)
    return np.asarray(np.minimum(np.maximum(rounded, hidden), np.minimum(normal, variance)))


def _corrections(left: float, below: Floats, width: Floats) -> Floats:
    """Return the factors of the levels' errors, where ``left`` of the leaves' prior error is left by their answers.

    ``below`` is the part of the information about a level that comes from below, ``width`` the logarithmic width of the
    buckets that it is known by, both float64[levels].
    """
    height = np.arange(below.size)[::-1] / max(below.size - 1, 1)
    return np.asarray(left**_LEARNT * np.exp(_SHARED * left**0.5 * below**2 * height + _COARSE * (1.0 - left) * width))


@dataclass(frozen=True, eq=False, slots=True)
class _Answers:
    """What sums over buckets with unit noise say of a grid: information float64[cells, cells], and widths there.

    ``amount`` is the information in units of the bridge of one group, summed over the grid, ``log_width`` the mean
    logarithm of the ends of a bucket over its beginning.
    """

    information: Floats
    widths: Floats
    amount: float
    log_width: float


class _Grid:
    """Ranges of sizes, and the distribution of the bridge on them."""

    def __init__(self, cells: Buckets, probabilities: Floats) -> None:
        self.cells, self.width = cells, (cells.end - cells.begin).astype(np.float64)
        below = np.concatenate([[0.0], np.cumsum(probabilities)])
        slope = (below[cells.end] - below[cells.begin]) / self.width
        reached = np.interp(0.5 * (cells.begin + cells.end - 1), np.arange(probabilities.size), below[1:])
        values, vectors = np.linalg.eigh(np.minimum.outer(reached, reached) - np.outer(reached, reached))
        self._root: Floats = vectors * np.sqrt(values.clip(0.0))
        self._bridge: Floats = self._root @ self._root.T
        # Mode k = 1 .. n - 1 of a free walk over n cells has the variance step / (2 - 2 cos(pi k / n)).
        modes = [np.arange(1.0, width) for width in self.width]
        self._cell = np.repeat(np.arange(self.width.size), [each.size for each in modes])
        self._mode = np.concatenate(modes)
        self._walk = slope[self._cell] / (2.0 - 2.0 * np.cos(np.pi * self._mode / self.width[self._cell]))
        within = np.bincount(self._cell, self._walk, minlength=self.width.size) / self.width
        self.prior: Floats = np.diag(self._bridge) + within
        self.information_of = cache(self._information_of)

    def _information_of(self, buckets: Buckets) -> _Answers:
        """Return what sums over buckets say of the grid's means; O(buckets + cells^2)."""
        begin, end, size = buckets.begin, buckets.end, self.width.size
        first = np.searchsorted(self.cells.end, begin, side="right")
        last = np.searchsorted(self.cells.end, end - 1, side="right")
        information = np.zeros((size, size))
        inside = first == last
        np.add.at(information, (first[inside], first[inside]), np.square(end - begin)[inside].astype(np.float64))
        for bucket in np.flatnonzero(~inside):
            at = slice(int(first[bucket]), int(last[bucket]) + 1)
            shared = np.minimum(self.cells.end[at], end[bucket]) - np.maximum(self.cells.begin[at], begin[bucket])
            information[at, at] += np.outer(shared, shared)
        place = np.searchsorted(end, self.cells.begin, side="right").clip(max=buckets.count - 1)
        amount = float(np.vdot(information, self._bridge))
        log_width = math.log(float(end[-1])) / buckets.count
        return _Answers(information, (end - begin)[place].astype(np.float64), amount, log_width)

    def posterior(self, groups: Floats, answers: Sequence[_Answers], precisions: Sequence[float]) -> Floats:
        """Return the variance of a cell's count in each grid cell, on average, float64[classes, grid cells].

        With the bridge's covariance G R R' and the information J = sum of precisions x answers, the posterior
        covariance is R U diag(G / (1 + G l)) U' R' where R' J R = U diag(l) U': one decomposition serves all classes.
        """
        information = np.sum([each.information * part for each, part in zip(answers, precisions, strict=True)], axis=0)
        values, vectors = np.linalg.eigh(self._root.T @ information @ self._root)
        squares = np.square(self._root @ vectors)
        weights = groups[:, None] / (1.0 + groups[:, None] * values.clip(0.0))
        return np.asarray(weights @ squares.T + self._inside(groups, answers, precisions))

    def _inside(self, groups: Floats, answers: Sequence[_Answers], precisions: Sequence[float]) -> Floats:
        """Return the mean variance within each grid cell of a free walk about its mean, float64[classes, grid cells].

        Sums over buckets of b cells determine the modes k < n / b of n cells, with b times a single cell's precision.
        """
        information = np.zeros(self._mode.size)
        for each, part in zip(answers, precisions, strict=True):
            widths = each.widths[self._cell]
            information += np.where(self._mode < self.width[self._cell] / widths, part * widths, 0.0)
        rows = []
        for count in groups:
            walk = count * self._walk
            sums = np.bincount(self._cell, walk / (1.0 + walk * information), minlength=self.width.size)
            rows.append(sums / self.width)
        return np.array(rows)


MOST_SIZES = 5_000
"""Of a distribution whose fits are drawn in seconds."""

_FIT_CLASSES = 3  # of regions of a level, of those of ``Regions``
_DRAWS = 2  # of a class's histogram and noise
_SEED = 20_181_220  # the same numbers give the same choice


class FitPredictor:
    """Predicts errors under one size distribution: ``probabilities`` float64[K + 1] of sum 1, K = max_size."""

    def __init__(self, regions: Regions, probabilities: Floats) -> None:
        self._regions, self._probabilities = regions, probabilities
        self._level = cache(self._level_error)

    def errors(self, buckets: Sequence[Buckets], variances: Floats) -> Floats:
        """Return the predicted mean distance (entities) of a region at each level, float64[levels], root first.

        ``buckets`` are what each level measures, single cells too, with noise of ``variances`` float64[levels]
        (infinite where nothing is measured: then the leaves alone are added up). O(levels x K) where new.
        """
        own = [self._level(level, *each) for level, each in enumerate(zip(buckets, variances.tolist(), strict=True))]
        below = self._regions.count[-1] / self._regions.count
        return np.where(np.isinf(own), own[-1] * np.sqrt(below), own)

    def _level_error(self, level: int, buckets: Buckets, variance: float) -> float:
        if not np.isfinite(variance):
            return np.inf
        groups, parts = self._regions.groups[level], self._regions.parts[level]
        rng, few = np.random.default_rng(_SEED), np.array_split(np.arange(groups.size), min(_FIT_CLASSES, groups.size))
        sums = np.array([parts[each].sum() for each in few])
        means = np.array([groups[each] @ parts[each] for each in few]) / sums
        return float(sums @ np.array([self._distance(round(each), buckets, variance, rng) for each in means.tolist()]))

    def _distance(self, groups: int, buckets: Buckets, variance: float, rng: np.random.Generator) -> float:
        """Return the mean distance of fits of regions drawn with so many groups."""
        max_size = self._probabilities.size - 1
        width = (buckets.end - buckets.begin).astype(np.float64)
        middle, cells = 0.5 * (buckets.begin + buckets.end - 1), np.arange(max_size)
        total = 0.0
        for counts in rng.multinomial(groups, self._probabilities, size=_DRAWS):
            cumulative = np.cumsum(counts)[:max_size]
            noise = np.rint(rng.laplace(scale=(0.5 * variance) ** 0.5, size=width.size))
            fitted = fit_real((buckets.sums(cumulative) + noise) / width, width, 0.0, float(groups))
            total += float(np.abs(np.rint(np.interp(cells, middle, fitted)) - cumulative).sum())
        return total / _DRAWS
